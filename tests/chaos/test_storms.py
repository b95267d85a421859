"""Storms over random studies, each from a seed, audited; they take minutes, so with --long only.

One that failed is played again by itself: ``python -m tests.chaos --seed 1 --number 3 --form
short``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweep.search.propose import prepares
from sweep.studyfile import load
from tests.chaos import storm, studies
from tests.chaos.auditor import Report
from tests.chaos.ground import (
    LOCAL_KILLS,
    OWN_SEARCH,
    SLURM_KILLS,
    Ground,
    LocalGround,
    SlurmGround,
)
from tests.chaos.studies import AHEAD, HUGE, LONG, OWN_SAMPLER, SHORT, Drawn, Form, draw_study
from tests.cluster.cluster import Cluster

SEED = 1
AT_ONCE = 2  # they wait more than they compute
# Among them: each thing that can be killed here, stop, drain, raise, promotion, patience.
SHORT_ONES = (2, 5, 14)


def test_the_same_seed_gives_the_same_storm() -> None:
    for form in (SHORT, LONG, HUGE):
        one, again = draw_study(7, 3, form), draw_study(7, 3, form)
        assert one == again
        for kinds, switches in ((LOCAL_KILLS, False), (SLURM_KILLS, True)):
            plan = storm.draw_plan(one, kinds, None, switches)
            assert plan == storm.draw_plan(again, kinds, None, switches)
    assert draw_study(7, 3, LONG).keys != draw_study(7, 4, LONG).keys


@pytest.mark.parametrize("form", [SHORT, LONG], ids=lambda form: form.name)
def test_studies_are_various_and_sweep_takes_them(form: Form, tmp_path: Path) -> None:
    """Among a hundred there is every sampler, pruner, budget, fault and event."""
    drawn = [draw_study(SEED, number, form) for number in range(100)]
    path = tmp_path / "study.yaml"
    for one in drawn:
        keys = {"name": one.name, "command": ["train", "{params}"], "trials": one.trials}
        path.write_text(json.dumps(keys | dict(one.keys)))
        load(path)
    assert {one.keys["sampler"] for one in drawn} == set(form.samplers)
    pruners = [one.keys["pruner"] for one in drawn]
    kinds = {pruner if isinstance(pruner, str) else pruner["type"] for pruner in pruners}
    assert kinds == set(studies.PRUNERS)
    for key in ("time", "target", "patience", "constraints"):
        assert any(key in one.keys for one in drawn), key
    assert any(isinstance(one.keys["objective"], list) for one in drawn)
    assert any("when" in axis for one in drawn for axis in one.keys["space"].values())
    events = [event for one in drawn for event in storm.draw_plan(one, SLURM_KILLS, None, True)]
    assert {event.kind for event in events} == {"", *SLURM_KILLS}
    assert {event.what for event in events} == {
        *("kill", "raise", "stop", "drain", "launch", "switch")
    }
    assert any(event.after is storm.AT_END for event in events)


def test_studies_of_the_form_ahead_have_all_of_it(tmp_path: Path) -> None:
    """Each thing in its turn, with proposals ahead, and what prepares them killed and held."""
    drawn = [draw_study(SEED, number, AHEAD) for number in range(20)]
    path = tmp_path / "study.yaml"
    (tmp_path / "own_search.py").write_text(OWN_SEARCH.read_text())
    loaded = []
    for one in drawn:
        keys = {"name": one.name, "command": ["train", "{params}"], "trials": one.trials}
        path.write_text(json.dumps(keys | dict(one.keys) | {"max_parallel": one.max_parallel}))
        loaded.append(load(path))
    prepare = [study.sampler.type for study in loaded if prepares(study)]
    assert set(prepare) == {"tpe", "gp", "auto", OWN_SAMPLER} and len(prepare) == 16
    for key in ("where", "replicates", "constraints", "patience"):
        assert any(key in one.keys for one in drawn), key
    assert any(study.is_multi_objective for study in loaded)
    assert any("prior" in axis for one in drawn for axis in one.keys["space"].values())
    kinds = (*LocalGround.kills, *AHEAD.more_kills)
    events = [event for one in drawn for event in storm.draw_plan(one, kinds)]
    assert {"proposer", "proposer held"} < {event.kind for event in events}


def play(drawn: Drawn, ground: Ground, switches: bool = False, rate: float | None = None) -> Report:
    """Play one storm; its folder stays where it has a fault."""
    said: list[str] = []
    keep = True
    try:
        report = storm.play(drawn, ground, rate, switches, said.append)
        keep = not report.is_clean
    finally:
        ground.close(keep)
        print("\n".join(said))
    assert report.is_clean, "\n".join([*said, report.text()])
    return report


def play_here(
    form: Form,
    numbers: Iterable[int],
    folder: Path,
    share: int | str | None = None,
    mps: bool = False,
) -> None:
    """Play storms on this machine, two at a time."""
    drawn = [draw_study(SEED, number, form) for number in numbers]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        grounds = [LocalGround(folder / one.name, one.name, share, mps) for one in drawn]
        jobs = [pool.submit(play, *each) for each in zip(drawn, grounds, strict=True)]
        for job in jobs:
            job.result()


@pytest.mark.long
def test_short_storms(tmp_path: Path) -> None:
    """A few small studies: what the long ones do, in a minute."""
    play_here(SHORT, SHORT_ONES, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("share", [2, "auto"])
def test_storms_where_trials_share_gpus(share: int | str, tmp_path: Path) -> None:
    """The same studies, with two GPUs on which as many trials train as may."""
    play_here(SHORT, SHORT_ONES, tmp_path, share)


@pytest.mark.long
def test_storms_where_mps_serves_those_that_share(tmp_path: Path) -> None:
    """Its daemons and servers are killed too, and faults reach all that they serve."""
    play_here(SHORT, SHORT_ONES, tmp_path, 3, mps=True)


@pytest.mark.long
@pytest.mark.parametrize("ten", range(10))
def test_long_storms(ten: int, tmp_path: Path) -> None:
    """A hundred random studies of trainings of half a minute."""
    play_here(LONG, range(10 * ten, 10 * ten + 10), tmp_path)


@pytest.mark.long
def test_storms_over_proposals_ahead(tmp_path: Path) -> None:
    """One of each turn."""
    play_here(AHEAD, range(len(studies.TURNS)), tmp_path)


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.parametrize("number", range(20))
def test_storms_on_slurm(number: int, clean_slurm: Cluster) -> None:
    drawn = draw_study(SEED, number, LONG)
    play(drawn, SlurmGround(clean_slurm, drawn.name), switches=True)


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.parametrize(("number", "kind"), [(2, "slurm"), (4, "slurm"), (3, "slurm_cgroup")])
def test_storms_on_slurm_where_mps_serves_those_that_share(
    number: int, kind: str, request: pytest.FixtureRequest
) -> None:
    """Three on each GPU, also under real limits of memory; among what is killed are Slurm's own
    processes of single steps, MPS's daemons and servers, and a fault reaches all of a server's."""
    cluster: Cluster = request.getfixturevalue(kind)
    drawn = draw_study(32, number, LONG, trials=7)
    try:
        play(drawn, SlurmGround(cluster, drawn.name, 3, mps=True), switches=True, rate=14.0)
    finally:
        cluster.heal()


@pytest.mark.long
@pytest.mark.parametrize("number", range(5))
def test_thousand_trials(number: int, tmp_path: Path) -> None:
    """A thousand trials, twenty kills a minute."""
    drawn = draw_study(SEED, number, HUGE)
    play(drawn, LocalGround(tmp_path / drawn.name, drawn.name))
