"""Single trials of a study on a cluster: cancelled, given back, added; and the whole removed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, studying
from tests.cluster.processes import wait_for
from tests.cluster.test_slots import launch

pytestmark = pytest.mark.slurm

# Saves and leaves when it is told; else until the test has seen all that it waits for.
LEAVES = """
import os, sys, time
from sweep.report import Reporter

reporter = Reporter()
for step in range(1, 100000):
    reporter.log(step=step, value=float(step))
    if os.path.exists(sys.argv[1]) or reporter.should_stop():
        break
    time.sleep(0.1)
"""


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def test_a_trial_is_cancelled_beside_others_and_given_back(faulty: Faulty) -> None:
    """In a task of four slots one trial leaves, and the others train on; nothing is scancelled.

    Then it is retried while the array lives: the same array takes it. Nothing is removed while it
    does, and all when it has ended.
    """
    user, name = faulty.user, faulty.name
    command = [str(user.bin / "python"), "-c", LEAVES, str(faulty.gate)]
    launch(faulty, command=command, trials=5, max_parallel=4)
    faulty.wait_steps(3, trials=4)
    before = {(a.trial, a.number): a.outcome for a in faulty.attempts()}
    assert before == {(trial, 1): None for trial in range(4)}
    said = user.sweep("stop", name, "--trial", "1").stdout
    assert said == "trial 1: is told to leave, and has 10 s for it; it is cancelled then\n"
    wait_for(lambda: faulty.states().get(1) == "cancelled", 120, "trial 1 to leave")
    wait_for(lambda: faulty.of(4), 120, "its slot to pull trial 4")
    living = {(a.trial, a.number): a.outcome for a in faulty.attempts() if a.trial in (0, 2, 3)}
    assert living == {(0, 1): None, (2, 1): None, (3, 1): None}
    jobs = {a.job for a in faulty.attempts()}
    assert len(jobs) == 1
    assert "is at work" in user.sweep("remove", name, "--yes", code=1).stderr
    shown = user.sweep("launch", faulty.path, "--retry", "1", env=faulty.env).stdout
    assert "retried: trial 1" in shown and "runs already:" in shown
    faulty.gate.touch()
    faulty.wait_end(120)
    assert faulty.states() == dict.fromkeys(range(5), "complete")
    assert {a.job for a in faulty.attempts()} == jobs
    wait_for(
        lambda: user.sweep("remove", name, "--yes", code=None).returncode == 0,
        180,
        "the finaliser to end, and the study to be removed",
    )
    assert not (user.runs / name).exists()
    assert faulty.sql(f"SELECT 1 FROM studies WHERE study_name = '{name}'") == []
