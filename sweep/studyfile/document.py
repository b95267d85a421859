"""The tables of ``docs/study-file.md``: every key, from the table that the loader checks by.

``make reference`` renews what stands between the two marks of that file; the rest of it is written
by hand.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from sweep.core.errors import InputError
from sweep.studyfile.address import EMBEDDED, STORAGE
from sweep.studyfile.amounts import Duration
from sweep.studyfile.constraint_keys import BOUNDS
from sweep.studyfile.data_keys import DATA_SET, STAGING
from sweep.studyfile.keys import CONFIG, RETRY, STUDY
from sweep.studyfile.notify_keys import NOTIFY
from sweep.studyfile.objective_keys import OBJECTIVE, READING
from sweep.studyfile.own_class import HUB_KEYS, LIMIT_DOC, LIMIT_EXAMPLE, TIME_LIMIT_S
from sweep.studyfile.replicate_keys import RANGE
from sweep.studyfile.rules import Text
from sweep.studyfile.search_keys import PRUNER, SAMPLER, TERMINATOR
from sweep.studyfile.sections import REQUIRED, Key, Variant, write_example
from sweep.studyfile.share_keys import SHARE
from sweep.studyfile.site_keys import DDP, ENVIRONMENT, RESOURCES, SERVICE, SLURM
from sweep.studyfile.space_keys import PARAMETERS, PRIOR_OF_CHOICES, PRIOR_OF_RANGE

BEGIN = "<!-- Made by `make reference`: do not edit. -->"
END = "<!-- The end of what is made. -->"


def shown_default(key: Key) -> str:
    """Return a key's default as one writes it; nothing where it is absent then."""
    default = key.default
    if default is REQUIRED:
        return "**required**"
    if default is None or default in ((), {}):
        return ""
    if isinstance(key.rule, Duration):
        return f"`{default}s`"
    if isinstance(key.rule, Variant):
        return f"`{default.type}`"
    if dataclasses.is_dataclass(default):
        return ""
    return f"`{write_example(default)}`"


def table(keys: Mapping[str, Key]) -> Iterator[str]:
    """Yield the lines of a Markdown table of some keys."""
    yield "| Key | Value | Default | What it says | Example |"
    yield "|---|---|---|---|---|"
    for name, key in keys.items():
        example = f"`{name}: {write_example(key.example)}`"
        doc = key.doc.replace("<", "&lt;")  # or Markdown takes <name> for HTML
        cells = (f"`{name}`", key.rule.in_words, shown_default(key), doc, example)
        # In a table even the bar within code needs its backslash.
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _sections() -> Iterator[tuple[str, str, Mapping[str, Key]]]:
    """Yield headings, a sentence, and keys, in the order of the file."""
    yield "The file", "", STUDY.keys
    yield "config", "", CONFIG.keys
    yield "objective", "", OBJECTIVE.keys
    yield "objective.from", "", READING.keys
    for kind, section in PARAMETERS.items():
        yield f"space: a parameter of type {kind}", "", section.keys
    yield "prior of a float or an int", "", PRIOR_OF_RANGE.keys
    yield "prior of a categorical", "", PRIOR_OF_CHOICES.keys
    yield "constraints: the bounds of a metric", "", BOUNDS.keys
    yield RANGE.what, "A number, or these keys.", RANGE.keys
    for variant in (SAMPLER, PRUNER, TERMINATOR):
        for kind in variant.options:
            options = {**variant.section(kind).keys}
            del options["type"]  # the heading says it
            if options:
                yield f"{variant.what}: {kind}", f"`{variant.what}: {{type: {kind}, …}}`", options
    yield (
        "a sampler or pruner of OptunaHub",
        '`"optunahub:name"`, or `{type: "optunahub:name", …}`',
        {
            key: Key(Text(), doc, example, default=default or None)
            for key, (doc, example, default) in HUB_KEYS.items()
        },
    )
    yield (
        "a sampler or pruner of your own",
        '`{type: "my_search.samplers:Mine", …}`',
        {"time_limit": Key(Duration(), LIMIT_DOC, LIMIT_EXAMPLE, default=TIME_LIMIT_S)},
    )
    for section in (RETRY, RESOURCES, ENVIRONMENT, DDP, SLURM, SERVICE, NOTIFY):
        yield section.what, "", section.keys
        if section is RESOURCES:
            yield SHARE.what, "auto, a number, or these keys.", SHARE.keys
    yield "data: a data set", "A path, or these keys.", DATA_SET.keys
    yield "staging", "", STAGING.keys
    yield "storage", "A URL, or these keys.", STORAGE.section.keys
    yield "storage.embedded", "One of the words of `at`, or these keys.", EMBEDDED.keys


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
