"""The lease on a data folder, and who serves while the database's job waits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sweep.core.paths import StudyFolder
from sweep.schedulers.revive import Reviver
from sweep.storage.embedded.lease import PERIODS, Lease, LeaseLost

PERIOD_S = 10.0


def age(lease: Lease, seconds: float) -> None:
    """Let a lease be so old."""
    then = time.time() - seconds
    os.utime(lease.path, (then, then))


def test_a_folder_without_a_lease_is_free(tmp_path: Path) -> None:
    lease = Lease(tmp_path, PERIOD_S)
    assert lease.age_s() is None and lease.is_free()


def test_a_lease_is_held_until_three_periods_have_passed(tmp_path: Path) -> None:
    """A successor waits: its predecessor may live where nobody can look."""
    mine, other = Lease(tmp_path, PERIOD_S), Lease(tmp_path, PERIOD_S)
    mine.take()
    assert not other.is_free()
    age(mine, (PERIODS - 1) * PERIOD_S)
    assert not other.is_free()
    age(mine, PERIODS * PERIOD_S + 5)
    assert other.is_free()


def test_renewing_makes_it_young(tmp_path: Path) -> None:
    lease = Lease(tmp_path, PERIOD_S)
    lease.take()
    age(lease, 25.0)
    lease.renew()
    found = lease.age_s()
    assert found is not None and found < 10.0


def test_a_lease_that_another_took_is_lost(tmp_path: Path) -> None:
    """Whoever wakes up late stops its server, and leaves the other's lease alone."""
    mine, other = Lease(tmp_path, PERIOD_S), Lease(tmp_path, PERIOD_S)
    mine.take()
    other.take()
    with pytest.raises(LeaseLost, match="Another server has taken over"):
        mine.renew()
    mine.give_up()
    other.renew()


def test_a_folder_that_is_gone_loses_the_lease(tmp_path: Path) -> None:
    """A lease that cannot be renewed is none: the server must not go on."""
    folder = tmp_path / "pg"
    folder.mkdir()
    lease = Lease(folder, PERIOD_S)
    lease.take()
    lease.path.unlink()
    folder.rmdir()
    with pytest.raises(LeaseLost, match="cannot be renewed"):
        lease.renew()


def test_giving_up_frees_at_once(tmp_path: Path) -> None:
    mine, other = Lease(tmp_path, PERIOD_S), Lease(tmp_path, PERIOD_S)
    mine.take()
    mine.give_up()
    assert other.is_free()
    mine.give_up()  # a second time does no harm
    assert [path.name for path in tmp_path.iterdir()] == []


def test_the_last_of_two_that_took_it_has_it(tmp_path: Path) -> None:
    """Two can find a lease free at the same moment; each looks again before it starts a server."""
    one, other = Lease(tmp_path, PERIOD_S), Lease(tmp_path, PERIOD_S)
    assert one.is_free() and other.is_free()
    one.take()
    other.take()
    assert (one.is_mine(), other.is_mine()) == (False, True)


class Waiting:
    """A scheduler whose database job is in the queue."""

    def __init__(self) -> None:
        self.asked = 0
        self.running: list[str] = []

    def ensure_service(self, cwd: Path) -> str:
        self.asked += 1
        return "11"

    def service_jobs(self, *, running: bool) -> list[str]:
        return self.running


@pytest.mark.parametrize(("runs", "hosts"), [(False, 1), (True, 0)])
def test_a_task_serves_while_the_databases_job_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool, hosts: int
) -> None:
    """Not at once: a job that was requeued comes back after a while; and never beside it."""
    clock, schedule = [0.0], Waiting()
    schedule.running = ["11"] if runs else []
    reviver = Reviver(StudyFolder(tmp_path), schedule, lambda: clock[0])  # type: ignore[arg-type]
    started: list[float] = []
    monkeypatch.setattr(reviver, "start_host", lambda: started.append(clock[0]))
    for now in range(0, 100, 5):
        clock[0] = float(now)
        reviver.revive()
    assert schedule.asked == 2  # after 15 s, and a minute later
    assert started == [75.0] * hosts
    clock[0] = 500.0  # it was there meanwhile
    reviver.revive()
    assert schedule.asked == 2
