"""What the fault tests share: a training that counts its steps, and a look at every attempt."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg2

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.user import User
from tests.waiting import text_of

# Standard library only. Each step is a report and a checkpoint; it resumes after the last one.
TRAINING = """
import json, os, signal, sys, time
from sweep.report import Reporter

steps, pause_s, every = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
if "deaf" in sys.argv:  # a script that heeds neither the control file nor signals
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
gate = sys.argv[4]
reporter = Reporter()
done = 0
if reporter.resume:
    with open(reporter.resume) as stream:
        done = int(stream.read())
    if "hasten" in sys.argv:  # the fault has happened: nothing to wait for any more
        pause_s = 0.1
for step in range(done + 1, steps + 1):
    time.sleep(pause_s)
    reporter.log(step=step, value=step / 10)
    if step % every == 0:
        path = os.path.join(reporter.checkpoint_dir, "last")
        with open(path + ".tmp", "w") as stream:
            stream.write(str(step))
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(path + ".tmp", path)
    # The test decides how long a first attempt takes ("gated": each): it waits after three steps.
    held = "gated" in sys.argv or ("held" in sys.argv and not reporter.resume)
    while held and step >= done + 3 and not os.path.exists(gate) and not reporter.should_stop():
        time.sleep(0.05)
    if "deaf" not in sys.argv and reporter.should_stop():
        break
