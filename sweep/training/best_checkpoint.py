"""The checkpoint of an attempt's best step: kept beside the newest, and found again.

With ``objective.at: best`` the number that counts is an earlier step's, whose checkpoint most
trainings soon remove. So it is linked or copied into the attempt's ``best/`` as soon as it is
there, by a thread of its own: training waits for nothing. ``best/best.json`` says of which step.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.core.files import read_record, write_atomic
from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective, Study
from sweep.core.trial import Report, better
from sweep.training import save_order
from sweep.training.carry_over import clone
from sweep.training.saves import Save

NOTE = "best.json"
_LOOK_S = 0.5  # after the best step was reported, and then less and less often
_MOST_STEPS = 10_000  # that are remembered, about
_SLACK_S = 0.05  # between the clock of a file system and a training's


@dataclass(frozen=True)
class ReportedStep:
    """A step at which the objective was reported."""

    step: int
    time_s: float
    value: float


def is_wanted(study: Study) -> bool:
    """Tell whether a study's trials keep their best step's checkpoint."""
    return not study.is_multi_objective and study.objective.at == "best" and study.keep > 0


def find_best(folder: AttemptFolder, value: float) -> Path | None:
    """Return the checkpoint that an attempt left of a step with this value; None without one."""
    note, _ = read_record(folder.best / NOTE)
    if note is None or note.get("value") != value:
        return None
    path = folder.root / str(note.get("path"))
    try:
        files = [folder.root / str(each) for each in note["files"]]
        is_same = [_state_of(file) for file in files] == note["states"]
    except (OSError, KeyError, TypeError):
        return None
    return path if is_same and path.is_relative_to(folder.root) else None


def note_best(
    folder: AttemptFolder, study: Study, reports: Iterable[Report], pattern: str | None = None
) -> None:
    """Note the best step's checkpoint of an attempt that has ended, whoever watched it."""
    if is_wanted(study) and folder.checkpoints.is_dir():
        keeper = BestKeeper(folder, study.objective, pattern)
        keeper.see(reports)
        keeper.finish()


