"""How many trials train at once on a card: a table of cases, and studies on a written model."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from sweep.core.packing.card import (
    CPUS,
    LIMIT,
    MEASURING,
    MEMORY,
    NO_GAIN,
    WHYS,
    CardState,
    PackedLevel,
    ShareLimits,
    TrialState,
)
from sweep.core.packing.level import Packing
from sweep.core.packing.peaks import Peaks
from sweep.core.packing.speeds import rate_of
from tests.core.packed_card import Progress, Training, by_points, simulate

GB = 10**9
CARD = CardState(80 * GB, 0, 0)
# Whole trials on one H200, the reference trainer on MNIST, 4 epochs: 13.9 s alone, 2 at once in
# 15.6 s, 4 in 13.8 s, 8 in 17.8 s; what more would get done is not known, and taken to be no more.
MEASURED = by_points({1: 1.0, 2: 2 * 13.9 / 15.6, 4: 4 * 13.9 / 13.8, 8: 8 * 13.9 / 17.8})
MPS = by_points({1: 1.0, 2: 1.9, 4: 3.9, 8: 7.2, 14: 14 * 13.9 / 17.7})


def amdahl(level: int) -> float:
    """What n at once get done where a seventh of a training cannot be shared."""
    return level / (1 + (level - 1) / 7)


def full(level: int) -> float:
    """A training that fills the card: others beside it only cost."""
    return 1.0 if level == 1 else 0.97


def alone(number: int, rate: float = 1.0, reports: int = 6, memory: int | None = GB) -> TrialState:
    """Return a trial that has reported each second."""
    each = [(2.0 + second, rate * second) for second in range(reports)]
    return TrialState(str(number), 0.0, each, memory_bytes=memory)


def after_alone(limits: ShareLimits, card: CardState = CARD, **changes: object) -> PackedLevel:
    """Return the level once the first trial has been measured alone."""
    packing = Packing()
    first = replace(alone(0), **changes)  # type: ignore[arg-type]
    packing.decide(1.0, card, [first], limits)
    return packing.decide(9.0, card, [first], limits)


@pytest.mark.parametrize(
    ("limits", "card", "changes", "trials", "why", "says"),
    [
        (ShareLimits(16), CARD, {}, 2, MEASURING, "2 at once are being measured"),
        (ShareLimits(16), CardState(), {"memory_bytes": None}, 2, MEASURING, "2 at once"),
        (ShareLimits(1), CARD, {}, 1, LIMIT, "share allows 1"),
        (ShareLimits(16, available=1), CARD, {}, 1, LIMIT, "max_parallel"),
        (ShareLimits(16, cpus=1), CARD, {}, 1, CPUS, "1 CPUs, and a trial needs one CPU"),
        (ShareLimits(16, cpus=0.5), CARD, {}, 1, CPUS, "0.5 CPUs"),
        (ShareLimits(16), CARD, {"memory_bytes": 50 * GB}, 1, MEMORY, "of 80.0 GB"),
        (ShareLimits(16, memory_bytes=50 * GB), CARD, {}, 1, MEMORY, "needs up to 50.0 GB"),
        # 30 GB fit twice, but beside a neighbour with its 20 GB they do not.
        (ShareLimits(16), CARD, {"memory_bytes": 28 * GB}, 2, MEMORY, "of 80.0 GB"),
        (
            ShareLimits(16),
            CardState(80 * GB, 48 * GB, 20 * GB),
            {"memory_bytes": 28 * GB},
            1,
            MEMORY,
            "of which others hold 20.0 GB",
        ),
        # By what the trial's allocator says: 31 GB and a context of its own fit no second time.
        (ShareLimits(16), CARD, {"memory_bytes": None, "allocator_bytes": 38 * GB}, 1, MEMORY, ""),
        # By the card's total alone.
        (
            ShareLimits(16),
            CardState(80 * GB, 50 * GB, None),
            {"memory_bytes": None},
            1,
            MEMORY,
            "of 80.0 GB",
        ),
        # One report is no rate, and four that are at one moment are none either.
        (ShareLimits(16), CARD, {"reports": [(3.0, 1.0)]}, 1, MEASURING, "measured alone"),
        (ShareLimits(16), CARD, {"reports": [(3.0, 1.0)] * 4}, 1, MEASURING, "measured alone"),
        (ShareLimits(16, fixed=True), CARD, {"memory_bytes": 70 * GB}, 16, LIMIT, "share is 16"),
    ],
)
def test_after_the_first_trial(
    limits: ShareLimits,
    card: CardState,
    changes: dict[str, object],
    trials: int,
    why: str,
    says: str,
) -> None:
    """What bounds the level says so."""
    level = after_alone(limits, card, **changes)
    assert (level.trials, level.why) == (trials, why)
    assert says in level.text


def test_the_first_is_alone_until_it_is_measured() -> None:
    """With too few reports, or too soon, nothing is added."""
    packing = Packing()
    assert packing.decide(0.0, CARD, [], ShareLimits(8)).trials == 1
    for now_s, reports in ((1.0, 0), (3.0, 2), (4.0, 3)):
        level = packing.decide(now_s, CARD, [alone(0, reports=reports)], ShareLimits(8))
        assert (level.trials, level.why, level.settled) == (1, MEASURING, False)
        assert level.text == "the first trial is measured alone"


@pytest.mark.parametrize(
    ("ratio", "trials", "why"),
    [
        (1.0, 4, MEASURING),  # as fast as alone: on to four
        (0.7, 4, MEASURING),  # the second brings 0.4
        (0.5, 1, NO_GAIN),  # both together get done what one did
        (0.58, 1, NO_GAIN),  # 0.16 of what one alone brings
    ],
)
def test_an_added_trial_stays_for_a_quarter(ratio: float, trials: int, why: str) -> None:
    """The first trial's rate beside a second one, against its own before."""
    packing, limits = Packing(), ShareLimits(16)
    first = [(float(second), float(second)) for second in range(11)]
    for now_s in range(2, 11):
        level = packing.decide(
            now_s, CARD, [TrialState("0", 0.0, first[: now_s + 1], memory_bytes=GB)], limits
        )
        if level.trials == 2:
            break
    changed = now_s
    steps = [first[changed][1] + ratio * second for second in range(1, 40)]
    first = first[: changed + 1] + [
        (changed + second, step) for second, step in enumerate(steps, 1)
    ]
    second = [(changed + 3.0 + each, 1000.0 * each) for each in range(36)]  # of another kind
    for now_s in range(changed + 1, changed + 39):
        state = [
            TrialState("0", 0.0, [r for r in first if r[0] <= now_s], memory_bytes=GB),
            TrialState("1", changed, [r for r in second if r[0] <= now_s], memory_bytes=GB),
        ]
        packing = Packing.from_json(json.loads(json.dumps(packing.to_json())))
        level = packing.decide(now_s, CARD, state, limits)
        if level.trials != 2:
            break
    assert (level.trials, level.why) == (trials, why)
    if why == NO_GAIN:
        assert level.settled and level.slowdown == 1.0
        assert level.text.startswith("2 at once get done what 1.")
        assert packing.slowdown(2) == pytest.approx(1 / ratio, rel=0.1)


