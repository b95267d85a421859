"""What every scheduler must do, as one test class; each implementation's tests inherit it.

A subclass gives the fixtures ``scheduler`` and ``folder`` (an empty folder that the elements see
under the same path), and changes the class's values where its scheduler is slower.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.scheduler import ENDED, PENDING, RUNNING, ArrayJob, Scheduler, TaskState
from tests.waiting import PATIENCE_S, text_of

# An element that notes its start, waits until a file "go" exists, and notes its end.
WAIT = """
echo "start $(date +%s%N) $SWEEP_ARRAY_INDEX" >> times
while [ ! -e go ] && [ ! -e "go-$SWEEP_ARRAY_INDEX" ]; do sleep 0.05; done
echo "end $(date +%s%N) $SWEEP_ARRAY_INDEX" >> times
"""
BRIEF = """
echo "start $(date +%s%N) $SWEEP_ARRAY_INDEX" >> times
sleep 0.2
echo "end $(date +%s%N) $SWEEP_ARRAY_INDEX" >> times
"""
# The same, and it does not end before three of them have begun.
THREE = """
echo "start $(date +%s%N) $SWEEP_ARRAY_INDEX" >> times
until [ "$(grep -c start times)" -ge 3 ]; do sleep 0.05; done
sleep 0.2
echo "end $(date +%s%N) $SWEEP_ARRAY_INDEX" >> times
"""
# An element that notes the signals it gets; argument 1 says what SIGTERM does to it.
SIGNALS = """
import pathlib, signal, sys, time
notes = open("signals", "a", buffering=1)
def note(number, frame):
    notes.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM and sys.argv[1] == "leave":
        sys.exit(0)
signal.signal(signal.SIGUSR1, note)
signal.signal(signal.SIGTERM, note)
pathlib.Path("ready").touch()
while True:
    time.sleep(0.05)
