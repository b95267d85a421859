"""Ranking, rows and exports, without a database."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from sweep.core.cells import is_ambiguous, kind_of
from sweep.core.errors import InputError
from sweep.core.pareto import fronts
from sweep.core.paths import StudyFolder
from sweep.core.space import Parameter, Space
from sweep.core.study import Constraint, Objective, Replicates
from sweep.core.trial import Attempt, Replicate, TrialRecord
from sweep.results import exports, ranking
from tests.study_rows import NOON, make_study

SPACE = Space((Parameter("lr", "float", low=0.0, high=1.0),))


def record(number: int, state: str = "complete", *values: float, **more: object) -> TrialRecord:
    given = {"trial_id": number + 100, "number": number, "state": state, "values": values}
    return TrialRecord(**(given | more))


def numbers(records: list[TrialRecord]) -> list[int]:
    return [found.number for found in records]


@pytest.mark.parametrize(
    ("direction", "expected"), [("maximize", [2, 0, 1, 4, 3]), ("minimize", [4, 0, 1, 2, 3])]
)
def test_rank_follows_the_direction_and_breaks_ties_by_number(direction, expected):
    """The best comes first; equal values by number; a value that is not finite comes last."""
    study = make_study(objectives=(Objective("acc", direction),))
    records = [
        record(1, "complete", 0.5),
        record(0, "complete", 0.5),
        record(2, "complete", 0.9),
        record(3, "complete", float("inf")),
        record(4, "complete", -1.0),
    ]
    assert numbers(ranking.rank(records, study)) == expected
    assert ranking.ranks(records, study)[3] is None


def test_metrics_of_several_trainings():
    """What the constraints judge is a mean; of other metrics it is said whose they are."""
    study = make_study(constraints=(Constraint("ms", max=5.0),), replicates=Replicates(2, 2))
    done = [Replicate(k, k, k, (0.5,), (ms,)) for k, ms in ((1, 2.0), (2, 4.0))]
    curves = {"ms": [(0, 4.0)], "loss": [(0, 7.0)]}
    trial = record(0, "complete", 0.5, replicates=done, metrics=curves)
    (row,) = ranking.rows([trial], study)
    assert row["metrics"] == {"ms": 3.0, "loss": 7.0}
    ms, loss, least = (ranking.Wanted(*each) for each in (("ms",), ("loss",), ("ms", "min")))
    (row,) = ranking.rows([trial], study, wanted=[loss, least])
    assert row["metrics"] == {"loss": 7.0, "ms:min": 4.0}
    by = Objective("loss")
    said = ranking.of_one_training(study, [ms], None, ["trial", "value"])
    assert said == ""
    said = ranking.of_one_training(study, [ms, least], by, ["metrics.lr", "metrics.ms"])
    assert said == (
        "ms:min, lr, loss are of each trial's last training alone; acc is the mean of all."
    )
    alone = make_study(constraints=study.constraints)
    assert ranking.of_one_training(alone, [loss], by, []) == ""


def test_rank_puts_other_states_after_complete_ones():
    """Pruned, failed, cancelled, running, waiting come in this order, and have no rank."""
    states = ["waiting", "running", "cancelled", "failed", "pruned", "complete"]
    records = [record(n, s, *([0.5] if n > 3 else [])) for n, s in enumerate(states)]
    study = make_study()
    assert numbers(ranking.rank(records, study)) == [5, 4, 3, 2, 1, 0]
    assert ranking.ranks(records, study) == {5: 1, 4: None, 3: None, 2: None, 1: None, 0: None}


def test_rank_by_another_metric():
    """A metric may be ranked by instead of the objective; an unknown one is refused by name."""
    records = [
        record(0, "complete", 0.9, metrics={"loss": [(0, 3.0), (1, 2.0)]}),
        record(1, "complete", 0.1, metrics={"loss": [(0, 0.5), (1, 1.0)]}),
    ]
    study = make_study()
    by = Objective("loss", "minimize", at="last")
    assert numbers(ranking.rank(records, study, by)) == [1, 0]
    assert [row["rank"] for row in ranking.rows(records, study, by=by)] == [1, 2]
    with pytest.raises(InputError) as raised:
        ranking.rank(records, study, Objective("los"))
    assert str(raised.value) == (
        "No trial has reported los. Did you mean loss?\nReported so far: loss."
    )


@pytest.mark.parametrize(
    ("points", "directions", "expected"),
    [
        ([], ["minimize", "minimize"], []),
        ([(1, 1)], ["minimize", "minimize"], [1]),
        ([(1, 3), (2, 2), (3, 1), (3, 3), (4, 4)], ["minimize"] * 2, [1, 1, 1, 2, 3]),
        ([(1, 3), (2, 2), (3, 1), (3, 3), (4, 4)], ["maximize"] * 2, [3, 3, 3, 2, 1]),
        ([(1, 1), (1, 1), (1, 2)], ["minimize", "maximize"], [2, 2, 1]),
        ([(1, 2, 3), (1, 2, 4), (3, 2, 1), (3, 3, 3)], ["minimize"] * 3, [1, 2, 1, 2]),
    ],
)
def test_fronts(points, directions, expected):
    """A point's front is one more than the last front that holds a point dominating it."""
    assert fronts(points, directions) == expected


