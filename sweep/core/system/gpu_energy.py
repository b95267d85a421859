"""The energy that an attempt's GPUs use, by NVML's counters.

A GPU counts millijoules since its driver was loaded, from Volta on. They are an attempt's only
where it has whole GPUs of one node to itself: not shares of one, no MIG instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.core.study import Study
from sweep.core.system.gpus import find_gpus
from sweep.core.system.nvml import Cards


class Counters:
    """The counters of the GPUs that a task's attempts have; NVML stays open for the process."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards

    @classmethod
    def find(cls, study: Study, environ: Mapping[str, str]) -> Counters | None:
        """Return the counters of a study's GPUs here; None where they are not an attempt's alone,
        do not count, or NVML is missing.

        Args:
            environ: What training inherits.
        """
        needs = study.resources
        is_own = needs.shard is None and needs.mps is None and needs.nodes == 1
        if not needs.gpu_count or not is_own:
            return None
        names = find_gpus(environ)
        if len(names) != needs.gpu_count:
            return None
        # A slice has no counter of its own.
        cards = None if any(n.startswith("MIG-") for n in names) else Cards.open(names, environ)
        return cls(cards) if cards is not None and cards.energy_mj() is not None else None

    def read(self) -> list[int] | None:
        """Return millijoules, one number a GPU; None where one of them does not count."""
        return self._cards.energy_mj()

    def start(self) -> Meter:
        """Return what measures from now on."""
        return Meter(self, self.read())


class Meter:
    """What the GPUs have used since it was made."""

    def __init__(self, counters: Counters, begin: Sequence[int] | None) -> None:
        self._counters = counters
        self._begin = begin

    def joules(self) -> float | None:
        """Return the energy so far; None where a counter cannot be read, or was reset meanwhile."""
        now = self._counters.read()
        if now is None or self._begin is None:
            return None
        used = [end - begin for begin, end in zip(self._begin, now, strict=True)]
        return sum(used) / 1000.0 if min(used) >= 0 else None
