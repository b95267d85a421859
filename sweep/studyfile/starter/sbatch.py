"""A job-array script of Slurm as a study file: its ``#SBATCH`` lines, its lists, its command."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT, RESERVED, escape
from sweep.core.shell_text import split_words
from sweep.studyfile.starter.draft import HINTS, Draft, make_name
from sweep.studyfile.starter.foreign_yaml import read_word
from sweep.studyfile.starter.sbatch_indexes import pick, read_scalars, read_tasks

_OPTION = re.compile(
    r"^#SBATCH[ \t]+(--?[\w-]+)(?:[= \t]+([^\s#].*?))?[ \t]*(?:[ \t]#.*)?$", re.MULTILINE
)
_SHORT = {
    "-t": "time",
    "-p": "partition",
    "-A": "account",
    "-q": "qos",
    "-C": "constraint",
    "-N": "nodes",
    "-c": "cpus-per-task",
    "-a": "array",
    "-J": "job-name",
    "-o": "output",
    "-e": "error",
    "-G": "gpus",
    "-n": "ntasks",
}
_LIST = re.compile(r"^[ \t]*(?:declare\s+-a\s+)?(\w+)=\(([^()]*)\)", re.MULTILINE)
_PICKED = re.compile(r"\$\{(\w+)\[([^\]]*)\]\}")
_VARIABLE = re.compile(r"^[ \t]*(?:export\s+)?(\w+)=(\"?\$\{\w+\[[^\]]*\]\}\"?)\s*$", re.MULTILINE)
_CONTAINER = re.compile(
    r"^[ \t]*(?:srun\s.*?)?\b(singularity|apptainer)[ \t]+(?:exec|run)\b(.*?)"
    r"\b(?:bash|sh)[ \t]+-l?c[ \t]+[\"'](.*?)[\"']",
    re.MULTILINE | re.DOTALL,
)
_TASK = re.compile(r"\$\{?SLURM_ARRAY_TASK_ID\}?")
_COMMAND = re.compile(
    r"^[ \t]*(?:time\s+|exec\s+)?(?:srun\s+(?:-\S+\s+)*)?"
    r"((?:python3?|torchrun|accelerate|bash|uv|poetry|apptainer|singularity|Rscript|julia|\./\S+)\b.*)$",
    re.MULTILINE,
)


def is_sbatch(text: str) -> bool:
    """Tell whether a script has lines for sbatch."""
    return _OPTION.search(text) is not None


def convert_sbatch(text: str, path: Path, lost: list[str]) -> Draft:
    """Return the study of a job-array script; what could not be carried over goes to ``lost``."""
    text = re.sub(r"\\\n\s*", " ", text)
    options: dict[str, str] = {}
    for found in _OPTION.finditer(text):
        name = _SHORT.get(found[1], found[1].lstrip("-"))
        options[name] = (found[2] or "").strip("\"'")
    draft = Draft(
        f"Made from the job script {path.name}.",
        make_name(options.get("job-name") or path.stem),
        [],
        hints=list(HINTS),
        objectives=[{"metric": "val_loss", "direction": "minimize"}],
    )
    lists = {found[1]: _split(found[2]) for found in _LIST.finditer(text)}
    picked = {found[1]: found[2].strip('"') for found in _VARIABLE.finditer(text)}
    body = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    tasks = read_tasks(options.get("array", ""))
    scalars = read_scalars(body) | _counts(tasks)
    commands = [found[1] for found in _COMMAND.finditer(body)]
    uses = [one for one in commands if "$" in one]
    line = (uses or commands or [f"python {EDIT}"])[-1]
    outside = _leave_container(body, line, lost)
    plain = {
        name: value
        for name, value in scalars.items()
        if not re.search(r"[$`]", value) and name not in picked
    }
    line = re.sub(r"\$\{?(\w+)\}?", lambda m: plain.get(m[1], m[0]), line)
    indexes: dict[str, str] = {}
    draft.command = _command(draft, line, lists, picked, indexes, options, lost)
    if len(commands) > 1:
        lost.append(f"the script runs {len(commands)} commands; {line.split()[0]} … was taken")
    if re.search(r"\b(sed|awk|head)\b[^\n]*SLURM_ARRAY_TASK_ID", body):
        lost.append(
            "the lines of a file: each task reads its own. Make the file a CSV with names in its "
            "first line, and write points: file.csv"
        )
    if tasks and indexes and _pick_points(draft, indexes, tasks, scalars, lists, lost):
        draft.more.setdefault("seed", 0)
    else:
        _pair(draft, indexes, lost)
    add_options(draft, options, lost)
    setup = [
        one.strip()
        for one in outside.split("\n")
        if re.match(r"\s*(module|ml|source|conda activate|\. )\b", one)
    ]
    if setup:
        draft.more.setdefault("slurm", {})["setup"] = setup
    lost.append("objective: a job array compares nothing; name what the script prints or reports")
    return draft


def _counts(tasks: list[int]) -> dict[str, str]:
    """Return Slurm's variables about the array as a whole."""
    if not tasks:
        return {}
    counts = {"COUNT": len(tasks), "MIN": min(tasks), "MAX": max(tasks)}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in counts.items()}