"""


@dataclass(frozen=True)
class Seen:
    """One attempt, as the database has it; ``steps`` are those that it reported."""

    trial: int
    number: int
    index: int
    job: str
    host: str
    group: int | None
    outcome: str | None
    reason: str
    steps: tuple[int, ...]


class Faulty:
    """One study on a cluster that is about to be broken.

    Args:
        url: Of an empty database with sweep's tables.
    """

    def __init__(self, user: User, url: str, name: str) -> None:
        self.user = user
        self.cluster = user.cluster
        self.name = name
        self.url = url
        self.env = {"SWEEP_STORAGE": url}
        self.steps = 0
        user.write("train.py", TRAINING)

    def launch(
        self,
        steps: int = 8,
        pause_s: float = 1.0,
        every: int = 1,
        options: str = "",
        command: list[str] | None = None,
        env: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """Launch a study whose trials train so many steps, each so long."""
        self.steps = steps
        self.env |= env or {}
        python = str(self.user.bin / "python")
        plain = [python, str(self.user.folder / "train.py"), str(steps), str(pause_s), str(every)]
        plain.append(str(self.gate))
        given = {"command": command or [*plain, *options.split()], "keep": 1000, **settings}
        self.path = self.user.study(self.name, given.pop("command"), **given)
        self.again()

    @property
    def gate(self) -> Path:
        """A file for which first attempts wait with the option ``held``, and all with ``gated``."""
        return self.user.folder / "gate"

    def log_of(self, attempt: Seen) -> str:
        """Return what the task of an attempt has logged so far."""
        folder = self.user.runs / self.name / "logs"
        return text_of(folder / f"{attempt.job}_{attempt.index}.log")

    def again(self) -> str:
        """Launch it (again); return what launch prints."""
        return self.user.sweep("launch", self.path, env=self.env).stdout

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(self.url)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def attempts(self) -> list[Seen]:
        """Return every attempt, by trial and number."""
        rows = self.sql(
            "SELECT t.number, a.number, a.array_index, a.job, a.host, a.process_group, a.outcome, "
            "a.reason, (SELECT array_agg(m.step ORDER BY m.step) FROM sweep_metric m "
            "WHERE m.trial_id = a.trial_id AND m.attempt = a.number AND m.name = 'value') "
            "FROM sweep_attempt a JOIN trials t USING (trial_id) JOIN studies s USING (study_id) "
            f"WHERE s.study_name = '{self.name}' ORDER BY 1, 2"
        )
        return [Seen(*row[:8], steps=tuple(row[8] or ())) for row in rows]

    def of(self, trial: int) -> list[Seen]:
        """Return a trial's attempts, oldest first."""
        return [attempt for attempt in self.attempts() if attempt.trial == trial]

    def states(self) -> dict[int, str]:
        """Return every trial's state."""
        return {row["trial"]: row["state"] for row in self.user.trials(self.name)}

    def reasons(self) -> dict[int, str]:
        """Return what sweep says of the trials that are neither complete nor pruned."""
        rows = self.sql(
            "SELECT t.number, u.value_json FROM trials t JOIN trial_user_attributes u "
            "USING (trial_id) JOIN studies s USING (study_id) "
            f"WHERE u.key = 'sweep:end' AND s.study_name = '{self.name}'"
        )
        return {number: json.loads(text)["reason"] for number, text in rows}

    def live(self, steps: int) -> list[Seen]:
        """Return the live attempts that have reported so many steps."""
        return [a for a in self.attempts() if a.outcome is None and len(a.steps) >= steps]

    def wait_steps(self, steps: int, trials: int, timeout_s: float = 90) -> list[Seen]:
        """Wait until so many trials each have reported so many steps in their live attempt."""
        found: list[Seen] = []

        def have_come() -> bool:
            found[:] = self.live(steps)
            return len(found) >= trials

        try:
            wait_for(have_come, timeout_s, f"{trials} trials to report")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.tell()}") from None
        return found

    def wait_outcome(self, trial: int, timeout_s: float = 120) -> None:
        """Wait until a trial's first attempt has ended: whoever was signalled has heard of it."""
        wait_for(
            lambda: self.of(trial)[0].outcome, timeout_s, f"the attempt of trial {trial} to end"
        )

    def wait_dead(self, *attempts: Seen, timeout_s: float = 120) -> None:
        """Wait until the trainings of attempts have ended: what struck them has reached them.

        All nodes are this machine. Before that no gate may be opened: a training that waits there
        would be through before its signal comes.
        """

        def are_dead() -> bool:
            return not any(is_group_of(self.user.runs / self.name, one) for one in attempts)

        wait_for(are_dead, timeout_s, f"the trainings of {[one.trial for one in attempts]} to end")

    def wait_end(self, timeout_s: float = 180, *states: str) -> dict[str, Any]:
        """Wait until the study is finished (or in one of these states), and return its status."""
        try:
            return self.user.wait_state(self.name, *(states or ("finished",)), timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.tell()}") from None

    def tell(self) -> str:
        """Return every attempt, for a failure's message."""
        return "\n".join(map(str, self.attempts()))

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def worker_of(self, attempt: Seen) -> int:
        """Return the pid of the worker that runs an attempt: the parent of its training."""
        assert attempt.group is not None
        return parent(attempt.group)

    def check_resumed(self, trial: int, interval: int = 1) -> None:
        """Check that none of a trial's steps is missing and few ran twice.

        At most those since the last checkpoint before each interruption, the one under way too.
        """
        attempts = self.of(trial)
        steps = [step for attempt in attempts for step in attempt.steps]
        assert sorted(set(steps)) == list(range(1, self.steps + 1)), self.tell()
        trained = [attempt for attempt in attempts if attempt.steps]
        for before, after in pairwise(trained):
            assert after.steps[0] > before.steps[-1] - interval, self.tell()
        twice = len(steps) - len(set(steps))
        assert twice <= interval * (len(attempts) - 1), self.tell()

    def count_files(self) -> int:
        """Return how many files of ours the study has: not what training saved, nor what comes
        along into images."""
        root = self.user.runs / self.name

        def is_ours(path: Path) -> bool:
            saved = path.parent.name in ("checkpoints", "best") and path.name != "best.json"
            return path.is_file() and not saved and path.relative_to(root).parts[0] != "python"

        return sum(is_ours(path) for path in root.rglob("*"))

    def check_whole(self, trials: int, interval: int = 1) -> None:
        """Check that all trials are complete, and as ``check_resumed`` does."""
        assert self.states() == dict.fromkeys(range(trials), "complete"), self.tell()
        for trial in range(trials):
            self.check_resumed(trial, interval)


def is_group_of(study: Path, attempt: Seen) -> bool:
    """Tell whether the first process of an attempt's training lives."""
    assert attempt.group is not None
    words = text_of(Path(f"/proc/{attempt.group}/environ")).split("\0")
    return f"SWEEP_TRIAL_DIR={study}/trials/{attempt.trial:05d}/attempts/{attempt.number}" in words


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@contextmanager
def studying(cluster: Cluster, url: str) -> Iterator[Faulty]:
    """Give a study in a folder of its own; its jobs are cancelled at the end."""
    name = f"f{secrets.token_hex(3)}"
    user = User(cluster, cluster.home / name)
    with user.leaving_nothing():
        yield Faulty(user, url, name)
        # What is killed while its node starts or ends it keeps the node for a minute.
        user.wait_empty(60)
        with contextlib.suppress(TimeoutError):
            what = "the nodes to have ended their jobs"
            wait_for(lambda: not is_busy(cluster), 20, what, may_fail=True)


def is_busy(cluster: Cluster) -> bool:
    """Tell whether a node runs a job or is ending one."""
    states = cluster.run(["sinfo", "-h", "-N", "-o", "%t"]).stdout
    return any(word.startswith(("alloc", "mix", "comp")) for word in states.split())
