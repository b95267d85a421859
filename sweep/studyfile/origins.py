"""Where each value of a study comes from: a file and its line, --set, or sweep's own default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.masking import hide_arguments, hide_value
from sweep.studyfile.address import StorageAddress
from sweep.studyfile.defaults import DEFAULTS, lay_beneath, read_defaults
from sweep.studyfile.document import shown_default
from sweep.studyfile.keys import STUDY
from sweep.studyfile.reading import load, read_tree
from sweep.studyfile.rules import join
from sweep.studyfile.sections import REQUIRED, Section
from sweep.studyfile.tree import Node

DEFAULT = "default"


@dataclass(frozen=True)
class Origin:
    """One value.

    Attributes:
        path: Dotted, as in the study file.
        value: Plain data; text as the study file has it for a default.
        origin: ``file:line``, ``--set …`` or DEFAULT.
    """

    path: str
    value: Any
    origin: str


def origins(
    path: Path | None, overrides: Sequence[str], environ: Mapping[str, str]
) -> list[Origin]:
    """Return every value of a study, or without a file those of the defaults.

    Raises:
        StudyFileError, InputError: As ``load``: what is wrong has no origin worth showing.
    """
    if path is None:
        root = lay_beneath(read_defaults(environ), Node("map", "", 0))
        return list(_walk(root, "", DEFAULTS))
    load(path, overrides, environ)  # refuses what is wrong, all at once
    root, _ = read_tree(path, overrides, environ)
    return list(_walk(root, "", STUDY))


def _walk(node: Node, path: str, rule: Any) -> Iterator[Origin]:
    if node.kind == "map" and node.entries:
        section = rule.section if isinstance(rule, StorageAddress) else rule
        keys = section.keys if isinstance(section, Section) else {}
        for name, key in keys.items():
            below = join(path, name)
            if name in node.entries:
                yield from _walk(node.entries[name], below, key.rule)
            else:
                yield from _absent(key, below)
        for name, child in node.entries.items():
            if name not in keys:
                yield from _walk(child, join(path, name), None)
        return
    line = f":{node.line}" if node.line else ""
    yield Origin(path, _shown(path, node.plain()), f"{node.file}{line}")


def _shown(path: str, value: Any) -> Any:
    """Return a value without what is secret in it."""
    if isinstance(value, str):
        return hide_value(path, value)
    if isinstance(value, list) and path.partition(".")[0] in ("command", "commands"):
        return hide_arguments([str(word) for word in value])
    return value


def _absent(key: Any, path: str) -> Iterator[Origin]:
    if isinstance(key.rule, Section):
        for name, inner in key.rule.keys.items():
            if inner.default is not REQUIRED:  # a section that is absent asks for nothing
                yield from _absent(inner, f"{path}.{name}")
        return
    text = "" if key.default is REQUIRED else shown_default(key).strip("`")
    if text:
        yield Origin(path, text, DEFAULT)
