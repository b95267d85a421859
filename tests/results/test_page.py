"""The figures of a report, on literal trials; and that no text of a user's becomes markup."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from sweep.core.space import Parameter, Space
from sweep.core.study import Constraint, Objective, Replicates, Resources, Study
from sweep.core.trial import Attempt, Replicate, TrialRecord
from sweep.results.cost_to_solution import cost
from sweep.results.page import accounts, charts, contents, html, lanes, views
from sweep.results.page.importance import importances
from sweep.results.page.lanes import short_hosts, timeline
from sweep.results.page.source import Source, make
from sweep.results.shared_gpus import Shared
from sweep.storage.reruns import Rerun
from sweep.storage.series import Series
from tests.study_rows import NOON, make_study

MINUTE = 60.0


def attempt(
    trial: int,
    number: int,
    start_min: float,
    end_min: float,
    outcome: str | None = "finished",
    host: str = "node1",
    resumed_from: str | None = None,
    reason: str = "",
) -> Attempt:
    claimed = NOON + timedelta(minutes=start_min)
    ended = NOON + timedelta(minutes=end_min)
    return Attempt(
        trial,
        trial,
        number,
        f"{trial}-{number}",
        "1",
        trial,
        host,
        None,
        claimed,
        ended,
        ended,
        0,
        outcome,
        reason,
        resumed_from=resumed_from,
    )


def record(number: int, state: str, values: tuple[float, ...], *tried: Attempt) -> TrialRecord:
    took_s = sum(accounts.length_s(one) for one in tried)
    return TrialRecord(
        number,
        number,
        state,
        values,
        {"lr": 0.01 * (number + 1)},
        7,
        "",
        tried[0].claimed,
        tried[-1].ended,
        took_s,
        tried,
    )


def series(trial: int, *points: tuple[int, int, float, float]) -> Series:
    """Return a series of (attempt, step, value, minutes after noon)."""
    numbers, steps, values, minutes = zip(*points, strict=True)
    logged = [(NOON + timedelta(minutes=minute)).timestamp() for minute in minutes]
    return Series(trial, "acc", numbers, steps, values, logged)


@pytest.fixture
def source() -> Source:
    """Two slots for 30 minutes: complete, pruned, resumed and failed trials; two GPUs each."""
    trials = [
        record(0, "complete", (0.8,), attempt(0, 1, 0, 10)),
        record(1, "pruned", (0.5,), attempt(1, 1, 0, 4)),
        # Killed at minute 10, its last step at minute 8 was in the checkpoint.
        record(
            2,
            "complete",
            (0.9,),
            attempt(2, 1, 4, 10, "killed", reason="killed by SIGKILL"),
            attempt(2, 2, 12, 20, resumed_from="c.pt"),
        ),
        record(3, "failed", (), attempt(3, 1, 10, 13, "error", "node2", reason="boom")),
        # Preempted before its first checkpoint.
        record(4, "complete", (0.85,), attempt(4, 1, 20, 22, "interrupted"), attempt(4, 2, 22, 30)),
    ]
    curves = [
        series(0, *((1, step, 0.7 + step / 100, step) for step in range(10))),
        series(1, (1, 0, 0.4, 1), (1, 1, 0.5, 3)),
        series(2, (1, 0, 0.7, 6), (1, 1, 0.8, 8), *((2, s, 0.9, 12 + s) for s in range(2, 10))),
        series(4, *((2, step, 0.85, 22.5 + step / 2) for step in range(10))),
    ]
    study = make_study(trials=5, resources=Resources(gpus=2), max_parallel=2)
    return make(study, trials, curves)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("values", [(5e-324, 5.0), (5e-324, 1.7e308), (-1.7e308, 1.7e308)], ids=str)
def test_any_finite_values_have_an_axis(values: tuple[float, float], direction: str) -> None:
    """Margins and ratios of such values are not finite: a chart of them would be empty."""
    study = make_study(objectives=(Objective("acc", direction),), trials=2)
    trials = [record(n, "complete", (v,), attempt(n, 1, n, n + 1)) for n, v in enumerate(values)]
    curves = [series(n, (1, 0, values[0], n), (1, 1, v, n + 1)) for n, v in enumerate(values)]
    found = contents.arrange(make(study, trials, curves))
    for chart in found.charts:
        json.dumps(chart.spec, allow_nan=False)
    scale = views.scale_of(values, direction)
    assert scale is not None and -1e150 < scale.low < scale.high < 1e150


def test_hours_are_what_collect_counts(source: Source) -> None:
    """Training is the sum of collect's durations; GPU-hours are those times the GPUs."""
    spent = cost(source).spent
    assert spent.training_s == pytest.approx(41 * 60)
    assert spent.training_s == pytest.approx(sum(row["duration_s"] for row in source.rows))
    assert spent.gpu_hours == pytest.approx(sum(row["gpu_hours"] for row in source.rows))


