"""Many trainings at once, and copiers that are killed: no torn copy is ever used."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.core.files import write_atomic
from sweep.core.paths import StudyFolder
from sweep.core.study import DataSet, Staging, Study
from sweep.core.system import processes
from sweep.provenance.data import capture_data
from sweep.tasks.staging import copying
from sweep.tasks.staging.stage import Stager
from tests.tasks.staging.test_stage import Node
from tests.waiting import text_of, wait_for

AT_ONCE = 20
KILLS = 6
CHUNKS = 20  # that a copier brings before it is killed


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    for number in range(12):
        (made.data / f"train/{number}").write_bytes(os.urandom(250_000))
    made.launch()
    return made


def _train(node: Node, results: Path) -> None:
    """Stage the data, read all of it, and write down what it was.

    Whoever copies stops after some chunks, in the middle of files, until it is killed, or a file
    "go" lets it go on.
    """
    os.setpgid(0, 0)
    copying.CHUNK_BYTES = 10_000
    asked, copies = 0, False

    def open_source(path: Path) -> Any:
        nonlocal copies
        copies = True
        return copying.open_plain(path)

    def stop() -> bool:
        nonlocal asked
        asked += copies  # who waits for another one's copy is asked now and then as well
        while asked > CHUNKS and not (results / "go").exists():
            (results / f"{os.getpid()}.copies").touch()
            time.sleep(0.02)
        return False

    study = node.study
    stager = Stager(study, node.folder, {}, lambda _: None, open_source=open_source)
    staged = stager.stage(study.data_paths, stop)
    content = capture_data(staged.data["mnist"], full=True)["content_sha256"]
    write_atomic(results / f"{os.getpid()}.read", f"{staged.data['mnist']} {content}")
    os._exit(0)


def test_copiers_that_are_killed(node: Node, tmp_path: Path) -> None:
    """Each goes on where the one before was killed; all read the same whole copy."""
    results = tmp_path / "results"
    results.mkdir()
    forking = multiprocessing.get_context("fork")
    trainings = [forking.Process(target=_train, args=(node, results)) for _ in range(AT_ONCE)]
    for one in trainings:
        one.start()
    killed: set[int] = set()
    try:
        for _ in range(KILLS):
            copiers = wait_for(
                lambda: {int(one.stem) for one in results.glob("*.copies")} - killed, "a copier"
            )
            (copier,) = copiers  # one at a time, however many ask
            os.kill(copier, signal.SIGKILL)
            killed.add(copier)
        (results / "go").touch()
        for one in trainings:
            one.join()
    finally:
        for one in trainings:
            one.kill()
    assert {one.pid for one in trainings if one.exitcode} == killed
    read = [path.read_text() for path in results.glob("*.read")]
    assert len(read) == AT_ONCE - KILLS
    (entry,) = node.cache.entries()
    assert entry.is_complete
    expected = capture_data(node.data, full=True)["content_sha256"]
    assert set(read) == {f"{node.cache.tree(entry.key) / 'mnist'} {expected}"}


def test_a_training_whose_worker_was_killed_keeps_its_data(node: Node, tmp_path: Path) -> None:
    """The lock is its own: what it reads is not removed while it lives."""
    staged = node.stage()
    training = processes.spawn(
        [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
        cwd=tmp_path,
        env={},
        stdout=tmp_path / "log",
        inherited=staged.locks,
    )
    try:
        wait_for(lambda: "up" in text_of(tmp_path / "log"), "the training runs")
        staged.close()  # as the death of the worker does
        assert node.cache.purge(lambda _: True) == []
    finally:
        training.kill()
        training.wait()
    assert len(node.cache.purge(lambda _: True)) == 1


SETS, QUOTA_MB, SET_BYTES = 5, 1, 400_000  # of which two fit
AT_ONCE_IN_QUOTA, ROUNDS = 20, 3


def _train_in_turn(study: Study, folder: StudyFolder, seed: int) -> None:
    """Stage some data sets, one after the other, and see that each is read whole."""
    os.setpgid(0, 0)
    copying.CHUNK_BYTES = 20_000
    chosen = random.Random(seed)
    for _ in range(ROUNDS):
        name = chosen.choice(list(study.datasets))
        one = dataclasses.replace(study, datasets={name: study.datasets[name]})
        staged = Stager(one, folder, {}, lambda _: None).stage(one.data_paths)
        content = (staged.data[name] / "x").read_bytes()
        staged.close()
        if content != name[-1].encode() * SET_BYTES:
            os._exit(9)
    os._exit(0)


def test_the_quota_holds_under_kills(node: Node) -> None:
    """More data than fit, asked for by twenty tasks at once of which some are killed: whoever
    lives has read whole data, and no more than one file lies there above the quota."""
    paths = {f"d{number}": node.root / f"set{number}" for number in range(SETS)}
    for name, path in paths.items():
        path.mkdir()
        (path / "x").write_bytes(name[-1].encode() * SET_BYTES)
    axes: dict[str, object] = {"code": {}, "environment": {}, "execution": {}}
    data = {str(path): capture_data(path) for path in paths.values()}
    text = json.dumps({"run": "r", **axes, "data": data, "earlier": {}})
    node.folder.provenance.write_text(text)
    study = dataclasses.replace(
        node.study,
        datasets={name: DataSet(str(path), "node") for name, path in paths.items()},
        data=tuple(data),
        staging=Staging(str(node.disk), QUOTA_MB),
    )
    forking = multiprocessing.get_context("fork")
    trainings = [
        forking.Process(target=_train_in_turn, args=(study, node.folder, seed))
        for seed in range(AT_ONCE_IN_QUOTA)
    ]
    for one in trainings:
        one.start()
    chosen, most, killed = random.Random(1), 0, 0
    try:
        while alive := [one for one in trainings if one.is_alive()]:
            most = max(most, sum(entry.bytes for entry in node.cache.entries()))
            if killed < KILLS and chosen.random() < 0.2:
                chosen.choice(alive).kill()
                killed += 1
            time.sleep(0.01)
    finally:
        for one in trainings:
            one.kill()
            one.join()
    assert {one.exitcode for one in trainings} <= {0, -signal.SIGKILL}
    assert [one.exitcode for one in trainings].count(0) >= AT_ONCE_IN_QUOTA - KILLS
    assert 0 < most <= (QUOTA_MB << 20) + SET_BYTES
    assert sum(entry.bytes for entry in node.cache.entries()) <= QUOTA_MB << 20
