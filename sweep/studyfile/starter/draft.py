"""A study file in the making: what it holds, the remarks for its reader, and its text."""

from __future__ import annotations

import re
import shlex
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from sweep.core.placeholders import SPREAD
from sweep.core.yaml_text import write_key, write_plain, write_value

WIDTH = 96


@dataclass
class Draft:
    """A study file that sweep writes for the user to go on with.

    Attributes:
        title: First line of the file's comment.
        command: One argument each, with placeholders.
        objectives: Mappings as the file holds them: metric, direction, from …
        space: Parameters by name, each as the file holds it.
        more: Further keys in their order: trials, sampler, pruner, max_parallel …
        remarks: Sentences for the top of the file: what to do, what could not be carried over.
        notes: Comments by place ("command", "objective", "space", "space.lr", "fixed.epochs" …).
        hints: Lines for the end of the file, as comments.
    """

    title: str
    name: str
    command: list[str]
    objectives: list[dict[str, Any]] = field(default_factory=list)
    space: dict[str, dict[str, Any]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)


HINTS = (
    "resources: {time: 30min, gpus: 1, cpus: 4, memory: 8G}   # of one trial",
    "slurm: {partition: gpu, account: my-project}",
    "environment: {runtime: venv, image: .venv}",
)


def make_name(text: str) -> str:
    """Return a study name made of any text: letters, digits, dots, "_" and "-" only."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-.")
    return name[:100] or "study"


def join_command(command: Sequence[str]) -> str:
    """Return a command as one line that splits back into the same arguments."""
    return " ".join(
        element
        if element in SPREAD or re.fullmatch(r"[\w@%+=:,./{}-]+", element, re.ASCII)
        else shlex.quote(element)
        for element in command
    )


def write_draft(draft: Draft) -> str:
    """Return the study file's text; it loads as it is."""
    lines = _comment(draft.title)
    for remark in draft.remarks:
        lines += _comment(remark, "- ")
    lines += ["", f"name: {_text(draft.name)}"]
    lines += _note(draft, "command")
    lines.append(f"command: {_write_command(draft.command)}")
    lines += ["", *_note(draft, "objective")]
    if len(draft.objectives) == 1:
        lines += ["objective:", *_entries(draft.objectives[0], "  ")]
    else:
        lines.append("objective:")
        for objective in draft.objectives:
            first, *rest = _entries(objective, "    ")
            lines += [f"  - {first.strip()}", *rest]
    lines += ["", *_note(draft, "space")]
    lines += _write_block(draft, "space", draft.space, write_plain)
    if draft.fixed:
        lines += ["", *_note(draft, "fixed")]
        lines += _write_block(draft, "fixed", draft.fixed, write_plain)
    lines.append("")
    for key, value in draft.more.items():
        lines.append(_aside(f"{key}: {write_plain(value)}", draft.notes.get(key)))
    hints = [hint for hint in draft.hints if hint.partition(":")[0] not in draft.more]
    if hints:
        lines += ["", "# Further keys; `sweep schema` describes all of them.", *_marked(hints)]
    return "\n".join(lines) + "\n"


def _write_block(draft: Draft, key: str, entries: Mapping[str, Any], write: Any) -> list[str]:
    if not entries:
        return [f"{key}: {{}}"]
    return [f"{key}:"] + [
        _aside(f"  {write_key(name)}: {write(value)}", draft.notes.get(f"{key}.{name}"))
        for name, value in entries.items()
    ]


def _entries(mapping: Mapping[str, Any], indent: str) -> list[str]:
    return [
        f"{indent}{key}: "
        + (
            "{stdout: " + _quote_single(value["stdout"]) + "}"
            if key == "from"
            else write_plain(value)
        )
        for key, value in mapping.items()
    ]


def _write_command(command: Sequence[str]) -> str:
    if any(not element.isprintable() for element in command):
        return write_value(list(command))
    if any("'" in element or '"' in element for element in command):
        return write_plain(list(command))  # a shell's quotes around quotes can hardly be read
    return _text(join_command(command))


def _text(text: str) -> str:
    """Return text for a YAML value, without quotes where all readers agree about it."""
    is_safe = (
        re.fullmatch(r"[A-Za-z_./][ -~]*", text)
        and not text.endswith((" ", ":"))
        and ": " not in text
        and " #" not in text
    )
    # One word alone could be a number, a date or a boolean.
    return text if is_safe and " " in text else write_plain(text)


def _quote_single(text: str) -> str:
    """Return text in single quotes, in which the backslashes of an expression stay as they are."""
    if not text.isascii() or not text.isprintable():
        return write_value(text)
    return "'" + text.replace("'", "''") + "'"


def _aside(line: str, note: str | None) -> str:
    return f"{line}   # {' '.join(note.split())}" if note else line


def _note(draft: Draft, place: str) -> list[str]:
    return _comment(draft.notes[place]) if place in draft.notes else []


def _comment(text: str, bullet: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=f"# {bullet}",
        subsequent_indent="# " + " " * len(bullet),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _marked(lines: Sequence[str]) -> list[str]:
    return [f"# {line}" for line in lines]


def fit_grid(
    low: float, high: float, step: float, *, origin: float | None = None
) -> tuple[float, float, float]:
    """Return low, high and step of the values origin + k·step that lie between two bounds.

    Args:
        step: Above 0.
        origin: A value of the grid; ``low`` when None.

    Returns:
        Whole numbers as int where all three inputs were ints, else floats.

    Raises:
        ValueError: The step is not positive, or no value lies between the bounds.
    """
    start, end, width = (Decimal(str(value)) for value in (low, high, step))
    base = start if origin is None else Decimal(str(origin))
    if width <= 0:
        raise ValueError(f"the step must be above 0 (got {step})")
    first = base + ((start - base) / width).to_integral_value(ROUND_CEILING) * width
    last = base + ((end - base) / width).to_integral_value(ROUND_FLOOR) * width
    if last < first:
        raise ValueError(f"no multiple of {step} lies between {low} and {high}")
    kind = int if all(isinstance(value, int) for value in (low, high, step)) else float
    return kind(first), kind(last), kind(width)
