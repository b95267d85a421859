"""What is free where a study runs, and what stands before it, as lines for people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sweep.core.site_view import Amount, NodeView, SiteView, WaitingJob
from sweep.core.terminal_text import visible

_NAMED = 4  # nodes of one kind that are named


def site_lines(view: SiteView, mine: Collection[str]) -> Iterator[str]:
    """Yield the lines, each with its label first.

    Nodes that are alike share one; a part of a node's name or of a reason acts on no terminal.

    Args:
        mine: Jobs of the study.
    """
    usable = [node for node in view.nodes if node.is_usable]
    nodes = f"{len(usable)} of {_count(len(view.nodes), 'node')} in service"
    yield f"site: {visible(view.place)}, {nodes}"
    for amount in _sum(usable):
        yield f"free: {_amount(amount)}"
    alike: dict[tuple[str, tuple[Amount, ...]], list[str]] = {}
    for node in view.nodes:
        alike.setdefault((node.state, tuple(node.amounts)), []).append(visible(node.name))
    for (state, amounts), names in alike.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        free = ", ".join(_amount(amount) for amount in amounts)
        yield f"node: {', '.join(names[:_NAMED])}{more} ({visible(state)}): {free}"
    if view.running is not None:
        waits = f"{_jobs(view.waiting)} in all"
        yield f"waiting: {waits}; {_count(view.running, 'task')} run there"
    yield from _before(view.waiting, mine)


def _before(waiting: Sequence[WaitingJob], mine: Collection[str]) -> Iterator[str]:
    for place, one in enumerate(waiting):
        if one.job not in mine:
            continue
        before = [other for other in waiting[:place] if other.job not in mine]
        start = f"; expected to start at {visible(one.start)}" if one.start else ""
        tasks = _count(one.tasks, "task")
        yield f"yours: job {one.job}, {tasks} waiting: {visible(one.reason)}{start}"
        yield f"before it: {_jobs(before)}"


def _sum(nodes: Sequence[NodeView]) -> list[Amount]:
    """Return what nodes have together, by name."""
    found: dict[str, Amount] = {}
    for amount in (amount for node in nodes for amount in node.amounts):
        was = found.get(amount.name, Amount(amount.name, 0, 0))
        is_known = was.free is not None and amount.free is not None
        free = (was.free or 0) + (amount.free or 0) if is_known else None
        found[amount.name] = Amount(amount.name, free, was.total + amount.total)
    return list(found.values())


def _amount(amount: Amount) -> str:
    free, total = amount.free, amount.total
    if amount.name == "memory":
        shown = f"{total / 1024:.0f}G"
        return f"memory {shown if free is None else f'{free / 1024:.0f} of {shown}'}"
    return f"{visible(amount.name)} {total if free is None else f'{free} of {total}'}"


def _jobs(jobs: Sequence[WaitingJob]) -> str:
    if not jobs:
        return "nothing"
    tasks = sum(one.tasks for one in jobs)
    return f"{_count(len(jobs), 'job')} ({_count(tasks, 'task')})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