def test_an_out_of_memory_lowers_the_level() -> None:
    """For the card's memory and for the host's, measured or fixed, and for good."""
    packing = Packing()
    packing.note_out_of_memory(8)
    fixed = packing.decide(0.0, CARD, [], ShareLimits(16, fixed=True))
    assert (fixed.trials, fixed.why) == (6, MEMORY)
    assert fixed.text == "with more, a trial ran out of the GPU's memory"
    packing.note_out_of_memory(2, on_host=True)
    packing = Packing.from_json(packing.to_json())
    packing.note_out_of_memory(6)
    lowest = packing.decide(9.0, CARD, [], ShareLimits(16))
    assert (lowest.trials, lowest.why) == (1, MEMORY)
    packing.note_out_of_memory(1)
    assert packing.decide(9.0, CARD, [], ShareLimits(16, fixed=True)).trials == 1


def test_too_few_reports() -> None:
    """Memory and CPUs decide, one doubling after the other, and that is said."""
    packing, limits = Packing(), ShareLimits(16, cpus=16)
    silent = [TrialState(str(i), 0.0, (), memory_bytes=3 * GB, cpus=2.5) for i in range(16)]
    assert packing.decide(1799.0, CARD, silent[:1], limits).trials == 1
    seen, now_s, level = [], 1801.0, packing.decide(1801.0, CARD, silent[:1], limits)
    while not level.settled:
        seen.append(level.trials)
        now_s += 30.0
        packing = Packing.from_json(packing.to_json())
        level = packing.decide(now_s, CARD, silent[: level.trials], limits)
    assert sorted(set(seen)) == [1, 2, 4]
    assert (level.trials, level.why) == (6, CPUS)
    assert level.text == ("reports come too rarely to measure; 16 CPUs, and a trial needs 2.5 CPUs")
    assert level.progress is None and level.slowdown is None


