"""The GPUs that a study's trials share: how many train on each, and why not more."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sweep.core.paths import StudyFolder
from sweep.core.system.seats import CARD_FILE, read_card


@dataclass(frozen=True)
class SharedGpu:
    """One GPU, as whoever packs it said last.

    Attributes:
        gpu, host: Which; gpu as CUDA_VISIBLE_DEVICES names it.
        trials: Those that train on it.
        level: How many are to train at once.
        why: Why not more: measuring, memory, no gain, CPUs, limit, or lost; text: in words.
        memory_bytes, total_bytes: Its memory that is in use, and all of it; None where not known.
        busy: The part of the last moments in which it worked; None where not known.
        progress: What so many get done together, in units of one alone; None where not measured.
        trouble: What its driver does not say, and why; "" where it says all.
    """

    gpu: str
    host: str
    trials: tuple[int, ...]
    level: int
    why: str
    text: str
    memory_bytes: int | None = None
    total_bytes: int | None = None
    busy: float | None = None
    progress: float | None = None
    trouble: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what ``status --json`` prints."""
        return asdict(self) | {"trials": list(self.trials)}

    def line(self) -> str:
        """Return it in a line for people."""
        many = "1 trial" if len(self.trials) == 1 else f"{len(self.trials)} trials"
        said = f"{self.gpu} on {self.host}: {many}"
        if len(self.trials) != self.level:
            said += f" of {self.level}"
        said += f" ({self.why}: {self.text})"
        return f"{said}; {self.trouble}" if self.trouble and self.why == "measuring" else said


def read_gpus(folder: StudyFolder, running: Collection[int]) -> list[SharedGpu]:
    """Return the GPUs on which trials of a study train at once, as far as is told.

    Args:
        running: The trials that run. What a task that was killed has left tells of others.
    """
    found = []
    for path in sorted(folder.cards.glob(f"*/{CARD_FILE}")):
        card = read_card(path)
        gpu = None if card is None else _read(card.about)
        if gpu is not None and (set(gpu.trials) & set(running) or (card and card.is_lost)):
            found.append(gpu)
    return found


def _read(about: Mapping[str, Any]) -> SharedGpu | None:
    names = SharedGpu.__dataclass_fields__
    try:
        told = {name: value for name, value in about.items() if name in names}
        return SharedGpu(**told | {"trials": tuple(map(int, told["trials"]))})
    except (KeyError, TypeError, ValueError):
        return None
