"""The statistics of ``confirm``: against SciPy's own tests, and over simulated studies."""

from __future__ import annotations

import random
from statistics import NormalDist, stdev

import pytest

from sweep.core.trial import trial_seed
from sweep.tasks.side_runs.confidence import (
    Estimate,
    estimate,
    holm,
    judge,
    paired_p,
    seeds_to_tell,
)
from sweep.tasks.side_runs.confirm import fresh_seeds
from tests.study_rows import make_study

A = {1: 0.91, 2: 0.93, 3: 0.90, 4: 0.94, 5: 0.92}
B = {1: 0.90, 2: 0.91, 3: 0.90, 4: 0.92, 5: 0.89}


def test_interval_and_test_are_students():
    """The same numbers as SciPy's t interval and paired t test."""
    from scipy import stats  # it takes seconds to load, and no other test is to wait for it

    found = estimate(7, A, level=0.9)
    low, high = stats.t.interval(0.9, 4, 0.92, stats.sem(list(A.values())))
    assert (found.mean, found.low, found.high) == pytest.approx((0.92, low, high))
    assert paired_p(A, B) == pytest.approx(stats.ttest_rel([*A.values()], [*B.values()]).pvalue)


def test_common_seeds_alone_are_paired():
    """A seed that one of them lacks counts in its mean only."""
    assert paired_p({**A, 6: 99.0}, B) == paired_p(A, B)
    assert paired_p({1: 0.5}, B) is None


@pytest.mark.parametrize(("shift", "expected"), [(0.0, 1.0), (0.25, 0.0)])
def test_trainings_without_noise(shift, expected):
    """Equal under every seed: no difference, or one beyond doubt; and no interval around it."""
    a = dict.fromkeys(range(5), 0.5)
    b = dict.fromkeys(range(5), 0.5 - shift)
    assert paired_p(a, b) == expected
    found = judge([estimate(0, b), estimate(1, a)], "maximize")
    assert found.distinguishable == bool(shift)
    assert (found.ranking[0].low, found.ranking[0].high) == (0.5, 0.5)


def test_holm_rejects_step_by_step():
    """The smallest is held to level/n, the next to level/(n-1), and the rest stays after a miss."""
    assert holm([0.03, 0.01, 0.2, 0.012]) == [False, True, False, True]
    assert holm([None, 0.04]) == [False, False]


def test_failed_runs_cost_the_rank():
    """A trial that fails under some seeds is no honest choice, whatever its mean."""
    found = judge([estimate(0, {1: 0.99, 2: 0.98}, failed=1), estimate(1, A)], "maximize")
    assert [e.trial for e in found.ranking] == [1, 0]
    assert not found.distinguishable
    assert found.as_good == []


def test_minimised_metrics_rank_upwards():
    """The least mean is first."""
    found = judge([estimate(0, A), estimate(1, B)], "minimize")
    assert [e.trial for e in found.ranking] == [1, 0]


def test_seeds_to_tell_reaches_its_power():
    """With as many seeds as it names, the test finds the difference in about 80 % of studies."""
    draw = random.Random(1)
    base = dict(enumerate(map(NormalDist().inv_cdf, [0.1, 0.3, 0.5, 0.7, 0.9])))
    zero = dict.fromkeys(base, 0.0)
    shifted = {seed: value + 0.6 for seed, value in base.items()}
    needed = seeds_to_tell(shifted, zero)
    spread = stdev(base.values())
    hits = sum(
        paired_p(
            {i: draw.gauss(0.6, spread) for i in range(needed)}, dict.fromkeys(range(needed), 0.0)
        )
        < 0.05
        for _ in range(400)
    )
    assert 0.72 <= hits / 400 <= 0.88
    assert seeds_to_tell(zero, zero) is None


def simulate(draw: random.Random) -> tuple[bool, bool, list[tuple[Estimate, float]], bool, bool]:
    """Run one study of 40 trials whose true means are known, and confirm its best 5 by 5 seeds.

    A result is true mean + what the seed does to all + noise; the noise is as large as the means'
    spread among the good ones.

    Returns:
        Whether the search's winner and the confirmed one are the true best; the intervals with
        their truths; whether the choice's own covers; whether a claim to be better was wrong.
    """
    means = [0.9 + draw.gauss(0.0, 0.01) for _ in range(40)]
    best = max(range(40), key=means.__getitem__)
    searched = [mean + draw.gauss(0.0, 0.012) for mean in means]
    top = sorted(range(40), key=lambda trial: -searched[trial])[:5]
    common = [draw.gauss(0.0, 0.004) for _ in range(5)]
    found = [
        estimate(t, {s: means[t] + common[s] + draw.gauss(0.0, 0.008) for s in range(5)})
        for t in top
    ]
    judged = judge(found, "maximize")
    choice, second = judged.ranking[0].trial, judged.ranking[1].trial
    covered = judged.low <= means[choice] <= judged.high
    wrong = judged.distinguishable and means[choice] < means[second]
    return top[0] == best, choice == best, [(e, means[e.trial]) for e in found], covered, wrong


def test_confirming_beats_the_raw_ranking():
    """Over 200 studies: the true best is found more often, and intervals keep their word."""
    draw = random.Random(20260301)
    studies = [simulate(draw) for _ in range(200)]
    raw, confirmed = (sum(study[i] for study in studies) for i in (0, 1))
    intervals = [pair for study in studies for pair in study[2]]
    covered = sum(e.low <= truth <= e.high for e, truth in intervals) / len(intervals)
    choice_covered = sum(study[3] for study in studies) / 200
    wrong = sum(study[4] for study in studies)
    print(
        f"true best found: raw {raw}/200, confirmed {confirmed}/200; intervals cover "
        f"{covered:.3f}, the choice's {choice_covered:.3f}; wrong claims {wrong}"
    )
    assert confirmed > raw + 20
    # 1,000 intervals, those of one study correlated: about four standard errors around 95 %.
    assert 0.91 <= covered <= 0.98
    assert choice_covered >= 0.92
    assert wrong <= 10


def test_fresh_seeds_are_no_trials():
    """They are distinct, always the same, and none is a trial's."""
    study = make_study(trials=500)
    seeds = fresh_seeds(study, 50)
    assert len(set(seeds)) == 50
    assert seeds[:5] == fresh_seeds(study, 5)
    assert not set(seeds) & {trial_seed(study.seed, number) for number in range(500)}
