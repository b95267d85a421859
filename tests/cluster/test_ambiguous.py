"""Submissions whose answer is lost, a hundred times: each job is in the queue once, none twice."""

from __future__ import annotations

import collections
import random
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweep.core.errors import SubmitUnclear
from sweep.schedulers.slurm.ask import Answer, Asker
from sweep.schedulers.slurm.text.submit import ArrayRequest
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slurm

LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
KERBEROS = "Your Kerberos credential expires in 2 days\n"
# What the first answer of a submission is, and whether the job got in all the same.
FAULTS = {
    "in, and timed out": (True, Answer("", LOST, 1)),
    "not in, and timed out": (False, Answer("", LOST, 1)),
    "in, and killed": (True, Answer("", "", -9)),
    "not in, and killed": (False, Answer("", "", -9)),
    "in, and silent": (True, Answer("", KERBEROS, 0)),
    "in, with two numbers": (True, Answer("12\n13\n", KERBEROS, 0)),
}


class Losing:
    """Runs Slurm's commands; loses the first answer to each submission."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.met: dict[str, str] = {}

    def __call__(self, argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
        token = next((w.partition("=")[2] for w in argv if w.startswith("--job-name=")), "")
        with self.lock:
            is_first = bool(token) and token not in self.met
            if is_first:
                self.met[token] = self.random.choice(sorted(FAULTS))
        if not is_first:
            return self._run(argv)
        gets_in, answer = FAULTS[self.met[token]]
        if gets_in:
            done = self._run(argv)
            assert done.returncode == 0, done
        return answer

    def _run(self, argv: Sequence[str]) -> Answer:
        done = self.cluster.run(list(argv))
        return Answer(done.stdout, KERBEROS + done.stderr, done.returncode)


@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.long)])
def test_ambiguous_submissions(clean_slurm: Cluster, tmp_path: Path, count: int) -> None:
    """Whatever became of the answer: 0 twins, 0 lost."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\nsleep 600\n")
    run = Losing(clean_slurm, seed=7)

    def submit(number: int) -> tuple[str, str]:
        token = f"sweep-lost-{number}-{tmp_path.name[-6:]}"
        asker = Asker(clean_slurm.env("root"), run, say=lambda _: None)
        request = ArrayRequest(token, str(script), "/dev/null", size=2, throttle=1)
        try:
            return token, asker.sbatch(request)
        except SubmitUnclear:
            return token, "unclear"

    with ThreadPoolExecutor(8) as pool:
        known = dict(pool.map(submit, range(count)))
    rows = clean_slurm.run(["squeue", "-h", "-u", "root", "-o", "%j|%F"], check=True).stdout
    queued: dict[str, set[str]] = collections.defaultdict(set)
    for row in rows.splitlines():
        token, _, job = row.partition("|")
        queued[token].add(job)
    twins = [token for token in known if len(queued[token]) > 1]
    lost = [token for token in known if not queued[token]]
    wrong = [token for token, job in known.items() if queued[token] != {job}]
    print(f"{count} ambiguous: {dict(collections.Counter(run.met.values()))}")
    print(f"{len(twins)} twins, {len(lost)} lost, {len(wrong)} with another number")
    assert (twins, lost, wrong) == ([], [], [])