def test_a_neighbours_room_comes_back() -> None:
    """What it held is left to it for ten minutes after it let go."""
    packing, limits = Packing(), ShareLimits(8)
    first = alone(0, memory=20 * GB)
    for now_s, others in ((1.0, 50), (9.0, 0), (300.0, 0)):
        card = CardState(80 * GB, (20 + others) * GB, others * GB)
        level = packing.decide(now_s, card, [first], limits)
        assert level.trials == 1
    assert level.why == MEMORY
    card = CardState(80 * GB, 20 * GB, 0)
    assert packing.decide(700.0, card, [first], limits).trials == 2


@pytest.mark.parametrize(
    "stored", [{}, {"best": 3}, {"level": "x"}, {"measuring": []}, {"best": {}}]
)
def test_a_state_that_is_none(stored: dict[str, object]) -> None:
    """It begins anew."""
    assert Packing.from_json(stored).to_json() == Packing().to_json()


def test_what_is_remembered() -> None:
    """A relaunch begins with the level that was found, with memory by parameters; no trial's name
    or time goes with it."""
    packing = Packing()
    done = simulate(studied(40), MEASURED, ShareLimits(8), packing=packing)
    kept = json.loads(json.dumps(done.state.to_remember()))
    assert "trial-" not in json.dumps(kept)
    again = simulate(studied(40), MEASURED, ShareLimits(8), packing=Packing.from_json(kept))
    assert again.levels[0] == max(done.levels) == 8
    assert again.took_s < done.took_s
    assert Packing.from_json(kept).expected_memory({}) == done.state.expected_memory({})


@pytest.mark.parametrize(
    ("reports", "rate"),
    [
        ([], None),
        ([(0.0, 0.0)], None),
        ([(0.0, 0.0), (2.0, 4.0)], 2.0),
        ([(float(t), 3.0 * t) for t in range(100)], 3.0),
        ([(0.01 * t, 5.0 * t) for t in range(1000)], 500.0),  # a hundred a second
        ([(0.0, 0.0), (9.0, 1.0), (10.0, 11.0), (11.0, 21.0), (12.0, 31.0)], 10.0),  # compiles
        ([(0.0, 90.0), (1.0, 95.0), (2.0, 0.0), (4.0, 4.0)], 2.0),  # began anew
        ([(0.0, float("nan")), (1.0, 1.0), (2.0, float("inf")), (3.0, 3.0)], 1.0),
        ([(0.0, -1e308), (1.0, 1e308)], None),
        ([(5.0, 1.0), (5.0, 2.0)], None),
    ],
)
def test_rates(reports: list[tuple[float, float]], rate: float | None) -> None:
    """By the intervals between reports, whatever a training reports."""
    found = rate_of(reports, 0.0)
    assert (None if found is None else math.exp(found.log)) == (rate and pytest.approx(rate))


def test_memory_grows_with_the_parameters_it_was_seen_to_depend_on() -> None:
    """A width outside of what was seen is expected to need more, a learning rate is not."""
    peaks, chance = Peaks(), random.Random(1)
    for number, width in enumerate((32, 64, 64, 128, 32, 128)):
        rate = 10 ** chance.uniform(-4, -1)
        peaks.note(str(number), {"width": width, "lr": rate, "act": "relu"}, 10**7 * width)
    for width, least, most in ((32, 0.32, 0.5), (128, 1.28, 1.9), (512, 4.8, 8.0)):
        for rate in (1e-4, 1e-1):
            expected = peaks.expected({"width": width, "lr": rate})
            assert expected is not None and least * GB <= expected <= most * GB
    # What is not known of a trial leaves the spread of all.
    assert peaks.expected({}) == peaks.usual()
    assert peaks.usual() >= 1.28 * GB  # type: ignore[operator]