"""


def wait_for(what: Callable[[], Any], patience_s: float) -> Any:
    """Return what ``what`` gives as soon as it is true, or fail."""
    give_up_at = time.monotonic() + patience_s
    while not (got := what()):
        assert time.monotonic() < give_up_at, "it did not happen in time"
        time.sleep(0.02)
    return got


def most_at_once(times: str) -> int:
    """Return how many elements ran at once, at most, by their own notes."""
    lines = sorted((int(line.split()[1]), line.split()[0]) for line in times.splitlines())
    running = most = 0
    for _, kind in lines:
        running += 1 if kind == "start" else -1
        most = max(most, running)
    return most


class SchedulerContract:
    """The laws of a scheduler."""

    patience_s = PATIENCE_S
    shortest_limit_s = 2
    python = "python3"

    def job(self, folder: Path, script: str | Sequence[str], **changes: Any) -> ArrayJob:
        """Return an array of one element that runs a shell script or an argv in the folder."""
        given: dict[str, Any] = {
            "token": f"sweep-test-{uuid.uuid4().hex[:12]}",
            "size": 1,
            "throttle": 1,
            "argv": ["sh", "-c", script] if isinstance(script, str) else script,
            "cwd": folder,
            "log_pattern": f"{folder}/logs/{{job}}_{{index}}.log",
        }
        (folder / "logs").mkdir(exist_ok=True)
        return ArrayJob(**given | changes)

    def states(self, scheduler: Scheduler, job: str) -> dict[int, TaskState]:
        return {index: state for (_, index), state in scheduler.poll([job]).items()}

    def wait_states(self, scheduler: Scheduler, job: str, wanted: dict[int, str]) -> None:
        """Wait until the elements are in these states (pending, running, or an end's word)."""
        give_up_at = time.monotonic() + self.patience_s
        while True:
            states = self.states(scheduler, job)
            got = {i: s.word if s.state == ENDED else s.state for i, s in states.items()}
            if got == wanted:
                return
            if time.monotonic() > give_up_at:
                pytest.fail(f"wanted {wanted}, got {states}")
            time.sleep(0.05)

    # Submit and find.

    def test_all_elements_run_and_complete(self, scheduler: Scheduler, folder: Path) -> None:
        """Every index runs once, under its job's id, and is COMPLETED with exit code 0."""
        script = 'echo "$SWEEP_JOB $SWEEP_ARRAY_INDEX $COLOUR" >> ran'
        job = scheduler.submit(
            self.job(folder, script, size=5, throttle=2, env={"COLOUR": "dark red, 'x'"})
        )
        self.wait_states(scheduler, job, dict.fromkeys(range(5), "COMPLETED"))
        ran = (folder / "ran").read_text().splitlines()
        assert sorted(ran) == [f"{job} {i} dark red, 'x'" for i in range(5)]
        codes: set[int | None] = {None}

        def are_known() -> bool:  # accounting lags behind
            codes.clear()
            codes.update(state.exit_code for state in self.states(scheduler, job).values())
            return None not in codes

        wait_for(are_known, self.patience_s)
        assert codes == {0}

    def test_a_job_is_found_by_its_token(self, scheduler: Scheduler, folder: Path) -> None:
        """A token finds its own job, while it runs and after, and no other."""
        one = self.job(folder, "true")
        other = self.job(folder, WAIT)
        assert scheduler.find(one.token) == []
        ids = [scheduler.submit(one), scheduler.submit(other)]
        assert [scheduler.find(one.token), scheduler.find(other.token)] == [[ids[0]], [ids[1]]]
        self.wait_states(scheduler, ids[0], {0: "COMPLETED"})
        assert scheduler.find(one.token) == [ids[0]]
        scheduler.cancel(ids[1])

    def test_ids_are_not_used_twice(self, scheduler: Scheduler, folder: Path) -> None:
        """Each submission has an id of its own."""
        ids = [scheduler.submit(self.job(folder, "true")) for _ in range(3)]
        assert len(set(ids)) == 3

    def test_poll_answers_for_all_jobs_at_once(self, scheduler: Scheduler, folder: Path) -> None:
        """One poll tells of several jobs, and of no other."""
        ids = [scheduler.submit(self.job(folder, "true", size=n)) for n in (1, 2, 1)]
        for job, size in zip(ids, (1, 2, 1), strict=True):
            self.wait_states(scheduler, job, dict.fromkeys(range(size), "COMPLETED"))
        assert set(scheduler.poll(ids[:2])) == {(ids[0], 0), (ids[1], 0), (ids[1], 1)}

    # States and ends.

    def test_states_follow_an_element(self, scheduler: Scheduler, folder: Path) -> None:
        """An element is pending, then running, then ended."""
        job = scheduler.submit(self.job(folder, WAIT, size=2))
        self.wait_states(scheduler, job, {0: RUNNING, 1: PENDING})
        (folder / "go-0").touch()
        self.wait_states(scheduler, job, {0: "COMPLETED", 1: RUNNING})
        (folder / "go-1").touch()
        self.wait_states(scheduler, job, {0: "COMPLETED", 1: "COMPLETED"})

    @pytest.mark.parametrize(
        ("argv", "word", "code"),
        [
            (["sh", "-c", "exit 0"], "COMPLETED", 0),
            (["sh", "-c", "exit 3"], "FAILED", 3),
            (["sh", "-c", "kill -9 $$"], "FAILED", 137),
            (["no-such-command-of-sweep"], "FAILED", 127),
        ],
    )
    def test_exit_codes(
        self, scheduler: Scheduler, folder: Path, argv: list[str], word: str, code: int
    ) -> None:
        """An end has its exit code, as a shell would give it."""
        job = scheduler.submit(self.job(folder, argv))
        self.wait_states(scheduler, job, {0: word})
        assert self.states(scheduler, job)[0].exit_code == code

    def test_one_log_an_element(self, scheduler: Scheduler, folder: Path) -> None:
        """Standard output and error of each element are in a log of its own."""
        script = "echo out $SWEEP_ARRAY_INDEX; echo err >&2"
        job = scheduler.submit(self.job(folder, script, size=2, throttle=2))
        self.wait_states(scheduler, job, dict.fromkeys(range(2), "COMPLETED"))
        got = {path.name: path.read_text() for path in (folder / "logs").iterdir()}
        assert got == {f"{job}_{i}.log": f"out {i}\nerr\n" for i in range(2)}

    @pytest.mark.parametrize(
        "name", ["with space", "it's", 'a"b', "100%A_%a", "$(touch owned)", "größe-数", "a,b;c&d"]
    )
    def test_odd_folders(self, scheduler: Scheduler, folder: Path, name: str) -> None:
        """A folder's name and an argument of any kind arrive as they are."""
        inner = folder / name
        inner.mkdir()
        argv = ["sh", "-c", 'pwd; printf "%s\\n" "$1"', "sh", f"{name} *"]
        job = scheduler.submit(self.job(inner, argv))
        self.wait_states(scheduler, job, {0: "COMPLETED"})
        log = inner / "logs" / f"{job}_0.log"
        assert log.read_text() == f"{inner}\n{name} *\n"
        assert sorted(path.name for path in folder.iterdir()) == [name]

    # The throttle.

    def test_the_throttle_holds(self, scheduler: Scheduler, folder: Path) -> None:
        """No more elements run at once than the throttle says, and as many as it says."""
        job = scheduler.submit(self.job(folder, THREE, size=9, throttle=3))
        self.wait_states(scheduler, job, dict.fromkeys(range(9), "COMPLETED"))
        assert most_at_once((folder / "times").read_text()) == 3

    def test_the_throttle_changes_live(self, scheduler: Scheduler, folder: Path) -> None:
        """A raised throttle starts more; a lowered one lets them end and starts fewer."""
        job = scheduler.submit(self.job(folder, WAIT, size=6, throttle=1))
        self.wait_states(scheduler, job, {0: RUNNING} | dict.fromkeys(range(1, 6), PENDING))
        scheduler.set_throttle(job, 3)
        self.wait_states(
            scheduler, job, dict.fromkeys(range(3), RUNNING) | dict.fromkeys(range(3, 6), PENDING)
        )
        scheduler.set_throttle(job, 2)
        for i in range(3):
            (folder / f"go-{i}").touch()
        self.wait_states(
            scheduler,
            job,
            dict.fromkeys(range(3), "COMPLETED") | {3: RUNNING, 4: RUNNING, 5: PENDING},
        )
        (folder / "go").touch()
        self.wait_states(scheduler, job, dict.fromkeys(range(6), "COMPLETED"))

    # Cancelling.

    def test_cancel_some(self, scheduler: Scheduler, folder: Path) -> None:
        """Cancelling indices ends those, pending or running, and leaves the others."""
        job = scheduler.submit(self.job(folder, WAIT, size=5, throttle=2))
        self.wait_states(
            scheduler, job, {0: RUNNING, 1: RUNNING, 2: PENDING, 3: PENDING, 4: PENDING}
        )
        scheduler.cancel(job, [1, 3])
        self.wait_states(
            scheduler, job, {0: RUNNING, 1: "CANCELLED", 2: RUNNING, 3: "CANCELLED", 4: PENDING}
        )
        (folder / "go").touch()
        self.wait_states(
            scheduler,
            job,
            {0: "COMPLETED", 1: "CANCELLED", 2: "COMPLETED", 3: "CANCELLED", 4: "COMPLETED"},
        )
        assert self.states(scheduler, job)[1].cancelled_by == os.getuid()

    def test_cancel_all(self, scheduler: Scheduler, folder: Path) -> None:
        """Cancelling an array ends what runs and starts nothing more."""
        job = scheduler.submit(self.job(folder, WAIT, size=4, throttle=2))
        wait_for(lambda: self.states(scheduler, job)[1].state == RUNNING, self.patience_s)
        scheduler.cancel(job)
        self.wait_states(scheduler, job, dict.fromkeys(range(4), "CANCELLED"))

    def test_cancel_pending_only(self, scheduler: Scheduler, folder: Path) -> None:
        """What has started goes on when only the pending ones are cancelled."""
        job = scheduler.submit(self.job(folder, WAIT, size=5, throttle=2))
        wait_for(lambda: self.states(scheduler, job)[1].state == RUNNING, self.patience_s)
        scheduler.cancel(job, pending_only=True)
        gone = dict.fromkeys(range(2, 5), "CANCELLED")
        self.wait_states(scheduler, job, {0: RUNNING, 1: RUNNING} | gone)
        (folder / "go").touch()
        self.wait_states(scheduler, job, {0: "COMPLETED", 1: "COMPLETED"} | gone)

        def ran() -> set[int]:
            return {i for i, state in self.states(scheduler, job).items() if state.started}

        wait_for(lambda: ran() == {0, 1}, self.patience_s)  # accounting lags behind

    def test_cancelling_what_has_ended_changes_nothing(
        self, scheduler: Scheduler, folder: Path
    ) -> None:
        """An element that has ended keeps its end."""
        job = scheduler.submit(self.job(folder, "exit 4"))
        self.wait_states(scheduler, job, {0: "FAILED"})
        scheduler.cancel(job)
        assert self.states(scheduler, job)[0].word == "FAILED"

    def test_a_cancelled_element_gets_sigterm(self, scheduler: Scheduler, folder: Path) -> None:
        """A running element is told by SIGTERM, and is CANCELLED whatever its exit code."""
        job = scheduler.submit(self.job(folder, [self.python, "-c", SIGNALS, "leave"]))
        wait_for((folder / "ready").exists, self.patience_s)
        scheduler.cancel(job)
        self.wait_states(scheduler, job, {0: "CANCELLED"})
        assert "SIGTERM" in (folder / "signals").read_text()

    # The time limit.

    @pytest.mark.parametrize("at_term", ["leave", "stay"])
    def test_the_time_limit(self, scheduler: Scheduler, folder: Path, at_term: str) -> None:
        """USR1 before the limit, SIGTERM at it, SIGKILL for what stays; the end is TIMEOUT."""
        end = self.end_at_limit(scheduler, folder, [self.python, "-c", SIGNALS, at_term])
        assert end.word == "TIMEOUT"
        assert re.fullmatch(r"SIGUSR1\n(SIGTERM\n)+", (folder / "signals").read_text())

    def test_leaving_at_the_grace_signal_is_an_ordinary_end(
        self, scheduler: Scheduler, folder: Path
    ) -> None:
        """An element that ends by itself before its limit keeps its own exit code."""
        script = "trap 'exit 5' USR1; touch ready; while true; do sleep 0.1; done"
        end = self.end_at_limit(scheduler, folder, script)
        assert (end.word, end.exit_code) == ("FAILED", 5)

    def end_at_limit(
        self, scheduler: Scheduler, folder: Path, script: str | Sequence[str]
    ) -> TaskState:
        """Return how an element ends that touches ``ready`` once it listens to signals.

        On a busy machine one with a short limit may be told before it does: it is given a longer.
        """
        for limit_s in (self.shortest_limit_s, 8 * self.shortest_limit_s):
            given = {"time_limit_s": limit_s, "grace_s": limit_s // 2}
            job = scheduler.submit(self.job(folder, script, **given))
            give_up_at = time.monotonic() + 3 * limit_s + 30 + self.patience_s
            while (state := self.states(scheduler, job)[0]).state != ENDED:
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
            if (folder / "ready").exists():
                break
        return state

    # The finaliser.

    def test_after_runs_once_when_all_have_ended(self, scheduler: Scheduler, folder: Path) -> None:
        """The finaliser runs once, after the last element, whatever became of them."""
        script = f'echo "element" >> order; {BRIEF.strip()}; exit $SWEEP_ARRAY_INDEX'
        after = ["sh", "-c", "echo 'after' >> order"]
        job = scheduler.submit(self.job(folder, script, size=3, throttle=2, after=after))
        self.wait_states(scheduler, job, {0: "COMPLETED", 1: "FAILED", 2: "FAILED"})
        order = folder / "order"
        wait_for(lambda: "after" in text_of(order), self.patience_s)
        time.sleep(0.5)
        assert order.read_text().split() == ["element", "element", "element", "after"]

    def test_after_runs_when_the_array_was_cancelled(
        self, scheduler: Scheduler, folder: Path
    ) -> None:
        """A cancelled array still has its finaliser."""
        job = scheduler.submit(self.job(folder, WAIT, size=3, after=["touch", "finalised"]))
        wait_for(lambda: self.states(scheduler, job)[0].state == RUNNING, self.patience_s)
        scheduler.cancel(job)
        wait_for((folder / "finalised").exists, self.patience_s)
        self.wait_states(scheduler, job, dict.fromkeys(range(3), "CANCELLED"))