@pytest.mark.parametrize("width", [2, 3])
def test_fronts_agree_with_the_definition(width):
    """On 200 pseudo-random points the fast sort gives what peeling off front by front gives."""
    import random

    dice = random.Random(7)
    points = [tuple(dice.randint(0, 12) for _ in range(width)) for _ in range(200)]

    def dominates(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return a != b and all(x <= y for x, y in zip(a, b, strict=True))

    expected: dict[int, int] = {}
    left, front = set(range(200)), 0
    while left:
        front += 1
        first = {i for i in left if not any(dominates(points[j], points[i]) for j in left)}
        expected |= dict.fromkeys(first, front)
        left -= first
    assert fronts(points, ["minimize"] * width) == [expected[i] for i in range(200)]


def test_several_objectives_are_ranked_by_front():
    """The rank is the number of the front; rows give a value for each metric."""
    study = make_study(objectives=(Objective("acc", "maximize"), Objective("ms", "minimize")))
    records = [
        record(0, "complete", 0.8, 9.0),
        record(1, "complete", 0.9, 5.0),
        record(2, "complete", 0.7, 1.0),
        record(3, "pruned", 0.2),
    ]
    found = ranking.rows(records, study)
    shown = [(row["rank"], row["trial"], row["value"], row["values"]) for row in found]
    assert shown == [
        (1, 1, None, {"acc": 0.9, "ms": 5.0}),
        (1, 2, None, {"acc": 0.7, "ms": 1.0}),
        (2, 0, None, {"acc": 0.8, "ms": 9.0}),
        (None, 3, None, {"acc": 0.2}),
    ]


def test_rows_are_the_contract():
    """A row has exactly the keys that scripts rely on."""
    attempt = Attempt(100, 0, 1, "t", "j", 0, "node", 7, NOON, NOON, NOON)
    found = ranking.rows(
        [
            record(
                0,
                "complete",
                0.5,
                params={"lr": 0.1},
                seed=7,
                started=NOON,
                duration_s=60.0,
                ended=NOON + timedelta(seconds=60),
                attempts=(attempt, attempt),
            )
        ],
        make_study(SPACE),
    )
    assert found == [
        {
            "rank": 1,
            "trial": 0,
            "state": "complete",
            "value": 0.5,
            "params": {"lr": 0.1},
            "seed": 7,
            "attempts": 2,
            "duration_s": 60.0,
            "gpu_hours": 0.0,
            "energy_j": None,
            "reason": "",
            "started": "2026-03-01T12:00:00+00:00",
            "ended": "2026-03-01T12:01:00+00:00",
        }
    ]


def test_rows_choose():
    """By default complete and pruned; with ``top`` ranked ones; else the states asked for."""
    states = ["waiting", "running", "cancelled", "failed", "pruned", "complete", "complete"]
    records = [record(n, s, *([0.5] if n > 3 else [])) for n, s in enumerate(states)]
    study = make_study()
    chosen = [
        [row["trial"] for row in ranking.rows(records, study, **options)]
        for options in (
            {},
            {"top": 5},
            {"top": 1},
            {"states": ("failed", "complete")},
            {"states": ("pruned", "complete"), "top": 3},
            {"top": 0},
        )
    ]
    assert chosen == [[5, 6, 4], [5, 6], [5], [5, 6, 3], [5, 6, 4], []]


def test_the_kept_checkpoint_is_found(tmp_path):
    """A trial among the best shows its newest checkpoint, of its newest attempt that left one."""
    folder = StudyFolder(tmp_path)
    kept = []
    for trial in (0, 1):
        attempts = folder.attempt(trial, 1).checkpoints
        attempts.mkdir(parents=True)
        (attempts / "epoch3.pt").write_text("x")
        kept.append(str(attempts / "epoch3.pt"))
    one, two = (Attempt(1, 0, n, "t", "j", 0, "h", 7, NOON, NOON) for n in (1, 2))
    records = [record(n, "complete", -float(n), attempts=(one, two)) for n in (0, 1)]
    study = make_study(keep=1)
    found = [row.get("checkpoint") for row in ranking.rows(records, study, folder=folder)]
    assert found == [kept[0], None]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"complete": 1, "waiting": 4}, ""),
        (
            {"complete": 0, "waiting": 4, "running": 2},
            "No trial is complete yet: 4 waiting, 2 running.",
        ),
        ({}, "No trial is complete yet: there are none."),
    ],
)
def test_nothing_complete(counts, expected):
    """Where nothing is ranked, a sentence says what there is."""
    assert ranking.nothing_complete(counts) == expected