def test_interruptions(source: Source) -> None:
    """One resumed from its checkpoint, one began again; a failure is no interruption."""
    found = accounts.interruptions(source)
    assert (found.resumed, found.restarted, found.over) == (1, 1, 0)
    assert found.share == 0.5


def test_failures_by_reason_and_node(source: Source) -> None:
    """Attempts that did not end well, with their node and an example."""
    found = {(f.outcome, f.host, f.count, f.example) for f in accounts.failures(source)}
    assert found == {
        ("killed", "node1", 1, "killed by SIGKILL"),
        ("error", "node2", 1, "boom"),
        ("interrupted", "node1", 1, ""),
    }


def test_timeline_packs_attempts_into_slots(source: Source) -> None:
    """A slot takes one attempt at a time; between two it waited."""
    bars = timeline(source).cells
    lanes: dict[str, list[tuple[str, str]]] = {}
    for bar in bars:
        lanes.setdefault(bar["lane"], []).append((bar["start"], bar["end"]))
    assert set(lanes) == {"node1 01", "node1 02", "node2 01"}
    for spans in lanes.values():
        ordered = sorted(spans)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))
    kinds = sorted((bar["kind"], bar["minutes"]) for bar in bars)
    assert kinds == sorted(
        [
            ("trained", 10.0),
            ("pruned", 4.0),
            ("interrupted", 6.0),
            ("trained", 8.0),
            ("failed", 3.0),
            ("interrupted", 2.0),
            ("trained", 8.0),
            ("waited", 2.0),
        ]
    )


def test_a_live_attempt_runs() -> None:
    """An attempt without an outcome is drawn as running, up to when it was seen."""
    live = record(0, "running", (), attempt(0, 1, 0, 5, None))
    assert [bar["kind"] for bar in timeline(make(make_study(), [live], [])).cells] == ["running"]


