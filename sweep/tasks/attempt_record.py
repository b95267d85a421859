"""What a worker notes beside its trainings: what made each attempt, and what its GPUs have used."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweep.core.errors import DamagedFile
from sweep.core.masking import hide_arguments
from sweep.core.system import gpu_energy
from sweep.core.trial import Claim
from sweep.provenance import container, record
from sweep.provenance.machine import capture_gpus
from sweep.storage import energy
from sweep.tasks.context import Context

if TYPE_CHECKING:
    from sweep.core.system import gpu_energy
    from sweep.provenance import container
    from sweep.provenance import snapshot as code_snapshot
    from sweep.training.command.environment import TrialValues

ENERGY_EVERY_S = 30.0  # what a killed attempt used is known up to here


class Recorder:
    """Records one attempt after the other, each while it trains: that costs it no time."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._gpus: dict[str, Any] | None = None  # of this machine
        self._counters: gpu_energy.Counters | None = None  # of these GPUs' energy
        self._meter: gpu_energy.Meter | None = None  # of the latest attempt
        self._next_energy = 0.0
        self._inside: container.Once | None = None  # asks what a container holds

    def begin(
        self,
        claim: Claim,
        snapshot: str | None,
        values: TrialValues,
        argv: Sequence[str],
        placed: code_snapshot.Placed,
    ) -> None:
        """Record what makes an attempt that has just started, and begin to count its energy.

        What cannot be recorded is said: training is not to end for it.

        Args:
            snapshot: The id of its code; None for the live one.
            argv: What was started.
            placed: The study as it trains from that code.
        """
        context, place = self.context, self.context.place
        own = {
            "run_by": f"{place.job or 'none'}_{0 if place.index is None else place.index}",
            "seed": values.seed,
            "config": dict(values.params),
            "argv": hide_arguments(argv),
            "attempts": _attempts(claim, values),
        }
        if context.seat is not None:
            own["trials_on_gpu"] = context.seat.use().most  # itself included, when it began
        if self._gpus is None:  # a task's GPUs stay the same, and asking may take long
            self._gpus = capture_gpus(context.environ)
            if self._gpus["gpus"] and context.seat is None:  # else others use them too
                self._counters = gpu_energy.Counters.find(context.study, context.environ)
        self._meter = self._counters.start() if self._counters is not None else None
        self._next_energy = time.monotonic() + ENERGY_EVERY_S
        try:
            key = record.record_attempt(
                context.folder,
                context.folder.attempt(claim.number, claim.attempt),
                context.study,
                snapshot,
                context.environ,
                own,
                self._gpus,
            )
            if self._inside is None:
                self._inside = container.Once(context.folder, context.say)
            self._inside.begin(key, placed.study, placed.environ)
        except (OSError, ValueError, DamagedFile) as error:
            context.say(f"what made trial {claim.number} could not be recorded: {error}")

    def joules(self) -> float | None:
        """Return what the latest attempt's GPUs have used since it started; None if not known."""
        return self._meter.joules() if self._meter is not None else None

    def note_energy(self, claim: Claim) -> None:
        """Store now and then what an attempt has used, should this process be killed."""
        now = time.monotonic()
        if self._meter is None or now < self._next_energy:
            return
        self._next_energy = now + ENERGY_EVERY_S
        joules = self.joules()
        if joules is not None:
            self.context.ledger.db.retry(
                lambda db: energy.note(db, claim.token, joules), patience_s=0.0
            )

    def end(self, wait_s: float) -> None:
        """Let what asks a container finish, for so long at most."""
        if self._inside is not None:
            self._inside.end(wait_s)


def _attempts(claim: Claim, values: TrialValues) -> int:
    """Return in how many attempts this training was made, its own included: those of a trial's
    replicates before are other trainings."""
    if claim.replicate == 1:
        return claim.attempt
    return max(claim.attempt - claim.first + 1, 1 if values.resume is None else 2)