def test_memory_margins() -> None:
    """One peak alone has a margin; equal ones have a smaller one; absurd values do no harm."""
    peaks = Peaks()
    assert peaks.expected({"width": 3}) is None
    peaks.note("0", {}, GB)
    assert 1.2 * GB < peaks.expected({}) < 1.5 * GB  # type: ignore[operator]
    for number in range(1, 20):
        peaks.note(str(number), {"big": 10.0**300, "huge": 10**400, "flag": True}, GB)
    assert GB < peaks.expected({"big": 1e-300}) < 1.1 * GB  # type: ignore[operator]
    for number in range(20, 90):
        peaks.note(str(number), {"wide": 10.0 ** (number - 40)}, 10 ** (number % 13))
    assert peaks.expected({"wide": 1e299}) is not None
    assert len(peaks.to_json()) == 64


def test_a_trial_that_would_not_fit_is_told() -> None:
    """By its own parameters, beside what those that train will still grow to."""
    packing, limits = Packing(), ShareLimits(8)
    widths = (1, 2, 4, 8, 1, 2)
    ended = [
        TrialState(str(i), 0.0, memory_bytes=5 * GB * width, params={"width": width})
        for i, width in enumerate(widths)
    ]
    for trial in ended:
        packing.decide(0.0, CARD, [trial], limits)
    beside = [replace(ended[2], key="new", memory_bytes=GB)]  # it will need 20 GB and a margin
    assert packing.fits({"width": 4}, CARD, beside, limits)
    assert not packing.fits({"width": 14}, CARD, beside, limits)
    assert packing.fits({"width": 14}, CARD, [], limits)  # alone it is its own affair
    assert Packing().fits({"width": 14}, CARD, beside, limits)


@pytest.mark.parametrize("seed", range(8))
def test_absurd_observations_do_no_harm(seed: int) -> None:
    """Whatever is reported, there is a level with its reason, and the state goes through JSON."""
    chance, packing, live = random.Random(seed), Packing(), list[TrialState]()
    odd = [0.0, -1.0, 1e308, -1e308, 1e-308, math.nan, math.inf, 1e30]

    def some(usual: float) -> float:
        return chance.choice(odd) if chance.random() < 0.05 else usual

    now_s = 0.0
    for step in range(40):
        now_s += chance.uniform(-1.0, 10.0)
        limits = ShareLimits(
            chance.randint(1, 48),
            fixed=chance.random() < 0.05,
            cpus=chance.choice([None, 0.0, 0.5, 16.0]),
            available=chance.choice([None, 0, 1, 100]),
            memory_bytes=chance.choice([None, 0, GB, 1000 * GB]),
        )
        while len(live) < chance.randint(0, 12):
            params = {"width": chance.choice([*odd, "a", None, True, 10**400]), "batch": some(2.0)}
            live.append(TrialState(f"{step}-{len(live)}", some(now_s), params=params))
        live = [
            replace(
                trial,
                reports=[*trial.reports, (some(now_s), some(float(step)))],
                memory_bytes=chance.choice([None, 0, chance.randint(1, 100 * GB)]),
                allocator_bytes=chance.choice([None, 0, 9 * GB]),
                cpus=chance.choice([None, 0.0, 2.5, math.nan]),
            )
            for trial in live
        ]
        card = CardState(*(chance.choice([None, 0, size]) for size in (80 * GB, 50 * GB, 9 * GB)))
        level = packing.decide(now_s, card, live, limits)
        assert 1 <= level.trials <= limits.most and level.why in WHYS and level.text
        packing.fits(chance.choice(live).params if live else {}, card, live, limits)
        packing.expected_memory({"width": some(3.0), "batch": some(3.0)})
        assert packing.slowdown(chance.randint(1, 99)) >= 1.0
        if live and chance.random() < 0.3:
            ended = live.pop()
            packing.note_ended(ended.key, now_s, complete=chance.random() < 0.8)
            if chance.random() < 0.1:
                packing.note_out_of_memory(chance.randint(0, 9), on_host=chance.random() < 0.5)
        text = json.dumps(packing.to_json())
        packing = Packing.from_json(json.loads(text))
        assert json.dumps(packing.to_json()) == text
        if chance.random() < 0.05:
            packing = Packing.from_json(packing.to_remember())


