"""Studies in a real database, read back as records, and exported so that others read them equal."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import sweep
from sweep.core.errors import InputError
from sweep.core.outcomes import STATES
from sweep.core.paths import Runs
from sweep.core.study import Objective, Resources
from sweep.core.trial import trial_seed
from sweep.results import exports, frames, ranking
from sweep.results.columns import long_columns
from sweep.storage import access, records, series
from sweep.storage.ledger import Ledger
from tests.postgres_fixture import database_url, postgres_server, shared_database  # noqa: F401
from tests.study_rows import HOSTILE_SPACE, NOON, Row, Tried, fill, make_study

TINY = 5e-324
THIRD = 1 / 3
QUOTES = HOSTILE_SPACE.get("tag").choices[3]
PARAMS: list[dict[str, Any]] = [
    {
        "lr": 0.1 + 0.2,
        "layers": 3,
        "optimizer": "sgd",
        "momentum": 0.9,
        "model.hidden": [512, 256],
        "clip": None,
        "amp": True,
        "size": 32,
        "tag": "",
    },
    {
        "lr": 1e-5,
        "layers": 9,
        "optimizer": "adamw",
        "model.hidden": [],
        "clip": 0.5,
        "amp": False,
        "size": 64,
        "tag": "null",
    },
    {
        "lr": THIRD,
        "layers": 1,
        "optimizer": "adamw",
        "model.hidden": [1024, 512],
        "clip": "auto",
        "amp": True,
        "size": 64,
        "tag": QUOTES,
    },
    {
        "lr": 2e-5,
        "layers": 2,
        "optimizer": "adamw",
        "model.hidden": [1024, 512],
        "clip": True,
        "amp": True,
        "size": 64,
        "tag": "1",
    },
]


def read(ledger: Ledger, **options: Any) -> list[Any]:
    return records.read_trials(ledger.db, ledger.study_id, ledger.study, **options)


@pytest.fixture
def hostile(database_url: str) -> Ledger:  # noqa: F811
    """A finished study with hard values: three complete trials and a pruned one."""
    rows = [
        Row(values=[value], params=params)
        for value, params in zip((THIRD, -1e-300, TINY), PARAMS[:3], strict=True)
    ]
    pruned = Row("PRUNED", [0.25], PARAMS[3], end={"state": "pruned", "reason": "pruned"})
    study = make_study(resources=Resources(gpus="a100:2"))
    return fill(database_url, study, [*rows, pruned])


STATE_CASES: list[tuple[Row, str, str]] = [
    (Row("WAITING", attempts=()), "waiting", ""),
    (Row("RUNNING", attempts=(Tried(None),)), "running", ""),
    (Row("RUNNING", attempts=()), "running", ""),  # a notebook's ask()
    (Row("COMPLETE", [0.5]), "complete", ""),
    (
        Row("PRUNED", [0.25], end={"state": "pruned", "outcome": "finished", "reason": "pruned"}),
        "pruned",
        "pruned",
    ),
    (
        Row("FAIL", end={"state": "failed", "outcome": "diverged", "reason": "not finite"}),
        "failed",
        "not finite",
    ),
    (
        Row("FAIL", attempts=(), end={"state": "cancelled", "outcome": "cancelled", "reason": ""}),
        "cancelled",
        "cancelled",
    ),
    (Row("FAIL", attempts=()), "failed", ""),  # a notebook's tell(state=FAIL)
    (
        Row("RUNNING", attempts=(Tried("error", "exit code 1: boom"),)),
        "failed",
        "exit code 1: boom",
    ),  # before the study is proven
    (Row("RUNNING", attempts=(Tried("no metric"),)), "failed", "no metric"),
    (Row("RUNNING", attempts=(Tried("not started"),)), "failed", "not started"),
    (Row("RUNNING", attempts=(Tried("interrupted", "preempted"),)), "waiting", "preempted"),
    (Row("RUNNING", attempts=(Tried("paused"),)), "waiting", "paused"),
    (
        Row("RUNNING", attempts=(Tried("given back", "exit code 1: boom"),)),
        "waiting",
        "exit code 1: boom",
    ),
    (Row("RUNNING", attempts=(Tried("lost"), Tried(None))), "running", ""),
    (Row("RUNNING", attempts=(Tried("error"), Tried("timeout", "limit"))), "waiting", "limit"),
]


def test_each_state_is_shown_and_counted(database_url):  # noqa: F811
    """What users see follows the trial's state, its note and its last attempt; SQL agrees."""
    ledger = fill(database_url, make_study(), [row for row, _, _ in STATE_CASES])
    found = read(ledger)
    assert [(r.state, r.reason) for r in found] == [(s, reason) for _, s, reason in STATE_CASES]
    counts = {state: [s for _, s, _ in STATE_CASES].count(state) for state in STATES}
    assert records.count_states(ledger.db, ledger.study_id) == counts
    assert records.count(found) == counts


