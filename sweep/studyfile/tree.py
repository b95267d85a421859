"""Read YAML 1.2 into a tree whose every value knows its line, and refuse what is not plain data.

The checks of a study file need the line of each value, so the tree is made from the nodes that
ruamel.yaml composes and not from finished Python objects. Only data comes out of it: no tag makes
an object, aliases are copied out under a limit, and duplicate keys are problems.

Numbers are YAML 1.2's: ``1e-3`` is a float, ``on`` and ``yes`` are text, ``0o17`` is 15, ``012`` is
twelve, ``1:30:00`` is text. ``1_000`` is a thousand, as in Python and in YAML 1.1. Dates are text.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from sweep.core.errors import Problem
from sweep.core.masking import mask
from sweep.studyfile.syntax import explain_syntax

# A study file of 1,000 points has about 100 KB; reading costs about 10 s a MB.
SIZE_LIMIT = 1_000_000
NODE_LIMIT = 100_000
DEPTH_LIMIT = 40

_TAG = "tag:yaml.org,2002:"
_NESTED = re.compile(r"(?:[\[{]\s*|-\s+){" + str(DEPTH_LIMIT + 1) + "}")
# One way to match each line: \s would take the ends of lines too, and 30 empty ones for ever.
_VERSION = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?\n)*%YAML[ \t]+(\S+)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class YamlError(Exception):
    """The text is not YAML that we read; carries the Problem, whose parts are the arguments."""

    def __init__(
        self, file: str, line: int, rule: str, got: str = "", advice: str = "", path: str = ""
    ) -> None:
        self.problem = Problem(file, line, path, rule, got, advice)
        super().__init__(str(self.problem))


@dataclass
class Node:
    """One value of the file.

    Attributes:
        kind: "map", "list" or "scalar".
        file: Name that problems give for its file.
        line: Line of the key (or list item) that it belongs to, from 1; 0 outside a file.
        value: A scalar's value: str, int, float, bool or None.
        text: A scalar as it was written, without its quotes.
        entries: A map's values by key, in order.
        items: A list's items.
    """

    kind: str
    file: str
    line: int
    value: Any = None
    text: str = ""
    entries: dict[str, Node] = field(default_factory=dict)
    items: list[Node] = field(default_factory=list)

    def plain(self) -> Any:
        """Return the value as JSON-like Python data."""
        if self.kind == "map":
            return {key: node.plain() for key, node in self.entries.items()}
        if self.kind == "list":
            return [item.plain() for item in self.items]
        return self.value

    def walk(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for child in (*self.entries.values(), *self.items):
            yield from child.walk()

    def shown(self) -> str:
        """Return the value for "(got …)", short and on one line."""
        if self.kind == "scalar" and not isinstance(self.value, str):
            return self.text or "nothing"
        text = mask(json.dumps(self.plain(), ensure_ascii=False))  # before it is cut
        return text if len(text) <= 70 else f"{text[:66]} …"


def decode(data: bytes, file: str) -> str:
    """Return a study file's text. Raises: YamlError where it is not UTF-8 or too large."""
    if len(data) > SIZE_LIMIT:
        rule = f"must not be larger than {SIZE_LIMIT:,} bytes"
        raise YamlError(file, 0, rule, f"{len(data):,}", "Is this the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = f"the byte 0x{data[error.start]:02x}"
        raise YamlError(file, line, "must be UTF-8 text", byte, "Save the file as UTF-8.") from None


def parse(text: str, file: str, first_line: int = 1) -> tuple[Node | None, list[Problem]]:
    """Read one YAML document.

    Args:
        file: Name for problems.
        first_line: Number of the text's first line; 0 gives every node line 0 (for text that does
            not come from a file).

    Returns:
        The tree, None for an empty document; and the problems that leave a tree to go on with
        (duplicate keys, values of an unknown tag).

    Raises:
        YamlError: It is not YAML, or more than one document, or nested or aliased without end.
    """
    text = text.removeprefix("\ufeff")
    _check_characters(text, file, first_line)
    builder = _Builder(file, first_line)
    composed = _compose(text, file, first_line)
    if composed is None or (composed.id == "scalar" and composed.tag == _TAG + "null"):
        return None, []
    try:
        return builder.build(composed, composed.start_mark.line, 0), builder.problems
    except _TooDeep:
        raise _nesting(file, first_line) from None


def compose(text: str, file: str) -> Any:
    """Return ruamel.yaml's nodes of a text that is no study file, of any version of YAML.

    Raises:
        YamlError: It is not YAML, or more than one document, or nested without end.
    """
    text = text.removeprefix("\ufeff")
    version = _VERSION.match(text)
    if version:
        text = text[: version.end(1)].replace("%YAML", "#YAML") + text[version.end(1) :]
    _check_characters(text, file, 1)
    return _compose(text, file, 1)


def _check_characters(text: str, file: str, first_line: int) -> None:
    found = _CONTROL.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1 if first_line else 0
        raise YamlError(file, line, *_bad_character(found[0]))
    version = _VERSION.match(text)
    nested = _NESTED.search(text)
    if nested:  # the parser itself would need seconds to run out of its stack
        raise _nesting(file, text.count("\n", 0, nested.start()) + bool(first_line))
    if version and version[1] != "1.2":
        line = text.count("\n", 0, version.start(1)) + 1 if first_line else 0
        raise YamlError(file, line, "must be YAML 1.2", f"%YAML {version[1]}", "Remove that line.")


def _bad_character(character: str) -> tuple[str, str, str]:
    """Return the rule, what was got, and what to do."""
    name = "NUL" if character == "\0" else f"U+{ord(character):04X}"
    return "must not contain control characters", name, "Remove it."


def _nesting(file: str, line: int) -> YamlError:
    rule = f"must not be nested deeper than {DEPTH_LIMIT} levels"
    return YamlError(file, line, rule, advice="A study file needs five.")


def _compose(text: str, file: str, first_line: int) -> Any:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an anchor defined twice: YAML lets the later win
            return yaml.compose(text)
    except RecursionError:
        raise _nesting(file, first_line) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, text.count("\n") + 1) if mark and first_line else 0
        rule, advice = explain_syntax(error)
        raise YamlError(file, line, rule, advice=advice) from None
    except (YAMLError, AttributeError, ValueError):
        # ruamel.yaml 0.19 raises AttributeError for keys that are lists.
        rule, advice = "is not YAML that sweep reads", "Keys must be text."
        raise YamlError(file, first_line, rule, advice=advice) from None


