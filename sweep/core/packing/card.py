"""What a decision about a shared GPU is made from, and what it says: plain values.

Memory is in bytes, times are seconds of one clock (any origin, the same in all calls), rates are
what training itself counts as steps, a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Why not more trials train on a card: what ``PackedLevel.why`` says.
MEASURING = "measuring"  # it is not known yet whether more would gain
MEMORY = "memory"
NO_GAIN = "no gain"
CPUS = "CPUs"
LIMIT = "limit"  # what the study file allows
WHYS = (MEASURING, MEMORY, NO_GAIN, CPUS, LIMIT)


@dataclass(frozen=True)
class CardState:
    """A GPU at one moment, as its driver sees it.

    Attributes:
        total_bytes: Its memory; None where it cannot be asked.
        used_bytes: Used by all processes; None where it cannot be asked.
        others_bytes: Of that, by processes that are no training of ours; None where the driver
            does not say whose memory it is (hidden process numbers). Then what was used before our
            first training counts as theirs.
    """

    total_bytes: int | None = None
    used_bytes: int | None = None
    others_bytes: int | None = None


@dataclass(frozen=True)
class TrialState:
    """A training that lives on a card, from its start until its process has ended.

    Attributes:
        key: Its attempt's token, or any other name that no other training has.
        began_s: When its process was started.
        reports: (second, step) of its reports so far, in their order, or the newest of them: a few
            hundred are enough.
        memory_bytes: The most that its processes were seen to hold, by the driver, with the
            context; None where the driver hides it.
        allocator_bytes: The most that its own allocator says it reserved, without the context;
            None where it says nothing. It counts where ``memory_bytes`` is None.
        cpus: How many CPUs it keeps busy; None where that is not known.
        params: Its parameters; those that are numbers may explain its memory.
    """

    key: str
    began_s: float
    reports: Sequence[tuple[float, float]] = ()
    memory_bytes: int | None = None
    allocator_bytes: int | None = None
    cpus: float | None = None
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class ShareLimits:
    """What the study and the task allow on one card.

    Attributes:
        most: ``share``'s number or its ``max``: trials at once on a card.
        fixed: Whether ``most`` is to be used as it stands, without measuring (``share: 8``). It
            falls by an out-of-memory alone.
        cpus: The CPUs for this card's trials; None where not known. Each trial needs one.
        available: Trials that may train here now, those that do included: what ``max_parallel``
            and the trials left allow. None where nothing bounds it.
        memory_bytes: A trial's memory as the study file gives it; None where it does not.
    """

    most: int
    fixed: bool = False
    cpus: float | None = None
    available: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class PackedLevel:
    """How many trials are to train at once on a card.

    Attributes:
        trials: That number, at least 1. Where fewer train, start others; where more train, start
            none until so many have ended.
        why: Why not more: one of WHYS.
        text: The same as a sentence's part for people, "4 trials on this GPU: …".
        settled: Whether it was decided; False while it is still measured.
        progress: What so many trials get done together, in units of one alone; None where it was
            not measured.
        slowdown: How much longer a trial takes than alone, at least 1.0; None where not measured.
    """

    trials: int
    why: str
    text: str
    settled: bool = False
    progress: float | None = None
    slowdown: float | None = None