class BestKeeper:
    """Keeps the checkpoint of the best step that was reported so far.

    Args:
        folder: The attempt's.
        objective: What is best.
        pattern: The study's ``checkpoint_files``.
    """

    def __init__(
        self, folder: AttemptFolder, objective: Objective, pattern: str | None = None
    ) -> None:
        self._folder, self._objective, self._pattern = folder, objective, pattern
        self._steps: list[ReportedStep] = []
        self._best: ReportedStep | None = None
        self._kept: ReportedStep | None = None
        self._changed = threading.Condition()
        self._over = False
        self._thread: threading.Thread | None = None

    def see(self, reports: Iterable[Report]) -> None:
        """Take reports, those again that were seen before where they could not be stored."""
        with self._changed:
            known = {(step.step, step.time_s) for step in self._steps[-_MOST_STEPS:]}
            for report in reports:
                value = report.metrics.get(self._objective.metric)
                if value is None or (report.step, report.time_s) in known:
                    continue
                self._trim()
                step = ReportedStep(report.step, report.time_s, value)
                self._steps.append(step)
                if math.isfinite(value) and (
                    self._best is None or better(value, self._best.value, self._objective.direction)
                ):
                    self._best = step
            self._changed.notify()

    def _trim(self) -> None:
        """Forget steps in between, of a training that reports millions: the best's stay."""
        if len(self._steps) < 2 * _MOST_STEPS:
            return
        around: list[ReportedStep] = []
        if self._best is not None:
            place = self._steps.index(self._best)
            around = self._steps[max(0, place - 1) : place + 2]
        latest = self._steps[-_MOST_STEPS:]
        self._steps = [step for step in around if step not in latest] + latest

    def start(self) -> None:
        """Keep it from now on, in a thread."""
        self._thread = threading.Thread(target=self._watch, name="best checkpoint", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Say where the best step's checkpoint is, now that the training has ended.

        What is still in the checkpoint folder stays there. A copy that is under way is given up: a
        task that leaves has seconds.
        """
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(OSError):  # then it is not kept, and whoever looks says so
            self._note_end()

    def _note_end(self) -> None:
        best = self._best
        if best is None or find_best(self._folder, best.value) is not None:
            return
        save = self._find(best, [*self._steps])
        shutil.rmtree(self._folder.best, ignore_errors=True)
        if save is not None:
            self._folder.best.mkdir(mode=0o700)
            self._write_note(self._folder.best, best, save.path, save.files)

    def _watch(self) -> None:
        wait_s, seen = _LOOK_S, 0
        while True:
            with self._changed:
                if not self._over:  # nobody tells again what was told before this waited
                    self._changed.wait(wait_s if self._best != self._kept else None)
                if self._over:
                    return
                best, steps = self._best, [*self._steps]
            if best is None or best == self._kept:
                continue
            if len(steps) != seen:
                wait_s, seen = _LOOK_S, len(steps)
            began = time.monotonic()
            with contextlib.suppress(OSError):
                self._keep(best, steps)
            # Looking into large folders takes a file server's time.
            wait_s = min(60.0, max(wait_s * 1.5, 20 * (time.monotonic() - began)))

    def _find(self, best: ReportedStep, steps: Sequence[ReportedStep]) -> Save | None:
        """Return the save of a step: the first after it, for later ones may be of the next."""
        found = [
            save
            for save in save_order.find(self._folder.checkpoints, self._pattern)
            if step_of(save, steps) == best
        ]
        return min(
            found, key=lambda save: (best.step not in save.name.steps, save.saved_ns), default=None
        )

    def _keep(self, best: ReportedStep, steps: Sequence[ReportedStep]) -> None:
        save = self._find(best, steps)
        if save is None:
            return
        part, root = self._folder.root / ".best", self._folder.root
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700)
        before = [_state_of(file) for file in save.files]
        # A name with its number is written once, and removed: its files can be linked.
        links = bool(save.name.numbers)
        for file in save.files:
            goal = self._within(part, file)
            if not clone(file, goal, links=links, goes_on=lambda: not self._over):
                shutil.rmtree(part, ignore_errors=True)
                return
        if [_state_of(file) for file in save.files] == before:  # not saved again meanwhile
            inside = [self._within(part, file) for file in save.files]
            path = self._within(part, save.path)
            self._write_note(part, best, path, inside)
            old = self._folder.root / ".best-before"
            with contextlib.suppress(FileNotFoundError):
                os.rename(self._folder.best, old)
            os.rename(part, root / "best")
            shutil.rmtree(old, ignore_errors=True)
            self._kept = best
        else:
            shutil.rmtree(part, ignore_errors=True)

    def _within(self, part: Path, file: Path) -> Path:
        """Return where a file of the checkpoint folder, or all of it, is put."""
        inside = file.relative_to(self._folder.checkpoints)
        return part / (inside if inside.parts else "checkpoint")

    def _write_note(
        self, into: Path, best: ReportedStep, path: Path, files: Sequence[Path]
    ) -> None:
        def within(file: Path) -> str:
            if file.is_relative_to(into):
                return str(Path("best") / file.relative_to(into))
            return str(file.relative_to(self._folder.root))

        note = {
            "step": best.step,
            "value": best.value,
            "path": within(path),
            "files": [within(file) for file in files],
            "states": [_state_of(file) for file in files],
        }
        write_atomic(into / NOTE, json.dumps(note) + "\n")


def step_of(save: Save, steps: Sequence[ReportedStep]) -> ReportedStep | None:
    """Return of which step a save is; None where that is not clear.

    The number in its name says so if it is that of the step reported just before it was saved, or
    just after. Without one it is the step before, where it was saved soon after that; and the next
    one, where that was reported at once. Where several were reported within the clocks' slack of
    it, only a number tells.

    Args:
        steps: In the order in which they were reported.
    """
    saved_s = save.saved_ns / 1e9
    times = [step.time_s for step in steps]
    place = bisect_right(times, saved_s + _SLACK_S)
    at_once = steps[bisect_left(times, saved_s - _SLACK_S) : place]
    for step in at_once:
        if step.step in save.name.steps:
            return step  # of several at once
    if len(at_once) > 1:
        return None  # the clocks do not say which came before it
    before = steps[place - 1] if place else None
    after = steps[place] if place < len(steps) else None
    since_s = saved_s - before.time_s if before else math.inf
    until_s = after.time_s - saved_s if after else math.inf
    numbers = save.name.steps
    if before is not None and before.step in numbers:
        return before
    if after is not None and after.step in numbers and until_s < since_s:
        return after
    if before is None:
        return None
    # Of a loop that saves and then reports, the report follows at once.
    if after is not None and until_s * 4 < since_s:
        return after
    if any(step.step in numbers for step in steps if step not in (before, after)):
        return None  # of an earlier one, written again
    return before if _is_soon(since_s, until_s, steps, place) else None


def _is_soon(since_s: float, until_s: float, steps: Sequence[ReportedStep], place: int) -> bool:
    """Tell whether a save followed its report sooner than half a step."""
    if math.isfinite(until_s):
        return since_s <= until_s
    if place > 1:
        return since_s <= (steps[place - 1].time_s - steps[place - 2].time_s) / 2 + _SLACK_S
    return True


def _state_of(path: Path) -> list[int]:
    """Return what changes where a file, or one in a folder, is written again."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    states = [file.stat() for file in files]
    return [
        len(states),
        sum(state.st_size for state in states),
        max((state.st_mtime_ns for state in states), default=0),
    ]