@pytest.mark.parametrize(
    ("values", "text_only", "expected"),
    [
        ([1, 2], False, "int"),
        ([1.0, 2.5], False, "float"),
        ([True, False], False, "bool"),
        (["a", "b"], True, "text"),
        (["1", "b"], False, "text"),
        (["1", "b"], True, "json"),
        (["a", None], False, "json"),
        ([1, 2.5], False, "json"),
        ([[1], [2]], False, "json"),
        ([1, True], False, "json"),
        ([2**63], False, "json"),
        ([], False, "json"),
    ],
)
def test_kind_of_column(values, text_only, expected):
    """Only values of one plain type are written as themselves."""
    assert kind_of(values, text_only) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " a",
        "1",
        "-1e5",
        "1,000",
        "inf",
        "NaN",
        "NA",
        "n/a",
        "None",
        "null",
        "TRUE",
        "1j",
        "<NA>",
        "=1+2",
        "@x",
        "-x",
        "'=1",
        "[1]",
        '"a"',
        "a\rb",
    ],
)
def test_ambiguous_text(text):
    """What a reader of CSV takes for a number, a gap or a truth value is told apart."""
    assert is_ambiguous(text)


@pytest.mark.parametrize("text", ["adam", "a b", "1x", "Nadam", "nothing", "é", "a,b", "1-2"])
def test_plain_text(text):
    """Ordinary words stay as they are."""
    assert not is_ambiguous(text)


LESS = make_study(objectives=(Objective("loss", "minimize", at="last"),))


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("loss", None, Objective("loss", "minimize", at="last")),
        ("loss:maximize", None, Objective("loss", "maximize", at="last")),
        ("loss", "maximize", Objective("loss", "maximize", at="last")),
        ("time", "minimize", Objective("time", "minimize")),
        ("time:minimize", None, Objective("time", "minimize")),
        ("time:max", "maximize", Objective("time", "maximize")),
        ("val:acc", "maximize", Objective("val:acc", "maximize")),
        ("val:acc:min", None, Objective("val:acc", "minimize")),
    ],
)
def test_by_knows_its_direction(text, given, expected):
    """The objective's is known; another metric's is what was given with it."""
    assert ranking.parse_by(text, given, LESS) == expected


