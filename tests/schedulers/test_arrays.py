"""How many arrays, how large and how wide: pure numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sweep.core.executors import slots_of
from sweep.core.scheduler import Limits
from sweep.core.study import Resources, Share, Slurm
from sweep.schedulers.arrays import array_size, name_token, plan_waves, throttle_of
from sweep.schedulers.choose import resolve
from tests.study_rows import make_study


@pytest.mark.parametrize(
    ("settings", "left", "limits", "expected"),
    [
        ({}, 10, Limits(), 10),
        ({"tasks": 4}, 10, Limits(), 4),
        ({"trials_per_task": 3}, 10, Limits(), 4),
        ({}, 3000, Limits(array_size=1001), 1001),
        ({}, 3000, Limits(array_size=1001, submitted=50), 48),  # its finaliser, the database
        ({}, 10, Limits(submitted=2), 1),
    ],
)
def test_array_size(settings: dict[str, int], left: int, limits: Limits, expected: int) -> None:
    """One element a trial, or what the study asks for, within the site's limits."""
    assert array_size(make_study(**settings), left, limits) == expected


@pytest.mark.parametrize(
    ("settings", "left", "limits", "expected"),
    [
        ({}, 10, Limits(), [10, 2]),  # a spare wave as wide as K
        ({}, 1500, Limits(array_size=1001), [1001, 501]),
        ({"tasks": 3, "trials_per_task": 1}, 8, Limits(), [3, 3, 3, 1]),
        ({}, 3000, Limits(array_size=1001, submitted=50), [23, 23]),
        ({}, 100, Limits(submitted=3), [1]),
    ],
)
def test_chains(settings: dict[str, int], left: int, limits: Limits, expected: list[int]) -> None:
    """Where nodes may not submit all waves are queued at once, and something follows the first."""
    assert plan_waves(make_study(**settings), left, limits, chain=True) == expected
    if limits.submitted is not None:
        assert sum(expected) + len(expected) + 1 <= limits.submitted


@pytest.mark.parametrize(
    ("parallel", "slots", "size", "expected"),
    [(4, 1, 100, 4), (4, 1, 2, 2), (10, 4, 100, 2), (3, 4, 100, 1)],
)
def test_throttle(parallel: int, slots: int, size: int, expected: int) -> None:
    """K counts trials: tasks of several slots are fewer, and at least one."""
    assert throttle_of(make_study(trials=200, max_parallel=parallel), size, slots) == expected


@pytest.mark.parametrize(
    ("slots", "level", "size", "expected"),
    [
        *[(1, None, 200, 2), (1, 4, 200, 4), (1, 5, 200, 4), (1, 16, 200, 1), (1, 1, 200, 16)],
        *[(4, None, 200, 2), (4, 2, 200, 2), (16, None, 200, 1), (1, 4, 3, 3), (1, 64, 9, 1)],
    ],
)
def test_throttle_where_tasks_pack_their_gpus(
    slots: int, level: int | None, size: int, expected: int
) -> None:
    """As many as K trials fill; two until it is known how many a GPU takes. Local ones share."""
    needs = Resources(gpus=1, share=Share())
    study = make_study(trials=200, max_parallel=16, executor="slurm", resources=needs)
    assert throttle_of(study, size, slots, level) == expected
    local = dataclasses.replace(study, executor="local")
    assert throttle_of(local, size, 1, level) == min(16, size)


@pytest.mark.parametrize(
    ("slots", "parallel", "executor", "expected"),
    [(4, 9, "slurm", 4), (4, 3, "slurm", 3), (4, None, "slurm", 4), (4, 9, "local", 1)],
)
def test_slots(slots: int, parallel: int | None, executor: str, expected: int) -> None:
    """A task never serves more trials than K, nor several where tasks are this machine's."""
    study = make_study(
        trials=200, max_parallel=parallel, slurm=Slurm(slots=slots), executor=executor
    )
    assert slots_of(study) == expected
    assert slots_of(study) * throttle_of(study, 100, slots_of(study)) <= study.parallel


@pytest.mark.parametrize(
    ("environ", "needs", "expected"),
    [
        ({}, {}, 8),
        ({}, {"cpus": 3}, 2),
        ({"SLURM_CPUS_ON_NODE": "4"}, {}, 4),
        ({"SLURM_CPUS_ON_NODE": "64"}, {}, 8),
        ({"SLURM_CPUS_ON_NODE": "?"}, {}, 8),
        ({"SLURM_CPUS_ON_NODE": "6", "SLURM_MEM_PER_NODE": "4000"}, {"memory_mb": 1500}, 2),
        ({"SLURM_MEM_PER_CPU": "1000"}, {"memory_mb": 2000}, 4),
        ({"SLURM_MEM_PER_NODE": "0"}, {"memory_mb": 2000}, 8),
        ({"SLURM_MEM_PER_NODE": "100"}, {"memory_mb": 2000}, 1),
        # Trials that share GPUs: so many as those may serve at most.
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"gpus": 1, "share": Share(max=16)}, 32),
        ({"CUDA_VISIBLE_DEVICES": ""}, {"gpus": 1, "share": Share()}, 1),
    ],
)
def test_how_many_run_at_once_here(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], needs: dict[str, Any], expected: int
) -> None:
    """What the CPUs allow; within a job of Slurm's, those and the memory that it holds."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    asked = make_study(
        trials=200, max_parallel=None, executor="local", resources=Resources(**needs)
    )
    assert resolve(asked, environ).max_parallel == expected
    given = dataclasses.replace(asked, max_parallel=50)
    assert resolve(given, environ).max_parallel == 50


@pytest.mark.parametrize(
    ("settings", "left", "expected"),
    [({}, 18, [5, 2]), ({"trials_per_task": 2}, 18, [3, 2]), ({"tasks": 3}, 18, [3, 2])],
)
def test_arrays_of_tasks_with_slots(
    settings: dict[str, int], left: int, expected: list[int]
) -> None:
    """A task stands for as many trials as it serves at once, also in a chain."""
    study = make_study(
        trials=200, max_parallel=9, slurm=Slurm(slots=4), executor="slurm", **settings
    )
    assert array_size(study, left, Limits()) == expected[0]
    assert plan_waves(study, left, Limits(), chain=True) == expected


@pytest.mark.parametrize("name", ["digits", "a b;c", "größe", "数", "x" * 200])
def test_name_tokens_are_safe_and_new(name: str) -> None:
    """A job's name has only harmless letters, whatever the study's."""
    token = name_token(name)
    assert token.startswith("sweep-") and len(token) <= 64
    assert all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in token)
    assert token != name_token(name)