def _leave_container(body: str, line: str, lost: list[str]) -> str:
    """Return a script without what a container runs by ``bash -c "…"``, and name that container."""
    found = _CONTAINER.search(body)
    if found is None or line.startswith(found[1]):
        return body
    inside = found[3]
    image = re.search(r"\S+\.(?:sif|simg|img)\b(?!:)|docker://\S+", found[2])
    lost.append(
        f"{found[1]}: the command runs in {image[0] if image else 'an image'}; see environment: "
        "{runtime: apptainer, image: …, binds: […]}"
        + (", and what is done there before it is left out" if "\n" in inside.strip() else "")
    )
    return body.replace(inside, "")


def _pick_points(
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
        lost.append(f"--array: {beyond} of {len(tasks)} tasks pick beyond the end of a list")
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


def _split(text: str) -> list[Any]:
    try:
        return [read_word(word) for word in split_words(text, comments=True)]
    except ValueError:
        return []


def _command(
    draft: Draft,
    line: str,
    lists: dict[str, list[Any]],
    picked: dict[str, str],
    indexes: dict[str, str],
    options: dict[str, str],
    lost: list[str],
) -> list[str]:
    """Return the command with placeholders for what each task picks for itself."""
    line = re.sub(r"\s+(?:[12&]?>>?|\|).*$", "", line)
    for name, value in picked.items():
        line = re.sub(rf"\$\{{{name}\}}|\${name}\b", value.replace("\\", r"\\"), line)
    picks: list[tuple[str, str]] = []

    def keep(match: re.Match[str]) -> str:
        picks.append((match[1], match[2]))
        return f"\0{len(picks) - 1}\1"

    # An index may hold spaces, at which the line would be split.
    line = _PICKED.sub(keep, line)
    try:
        words = split_words(line)
    except ValueError:
        return [EDIT]
    found: list[str] = []
    for i, word in enumerate(words):
        before = words[i - 1] if i else ""
        option = word.partition("=")[0] if word.startswith("-") and "=" in word else before
        name = re.sub(r"\W+", "_", option.lstrip("-")) if option.startswith("-") else ""
        pieces = []
        for piece in re.split(r"(\x00\d+\x01|\$\{?SLURM_ARRAY_TASK_ID\}?)", word):
            if piece.startswith("\0"):
                array, index = picks[int(piece[1:-1])]
                pieces.append(
                    _add(draft, name or array.lower(), lists.get(array), index, indexes, lost)
                )
            elif _TASK.fullmatch(piece):
                low, high = _bounds(options.get("array", ""))
                own = "task" if not name or name in RESERVED else name
                draft.space[own] = {"type": "int", "low": low, "high": high}
                indexes.setdefault(own, piece)
                pieces.append(f"{{{own}}}")
            elif "$" in piece:
                lost.append(f"command: {piece} holds a variable; replace {EDIT}")
                pieces.append(escape(re.sub(r"\$\{?\w+\}?", EDIT, piece)))
            else:
                pieces.append(escape(piece))
        found.append("".join(pieces))
    return found


def _add(
    draft: Draft,
    name: str,
    values: list[Any] | None,
    index: str,
    indexes: dict[str, str],
    lost: list[str],
) -> str:
    """Add the choices that a task picks one of; return what stands in the command."""
    if not values:
        lost.append(f"{name}: its list is not known without running the script; replace {EDIT}")
        return EDIT
    if re.fullmatch(r"\d+", index.strip()) and int(index) < len(values):
        return escape(str(values[int(index)]))
    name = f"{name}_value" if name in RESERVED else name
    draft.space[name] = {"type": "categorical", "choices": values}
    indexes[name] = index
    return f"{{{name}}}"


def _bounds(array: str) -> tuple[int, int]:
    found = re.match(r"(\d+)-(\d+)", array)
    return (int(found[1]), int(found[2])) if found else (0, 9)


def _pair(draft: Draft, indexes: dict[str, str], lost: list[str]) -> None:
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
            lost.append("no list and no use of SLURM_ARRAY_TASK_ID was found in the command")


def add_options(draft: Draft, options: dict[str, str], lost: list[str]) -> None:
    """Add the options of sbatch, by their long names, as ``resources`` and ``slurm``."""
    resources: dict[str, Any] = {}
    slurm: dict[str, Any] = {}
    extra: list[str] = []
    for name, value in options.items():
        if name == "array":
            width = re.search(r"%(\d+)$", value)
            draft.more["max_parallel"] = int(width[1]) if width else 4
        elif name == "time":
            resources["time"] = value
        elif name == "nodes" and value.isdecimal():
            if int(value) > 1:
                resources["nodes"] = int(value)
        elif name == "cpus-per-task" and value.isdecimal():
            resources["cpus"] = int(value)
        elif name == "mem":
            resources["memory"] = value
        elif name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
            found = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z][\w.-]*):)?(\d+)|gpu", value)
            if found:
                count = int(found[2] or 1)
                resources["gpus"] = f"{found[1]}:{count}" if found[1] else count
            else:
                lost.append(f"--{name}={value}: has no counterpart here; see resources.gpus")
        elif name in ("partition", "account", "qos", "constraint", "reservation"):
            slurm[name] = value
        elif name == "exclusive":
            slurm["exclusive"] = True
        elif name in ("job-name", "output", "error", "ntasks", "ntasks-per-node", "open-mode"):
            if name.startswith("ntasks") and value not in ("", "1"):
                lost.append(f"--{name}={value}: see the key launcher, and ddp.ranks_per_node")
        else:
            extra.append(f"--{name}={value}" if value else f"--{name}")
    if extra:
        slurm["extra"] = extra
    if resources:
        draft.more["resources"] = resources
    if slurm:
        draft.more["slurm"] = slurm