def test_by_without_a_direction_is_refused():
    """What is good of a metric that is no objective is not guessed, nor two answers weighed."""
    with pytest.raises(InputError) as raised:
        ranking.parse_by("time", None, LESS)
    assert str(raised.value) == (
        "--by time: time is no objective of the study, so nothing says whether less or more of it "
        "is better.\nWrite --by time:minimize or --by time:maximize."
    )
    with pytest.raises(InputError, match="contradict"):
        ranking.parse_by("time:min", "maximize", LESS)


def test_ranked_by_a_metric_its_value_is_shown():
    """The value that ranks, beside the last of each metric or those that are asked for."""
    records = [
        record(0, "complete", 0.9, metrics={"loss": [(0, 0.25), (1, 2.0)], "t": [(0, 1.0)]}),
        record(1, "complete", 0.1, metrics={"loss": [(0, 0.5), (1, 1.0)]}),
    ]
    by = ranking.parse_by("loss:minimize", None, make_study())
    found = ranking.rows(records, make_study(), by=by)
    assert [(row["trial"], row["metrics"]["loss:min"]) for row in found] == [(0, 0.25), (1, 0.5)]
    assert found[0]["metrics"] == {"loss": 2.0, "t": 1.0, "loss:min": 0.25}
    found = ranking.rows(records, make_study(), by=by, wanted=[ranking.Wanted("t")])
    assert found[0]["metrics"] == {"t": 1.0, "loss:min": 0.25}


def test_ranked_by_one_of_several_objectives():
    """By its value, also where nothing but the value is known."""
    both = make_study(objectives=(Objective("acc", "maximize"), Objective("ms", "minimize")))
    records = [
        dataclasses.replace(record(number, "complete", 0.0), values=values)
        for number, values in enumerate([(0.9, 30.0), (0.1, 10.0), (0.5, 20.0)])
    ]
    by = ranking.parse_by("ms", None, both)
    assert numbers(ranking.rank(records, both, by)) == [1, 2, 0]
    assert ranking.shown_for(by, both) is None


def test_constraints_hold_whatever_ranks():
    """A trial that breaks them comes after those that keep to them, by any metric."""
    records = [
        dataclasses.replace(record(number, "complete", 0.0), violation=broken, metrics=metrics)
        for number, (broken, metrics) in enumerate(
            [(1.0, {"loss": [(0, 0.1)]}), (0.0, {"loss": [(0, 0.5)]})]
        )
    ]
    assert numbers(ranking.rank(records, make_study(), Objective("loss"))) == [1, 0]


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        (None, None, "table"),
        ("-", None, "table"),
        (None, "csv", "csv"),
        ("a.json", None, "json"),
        ("a.CSV", None, "csv"),
        ("a.parquet", None, "parquet"),
        ("a.md", None, "markdown"),
        ("a.tex", None, "latex"),
        ("a.txt", None, "table"),
        ("a.json", "csv", "csv"),
    ],
)
def test_format_of(path, given, expected):
    """The format given wins; else the file's ending says it."""
    assert exports.format_of(Path(path) if path else None, given) == expected


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        (
            "a.xlsx",
            None,
            "a.xlsx: its ending does not say which format to write.\n"
            "Use one of .json, .csv, .parquet, .pq, .md, .markdown, .tex, .txt, or --format.",
        ),
        (
            None,
            "jsn",
            "There is no format 'jsn'. Did you mean json?\n"
            "Formats: table, json, csv, parquet, markdown, latex.",
        ),
    ],
)
def test_format_is_refused(path, given, expected):
    """A format that is not known is refused with those that are."""
    with pytest.raises(InputError) as raised:
        exports.format_of(Path(path) if path else None, given)
    assert str(raised.value) == expected


def test_json_has_no_infinity():
    """Numbers that JSON has no word for become null; the text is read by any parser."""
    study = make_study(SPACE)
    found = ranking.rows([record(0, "complete", float("nan"), params={"lr": 0.1})], study)
    text = exports.export(found, "json", study)
    assert json.loads(text, parse_constant=pytest.fail)[0]["value"] is None


