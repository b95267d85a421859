"""What a scheduler shows of the place where it runs: what is free, and who waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Amount:
    """Some of a node's resources: ``gpu:a100``, ``shard``, ``cpus``, ``memory`` (in MiB).

    Attributes:
        free: How much nobody holds; None where nobody counts that.
    """

    name: str
    free: int | None
    total: int


@dataclass(frozen=True)
class NodeView:
    """One node: its state in the scheduler's word, and whether new jobs may start there."""

    name: str
    state: str
    is_usable: bool
    amounts: Sequence[Amount]


@dataclass(frozen=True)
class WaitingJob:
    """A job that waits.

    Attributes:
        tasks: How many of it wait.
        reason: Why, in plain words; "" where nothing is known.
        start: When it is expected to start, as the scheduler writes it; "" where it says nothing.
    """

    job: str
    user: str
    tasks: int
    reason: str = ""
    start: str = ""


@dataclass(frozen=True)
class SiteView:
    """The place of a study.

    Attributes:
        place: In words.
        waiting: In the order in which the scheduler looks at them.
        running: Tasks that run there, of whomever; None where nobody counts them.
    """

    place: str
    nodes: Sequence[NodeView]
    waiting: Sequence[WaitingJob] = ()
    running: int | None = None
