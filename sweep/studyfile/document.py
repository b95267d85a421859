"""The tables of ``docs/study-file.md``: every key, from the table that the loader checks by.

``python -m sweep.studyfile.document docs/study-file.md`` renews what stands between the two marks
of that file; the rest of it is written by hand.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.files import write_atomic
from sweep.studyfile import (
    address,
    amounts,
    constraint_keys,
    kinds,
    rules,
    search_keys,
    site_keys,
    space_keys,
)
from sweep.studyfile.keys import OBJECTIVE, RETRY, STUDY
from sweep.studyfile.sections import REQUIRED, Key, Section, Variant, write_example

BEGIN = "<!-- Made by `python -m sweep.studyfile.document docs/study-file.md`: do not edit. -->"
END = "<!-- The end of what is made. -->"

# What a value of each kind is, where that needs no numbers or words of its own.
_KINDS: dict[type, str] = {
    rules.Text: "text",
    rules.TextList: "texts: one or a list",
    rules.Flag: "true or false",
    kinds.Command: "text or a list",
    kinds.Commands: "names with commands",
    kinds.Gpus: "whole number, or type:number",
    kinds.PortRange: "list of two ports",
    kinds.OneOrMore: "keys, or a list of them",
    kinds.Variables: "names with texts",
    space_keys.SpaceRule: "names with parameters",
    space_keys.Values: "names with values",
    space_keys.Configurations: "list of names with values, or a CSV file",
    constraint_keys.Constraints: "metrics with bounds",
    space_keys.Choices: "list of values",
    space_keys.Conditions: "names with values",
    amounts.Duration: "time",
    amounts.Memory: "memory",
    address.StorageAddress: "URL, or keys",
    address.Url: "URL",
    Section: "keys",
    Variant: "name, or keys",
}


def describe(rule: rules.Rule) -> str:
    """Return what a key's value is, in a few words.

    Raises:
        KeyError: A kind of rule that has no words yet.
    """
    if isinstance(rule, rules.Word):
        return " or ".join(f"`{word}`" for word in rule.words)
    if isinstance(rule, rules.Whole):
        text = f"whole number{rules.shown_range(rule.low, rule.high)}"
        return " or ".join([text, *(f"`{word}`" for word in rule.words)])
    if isinstance(rule, rules.Real):
        if rule.above is not None:
            return f"number above {rules.shown_number(rule.above)}"
        return f"number{rules.shown_range(rule.low, rule.high)}"
    return _KINDS[type(rule)]


def shown_default(key: Key) -> str:
    """Return a key's default as one writes it; nothing where it is absent then."""
    default = key.default
    if default is REQUIRED:
        return "**required**"
    if default is None or default in ((), {}):
        return ""
    if isinstance(key.rule, amounts.Duration):
        return f"`{default}s`"
    if isinstance(key.rule, Variant):
        return f"`{default.type}`"
    if dataclasses.is_dataclass(default):
        return ""
    return f"`{write_example(default)}`"


def table(keys: tuple[Key, ...]) -> Iterator[str]:
    """Yield the lines of a Markdown table of some keys."""
    yield "| Key | Value | Default | What it says | Example |"
    yield "|---|---|---|---|---|"
    for key in keys:
        example = f"`{key.name}: {write_example(key.example)}`"
        doc = key.doc.replace("<", "&lt;")  # or Markdown takes <name> for HTML
        cells = (f"`{key.name}`", describe(key.rule), shown_default(key), doc, example)
        # In a table even the bar within code needs its backslash.
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sections() -> Iterator[tuple[str, str, tuple[Key, ...]]]:
    """Yield headings, a sentence, and keys, in the order of the file."""
    yield "The file", "", STUDY.keys
    yield "objective", "", OBJECTIVE.keys
    reading = next(key.rule for key in OBJECTIVE.keys if key.name == "from")
    assert isinstance(reading, Section)
    yield "objective.from", "", reading.keys
    for kind, section in space_keys.PARAMETERS.items():
        yield f"space: a parameter of type {kind}", "", section.keys
    yield "constraints: the bounds of a metric", "", constraint_keys.BOUNDS.keys
    for variant, title in (
        (search_keys.SAMPLER, "sampler"),
        (search_keys.PRUNER, "pruner"),
        (search_keys.TERMINATOR, "terminator"),
    ):
        for name, keys in variant.options.items():
            if keys:
                yield f"{title}: {name}", f"`{title}: {{type: {name}, …}}`", keys
    yield "retry", "", RETRY.keys
    yield "resources", "", site_keys.RESOURCES.keys
    yield "environment", "", site_keys.ENVIRONMENT.keys
    yield "ddp", "", site_keys.DDP.keys
    yield "slurm", "", site_keys.SLURM.keys
    yield "slurm.service", "", site_keys.SERVICE.keys
    yield "storage", "A URL, or these keys.", address.STORAGE.section.keys


def document() -> str:
    """Return all tables as Markdown, with a heading for each section."""
    lines: list[str] = []
    for heading, sentence, keys in _sections():
        lines += [f"### {heading}", ""] + ([sentence, ""] if sentence else [])
        lines += [*table(keys), ""]
    return "\n".join(lines)


def renew(text: str) -> str:
    """Return a document with the tables as they are now between its marks.

    Raises:
        InputError: It does not have the two marks.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise InputError("The document lacks the marks between which the tables stand.")
    return f"{head}{BEGIN}\n\n{document()}\n{END}{tail}"


def main(arguments: list[str]) -> None:
    """Renew the file that is named."""
    path = Path(arguments[0])
    write_atomic(path, renew(path.read_text(encoding="utf-8")), mode=0o644)


if __name__ == "__main__":
    main(sys.argv[1:])