def test_table_shows_six_digits():
    """The plain table is aligned, and rounds for people."""
    study = make_study(SPACE)
    found = ranking.rows(
        [
            record(0, "complete", 0.123456789, params={"lr": 0.1}, seed=3, duration_s=61.0),
            record(11, "complete", 0.5, params={"lr": 1e-7}, seed=4, duration_s=2.5),
        ],
        study,
    )
    assert exports.export(found, "table", study) == (
        "rank  trial  state        value     lr  seed  attempts  duration_s\n"
        "   1     11  complete       0.5  1e-07     4         0         2.5\n"
        "   2      0  complete  0.123457    0.1     3         0          61\n"
    )


def test_a_parameter_named_like_a_column_keeps_its_prefix():
    """Headings for people drop ``params.`` except where they would then mean two things."""
    study = make_study(Space((Parameter("value", "int", low=0, high=9),)))
    found = ranking.rows([record(0, "complete", 0.5, params={"value": 3})], study)
    heading = exports.export(found, "markdown", study, digits=3).splitlines()[0]
    assert heading.split(" | ")[2:5] == ["state", "value", "params.value"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_parquet_is_refused_on_a_terminal():
    """Binary data for a terminal is refused, with the flag to use."""
    with pytest.raises(InputError) as raised:
        exports.write(b"PAR1", None, Terminal())
    assert str(raised.value) == (
        "Parquet is binary: it would garble the terminal.\nGive a file: -o FILE.parquet"
    )


def test_write_replaces_a_file_whole(tmp_path):
    """A file is replaced, through a link too, and its folder holds nothing else afterwards."""
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    exports.write("new\n", link, sys.stdout)
    assert (real.read_text(), link.is_symlink()) == ("new\n", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "real.csv"]


def test_write_says_why_it_cannot(tmp_path):
    """A folder that is not there, and a folder in place of a file, are the user's to mend."""
    for path, why in (
        (tmp_path / "no" / "a.csv", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(InputError) as raised:
            exports.write("x", path, sys.stdout)
        assert raised.value.message == f"{path} cannot be written: {why}."


def test_json_and_csv_need_nothing_heavy():
    """Collecting as JSON, CSV or a table imports neither pandas nor pyarrow, numpy or Optuna."""
    code = (
        "import sys; from sweep.results import exports, ranking\n"
        "from tests.study_rows import make_study\n"
        "from sweep.core.trial import TrialRecord\n"
        "s = make_study(); r = ranking.rows([TrialRecord(1, 0, 'complete', (0.5,))], s)\n"
        "[exports.export(r, f, s) for f in ('json', 'csv', 'table', 'markdown', 'latex')]\n"
        "print([m for m in ('pandas', 'pyarrow', 'numpy', 'optuna', 'rich') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert (ran.stdout, ran.stderr) == ("[]\n", "")


def test_plots_are_pictures_and_leave_out_what_there_is_not(tmp_path):
    """Two PNG files for a study with curves; none before a trial is complete."""
    pytest.importorskip("matplotlib")
    from sweep.results import plots

    study = make_study(objectives=(Objective("val/a$c_1", "maximize"),))
    records = [
        record(
            n,
            "complete" if n % 2 else "pruned",
            n / 10,
            ended=NOON + timedelta(seconds=n),
            metrics={"val/a$c_1": [(s, n * s / 30) for s in range(4)]},
        )
        for n in range(4)
    ]
    paths, note = plots.draw(records, study, tmp_path / "results")
    assert ([path.name for path in paths], note) == (["history.png", "curves.png"], "")
    assert {path.read_bytes()[:8] for path in paths} == {b"\x89PNG\r\n\x1a\n"}
    waiting = [dataclasses.replace(found, state="waiting", values=()) for found in records[:1]]
    assert plots.plot_history(waiting, study, tmp_path / "none.png") is False
    assert not (tmp_path / "none.png").exists()


def test_plots_say_what_to_install(tmp_path, monkeypatch):
    """Without matplotlib there are no pictures, and a note says how to get them."""
    from sweep.results import plots

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert plots.draw([], make_study(), tmp_path / "results") == (
        [],
        "Plots need matplotlib: pip install 'sweep-hpo[report]'",
    )