@pytest.mark.parametrize("heavy", ["optuna.importance", "scipy.interpolate"])
def test_a_small_study_needs_nothing_heavy(
    source: Source, heavy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed from ten results on is loaded from ten results on."""
    monkeypatch.setitem(sys.modules, heavy, None)
    both = [Parameter(name, "float", low=0.0, high=1.0) for name in ("lr", "momentum")]
    assert importances(source) == {}
    assert views.contour(source, *both) is None
    assert contents.arrange(source).tiles


def test_empty_study() -> None:
    """A study of which nothing has ended has a page, without charts and without a winner."""
    waiting = TrialRecord(0, 0, "waiting")
    found = contents.arrange(make(make_study(trials=1), [waiting], []))
    assert found.charts == [] and found.command == "" and found.levels == []
    text = html.render(found, "")
    assert "No winner yet" in text


def test_scale_shows_the_good_end() -> None:
    """A few bad results stand at the edge; losses over decades get a logarithmic axis."""
    values = [0.9 + place / 1000 for place in range(20)] + [0.0]
    scale = views.scale_of(values, "maximize")
    assert scale is not None and scale.low > 0.89 and scale.high > 0.919 and not scale.log
    losses = views.scale_of([1e-4, 1e-2, 3.0], "minimize")
    assert losses is not None and losses.log and losses.low < 1e-4 and losses.high > 3.0
    assert views.scale_of([float("nan"), float("inf")], "minimize") is None


def test_parts_say_so() -> None:
    """More curves than can be seen: the best and an even part of the others are drawn."""
    many = 1000
    trials = [record(n, "complete", (n / many,), attempt(n, 1, n, n + 1)) for n in range(many)]
    curves = [series(n, (1, 0, 0.0, n), (1, 1, n / many, n + 1)) for n in range(many)]
    view = views.curves(make(make_study(trials=many), trials, curves))
    drawn = {cell["trial"] for cell in view.cells}
    assert view.is_part and view.total == many and len(drawn) == view.shown == 305
    assert {999, 998, 997, 996, 995} <= drawn


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_hostile_texts_stay_text(source: Source) -> None:
    """Names, reasons and values with markup in them add no element and end no script."""
    plain = _parse(source)
    evil = "</script><img src=x onerror=alert(1)>'\"&<!--"
    records = [
        dataclasses.replace(
            r,
            params={**r.params, "tag": evil},
            reason=evil,
            attempts=tuple(dataclasses.replace(a, reason=evil, host="node<b>") for a in r.attempts),
        )
        for r in source.records
    ]
    study = dataclasses.replace(
        source.study, objectives=(Objective(evil, "maximize"),), command=("echo", evil)
    )
    hostile = _parse(make(study, records, list(source.series.values())))
    assert "img" not in hostile.tags and "b" in hostile.tags  # ours, of the tiles
    assert hostile.tags.count("script") == plain.tags.count("script") == 9


def _parse(source: Source) -> _Elements:
    found = _Elements()
    found.feed(html.render(contents.arrange(source), "var a = '</script>';"))
    return found


def test_the_page_needs_no_network(source: Source) -> None:
    """No element loads anything, and the page's own policy forbids it."""
    text = html.render(contents.arrange(source), "")
    elements = _Elements()
    elements.feed(text)
    assert [link for link in elements.links if not link.startswith(("data:", "#"))] == []
    assert "default-src 'none'" in text
    assert re.search(r"@import|url\(", text) is None


def test_the_data_are_json(source: Source) -> None:
    """Charts are JSON whatever they hold: a number that is not finite is null."""
    text = html.as_script({"a": [float("nan"), float("inf"), 1.5], "b": "</script>\u2028"})
    assert json.loads(text) == {"a": [None, None, 1.5], "b": "</script>\u2028"}
    assert "<" not in text and "\u2028" not in text


def test_the_command_is_safe_to_paste() -> None:
    """The winner's command quotes what a shell would read."""
    best = record(3, "complete", (0.5,), attempt(3, 1, 0, 1))
    source = make(make_study(), [best], [])
    assert contents.rerun_command(source, "/data/my runs") == (
        "sweep rerun-best digits --trial 3 --wait --runs '/data/my runs'"
    )


def test_the_best_of_several_trainings() -> None:
    """Its value is their mean, and the tile says how far they lie apart."""
    best = record(3, "complete", (0.5,), attempt(3, 1, 0, 1))
    done = tuple(Replicate(n, n, n, (value,)) for n, value in enumerate((0.4, 0.6), 1))
    study = make_study(replicates=Replicates(2, 2))
    found = contents.arrange(make(study, [dataclasses.replace(best, replicates=done)], []))
    assert found.tiles[0].note == "trial 3: mean of 2 trainings, ± 0.141"
    found = contents.arrange(make(make_study(), [best], []))
    assert found.tiles[0].note == "trial 3"


def test_trainings_that_ended_well_are_no_failures() -> None:
    """Nor drawn as such while their trial needs others; each is compared with its repeat."""
    done = attempt(3, 1, 0, 1, "replicate done", reason="replicate 1 of 2: 0.4")
    open_one = record(4, "running", (), done, attempt(4, 2, 1, 2, None))
    both = tuple(Replicate(n, 10 * n, n, (value,)) for n, value in enumerate((0.4, 0.6), 1))
    whole = dataclasses.replace(
        record(3, "complete", (0.5,), done, attempt(3, 2, 1, 2)), replicates=both
    )
    study = make_study(replicates=Replicates(2, 2))
    ran = (("rerun", 10, 0.4), ("rerun", 20, 0.3), ("confirm", 99, 0.25))
    of_job = {"token": None, "job": None, "host": None, "process_group": None, "exit_code": 0}
    of_end = {"requested": NOON, "claimed": NOON, "outcome": "finished", "reason": ""}
    again = [
        Rerun(k, 3, 3, kind, seed, result={"values": [value]}, **of_job, **of_end)
        for k, (kind, seed, value) in enumerate(ran, 1)
    ]
    found = make(study, [whole, open_one], [], again=again)
    assert accounts.failures(found) == []
    assert [lanes.kind_of(open_one, one) for one in open_one.attempts] == [
        lanes.TRAINED,
        lanes.RUNS,
    ]
    shown = contents.arrange(found)
    pairs = [(one.values[0].before, one.values[0].difference) for one in shown.reruns]
    assert pairs == [(0.4, "none"), (0.6, "-50.000%"), (0.5, "-50.000%")]
    assert ("trainings of a trial", "2") in shown.facts
    page = html.render(shown, "")
    cells = [re.sub(r"<[^>]+>", " ", line).split() for line in page.splitlines()]
    assert any(row[:5] == ["1", "3", "0.5", "0.141421", "2"] for row in cells), cells


BOUND = (Constraint("ms", max=50.0),)


def bounded(broken: list[float | None], objectives: int = 1) -> Source:
    """Return trials of a study with a constraint: the higher the number, the better its value."""
    aims = (Objective("acc", "maximize"), Objective("loss", "maximize"))[:objectives]
    study: Study = make_study(objectives=aims, trials=len(broken), constraints=BOUND)
    trials = [
        dataclasses.replace(
            record(n, "complete", (n / 10,) * objectives, attempt(n, 1, n, n + 1)), violation=amount
        )
        for n, amount in enumerate(broken)
    ]
    return make(study, trials, [series(n, (1, 0, 0.0, n), (1, 1, n / 10, n)) for n in (0, 1, 2)])


def test_no_trial_that_breaks_a_constraint_wins() -> None:
    """The winner, its command, the best so far, the levels and the bright curves are feasible."""
    source = bounded([0.0, 0.0, 3.0])
    found = contents.arrange(source)
    assert source.best is not None and source.best.number == 1
    assert (found.tiles[0].value, found.tiles[0].note) == ("0.1", "trial 1")
    assert "--trial 1 " in found.command
    assert [cell["trial"] for cell in views.best_so_far(source).cells] == [0, 1, 1]
    assert [level.trial for level in found.cost.levels] == [0, 1]
    bright = {c["group"] for c in views.curves(source).cells} - {"complete"}
    assert bright == {"1. trial 1: 0.1", "2. trial 0: 0"}
    kinds = {cell["trial"]: cell["state"] for cell in views.results(source).cells}
    assert kinds == {0: "complete", 1: "complete", 2: "breaks the constraints"}
    text = html.render(found, "")
    assert "<h3>The winner: trial 1</h3>" in text
    assert "1 breaks the constraints, and cannot be best." in text
    assert re.findall(r"<td>(yes|no)</td>", text) == ["yes", "yes", "no"]


def test_where_all_break_a_constraint_there_is_no_winner() -> None:
    """The page says so, and shows neither a command nor a best so far."""
    source = bounded([4.0, 2.0, 3.0])
    found = contents.arrange(source)
    assert (source.best, found.command, found.levels) == (None, "", [])
    assert (found.tiles[0].name, found.tiles[0].value) == ("best acc", "none")
    assert views.best_so_far(source).cells == []
    text = html.render(found, "")
    assert "<h3>No winner</h3>" in text
    assert (
        "No trial keeps to the constraints (ms &lt;= 50): all 3 complete trials break them, "
        "trial 1 the least." in text
    )


def test_a_front_holds_feasible_trials_alone() -> None:
    """What dominates all others and breaks a constraint is drawn behind, as such."""
    source = bounded([0.0, 0.0, 3.0], objectives=2)
    cells = {cell["trial"]: cell for cell in views.front(source, 0, 1).cells}
    assert [(cells[n]["front"], cells[n]["state"]) for n in range(3)] == [
        (False, "complete"),
        (True, "complete"),
        (False, "breaks the constraints"),
    ]
    assert contents.arrange(source).tiles[0].value == "1"
    none = bounded([1.0, 2.0, 3.0], objectives=2)
    assert not any(cell["front"] for cell in views.front(none, 0, 1).cells)
    assert contents.arrange(none).tiles[0].value == "none"


def test_the_best_is_on_the_axis_whatever_lies_beyond() -> None:
    """Many better ones that break a constraint do not push the winner off the picture."""
    scale = views.scale_of([0.1, *([0.9] * 30), 0.95], "maximize", 0.1)
    assert scale is not None and scale.low < 0.1


def test_several_objectives() -> None:
    """A front has a picture for each pair, no best-so-far and no levels."""
    study: Study = make_study(objectives=(Objective("acc", "maximize"), Objective("ms")), trials=4)
    values = [(0.9, 5.0), (0.8, 2.0), (0.7, 6.0), (0.95, 9.0)]
    trials = [record(n, "complete", v, attempt(n, 1, n, n + 1)) for n, v in enumerate(values)]
    source = make(study, trials, [])
    found = contents.arrange(source)
    assert [chart.key for chart in found.charts if "front" in chart.key] == ["front-0-1"]
    assert not {"history", "time"} & {chart.key for chart in found.charts}
    on_front = {cell["trial"] for cell in views.front(source, 0, 1).cells if cell["front"]}
    assert on_front == {0, 1, 3}
    assert found.tiles[0].value == "3"
    assert "The first of the front" in html.render(found, "")


def test_long_names_are_told_apart() -> None:
    """Names that differ in the middle or at the end are not cut to the same text."""
    names = [f"optimizer.groups.{part}.learning_rate" for part in ("head", "body", "b")]
    cut = charts.names_apart(names, 18)
    assert len(set(cut)) == 3
    assert charts.names_apart(["lr", "lr"], 18) == ["lr", "lr"]
    assert charts.names_apart(["short", "x" * 40], 11) == ["short", "xxxxx…xxxxx"]


def test_a_long_name_stays_within_its_chart(source: Source) -> None:
    """An axis' title is cut to its side: the card's heading has all of it."""
    found = contents.arrange(source)
    titled = [
        (side, layer["encoding"][side])
        for chart in found.charts
        for layer in chart.spec.get("layer", ())
        for side in ("x", "y")
        if chart.key.startswith("slice") and side in layer.get("encoding", {})
    ]
    assert titled
    for side, encoding in titled:
        expected = {"expr": "width" if side == "x" else "height"}
        assert encoding["axis"]["titleLimit"] == expected


def test_hosts_are_called_by_their_first_word_where_that_is_clear() -> None:
    """Not where two would be the same, nor addresses."""
    assert short_hosts(["gpu1.example.org", "gpu2.example.org"]) == {
        "gpu1.example.org": "gpu1",
        "gpu2.example.org": "gpu2",
    }
    for hosts in (["a.one.org", "a.two.org"], ["10.0.0.1", "node2"]):
        assert short_hosts(hosts) == {host: host for host in hosts}


def test_pictures_are_named_by_parameter(source: Source) -> None:
    """What no file name may hold is left out; two of one name are numbered."""
    keys = [chart.key for chart in contents.arrange(source).charts]
    assert "slice-lr" in keys
    assert contents._file_names(["a/b", "a b", "A.b", "../x", "ü"]) == [
        "a_b",
        "a_b~2",
        "A.b",
        "x",
        "parameter",
    ]


def test_the_winner_is_marked_in_slices(source: Source) -> None:
    """A diamond stands at the winner's values, and at no other's."""
    assert source.best is not None
    (chart,) = [c for c in contents.arrange(source).charts if c.key == "slice-lr"]
    (cell,) = chart.spec["layer"][-1]["data"]["values"]
    assert (cell["trial"], cell["y"]) == (source.best.number, source.best.values[0])


def test_the_winner_is_no_dot_beside_its_diamond(source: Source) -> None:
    """Dots over a choice are spread, and the winner's would stand beside it as another trial."""
    assert source.best is not None
    (chart,) = [c for c in contents.arrange(source).charts if c.key == "slice-lr"]
    dots = [cell["trial"] for cell in chart.spec["data"]["values"]]
    assert sorted([*dots, source.best.number]) == [0, 1, 2, 4]


def test_slices_of_one_result(source: Source) -> None:
    """One value's axis is its parameter's; a parameter that the result lacks has no chart."""
    space = Space(
        (
            Parameter("lr", "float", low=0.001, high=1.0, log=True),
            Parameter("kind", "categorical", choices=("a", "b")),
            Parameter("momentum", "float", low=0.0, high=0.9, when={"kind": ("b",)}),
        )
    )
    one = record(0, "complete", (0.8,), attempt(0, 1, 0, 10))
    one = dataclasses.replace(one, params={"lr": 0.01, "kind": "a"})
    waiting = [
        dataclasses.replace(one, number=n, state="waiting", values=(), attempts=(), params=params)
        for n, params in enumerate(
            [{"lr": 0.1, "kind": "b", "momentum": m} for m in (0.1, 0.2)], start=1
        )
    ]
    found = contents.arrange(make(make_study(space, trials=3), [one, *waiting], []))
    sliced = {chart.key: chart for chart in found.charts if chart.key.startswith("slice")}
    assert sorted(sliced) == ["slice-kind", "slice-lr"]
    (diamond,) = sliced["slice-lr"].spec["layer"]
    assert diamond["encoding"]["x"]["scale"]["domain"] == [0.001, 1.0]
    assert "The diamond is the best" in sliced["slice-lr"].caption


def test_each_shared_gpu_has_a_chart(source: Source) -> None:
    """Side by side, each under its name; what is left out is said. All charts have their place."""
    looks = {"s": [0.0, 10.0], "gpu_busy": [0.4, 0.9], "gpu_memory": [0.1, None]}
    most = contents.MOST_GPUS
    for count in (2, most + 3):
        courses = {f"GPU {number} on n1": looks for number in range(count)}
        made = contents.arrange(dataclasses.replace(source, shared=Shared(courses=courses)))
        shown = [chart for chart in made.charts if chart.key.startswith("shared-")]
        assert [chart.title for chart in shown] == list(courses)[:most]
        assert len({chart.key for chart in shown}) == len(shown) and shown[0].small
        left_out = f"Drawn: the first {most} of {count} GPUs."
        assert shown[-1].caption == (left_out if count > most else "")
        page = html.render(made, "")
        assert page.count("GPUs that trials share</h2>") == 1
        assert [c.key for c in made.charts if f'id="chart-{c.key}"' not in page] == []
    assert "GPUs that trials share" not in html.render(contents.arrange(source), "")


def test_figures_without_meaning_are_left_out(source: Source) -> None:
    """Nothing was pruned, interrupted, or measured: then there is no tile of it."""
    names = {tile.name for tile in contents.arrange(source).tiles}
    assert {"saved by pruning", "interrupted and resumed"} <= names and "energy" not in names
    plain = [r for r in source.records if r.number in (0, 3)]
    found = contents.arrange(make(source.study, plain, list(source.series.values())))
    assert not {"saved by pruning", "interrupted and resumed"} & {t.name for t in found.tiles}
    assert dict(found.facts)["energy"].startswith("not reported")


def test_the_command_stands_as_in_the_file(source: Source) -> None:
    """Placeholders are not quoted; what a shell would take apart is."""
    study = dataclasses.replace(source.study, command=("python", "{params}", "--lr={lr}", "a b;"))
    found = contents.arrange(make(study, source.records, []))
    assert dict(found.facts)["command"] == "python {params} --lr={lr} 'a b;'"


def test_pruned_trials_stand_behind_by_value(source: Source) -> None:
    """In the table of the best; failed ones are counted below it."""
    found = contents.arrange(source)
    assert [(row["trial"], row["rank"]) for row in found.trials] == [
        (2, 1),
        (4, 2),
        (0, 3),
        (1, None),
    ]
    assert found.has_pruned
    assert found.not_listed == "Not in this table: 1 failed."


def test_all_trials_are_columns(source: Source) -> None:
    """What the page brushes and compares: every trial, its values as they were."""
    columns = contents.arrange(source).columns
    assert sorted(columns["trial"]) == [0, 1, 2, 3, 4]
    at = columns["trial"].index
    names = [axis["name"] for axis in columns["axes"]]
    assert columns["params"][names.index("lr")][at(2)] == pytest.approx(0.03)
    assert columns["value"][at(2)] == 0.9 and columns["value"][at(3)] is None
    assert [columns["onAxes"][at(n)] for n in range(5)] == [True, False, True, False, True]
    assert columns["count"] == 3 and columns["drawn"] == [names.index("lr")]
    assert columns["states"][columns["state"][at(1)]] == "pruned"


def test_one_trial_has_no_parallel_coordinates(source: Source) -> None:
    one = [r for r in source.records if r.number in (0, 3)]
    found = contents.arrange(make(source.study, one, []))
    assert "parallel" not in [chart.key for chart in found.charts]


def test_a_short_study_is_measured_in_seconds() -> None:
    """Of one that took a second, 0.017 minutes say nothing."""
    short = make(make_study(), [record(0, "complete", (0.8,), attempt(0, 1, 0, 1 / 60))], [])
    assert views.clock(short) == ("seconds", 1.0)
    longer = make(make_study(), [record(0, "complete", (0.8,), attempt(0, 1, 0, 4))], [])
    assert views.clock(longer) == ("minutes", 60.0)


def test_curves_are_cut_off_at_the_axis(source: Source) -> None:
    """Drawn along its edge they would look like a plateau."""
    (chart,) = [c for c in contents.arrange(source).charts if c.key == "curves"]
    for layer in chart.spec["layer"]:
        assert layer["mark"]["clip"] is True
        assert "clamp" not in layer["encoding"]["y"]["scale"]


def test_figures_of_a_study_that_has_not_begun() -> None:
    """Nothing was trained: that says nothing of GPUs."""
    found = {tile.name: tile for tile in contents.arrange(make(make_study(), [], [])).tiles}
    assert found["in training"].note == "0.0 s of training"
    assert found["trials complete"].value == "0 of 0"