def test_a_record_holds_the_whole_trial(database_url):  # noqa: F811
    """Values, converted parameters in declared order, seed, times and attempts."""
    tries = (Tried("interrupted", took_s=30.0, checkpoint="/c"), Tried(took_s=12.5))
    row = Row(values=[0.5], params=dict(reversed(PARAMS[0].items())), attempts=tries)
    ledger = fill(database_url, make_study(seed=3), [Row("WAITING", attempts=()), row])
    waiting, trial = read(ledger)
    assert (trial.number, trial.state, trial.values) == (1, "complete", (0.5,))
    assert list(trial.params.items()) == list(PARAMS[0].items())
    assert trial.seed == trial_seed(3, 1)
    assert (trial.started, (trial.ended - NOON).total_seconds()) == (NOON, 42.5)
    assert trial.duration_s == 42.5
    attempts = [(a.trial, a.number, a.outcome, a.checkpoint) for a in trial.attempts]
    assert attempts == [(1, 1, "interrupted", "/c"), (1, 2, "finished", None)]
    assert (waiting.duration_s, waiting.started, waiting.params) == (None, None, {})


def test_infinite_values_survive(database_url):  # noqa: F811
    """A notebook may tell infinity; it is read as that, and never ranked."""
    ledger = fill(database_url, make_study(), [Row(values=[float("inf")]), Row(values=[-1.0])])
    found = read(ledger)
    assert [record.values for record in found] == [(float("inf"),), (-1.0,)]
    assert ranking.ranks(found, ledger.study) == {0: None, 1: 1}


def test_lineage_cuts_what_a_later_attempt_reports_again(database_url):  # noqa: F811
    """A metric's series is what ``Ledger.lineage`` gives, for every trial and name at once."""
    first = [(step, "acc", 0.1 * step) for step in range(1, 6)] + [(5, "loss", 9.0)]
    second = [(3, "acc", 0.33), (3, "loss", float("nan")), (4, "acc", 0.44)]
    third = [(4, "acc", 0.4), (7, "loss", float("inf"))]
    rows = [
        Row(
            values=[0.5],
            attempts=(
                Tried("lost", reports=first),
                Tried("lost", reports=second),
                Tried("lost"),
                Tried(reports=third),
            ),
        ),
        Row(values=[0.5], attempts=(Tried(reports=first),)),
        Row(values=[0.5]),
    ]
    ledger = fill(database_url, make_study(), rows)
    found = read(ledger, metrics=True)
    assert found[0].metrics["acc"] == [(1, 0.1), (2, 0.2), (3, 0.33), (4, 0.4)]
    assert str(found[0].metrics["loss"]) == "[(3, nan), (7, inf)]"
    assert found[2].metrics == {}
    for record in found:
        for name in ("acc", "loss"):
            series = list(record.metrics.get(name, []))
            assert str(series) == str(ledger.lineage(record.trial_id, name))


def test_trials_are_chosen_by_number(hostile):
    """Only the trials asked for are read, and nothing of another study."""
    other = fill(hostile.db.url, make_study(name="other"), [Row(values=[9.0])])
    assert [(r.number, r.values) for r in read(hostile, numbers=[2, 0, 77])] == [
        (0, (THIRD,)),
        (2, (TINY,)),
    ]
    assert [record.values for record in read(other)] == [(9.0,)]
    assert read(hostile, numbers=[]) == []


def test_statements_do_not_grow_with_trials(database_url, monkeypatch):  # noqa: F811
    """Two trials and 60 take the same number of statements."""
    counts = []
    for size in (2, 60):
        study = make_study(name=f"s{size}")
        ledger = fill(database_url, study, [Row(values=[0.5], params=PARAMS[0])] * size)
        asked: list[str] = []
        execute = ledger.db.execute

        def spy(sql: str, params: Any = None, run: Callable = execute, log: list = asked) -> Any:
            log.append(sql)
            return run(sql, params)

        monkeypatch.setattr(ledger.db, "execute", spy)
        assert len(read(ledger, metrics=True)) == size
        records.count_states(ledger.db, ledger.study_id)
        counts.append(len(asked))
    assert counts == [7, 7]