class _TooDeep(Exception):
    pass


class _Builder:
    def __init__(self, file: str, first_line: int) -> None:
        self.file = file
        self.first_line = first_line
        self.problems: list[Problem] = []
        self.nodes = 0

    def build(self, node: Any, line: int, depth: int, path: str = "") -> Node:
        self.nodes += 1
        if depth > DEPTH_LIMIT:
            raise _TooDeep
        if self.nodes > NODE_LIMIT:
            rule = f"must not hold more than {NODE_LIMIT:,} values"
            advice = "Aliases (*name) count each time they are used."
            raise YamlError(self.file, self._number(line), rule, "", advice, path)
        number = self._number(line)
        if node.id == "mapping":
            self._check_tag(node, ("map",), number, path)
            entries = self._entries(node, depth, path)
            return Node("map", self.file, number, entries=entries)
        if node.id == "sequence":
            self._check_tag(node, ("seq",), number, path)
            items = [
                self.build(child, max(line, child.start_mark.line), depth + 1, f"{path}[{i}]")
                for i, child in enumerate(node.value)
            ]
            return Node("list", self.file, number, items=items)
        value = self._scalar(node, number, path)
        return Node("scalar", self.file, number, value=value, text=node.value)

    def _number(self, line: int) -> int:
        return line + self.first_line if self.first_line else 0

    def _entries(self, node: Any, depth: int, path: str) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        lines: dict[str, int] = {}
        merged: dict[str, Node] = {}
        for key, value in node.value:
            line = self._number(key.start_mark.line)
            if key.id != "scalar":
                self._report(line, path, "keys must be text", "", "Write a name before the colon.")
                continue
            name = str(key.value)
            bad = _CONTROL.search(name)
            if bad:
                self._report(line, path, *_bad_character(bad[0]))
                continue
            below = f"{path}.{name}" if path else name
            if name in lines:
                rule = f"is given twice, first in line {lines[name]}"
                self._report(line, below, rule, "", "Remove one of the two.")
                continue
            lines[name] = line
            if name == "<<" and key.style is None:
                merged = self._merged(value, line, depth, path)
                continue
            start = key.start_mark.line
            entries[name] = self.build(value, start, depth + 1, below)
        return entries | {name: child for name, child in merged.items() if name not in entries}

    def _merged(self, value: Any, line: int, depth: int, path: str) -> dict[str, Node]:
        sources = value.value if value.id == "sequence" else [value]
        if any(source.id != "mapping" for source in sources):
            below, rule = f"{path}.<<" if path else "<<", "must be a mapping or a list of mappings"
            self._report(line, below, rule, "", "Write <<: *name.")
            return {}
        entries: dict[str, Node] = {}
        for source in sources:  # the earlier wins, as YAML's merge key says
            built = self.build(source, source.start_mark.line, depth + 1, path)
            entries = built.entries | entries
        return entries

    def _scalar(self, node: Any, line: int, path: str) -> Any:
        text = node.value
        tag = str(node.tag).removeprefix(_TAG)
        if tag in ("str", "timestamp", "value"):
            bad = _CONTROL.search(text)
            if bad:
                self._report(line, path, *_bad_character(bad[0]))
            return text
        try:
            if tag == "int":
                return _whole(text)
            if tag == "float":
                return _real(text)
            if tag == "bool" and text.lower() in ("true", "false"):
                return text.lower() == "true"
            if tag == "null" and text in ("", "~", "null", "Null", "NULL"):
                return None
        except ValueError:
            pass
        if tag in ("int", "float", "bool", "null"):
            rule = f"is not a YAML 1.2 {tag}"
            self._report(line, path, rule, json.dumps(text), "Remove the tag.")
        else:
            self._check_tag(node, (), line, path)
        return text

    def _check_tag(self, node: Any, valid: tuple[str, ...], line: int, path: str) -> None:
        tag = str(node.tag)
        if tag.removeprefix(_TAG) not in valid:
            shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
            rule = "must be plain data, without a tag that makes an object"
            self._report(line, path, rule, shown, "Remove the tag.")

    def _report(self, line: int, path: str, rule: str, got: str, advice: str) -> None:
        self.problems.append(Problem(self.file, line, path, rule, got, advice))


def _whole(text: str) -> int:
    text = text.replace("_", "")
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-").lower()
    for prefix, base in (("0x", 16), ("0o", 8), ("0b", 2)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], base)
    if len(digits) > 400:
        raise ValueError("too many digits")
    return sign * int(digits)


def _real(text: str) -> float:
    text = text.replace("_", "").lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))
