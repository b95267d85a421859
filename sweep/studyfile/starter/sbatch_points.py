"""What the tasks of an array pick, as a grid or as points."""

from __future__ import annotations

import math
import re
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.sbatch_indexes import Picks, pick

BEYOND = "pick beyond the end of a list"
_TASK = re.compile(r"\$\{?SLURM_ARRAY_TASK_ID\}?")


def pick_points(
    draft: Draft,
    indexes: dict[str, str],
    tasks: list[int],
    scalars: dict[str, str],
    lists: dict[str, list[Any]],
    lost: list[str],
) -> bool:
    """Make what the tasks pick a grid, or points; return whether that is known."""
    sizes = {name: len(values) for name, values in lists.items()}
    rows: list[dict[str, Any]] = []
    beyond = 0
    for task in tasks:
        row: dict[str, Any] = {}
        for name, index in indexes.items():
            choices = draft.space[name].get("choices")
            try:
                number = pick(index, scalars, sizes, task)
            except ValueError as error:
                lost.append(
                    f"[{error}]: is not known without running the script; all combinations of the "
                    "lists are taken"
                )
                return False
            if choices is None:
                row[name] = number
            elif -len(choices) <= number < len(choices):
                row[name] = choices[number]
        if len(row) == len(indexes):
            rows += [row] if row not in rows else []
        else:
            beyond += 1
    if beyond:
        lost.append(f"--array: {beyond} of {len(tasks)} tasks {BEYOND}")
    if not rows:
        return False
    for name in indexes:
        used = [row[name] for row in rows]
        if "choices" in draft.space[name]:
            unique = [one for i, one in enumerate(used) if one not in used[:i]]
            draft.space[name] = {"type": "categorical", "choices": unique}
        else:
            draft.space[name] = {"type": "int", "low": min(used), "high": max(used)}
    if len(rows) + beyond < len(tasks):
        lost.append(
            f"--array: {len(tasks)} tasks pick {len(rows)} different points, tried once each"
        )
    whole = [
        len(p["choices"]) if "choices" in p else p["high"] - p["low"] + 1
        for p in (draft.space[name] for name in indexes)
    ]
    if math.prod(whole) == len(rows):
        draft.more["sampler"] = "grid"
    else:
        draft.more |= {"points": rows, "trials": len(rows), "sampler": "random"}
    return True


def pair(draft: Draft, indexes: dict[str, str], lost: list[str]) -> None:
    """Make points of lists that are gone through together, and a grid of all others."""
    together = [
        name
        for name, index in indexes.items()
        if _TASK.fullmatch(index.strip("$(){} ")) or _TASK.fullmatch(index)
    ]
    sizes = {
        len(draft.space[name].get("choices", ()))
        for name in together
        if "choices" in draft.space[name]
    }
    if len(together) > 1 and len(sizes) == 1 and len(together) == len(indexes):
        rows = [
            {
                name: draft.space[name]["choices"][i]
                for name in together
                if "choices" in draft.space[name]
            }
            for i in range(sizes.pop())
        ]
        for name in together:
            choices = draft.space[name].get("choices")
            if choices:
                draft.space[name]["choices"] = [
                    one for i, one in enumerate(choices) if one not in choices[:i]
                ]
        draft.more |= {"points": rows, "trials": len(rows), "seed": 0, "sampler": "random"}
    else:
        for name in together:
            choices = draft.space[name].get("choices")
            if choices:
                draft.space[name]["choices"] = [
                    one for i, one in enumerate(choices) if one not in choices[:i]
                ]
        draft.more |= {"seed": 0, "sampler": "grid"}
        if not draft.space:
            draft.more["trials"] = 1
            draft.command.append(EDIT)
            lost.append(
                "no list and no use of SLURM_ARRAY_TASK_ID was found in the command: name under "
                f"space what is to vary, and replace {EDIT} by how it is passed"
            )


def bound(draft: Draft, picks: Picks) -> None:
    """Give whole numbers that tasks pick, and that have no bounds yet, those of all tasks; and each
    choice once."""
    sizes = {name: len(values) for name, values in picks.lists.items()}
    for found in draft.space.values():  # what is there twice would be tried twice
        choices = found.get("choices", [])
        found |= {"choices": list(dict.fromkeys(choices))} if choices else {}
    for name, index in picks.indexes.items():
        found = draft.space.get(name, {})
        if found.get("type") == "int" and "low" not in found:
            try:
                values = [pick(index, picks.scalars, sizes, task) for task in picks.tasks]
            except ValueError:
                values = picks.tasks
            found |= {"low": min(values), "high": max(values)}


def put_single(draft: Draft) -> None:
    """Put what is the same number in all tasks into the command."""
    for name in [*draft.space]:
        found = draft.space[name]
        if found["type"] == "int" and "low" in found and found["low"] == found["high"]:
            value = str(draft.space.pop(name)["low"])
            draft.command = [word.replace(f"{{{name}}}", value) for word in draft.command]
            for row in draft.more.get("points", []):
                row.pop(name, None)
    if not draft.space:
        draft.more.pop("points", None)
        draft.more |= {"trials": 1, "sampler": "grid"}
