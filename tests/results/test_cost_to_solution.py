"""What a study cost, against figures that were worked out by hand; and the same in all shapes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import pytest

from sweep.core.study import Objective, Resources
from sweep.core.trial import Replicate, TrialRecord
from sweep.results import cost_text
from sweep.results.cost_to_solution import CostToSolution, common_levels, cost, thinned
from sweep.results.page import contents, html
from sweep.results.page.source import Source, make
from sweep.tasks.side_runs.diff import Side, compare
from tests.results.test_page import attempt, record, series, source  # noqa: F401
from tests.study_rows import make_study

MINUTE = 60.0


def with_energy(found: Source, joules: dict[str, float]) -> Source:
    """Return a study in which some attempts were measured, by their tokens."""
    records = [
        dataclasses.replace(
            one,
            attempts=[
                dataclasses.replace(a, energy_j=joules[a.token], energy_by="nvml")
                if a.token in joules
                else a
                for a in one.attempts
            ],
        )
        for one in found.records
    ]
    return make(found.study, records, list(found.series.values()))


@pytest.fixture
def small(source: Source) -> CostToSolution:  # noqa: F811
    """Five trials of two GPUs each in 30 minutes; 10 kJ of the first one's training were measured,
    and 6 kJ of what trial 2 did before it was killed."""
    return cost(with_energy(source, {"0-1": 10_000.0, "2-1": 6_000.0}))


def test_each_level(small: CostToSolution) -> None:
    """Until minute 10: 10 + 4 + 6 minutes of training. Until minute 20: 8 + 3 more."""
    first, last = small.levels
    assert (first.value, first.trial, first.ended, first.after_s) == (0.8, 0, 2, 10 * MINUTE)
    assert (last.value, last.trial, last.ended, last.after_s) == (0.9, 2, 3, 20 * MINUTE)
    assert [level.spent.training_s for level in small.levels] == [20 * MINUTE, 31 * MINUTE]
    assert [level.spent.gpu_hours for level in small.levels] == pytest.approx([40 / 60, 62 / 60])
    assert [level.spent.energy_j for level in small.levels] == [16_000.0, 16_000.0]


def test_energy_and_hours_are_spread_over_an_attempt(source: Source) -> None:  # noqa: F811
    """Trial 2 trains from minute 4 on; 3 of its 6 kJ were used when a trial ended at minute 7."""
    early = record(5, "complete", (0.6,), attempt(5, 1, 0, 7))
    found = with_energy(source, {"2-1": 6_000.0})
    found = make(found.study, [*found.records, early], list(found.series.values()))
    level = cost(found).levels[0]
    assert (level.trial, level.spent.energy_j) == (5, 3_000.0)
    assert level.spent.training_s == (7 + 7 + 4 + 3) * MINUTE


def test_all_of_it(small: CostToSolution) -> None:
    """41 minutes; 3 failed, 2 were done again after a kill, 2 before a first checkpoint were lost;
    a pruned trial lacked 8 of the usual 10 steps, at 2 minutes each."""
    assert small.after_s == 30 * MINUTE and small.spent.training_s == 41 * MINUTE
    assert small.spent.gpu_hours == pytest.approx(82 / 60)
    assert small.spent.energy_j == 16_000.0
    assert (small.energy_measured, small.attempts, small.energy_by) == (2, 7, ["nvml"])
    assert small.lost.training_s == 7 * MINUTE and small.lost.gpu_hours == pytest.approx(14 / 60)
    assert small.lost.energy_j == pytest.approx(2_000.0)  # 2 of the 6 minutes of 2-1
    assert small.lost_share == pytest.approx(7 / 41)
    saved = small.saved_by_pruning
    assert saved is not None and saved.training_s == 16 * MINUTE
    assert saved.gpu_hours == pytest.approx(32 / 60)
    assert small.saved_by_packing is None
    # Trials 2 and 4 were interrupted, 3 failed.
    assert (small.recovery.trials, small.recovery.recovered) == (3, 2)
    assert (small.recovery.interrupted, small.recovery.resumed) == (2, 1)


def packed(number: int, minutes: float, gpu_s: float) -> TrialRecord:
    made = attempt(number, 1, 0, minutes)
    return record(number, "complete", (0.5,), dataclasses.replace(made, gpu_s=gpu_s))


def test_what_sharing_gpus_saved() -> None:
    """One alone takes a minute a step; two that shared with a third held 400 s for 10 steps each,
    which alone take 600 s. Hours are those held."""
    curves = [series(n, *((1, step, 0.5, step) for step in range(10))) for n in range(3)]
    trials = [packed(0, 10, 600.0), packed(1, 20, 400.0), packed(2, 20, 400.0)]
    study = make_study(trials=3, resources=Resources(gpus=1))
    found = cost(make(study, trials, curves))
    assert found.saved_by_packing == pytest.approx(400 / 3600)
    assert found.spent.gpu_hours == pytest.approx(1400 / 3600)
    assert found.levels[0].spent.gpu_hours == pytest.approx((600 + 200 + 200) / 3600)
    assert cost(make(study, trials[1:], curves[1:])).saved_by_packing is None  # none was alone


def test_a_replicate_that_is_done_is_not_lost() -> None:
    tried = [attempt(0, 1, 0, 10, "replicate done"), attempt(0, 2, 10, 20)]
    found = cost(make(make_study(trials=1), [record(0, "complete", (0.5,), *tried)], []))
    assert found.lost.training_s == 0 and found.recovery.trials == 0
    assert found.spent.gpu_hours == 0 and found.spent.training_s == 20 * MINUTE


def test_a_kill_in_an_earlier_replicate_loses_what_its_successor_did_again() -> None:
    """Its curves are gone by then; until when they counted is kept with what it has given."""
    killed = attempt(0, 1, 0, 10, "interrupted")
    tried = [killed, attempt(0, 2, 10, 20, "replicate done"), attempt(0, 3, 20, 30)]
    until = killed.claimed.timestamp() + 7 * MINUTE
    done = (Replicate(1, 1, 2, (0.4,), kept=((1, until),)), Replicate(2, 2, 3, (0.6,)))
    whole = dataclasses.replace(record(0, "complete", (0.5,), *tried), replicates=done)
    found = cost(make(make_study(trials=1), [whole], []))
    assert found.lost.training_s == 3 * MINUTE and found.recovery.recovered == 1


def test_shares_of_a_gpu_are_not_known(source: Source) -> None:  # noqa: F811
    """With shards nobody knows how many GPUs that were."""
    study = dataclasses.replace(source.study, resources=Resources(shard=4))
    found = cost(dataclasses.replace(source, study=study))
    assert found.spent.gpu_hours is None and found.lost.gpu_hours is None
    assert dict(cost_text.facts(found))["GPU-hours"] == "not known"
    assert cost_text.gpu_text(found.spent.gpu_hours) == "not known"


def test_nothing_has_run() -> None:
    waiting = TrialRecord(0, 0, "waiting")
    found = cost(make(make_study(trials=1), [waiting], []))
    assert (found.levels, found.after_s, found.lost_share, found.recovery.rate) == (
        [],
        None,
        None,
        None,
    )
    assert cost_text.text(found).splitlines()[0] == "digits: what it cost"


def levelled(
    values: Sequence[float], direction: str = "maximize", minutes: int = 1
) -> CostToSolution:
    study = make_study(objectives=(Objective("acc", direction),), trials=len(values))
    trials = [
        record(n, "complete", (v,), attempt(n, 1, minutes * n, minutes * (n + 1)))
        for n, v in enumerate(values)
    ]
    return cost(make(study, trials, []))


def test_many_levels_keep_the_largest_steps() -> None:
    """Of many new bests the first, the last and the largest steps are shown."""
    found = levelled([0.1, 0.11, 0.12, 0.5, 0.51, 0.9, 0.91])
    assert len(found.levels) == 7
    assert [level.value for level in thinned(found.levels, 4)] == [0.1, 0.5, 0.9, 0.91]


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_two_studies_at_the_same_quality(direction: str) -> None:
    """Where one was better at once, the same trial of it stands at each lower level."""
    sign = 1 if direction == "maximize" else -1
    a = levelled([sign * 0.5, sign * 0.8], direction)
    b = levelled([sign * 0.7, sign * 0.9], direction, minutes=10)
    found = common_levels(a, b)
    assert [
        (sign * one.value, one.a and one.a.after_s / 60, one.b and one.b.after_s / 60)
        for one in found
    ] == [(0.5, 1, 10), (0.7, 2, 10), (0.8, 2, 20), (0.9, None, 20)]
    assert common_levels(a, dataclasses.replace(b, metric="loss")) == []
    sides = [Side(one.study, make_study(), {}, {}, cost=one) for one in (a, b)]
    data = json.loads(compare(*sides).to_json())
    assert [one["cost"] is not None for one in (data, data)] == [True, True]
    assert [level["a"] and level["a"]["trial"] for level in data["levels"]] == [0, 1, 1, None]
    cells = cost_text.common_cells(found, a, b)
    assert cells[1][1:] == ["1 min", "10 min", "1 min", "10 min"] and cells[-1][1] == "-"


def test_text_page_and_json_say_the_same(source: Source) -> None:  # noqa: F811
    found = with_energy(source, {"0-1": 10_000.0})
    data = json.loads(json.dumps(cost(found).to_data()))
    said = cost_text.text(cost(found))
    page = html.render(contents.arrange(found), "")
    for level in data["levels"]:
        spent = level["spent"]
        cells = [
            f"{level['value']:.6g}",
            cost_text.gpu_text(spent["gpu_hours"]),
            cost_text.energy_text(spent["energy_j"]),
        ]
        (line,) = [row for row in said.splitlines() if row.strip().startswith(cells[0])]
        for cell in cells:
            assert cell in line and f'<td class="n">{cell}</td>' in page
    for key, label in (("lost", "lost to crashes"), ("saved_by_pruning", "saved by pruning")):
        text = cost_text.gpu_text(data[key]["gpu_hours"])
        assert text in dict(cost_text.facts(cost(found)))[label]
        assert f"<span>{label}</span><b>" in page and f"{text}</b>" in page
    assert "recovered after failures  2 of 3 trials (67%); 1 of 2 attempts from" in said
    assert "<span>recovered after failures</span><b>2 of 3</b>" in page
    assert (data["recovery_rate"], data["lost_share"]) == pytest.approx((2 / 3, 7 / 41))