# Exports


def expected_rows(ledger: Ledger) -> list[dict[str, Any]]:
    return ranking.rows(read(ledger), ledger.study, states=STATES)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the wide form: one key for each parameter that it has."""
    inner = {f"params.{name}": value for name, value in row["params"].items()}
    return {key: value for key, value in row.items() if key != "params"} | inner


def test_json_reads_back_equal(hostile):
    """JSON is the rows."""
    rows = expected_rows(hostile)
    assert json.loads(exports.export(rows, "json", hostile.study)) == rows
    assert [(row["rank"], row["trial"]) for row in rows] == [(1, 0), (2, 2), (3, 1), (None, 3)]


# How a reader turns the cells of a CSV, Markdown or LaTeX column back into values. What the choices
# do not tell apart as text is JSON.
FLOATS = ("value", "duration_s", "gpu_hours", "lr", "momentum")
INTS = ("rank", "trial", "seed", "attempts", "layers", "size")
JSON_TEXT = ("model.hidden", "clip")


def parsed(name: str, text: str, json_columns: tuple[str, ...]) -> Any:
    name = name.removeprefix("params.")
    if name in json_columns or name == "amp":
        return json.loads(text)
    if name in FLOATS:
        return float(text)
    return int(text) if name in INTS else text


def test_csv_reads_back_equal(hostile):
    """Every number to the last bit; lists, null, and strings that look like something else."""
    rows = expected_rows(hostile)
    text = exports.export(rows, "csv", hostile.study)
    found = [
        {name: parsed(name, cell, (*JSON_TEXT, "tag")) for name, cell in line.items() if cell}
        for line in csv.DictReader(io.StringIO(text, newline=""))
    ]
    assert found == [without_gaps(flat(row)) for row in rows]


def without_gaps(row: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what has no cell: no rank, no reason; but not a parameter that is null."""
    return {
        key: value
        for key, value in row.items()
        if key.startswith("params.") or value not in (None, "")
    }


def test_csv_reads_back_equal_in_pandas(hostile):
    """pandas guesses the types right, with the options that the exports' docstring names."""
    pandas = pytest.importorskip("pandas")
    rows = expected_rows(hostile)
    text = exports.export(rows, "csv", hostile.study)
    exact = {} if int(pandas.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
    found = pandas.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""], **exact)
    assert list(found["value"]) == [row["value"] for row in rows]
    for name in ("lr", "layers", "optimizer", "amp", "size"):
        assert list(found[f"params.{name}"]) == [row["params"][name] for row in rows]
    for name in (*JSON_TEXT, "tag"):
        read_back = [json.loads(cell) for cell in found[f"params.{name}"]]
        assert read_back == [row["params"][name] for row in rows]
    momentum = found["params.momentum"]
    assert (momentum[0], list(momentum.isna())) == (0.9, [False, True, True, True])