def studied(
    number: int = 200,
    *,
    spread: float = 0.0,
    noise: float = 0.05,
    seed: int = 1,
    change: Callable[[int, Training], Training] = lambda _, training: training,
) -> list[Training]:
    """Return trainings of a study.

    Args:
        spread: Of how long they take, as a logarithm; their steps are unlike then as well.
    """
    chance = random.Random(seed)
    return [
        change(
            index,
            Training(
                f"trial-{index}",
                work_s=10.0 * chance.lognormvariate(0.0, spread),
                scale=chance.lognormvariate(0.0, 1.0 if spread else 0.0),
                noise=noise,
            ),
        )
        for index in range(number)
    ]


@pytest.mark.parametrize(
    ("progress", "spread", "of_best", "of_alone"),
    [
        pytest.param(MEASURED, 0.0, 0.85, 5.0, id="measured"),
        pytest.param(MEASURED, 0.3, 0.85, 5.0, id="measured, unlike trials"),
        pytest.param(MPS, 0.0, 0.8, 8.0, id="MPS"),
        pytest.param(amdahl, 0.0, 0.85, 4.5, id="amdahl"),
    ],
)
def test_a_study_against_the_best_fixed_share(
    progress: Progress, spread: float, of_best: float, of_alone: float
) -> None:
    """200 trials, start and ramp included, against the best of 1, 2, 4, 8 and 16 found by hand."""
    limits = ShareLimits(16, cpus=16)
    packed = simulate(studied(spread=spread), progress, limits)
    by_hand = {
        level: simulate(studied(spread=spread), progress, limits, fixed=level).took_s
        for level in (1, 2, 4, 8, 16)
    }
    assert min(by_hand.values()) / packed.took_s >= of_best
    assert by_hand[1] / packed.took_s >= of_alone
    assert set(packed.levels) >= {1, 2, 4, 8}


@pytest.mark.parametrize("reports", [True, False], ids=["reports", "ends alone"])
def test_what_fills_the_card_stays_alone(reports: bool) -> None:
    """Not below 0.95 of alone, the trial that was added in vain included."""

    def long(_: int, training: Training) -> Training:
        return replace(training, work_s=100.0, every_s=5.0 if reports else 0.0)

    limits = ShareLimits(16)
    packed = simulate(studied(20, change=long), full, limits)
    by_hand = simulate(studied(20, change=long), full, limits, fixed=1)
    assert by_hand.took_s / packed.took_s >= 0.95
    assert packed.levels[-1] == 1 and packed.last is not None
    assert max(packed.levels) == 2
    assert packed.last.why in (NO_GAIN, LIMIT)


@pytest.mark.parametrize("hidden", [False, True], ids=["seen", "hidden"])
def test_memory_that_differs_by_eight_times(hidden: bool) -> None:
    """Width and batch change it; it grows late, beside a neighbour. None is lost, and few meet the
    card's end although it would hold only four of the largest."""
    sizes = [(width, batch) for width in (1, 2, 4) for batch in (1, 2)]

    def sized(index: int, training: Training) -> Training:
        width, batch = sizes[index * 7 % len(sizes)]
        params = {"width": 32 * width, "batch": 64 * batch, "lr": 0.1 / (index + 1)}
        return replace(training, memory=2 * GB * width * batch, params=params)

    packed = simulate(
        studied(80, change=sized),
        MEASURED,
        ShareLimits(16),
        total=80 * GB,
        others=10 * GB,
        hidden=hidden,
    )
    assert packed.finished == 80
    assert packed.ran_out <= 6
    assert max(packed.levels) >= 4
