"""The command of a W&B sweep: its macros as placeholders, and nested parameters as W&B passes them.

W&B replaces an argument that is one macro and nothing else, and ``${envvar:X}`` anywhere
(``wandb/sdk/launch/sweeps/utils.py``, ``wandb_agent.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.core.placeholders import EDIT, RESERVED, escape
from sweep.core.yaml_text import write_value

_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
# All values of a trial, and what passes the same ones here.
_ARGS = {
    "args": "{params}",
    "args_no_equals": "{params: }",
    "args_no_boolean_flags": "{params:flags}",
    "args_no_hyphens": "{overrides}",
    "args_append_hydra": "{overrides:+}",
    "args_override_hydra": "{overrides:++}",
    "args_json": "{params:json}",
    "args_json_file": "{config:json}",
}
_MACRO = re.compile(r"\$\{([^}]+)\}")


@dataclass
class Passed:
    """What a sweep's command has to pass.

    Attributes:
        values: By flat name, the values that each parameter takes, as far as they tell how it is
            written; None for a range.
        nested: By the name of each group of parameters, its names: a mapping of the key to a flat
            name or to a further mapping.
        priors: Whether the study's sampler takes priors.
    """

    values: dict[str, Sequence[Any] | None] = field(default_factory=dict)
    nested: dict[str, dict[str, Any]] = field(default_factory=dict)
    priors: bool = False

    def top(self) -> dict[str, Any]:
        """Return what W&B passes: by name a flat name, or the mapping of a group."""
        within = {name for group in self.nested.values() for name in _flat(group)}
        plain: dict[str, Any] = {name: name for name in self.values if name not in within}
        return plain | self.nested


def _flat(group: Mapping[str, Any]) -> list[str]:
    return [
        name
        for below in group.values()
        for name in (_flat(below) if isinstance(below, Mapping) else [below])
    ]


def convert_command(data: Mapping[str, Any], passed: Passed, lost: list[str]) -> list[str]:
    """Return the command of a sweep with placeholders for its macros."""
    program = data.get("program")
    program = "" if program is None else str(program)
    if re.fullmatch(r"[\w. -]*(\\[\w. -]+)+", program):
        lost.append(f"program: {program} is a path of Windows; here it has slashes")
        program = program.replace("\\", "/")
    given: Any = data.get("command") or _DEFAULT
    if isinstance(given, str):
        listed = re.findall(r"^\s*-\s+(\S.*?)\s*$", given, re.M)  # a list of YAML within a text
        given = listed or given.split()
    if not isinstance(given, list | tuple):
        lost.append(f"command: is not a list (got {given!r}); W&B's own default was taken")
        given = _DEFAULT
    words = [str(word) for word in given]
    found: list[str] = []
    for position, word in enumerate(words):
        macro = _MACRO.fullmatch(word)
        if macro and macro[1] == "env":
            # /usr/bin/env only looks python up on PATH, as is done here anyway.
            if words[position + 1 : position + 2] and words[position + 1].startswith("-"):
                found.append("env")
        elif macro and macro[1] in _ARGS:
            found += _pass_all(macro[1], passed, lost)
        else:
            found.append(_convert_word(word, program, lost))
    if not program and any("${program}" in word for word in words):
        lost.append(f"program: is missing; replace {EDIT} in the command")
    if not any(f"${{{name}}}" in word for name in _ARGS for word in words):
        lost.append(
            "command: has no ${args}, so W&B passes the values by wandb.config alone; here the "
            "script reads them from the file that SWEEP_CONFIG names, or add {params} to the "
            "command"
        )
    return found


def _convert_word(word: str, program: str, lost: list[str]) -> str:
    """Return one argument, its macros replaced."""

    def replace(found: re.Match[str]) -> str:
        name = found[1]
        if name == "interpreter":
            return "python"
        if name == "program":
            return escape(program) or EDIT
        if name == "env":
            return "/usr/bin/env"
        more = ""
        if name.startswith("envvar:"):
            more = " (variables of the environment reach training as they are)"
        elif name in _ARGS:
            more = f" within an argument; alone it is {_ARGS[name]} here"
        lost.append(
            f"command: {found[0]} has no counterpart here{more}; replace {EDIT} in the command"
        )
        return EDIT

    parts = re.split(r"(\$\{[^}]+\})", word)
    return "".join(
        _MACRO.sub(replace, part) if part.startswith("${") else escape(part) for part in parts
    )


def _pass_all(macro: str, passed: Passed, lost: list[str]) -> list[str]:
    """Return the arguments that stand for all values."""
    usual = [_ARGS[macro]]
    if not passed.nested:
        _note_lists(macro, passed, lost)
        return usual
    groups = ", ".join(passed.nested)
    first = next(iter(passed.nested))
    flat = _flat(passed.nested[first])[0] if _flat(passed.nested[first]) else first
    if "hydra" in macro or macro == "args_no_hyphens":
        lost.append(
            f"parameters.{groups}: nested; W&B passes a Python dict, which Hydra does not read; "
            f"here it is {flat}=…, as Hydra's overrides are"
        )
        return usual
    if macro == "args_json_file":
        dotted = [name for name, below in passed.top().items() if name == below and "." in name]
        if dotted:
            lost.append(
                f"parameters.{groups}: nested; in W&B's JSON file they are objects and "
                f"{dotted[0]} is not, here all are"
            )
        return usual
    try:
        if macro == "args_json":
            return [_write_group(passed.top(), passed, is_json=True)]
        return [
            word
            for name, below in passed.top().items()
            for word in _one(macro, name, below, passed)
        ]
    except ValueError as error:
        lost.append(
            f"parameters.{groups}: nested; W&B passes each as one argument, here --{flat}=… "
            f"reaches the script, because {error}"
        )
        return usual


def _note_lists(macro: str, passed: Passed, lost: list[str]) -> None:
    if "json" in macro or "hydra" in macro or macro == "args_no_hyphens":
        return
    for name, values in passed.values.items():
        if any(_is_written_otherwise(value) for value in values or ()):
            lost.append(
                f"parameters.{name}: W&B writes lists and mappings as Python does (['a', None]), "
                'here they are JSON (["a", null])'
            )


def _is_written_otherwise(value: Any) -> bool:
    return isinstance(value, list | dict) and re.search(r"['TFN]", repr(value)) is not None


def _one(macro: str, name: str, below: Any, passed: Passed) -> list[str]:
    """Return the argument (or two) for a parameter, or for a group of them."""
    if isinstance(below, Mapping):
        text = _write_group(below, passed, is_json=False)
    else:
        values = passed.values[below]
        if macro == "args_no_boolean_flags" and any(isinstance(v, bool) for v in values or ()):
            if len(values or ()) > 1:
                raise ValueError(f"{name} is a switch that varies")
            return [f"--{name}"] if (values or [False])[0] else []
        text = _placeholder(below)
    return [f"--{name}", text] if macro == "args_no_equals" else [f"--{name}={text}"]


def _placeholder(name: str) -> str:
    if name in RESERVED:
        raise ValueError(f"{{{name}}} has a meaning of its own in commands")
    return f"{{{name}}}"


def _write_group(group: Mapping[str, Any], passed: Passed, *, is_json: bool) -> str:
    """Return a group of parameters as the text of a mapping, with a placeholder for each value.

    Raises:
        ValueError: A value cannot be written by a placeholder.
    """
    quote = (lambda text: write_value(text)) if is_json else repr
    inside = ", ".join(
        escape(quote(key))
        + ": "
        + (
            _write_group(below, passed, is_json=is_json)
            if isinstance(below, Mapping)
            else _write_place(below, passed.values[below], is_json=is_json)
        )
        for key, below in group.items()
    )
    return f"{{{{{inside}}}}}"


def _write_place(name: str, values: Sequence[Any] | None, *, is_json: bool) -> str:
    """Return the placeholder of a value inside a mapping's text, in quotes where it is text."""
    place = _placeholder(name)
    texts = [isinstance(value, str) for value in values or ()]
    if any(texts):
        if not all(texts):
            raise ValueError(f"some choices of {name} are text and some are not")
        if any(re.search(r"['\"\\]", value) or not value.isprintable() for value in values or ()):
            raise ValueError(f"a choice of {name} has a quote or a backslash")
        return f'"{place}"' if is_json else f"'{place}'"
    if is_json and any(isinstance(value, bool | None) for value in values or ()):
        raise ValueError(f"{name} is true, false or null")
    if any(_is_written_otherwise(value) for value in values or ()):
        raise ValueError(f"a choice of {name} is a list or mapping of texts")
    return place
