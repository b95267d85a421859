"""A storm over one study: what happens is drawn wholly beforehand, from a seed; then it is audited.

Each event has its place in the study's progress, "after so many epochs were trained", not a second:
so a plan holds on a slow machine as on a fast one, and the same seed gives the same plan.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg2

from tests.chaos import auditor
from tests.chaos.auditor import Evidence, Report
from tests.chaos.ground import Ground, Ran, finish
from tests.chaos.studies import Drawn

POLL_S = 0.2
LOOK_S = 1.5  # between two looks into the database
MOST_LOOK_S = 30.0  # where a look is expensive
STATUS_S = 15.0  # between two looks of a user's
AWAY_S = 8.0  # a database that is away for so long: a user looks
MOST_MORE = 20  # trials that are added at once
HELPED = 4  # times that a study without progress is launched again, before it counts as stuck
COMMAND_S = 300.0  # for a command of sweep's
EXIT_FAULT = 70
AT_WORK = "is at work"  # what a launch says that met another: no fault
STANDS = ("stopped", "held")  # states of a study that goes on only when it is launched
ENDED = "finished"
STATES = ("waiting", "running", "complete", "pruned", "failed", "cancelled")
AT_END = None


@dataclass(frozen=True)
class Event:
    """Something that happens to a study.

    Attributes:
        after: Epochs that were trained by then, by the ledger; AT_END: when the study has ended.
        what: "kill", "raise", "stop", "drain", "launch" or "switch".
        kind: What is killed.
        choice: From 0 to 1: which one of several, or how many.
        delay_s: Where something is given time: a launch before it is killed, a daemon that is away.
        beside: The next events do not wait for this one's command.
    """

    after: int | None
    what: str
    kind: str = ""
    choice: float = 0.0
    delay_s: float = 0.0
    beside: bool = False

    def __str__(self) -> str:
        when = "when it has ended" if self.after is AT_END else f"after epoch {self.after}"
        more = (f" {self.kind}" if self.kind else "") + (", beside" if self.beside else "")
        return f"{when}: {self.what}{more} (choice {self.choice:.2f}, {self.delay_s:.1f} s)"


def draw_plan(
    drawn: Drawn,
    kills: Sequence[str],
    kills_per_minute: float | None = None,
    switches: bool = False,
) -> list[Event]:
    """Return all events of a study, in their order; the same study gives the same plan.

    Args:
        kills: Kinds to draw from.
        kills_per_minute: Of the study's own length; what its form says when None.
        switches: Whether the executor can be switched.
    """
    draw = random.Random(f"{drawn.seed}/{drawn.number}/plan/{drawn.form.name}/{switches}")
    rate = drawn.form.kills_per_minute if kills_per_minute is None else kills_per_minute
    count = max(1 if rate else 0, round(rate * drawn.length_s / 60))
    total = drawn.total_epochs

    def event(what: str, kind: str = "") -> Event:
        after = draw.randrange(max(1, total * 9 // 10))
        return Event(after, what, kind, draw.random(), round(draw.uniform(0.0, 3.0), 2))

    events = [event("kill", draw.choice(kills)) for _ in range(count)]
    others = ["raise", "raise", "stop", "stop", "drain", "launch"] + ["switch"] * switches
    for _ in range(draw.randint(*drawn.form.events)):
        other = event(draw.choice(others))
        beside = draw.random() < 0.4 and other.what in ("raise", "launch")
        events.append(replace(other, beside=beside))
    if draw.random() < 0.3:
        events.append(replace(event("raise"), after=AT_END))
    events.sort(key=lambda event: (event.after is AT_END, event.after or 0))
    if draw.random() < 0.25:
        events.insert(0, Event(0, "kill", "launch", delay_s=round(draw.uniform(0.0, 6.0), 2)))
    return events


class Storm:
    """Plays one plan on one ground.

    Args:
        say: Is given a line for each thing that happens.
    """

    def __init__(
        self,
        drawn: Drawn,
        plan: Sequence[Event],
        ground: Ground,
        say: Callable[[str], None] = print,
    ) -> None:
        self.drawn, self.plan, self.ground, self._say = drawn, plan, ground, say
        self.tail = ground.tail
        self.trials = drawn.trials
        self.executor = ground.executor
        self.refused: list[str] = []
        self.crashes: list[str] = []
        self.watched: list[Mapping[tuple[int, int], int]] = []
        self.helped: list[str] = []
        self.killed = 0
        self._beside: list[tuple[tuple[str, ...], subprocess.Popen[str]]] = []
        self._url: str | None = None
        self._over = False
        self._gave_up = False
        self._looked = self._looked_as_user = float("-inf")
        self._look_s = LOOK_S
        self._away_since: float | None = None
        self._moved = (0, time.monotonic())
        self._began = time.monotonic()
        self._deadline = self._began + 600 + 8 * drawn.length_s

    def say(self, text: str) -> None:
        took = time.monotonic() - self._began
        self._say(f"{took:7.1f} s  epoch {self.tail.epochs:5d}  {text}")

    # The play

    def play(self) -> Report:
        """Launch, let everything happen, wait for the end, and audit."""
        self._write()
        if not self.plan or (self.plan[0].kind, self.plan[0].after) != ("launch", 0):
            self._launch()
        for event in self.plan:
            self._wait(event.after)
            if self._over and event.after is not AT_END:
                self.say(f"not reached: {event}")
                continue
            if self._gave_up:
                break
            self._act(event)
        self._wait(AT_END)
        for argv, child in self._beside:
            self._took(argv, child, COMMAND_S)
        left = self._wait_left()
        self.say("ended" if self._over else "NOT ended")
        return self._audit(left)

    def _act(self, event: Event) -> None:
        self._moved = (self.tail.lines, time.monotonic())
        self._over = False
        if event.what == "kill" and event.kind == "launch":
            self._kill_launch(event.delay_s)
        elif event.what == "kill":
            self._kill(event)
        elif event.what == "raise":
            self._raise(event)
            self._launch(event.beside)
        elif event.what in ("stop", "drain"):
            self._run("stop", self.drawn.name, *(["--drain"] if event.what == "drain" else []))
            self._launch()
        elif event.what == "switch":
            self.executor = "local" if self.executor == "slurm" else "slurm"
            self._write()
            self._launch()
        else:
            self._launch(event.beside)

    def _kill(self, event: Event) -> None:
        end = time.monotonic() + 5.0
        what = ""
        while not what and time.monotonic() < end:
            self.tail.follow()
            what = self.ground.kill(event.kind, event.choice, event.delay_s)
            if not what:
                time.sleep(POLL_S)
        self.killed += bool(what)
        self.say(f"killed {what}" if what else f"no {event.kind} to kill")
        if event.kind == "runner":
            self._launch()  # nothing but a user's command comes back after it

    def _kill_launch(self, delay_s: float) -> None:
        child = self.ground.start("launch", self.ground.file.name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(delay_s)
        was_there = child.poll() is None
        child.kill()
        child.communicate()
        self.killed += was_there
        self.say(f"killed launch after {delay_s} s" if was_there else "launch had ended")
        self._launch()

    def _raise(self, event: Event) -> None:
        more = 1 + int(event.choice * max(1, min(self.drawn.trials // 2, MOST_MORE)))
        most = self.drawn.most_trials
        raised = self.trials + more if most is None else min(self.trials + more, most)
        self.say(f"raise trials from {self.trials} to {raised}")
        self.trials = raised
        self._write()

    # Commands

    def _write(self) -> None:
        drawn = self.drawn
        keys = dict(drawn.keys) | {"trials": self.trials, "max_parallel": drawn.max_parallel}
        if self.executor != self.ground.executor:
            keys["executor"] = self.executor
        self.ground.write_study(keys, drawn.epochs, drawn.form.every, drawn.form.epoch_s)

    def _launch(self, beside: bool = False) -> None:
        if beside:
            argv = ("launch", self.ground.file.name)
            self._beside.append((argv, self.ground.start(*argv)))
        else:
            self._run("launch", self.ground.file.name)

    def _run(self, *arguments: str, quiet: bool = False) -> Ran:
        return self._took(arguments, self.ground.start(*arguments), COMMAND_S, quiet)

    def _took(
        self,
        arguments: tuple[str, ...],
        child: subprocess.Popen[str],
        limit_s: float,
        quiet: bool = False,
    ) -> Ran:
        """Take in how a command ended; one that does not end in time is ended."""
        ran = finish(arguments, child, limit_s)
        said = " ".join(arguments)
        if not quiet:
            last = (ran.out.strip() or ran.err.strip() or "-").splitlines()[-1]
            self.say(f"sweep {said}: {ran.code}; {last[:100]}")
        if ran.code == EXIT_FAULT or "Traceback (most recent call last)" in ran.err:
            self.crashes.append(f"sweep {said}: {ran.err[-2000:]}")
        elif ran.code != 0 and AT_WORK not in ran.err:
            code = "no end in time" if ran.code is None else f"exit code {ran.code}"
            self.refused.append(f"sweep {said}: {code}: {ran.err.strip()[-600:]}")
        return ran

    # Waiting

    def _wait(self, epochs: int | None) -> None:
        """Wait for progress, or for the end of the study."""
        while not self._over and not self._gave_up:
            self.tail.follow()
            if epochs is not None and self.tail.epochs >= epochs:
                return
            self._look()
            self._help()
            for argv, child in [one for one in self._beside if one[1].poll() is not None]:
                self._beside.remove((argv, child))
                self._took(argv, child, COMMAND_S)
            time.sleep(POLL_S)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_as_user > STATUS_S:
            self._looked_as_user = now
            shown = self._run("status", self.drawn.name, "--json", quiet=True)
            told = json.loads(shown.out) if shown.code == 0 else {}
            if told.get("state") in STANDS:
                self._help_on(shown.out, "and nobody asked for that")
            elif told.get("state") == ENDED and told["trials"] == self.trials:
                self._over = True  # its database may be gone by then; the audit asks it
        if now - self._looked < self._look_s:
            return
        self._looked = now
        try:
            url = self._address()
            asked = time.monotonic()
            total, left = auditor.count_open(url, self.drawn.name)
            self._over = total == self.trials and not left
            counts = auditor.read_succeeded(url, self.drawn.name)
        except (psycopg2.Error, LookupError):
            self._url = None
            self._away_since = self._away_since or now
            if now - self._away_since > AWAY_S:
                self._looked_as_user = float("-inf")  # whoever looks starts it again
                self._away_since = None
            return
        self._away_since = None
        self._look_s = min(MOST_LOOK_S, max(LOOK_S, 20 * (time.monotonic() - asked)))
        if counts and (not self.watched or self.watched[-1] != counts):
            self.watched.append(counts)

    def _address(self) -> str:
        """Return the database's URL; a server that is away is not started for it.

        Raises:
            LookupError: It is not known at present.
        """
        if self._url is None:
            if self.ground.postmaster() is None:
                raise LookupError
            ran = self.ground.sweep("db", "url")
            if ran.code != 0:
                raise LookupError
            self._url = ran.out.strip()
        return self._url

    def _help(self) -> None:
        """Launch again, as a user would, where nothing has moved for long."""
        now = time.monotonic()
        if self.tail.lines != self._moved[0]:
            self._moved = (self.tail.lines, now)
        if now > self._deadline or len(self.helped) >= HELPED:
            self._gave_up = True
        elif now - self._moved[1] > max(self.drawn.form.patience_s, self.ground.patience_s):
            shown = self._run("status", self.drawn.name, "--json", quiet=True).out
            self._help_on(shown, f"for {now - self._moved[1]:.0f} s")

    def _help_on(self, shown: str, how: str) -> None:
        text = f"{how}: {' '.join(shown.split())[:600]}"
        self.helped.append(f"at epoch {self.tail.epochs} it stands, {text}")
        self.say(f"NOTHING MOVES, {text}")
        self._launch()
        self._moved = (self.tail.lines, time.monotonic())

    def _wait_left(self) -> list[str]:
        end = time.monotonic() + self.ground.leave_s
        while (left := self.ground.leftovers()) and time.monotonic() < end:
            time.sleep(0.5)
        return left

    # The audit

    def _audit(self, left: list[str]) -> Report:
        name = self.drawn.name
        status = self._run("status", name, "--json", quiet=True)
        chosen = [word for state in STATES for word in ("--state", state)]
        collected = self._run("collect", name, "--format", "json", *chosen, quiet=True)
        self._url = None
        evidence = auditor.read_database(self._final_address(), name)
        jobs = sorted({row.job for row in evidence.attempts if row.job.isdigit()})
        evidence = replace(
            evidence,
            lines=auditor.read_ledger(self.ground.ledger),
            journals=auditor.read_journals(self.ground.study),
            collected=json.loads(collected.out) if collected.code == 0 else [],
            status=json.loads(status.out) if status.code == 0 else {},
            folders=auditor.read_folders(self.ground.study),
            crashes=[*self.crashes, *self._crash_files()],
            refused=self.refused,
            wedged=self.helped,
            left=left,
            watched=self.watched,
            accounting=self.ground.accounting(jobs),
        )
        report = auditor.audit(self.drawn.facts(self.trials), evidence)
        report.figures |= self._figures()
        return report

    def _final_address(self) -> str:
        ran = self._run("db", "url", quiet=True)
        if ran.code != 0:
            raise RuntimeError(f"no database to audit: {ran.err}")
        return ran.out.strip()

    def _crash_files(self) -> list[str]:
        paths = sorted(self.ground.runs.glob(".crashes/*"))
        return [f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in paths]

    def _figures(self) -> dict[str, Any]:
        return {"killed": self.killed, "took_s": round(time.monotonic() - self._began)}


def play(
    drawn: Drawn,
    ground: Ground,
    kills_per_minute: float | None = None,
    switches: bool = False,
    say: Callable[[str], None] = print,
) -> Report:
    """Draw a study's plan, say it, play it, and return what the auditor found."""
    kinds = (*ground.kills, *drawn.form.more_kills)
    plan = draw_plan(drawn, kinds, kills_per_minute, switches)
    say(drawn.describe())
    for event in plan:
        say(f"  {event}")
    return Storm(drawn, plan, ground, say).play()


__all__ = ["AT_END", "Event", "Evidence", "Storm", "draw_plan", "play"]
