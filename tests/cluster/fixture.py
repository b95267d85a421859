"""Pytest fixtures that give a test the real Slurm; tests/conftest.py hands them to all tests.

The cluster comes up at the first test that asks for it and goes down when pytest ends. Where it
cannot run, tests are skipped with the reason; with ``slurm`` in SWEEP_TEST_REQUIRE they fail.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import processes
from tests.cluster.cluster import Cluster, Missing
from tests.needs import skip_or_fail

PREFIX = "sweep-slurm-"
_shared: dict[str, Cluster | Missing] = {}


@pytest.fixture(scope="session")
def slurm(pytestconfig: pytest.Config) -> Cluster:
    """A running cluster with proctrack/linuxproc, one for the whole session."""
    return obtain(pytestconfig, "linuxproc")


@pytest.fixture(scope="session")
def slurm_cgroup(pytestconfig: pytest.Config) -> Cluster:
    """A running cluster with proctrack/cgroup: real memory limits, no orphans."""
    return obtain(pytestconfig, "cgroup")


@pytest.fixture
def clean_slurm(slurm: Cluster) -> Iterator[Cluster]:
    """The session's cluster for a test that breaks things: whole and empty again afterwards."""
    yield slurm
    slurm.heal()


def obtain(config: pytest.Config, proctrack: str) -> Cluster:
    """Return the session's cluster of a kind, brought up once; else skip, or fail if required."""
    if proctrack not in _shared:
        remove_abandoned()
        root = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
        root.chmod(0o755)  # the cluster's user works in it
        processes.write_pid(root / "owner", os.getpid())
        cluster = Cluster(root, proctrack=proctrack)

        def take_down() -> None:
            cluster.down()
            shutil.rmtree(root, ignore_errors=True)

        config.add_cleanup(take_down)
        atexit.register(take_down)
        try:
            _shared[proctrack] = cluster.up()
        except Missing as missing:
            _shared[proctrack] = missing
    found = _shared[proctrack]
    if isinstance(found, Cluster):
        return found
    reason = f"no Slurm cluster with proctrack/{proctrack} on this machine; missing: {found}"
    skip_or_fail("slurm", reason)


@contextlib.contextmanager
def own_cluster(**settings: Any) -> Iterator[Cluster]:
    """A cluster for one module's tests alone; else skip, or fail if required.

    Args:
        settings: As ``Cluster`` takes them.
    """
    remove_abandoned()
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/tmp"))
    root.chmod(0o755)
    processes.write_pid(root / "owner", os.getpid())
    cluster = Cluster(root, **settings)
    try:
        try:
            cluster.up()
        except Missing as missing:
            skip_or_fail("slurm", f"no Slurm cluster on this machine; missing: {missing}")
        yield cluster
    finally:
        cluster.down()
        shutil.rmtree(root, ignore_errors=True)


def remove_abandoned() -> None:
    """Take down the clusters of test sessions that were killed."""
    for root in Path("/tmp").glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            owner = root / "owner"
            is_ours = owner.exists() and owner.stat().st_uid == os.geteuid()
            if is_ours and processes.read_pid(owner) is None:
                Cluster(root).down()
                shutil.rmtree(root, ignore_errors=True)
