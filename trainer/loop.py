"""The training itself: epochs of steps, a report after each, checkpoints, stopping, resuming.

With several ranks all of this happens in each of them at the same step: rank 0 alone looks at the
clock and at what sweep asks for, and all follow its decision.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sweep.report import Reporter

from . import checkpoint, data, hardware
from .config import InputError, Options, differences
from .convert import split_interval
from .evaluate import measure
from .ranks import ALONE, Ranks, join
from .run import Run
from .stream import Batch
from .writer import Writer

if TYPE_CHECKING:
    from .meter import Meter

# Between epochs the control file is read at most this often: a warning before the end of a task
# gives a minute or so, an epoch may take longer.
LOOK_EVERY_S = 1.0
_DECISIONS = (None, "save", "checkpoint", "pruned")


@dataclass(frozen=True)
class Result:
    """How a run ended: ``finished``, ``pruned``, ``checkpoint`` (asked to leave) or ``diverged``.

    ``best_accuracy`` is of the validation split; NaN where no epoch ended.
    """

    ended: str
    epochs: int
    best_accuracy: float
    best_epoch: int
    metrics: dict[str, float]
    test_accuracy: float | None = None
    test_loss: float | None = None


class Looks:
    """Decides when rank 0 looks at the control file and the clock, and tells all what it saw.

    Several ranks cannot go by the clock, each would look at another step; so rank 0 says with each
    decision after how many steps the next one comes: as many as took ``LOOK_EVERY_S``.
    """

    def __init__(self, reporter: Reporter, ranks: Ranks, save_every_s: float) -> None:
        self._reporter, self._ranks, self._save_every_s = reporter, ranks, save_every_s
        self._looked = self._saved = time.monotonic()
        self._wait = self._left = 1

    def after_step(self) -> str | None:
        """Return the decision where it is time for one, else None."""
        if self._ranks.world == 1:
            if time.monotonic() - self._looked <= LOOK_EVERY_S:
                return None
            return self.now()
        self._left -= 1
        return self.now() if self._left <= 0 else None

    def now(self) -> str | None:
        """Return None, ``save`` (and go on), ``checkpoint`` (save and leave) or ``pruned``."""
        now = time.monotonic()
        decision = None
        if self._ranks.rank == 0:
            decision = self._reporter.should_stop()
            if decision not in (None, "pruned"):
                decision = "checkpoint"
            if decision is None and self._save_every_s and now - self._saved >= self._save_every_s:
                decision = "save"
        took = max(now - self._looked, 1e-6)
        wait = int(min(2 * self._wait, max(1, (self._wait - self._left) * LOOK_EVERY_S / took)))
        number, self._wait = self._ranks.agree(_DECISIONS.index(decision), max(1, wait))
        self._left, self._looked = self._wait, time.monotonic()
        if number:
            self._saved = self._looked
        return _DECISIONS[number]


def train(
    options: Options, reporter: Reporter, say: Callable[[str], object] = print, ranks: Ranks = ALONE
) -> Result:
    """Train to the end of the epochs, or until asked to stop.

    Each epoch is reported as step 1, 2, …, then saved: in this order, so that a kill in between
    repeats an epoch's report and never loses one.

    Args:
        options: The run.
        reporter: Tells sweep, and asks it; does nothing outside of it.
        say: Gets one line an epoch.
        ranks: The processes of the run; ``meet`` returns them.

    Raises:
        InputError: The data, the device or the checkpoint cannot be used as asked.
        OSError: A checkpoint or a report cannot be written.
    """
    device = hardware.prepare(options, ranks.local_rank)
    loaded = data.load(options, with_test=options.test).to(device)
    run = Run(options, loaded, device, ranks, say)
    folder = reporter.checkpoint_dir or options.output
    _resume(run, reporter, folder, say)
    writer = Writer(Path(folder)) if folder else None
    try:
        ended = _run_epochs(run, reporter, writer, say)
        run.close()
    finally:
        if writer:
            writer.finish()
    result = Result(ended, run.sampler.epoch, run.best_accuracy, run.best_epoch, run.metrics)
    if ended == "finished" and loaded.test is not None:
        found = measure(run.network, loaded.test, loaded.classes, ranks)
        result = dataclasses.replace(
            result, test_accuracy=found["accuracy"], test_loss=found["loss"]
        )
    return result


def meet(options: Options) -> Ranks:
    """Return this process's place among those of its run; the only one where it was started alone.

    Raises:
        InputError, RanksError: As ``ranks.join`` does.
    """
    return join(options.parallel, hardware.choose(options.device).type == "cuda")


def _run_epochs(
    run: Run, reporter: Reporter, writer: Writer | None, say: Callable[[str], object]
) -> str:
    """Train until the end or a stop; return how it ended."""
    epochs, ranks = run.options.epochs, run.ranks
    every, every_s = split_interval(run.options.checkpoint_every)
    if run.sampler.epoch >= epochs and run.metrics:
        # Killed between its last checkpoint and its end: report and save again, so that this
        # attempt does not look as if it had measured nothing.
        _report(run, reporter, {})
        if writer:
            _save(run, writer, say)
    looks = Looks(reporter, ranks, every_s)
    meter = _meter(run)
    while run.sampler.epoch < epochs:
        started = time.monotonic()
        run.begin_epoch()
        batches: Iterable[Tensor | Batch] = run.sampler.rest_of_epoch(run.device)
        for index in meter.watch(batches) if meter else batches:
            ranks.note(f"epoch {run.sampler.epoch + 1}, batch {run.sampler.batch + 1}")
            run.step(index)
            decision = looks.after_step()
            if decision == "pruned":
                return "pruned"
            if decision:
                # This batch is done; the sampler has not counted it yet.
                _save(run, writer, say, run.sampler.batch + 1, leaving=decision != "save")
            if decision == "checkpoint":
                return "checkpoint"
        ranks.note(f"the end of epoch {run.sampler.epoch + 1}")
        run.end_epoch()
        took_s = time.monotonic() - started
        epoch = run.sampler.epoch
        _report(run, reporter, {"epoch_s": took_s, **(meter.figures() if meter else {})})
        shown = " ".join(f"{name}={value:.4g}" for name, value in run.metrics.items())
        say(f"epoch {epoch}/{epochs} {shown} {took_s:.2f} s")
        if run.diverged:
            say(f"diverged: a loss is not finite after epoch {epoch}; try a smaller --lr")
            return "diverged"
        decision = looks.now() if epoch < epochs else None
        if writer and (decision or epoch == epochs or (every and epoch % every == 0)):
            _save(run, writer, say)
        if decision in ("pruned", "checkpoint"):
            return decision
    return "finished"


def _meter(run: Run) -> Meter | None:
    if not run.options.profile:
        return None
    from .meter import Meter  # the profiler's import takes its time

    return Meter(run.device, run.ranks)


def _report(run: Run, reporter: Reporter, more: dict[str, float]) -> None:
    if run.ranks.rank == 0:
        reporter.log(step=run.sampler.epoch, metrics={**run.metrics, **more})


def _save(
    run: Run,
    writer: Writer | None,
    say: Callable[[str], object],
    batch: int | None = None,
    leaving: bool = True,
) -> None:
    """Save the run; all ranks come here together, rank 0 writes."""
    if writer is None:
        if leaving:
            say("asked to leave, but there is no folder for a checkpoint (--output)")
        return
    state = run.snapshot(batch)
    if run.is_sharded:
        writer.save_sharded(state, run)
        return
    if run.ranks.rank == 0:
        writer.save(state, state["epoch"], state["batch"])


def _resume(run: Run, reporter: Reporter, folder: str | None, say: Callable[[str], object]) -> None:
    """Go on from the checkpoint that was asked for, if any: rank 0 reads it, all get it.

    One that the user named must be usable. One that sweep named may have been damaged since; the
    run then starts at the beginning and comes to the same result, later.
    """
    found = run.ranks.share(lambda: _find_checkpoint(run, reporter, folder, say))
    if found is None:
        return
    state, path = found
    try:
        run.restore(state, say, path)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    place = f"epoch {state['epoch']}" + (f", batch {state['batch']}" if state["batch"] else "")
    say(f"resumed from {path} after {place}")


def _find_checkpoint(
    run: Run, reporter: Reporter, folder: str | None, say: Callable[[str], object]
) -> tuple[dict[str, Any], Path] | None:
    wanted = run.options.resume
    named = wanted not in ("", "auto", reporter.resume)
    if wanted in ("", "auto"):
        wanted = reporter.resume or (folder if wanted == "auto" else "") or ""
    if not wanted:
        return None
    if named and not Path(wanted).exists():
        raise InputError(f"--resume {wanted}: no such file or folder.")
    found = checkpoint.load_newest(Path(wanted), say, whole=not run.is_sharded)
    if found is None and named:
        raise InputError(f"--resume {wanted}: no readable checkpoint. Name another, or leave it.")
    if found is None:
        say(f"no readable checkpoint at {wanted}; starting from the beginning")
        return None
    state, path = found
    if changed := differences(run.options, state["options"]):
        raise InputError(
            f"{path}: is a checkpoint of another run.\n  "
            + "\n  ".join(changed)
            + "\nResume with the same parameters, or start anew without --resume."
        )
    return state, path