def test_parquet_reads_back_equal(hostile):
    """Typed columns; JSON text only where choices are lists or of mixed kinds."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = expected_rows(hostile)
    table = parquet.read_table(io.BytesIO(exports.export(rows, "parquet", hostile.study)))
    wanted = {
        "rank": "int64",
        "value": "double",
        "started": "timestamp[us, tz=UTC]",
        "params.layers": "int64",
        "params.amp": "bool",
        "params.tag": "string",
        "params.clip": "string",
    }
    assert {name: str(table.schema.field(name).type) for name in wanted} == wanted
    found = []
    for line in table.to_pylist():
        for name in JSON_TEXT:
            line[f"params.{name}"] = json.loads(line[f"params.{name}"])
        line |= {name: line[name].isoformat() for name in ("started", "ended")}
        found.append(without_gaps({k: v for k, v in line.items() if v is not None or "clip" in k}))
    assert found == [without_gaps(flat(row)) for row in rows]
    assert pyarrow.types.is_float64(table.schema.field("params.momentum").type)


def read_markdown(text: str) -> list[list[str]]:
    cell = re.compile(r"\| ((?:\\.|[^|\\])*?) (?=\|)")
    lines = [cell.findall(line) for line in text.splitlines()]
    del lines[1]
    return [
        [re.sub(r"\\(.)", r"\1", cell.replace("<br>", "\n")) for cell in line] for line in lines
    ]


def read_latex(text: str) -> list[list[str]]:
    words = {
        r"\textbackslash{}": "\\",
        r"\textasciitilde{}": "~",
        r"\textasciicircum{}": "^",
        r"\textless{}": "<",
        r"\textgreater{}": ">",
        r"\textbar{}": "|",
        r"\textquotedbl{}": '"',
        r"\newline{}": "\n",
        "{[}": "[",
        "{]}": "]",
    }
    pattern = "|".join(map(re.escape, words)) + r"|\\[&%$#_{}]"
    return [
        [
            re.sub(pattern, lambda m: words.get(m[0], m[0][1:]), cell)
            for cell in re.split(r"(?<!\\) ?& ?", line.removesuffix(r" \\"))
        ]
        for line in text.splitlines()
        if line.endswith(r"\\")
    ]


@pytest.mark.parametrize(("format", "reader"), [("markdown", read_markdown), ("latex", read_latex)])
def test_tables_for_papers_read_back_equal(hostile, format, reader):
    """Markdown and LaTeX keep all digits and every special character."""
    rows = expected_rows(hostile)
    headings, *lines = reader(exports.export(rows, format, hostile.study))
    found = [
        {
            name: parsed(name, cell, JSON_TEXT)
            for name, cell in zip(headings, line, strict=True)
            if cell or name == "tag"
        }
        for line in lines
    ]
    wanted = []
    for row in rows:
        kept = {k: v for k, v in row.items() if k not in ("params", "started", "ended")}
        wanted.append(without_gaps(kept) | row["params"])
    assert found == wanted


def test_latex_is_one_booktabs_table(hostile):
    """The frame around the rows is what booktabs documents, one line a trial."""
    rows = ranking.rows(read(hostile), hostile.study, top=1)
    lines = exports.export(rows, "latex", hostile.study, digits=3).splitlines()
    assert lines == [
        r"% \usepackage[T1]{fontenc} \usepackage{booktabs}",
        r"\begin{tabular}{rrlrrrlrlllrlrrrr}",
        r"\toprule",
        r"rank & trial & state & value & lr & layers & optimizer & momentum & model.hidden & clip "
        r"& amp & size & tag & seed & attempts & duration\_s & gpu\_hours \\",
        r"\midrule",
        r"1 & 0 & complete & 0.333 & 0.3 & 3 & sgd & 0.9 & {[}512, 256{]} & null & true & 32 &  "
        rf"& {trial_seed(0, 0)} & 1 & 60 & 0.0333 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_frame_reads_equal(hostile):
    """The data frame holds Python values, with a gap for a parameter that a trial has not."""
    pandas = pytest.importorskip("pandas")
    rows = expected_rows(hostile)
    found = frames.frame(rows, hostile.study)
    assert found["params.clip"].tolist() == [None, "auto", 0.5, True]
    assert found["params.model.hidden"].tolist() == [[512, 256], [1024, 512], [], [1024, 512]]
    assert found["value"].tolist() == [THIRD, TINY, -1e-300, 0.25]
    assert found["rank"].tolist() == [1, 2, 3, pandas.NA]
    kinds = {name: str(found[name].dtype) for name in ("rank", "value", "params.amp")}
    assert kinds == {"rank": "Int64", "value": "float64", "params.amp": "boolean"}
    assert found["started"][0] == pandas.Timestamp(NOON)


def test_several_objectives_and_metrics_have_columns(database_url):  # noqa: F811
    """Each objective and each metric has a column of its own."""
    study = make_study(objectives=(Objective("acc", "maximize"), Objective("ms", "minimize")))
    reports = [(0, "acc", 0.5), (1, "acc", 0.75)]
    row = Row(values=[0.75, 3.0], attempts=(Tried(reports=reports),))
    ledger = fill(database_url, study, [row])
    rows = ranking.rows(read(ledger, metrics=True), study)
    assert (rows[0]["values"], rows[0]["metrics"]) == ({"acc": 0.75, "ms": 3.0}, {"acc": 0.75})
    line = next(csv.DictReader(io.StringIO(exports.export(rows, "csv", study))))
    shown = {name: line[name] for name in ("values.acc", "values.ms", "metrics.acc")}
    assert shown == {"values.acc": "0.75", "values.ms": "3.0", "metrics.acc": "0.75"}
    assert "value" not in line
    heading = read_markdown(exports.export(rows, "markdown", study))[0]
    assert heading[3:5] == ["values.acc", "ms"]


def test_an_empty_study_exports_headings(database_url):  # noqa: F811
    """Nothing to show is an empty list, a heading, a table without rows; never an error."""
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    ledger = fill(database_url, make_study(), [Row("WAITING", attempts=())])
    rows = ranking.rows(read(ledger), ledger.study)
    study = ledger.study
    assert rows == []
    assert exports.export(rows, "json", study) == "[]\n"
    lengths = {
        f: len(exports.export(rows, f, study).splitlines())
        for f in ("csv", "table", "markdown", "latex")
    }
    assert lengths == {"csv": 1, "table": 1, "markdown": 2, "latex": 7}
    table = parquet.read_table(io.BytesIO(exports.export(rows, "parquet", study)))
    assert (table.num_rows, "params.lr" in table.column_names) == (0, True)


def test_long_form_reads_back_equal(database_url, tmp_path, monkeypatch):  # noqa: F811
    """Each reported value of the lineage is a row: of the frame, of CSV and of Parquet."""
    pytest.importorskip("pyarrow")
    import pandas

    first = Tried("lost", reports=[(0, "acc", 0.1), (1, "acc", THIRD), (2, "acc", 0.3)])
    second = Tried(reports=[(2, "acc", TINY), (2, "null", -1e300), (3, "acc", 0.25)])
    study = make_study(executor="local", resources=Resources(gpus=1))
    ledger = fill(database_url, study, [Row(values=[0.5], attempts=(first, second)), Row("FAIL")])
    runs = Runs(tmp_path)
    folder = runs.study(study.name)
    folder.root.mkdir()
    folder.study.write_text(study.to_json())
    access.remember(folder, database_url, runs)
    with sweep.load("digits", tmp_path) as opened:
        long, wide, some = opened.metrics(), opened.trials(), opened.metrics("null", trials=[0])
        with pytest.raises(InputError, match="No trial has reported ac"):
            opened.metrics("ac")
    expected = [
        (0, 1, 0, "acc", 0.1),
        (0, 1, 1, "acc", THIRD),
        (0, 2, 2, "acc", TINY),
        (0, 2, 3, "acc", 0.25),
        (0, 2, 2, "null", -1e300),
    ]
    named = ["trial", "attempt", "step", "metric", "value"]
    assert list(long[named].itertuples(index=False, name=None)) == expected
    assert list(some[named].itertuples(index=False, name=None)) == expected[-1:]
    shown = ["metrics.acc", "metrics.acc:min", "metrics.acc:max", "gpu_hours", "attempts"]
    assert wide.loc[wide.trial == 0, shown].values.tolist() == [[0.25, TINY, THIRD, 120 / 3600, 2]]
    assert wide["state"].tolist() == ["complete", "failed"]
    rows = series.as_rows(series.read_series(ledger.db, ledger.study_id))
    csv_text = exports.export(rows, "csv", study, shape=long_columns)
    lines = list(csv.DictReader(io.StringIO(csv_text)))
    assert [
        (int(line["step"]), json.loads(line["metric"]), float(line["value"])) for line in lines
    ] == [(s, m, v) for _, _, s, m, v in expected]
    parquet = exports.export(rows, "parquet", study, shape=long_columns)
    again = pandas.read_parquet(io.BytesIO(parquet))
    assert list(again[named].itertuples(index=False, name=None)) == expected


def test_metrics_are_chosen_by_name_and_kind(database_url):  # noqa: F811
    """``loss:min`` and ``acc:best`` give those columns; best needs a direction."""
    reports = [(0, "acc", 0.5), (0, "loss", 2.0), (1, "acc", 0.25), (1, "loss", math.nan)]
    row = Row(values=[0.5], attempts=(Tried(reports=reports),))
    ledger = fill(database_url, make_study(), [row])
    wanted = [ranking.parse_wanted(text, ledger.study) for text in ("loss:min", "acc:best", "acc")]
    (row,) = ranking.rows(read(ledger, metrics=True), ledger.study, wanted=wanted)
    assert row["metrics"] == {"loss:min": 2.0, "acc:max": 0.5, "acc": 0.25}
    with pytest.raises(InputError, match="loss is no objective"):
        ranking.parse_wanted("loss:best", ledger.study)
    with pytest.raises(InputError, match="No trial has reported los"):
        ranking.rows(read(ledger, metrics=True), ledger.study, wanted=[ranking.Wanted("los")])
