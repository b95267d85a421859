"""Many trainings at once, and copiers that are killed: no torn copy is ever used."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from sweep.core.files import write_atomic
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
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        while asked > CHUNKS and not (results / "go").exists():
            (results / f"{os.getpid()}.copies").touch()
            time.sleep(0.02)
        return False

    study = node.study
    staged = Stager(study, node.folder, {}, lambda _: None).stage(study.data_paths, stop)
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
