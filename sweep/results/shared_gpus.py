"""The GPUs that a study's trials share: how many train on each, and why not more."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile
from sweep.core.files import read_object
from sweep.core.packing.level import Packing
from sweep.core.packing.measuring import slowdown_at
from sweep.core.paths import StudyFolder
from sweep.core.system.seats import CARD_FILE, read_card
from sweep.core.system.shared_cards import COURSE, DECIDED, LEVELS_FILE
from sweep.storage.gpu_shares import EndedTrial

_Look = tuple[str, float, float | None, float | None]  # GPU, second, busy share, share of memory


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
        mps: Whether CUDA's MPS serves them: "on" or "off"; mps_why: why not, in words.
        slowdowns: How much longer a trial takes than alone, by how many train at once, as far as
            that was measured.
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
    mps: str = "off"
    mps_why: str = ""
    slowdowns: Mapping[int, float] = field(default_factory=dict)

    def slowdown(self, trials: float) -> float:
        """Return how much longer a trial takes than alone where so many train at once, as far as
        measured; 1.0 where nothing was."""
        return slowdown_at(self.slowdowns, round(trials)) or 1.0

    def usual_s(self, lengths: Sequence[EndedTrial]) -> float | None:
        """Return how long a trial takes here now, by those that have ended; None without any.

        Each of those counts as long as it would have taken alone.
        """
        alone_s = [one.took_s / self.slowdown(one.at_once) for one in lengths]
        slower = self.slowdown(max(1, len(self.trials)))
        return slower * sum(alone_s) / len(alone_s) if alone_s else None

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
        said += f"; MPS is {self.mps}" + (f": {self.mps_why}" if self.mps_why else "")
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


def usual_lengths(gpus: Sequence[SharedGpu], ended: Sequence[EndedTrial]) -> dict[int, float]:
    """Return how long a trial takes where each one trains now, in seconds; {} where that is not
    known."""
    found = {}
    for gpu in gpus:
        usual_s = gpu.usual_s(ended)
        if usual_s is not None:
            found.update(dict.fromkeys(gpu.trials, usual_s))
    return found


def _read(about: Mapping[str, Any]) -> SharedGpu | None:
    names = SharedGpu.__dataclass_fields__
    try:
        told = {name: value for name, value in about.items() if name in names}
        slower = {int(level): float(told_s) for level, told_s in about.get("slowdowns", {}).items()}
        return SharedGpu(**told | {"trials": tuple(map(int, told["trials"])), "slowdowns": slower})
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


@dataclass(frozen=True)
class Shared:
    """What a study's trials have made of the GPUs that they share, for the report.

    Attributes:
        gains: A sentence for each model of GPU: trials at once, and against one alone.
        courses: By GPU, in words, its columns over time: ``s`` (seconds from the first look),
            ``gpu_busy`` and ``gpu_memory``, parts from 0 to 1 or None.
    """

    gains: Sequence[str] = ()
    courses: Mapping[str, Mapping[str, Sequence[float | None]]] = field(default_factory=dict)


def read_shared(folder: StudyFolder) -> Shared:
    """Return what is known of the GPUs that a study's trials have shared."""
    return Shared(_read_gains(folder), _read_courses(folder))


def _read_gains(folder: StudyFolder) -> list[str]:
    found = []
    try:
        levels = read_object(folder.cards / LEVELS_FILE) or {}
    except (OSError, DamagedFile):
        return []
    for key, stored in levels.items():
        trials = stored.get(DECIDED) if isinstance(stored, dict) else None
        if not isinstance(trials, int) or trials < 1:
            continue
        what = key.rpartition(", command ")[0]
        said = f"{what}: {trials} trial{'' if trials == 1 else 's'} at once"
        progress = Packing.from_json(stored).progress(trials)
        if progress is not None:
            said += f", {progress:.1f} times as many trials a GPU-hour as one alone"
        found.append(said)
    return found


def _read_courses(folder: StudyFolder) -> dict[str, dict[str, list[float | None]]]:
    """Return the course of each GPU; the tasks that had one after another are one course."""
    by_gpu: dict[str, list[_Look]] = {}
    for path in sorted(folder.cards.glob(f"*{COURSE}")):
        for look in map(_read_look, _lines_of(path)):
            if look is not None:
                by_gpu.setdefault(look[0], []).append(look)
    found: dict[str, dict[str, list[float | None]]] = {}
    for gpu, looks in sorted(by_gpu.items()):
        looks.sort(key=lambda look: look[1])
        found[gpu] = {
            "s": [at_s - looks[0][1] for _, at_s, _, _ in looks],
            "gpu_busy": [busy for _, _, busy, _ in looks],
            "gpu_memory": [memory for _, _, _, memory in looks],
        }
    return found


def _lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _read_look(line: str) -> _Look | None:
    """Return a line's GPU, second, busy share and share of memory; None where it was cut off."""
    try:
        told = json.loads(line)
        used, total = told["memory_bytes"], told["total_bytes"]
        memory = used / total if used is not None and total else None
        busy = None if told["busy"] is None else float(told["busy"])
        return f"GPU {told['gpu']} on {told['host']}", float(told["at_s"]), busy, memory
    except (ValueError, KeyError, TypeError):
        return None
