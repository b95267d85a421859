"""Mappings of a study file whose keys are known, and the table's row: a key with its rule, its
sentence, its default and an example.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core.errors import closest
from sweep.core.study import Choice
from sweep.studyfile.rules import INVALID, Reader, Rule, Word, add_advice, either, join
from sweep.studyfile.tree import Node

REQUIRED: Any = object()  # default of a key that must be given


@dataclass(frozen=True)
class Key:
    """One key of a section: the source of its check, its schema and its documentation.

    Attributes:
        doc: What it is for, for people, as editors show it.
        default: Value when it is absent; REQUIRED when it must be given.
        example: A value as one writes it in the file.
        attribute: Field of the dataclass that takes it; the key's own name when empty.
        aliases: What people write instead; only used to suggest this key.
        advice: What to do when it is missing.
    """

    name: str
    rule: Rule
    doc: str
    default: Any = None
    example: Any = None
    attribute: str = ""
    aliases: tuple[str, ...] = ()
    advice: str = ""


@dataclass(frozen=True)
class Section:
    """A mapping with known keys.

    Attributes:
        what: The noun for messages ("is not a key of {what}").
        make: Builds the value from the attributes; None gives them as a dict without the absent.
        elsewhere: Keys that belong to another place: the key, and that place.
    """

    what: str
    keys: tuple[Key, ...]
    make: Callable[..., Any] | None = None
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        values = self.read_values(node, path, reader)
        if values is INVALID or INVALID in list(values.values()):
            return INVALID
        if self.make is None:
            given = [key for key in self.keys if key.name in node.entries]
            return {key.name: values[key.attribute or key.name] for key in given}
        return self.make(**values)

    def read_values(self, node: Node, path: str, reader: Reader) -> Any:
        """Return {attribute: value or INVALID} with defaults, or INVALID if it is no mapping."""
        if node.kind != "map":
            return reader.report(
                node, path, "must be a mapping", f"Known keys: {', '.join(self.names())}."
            )
        for name, child in node.entries.items():
            if name not in self.names():
                reader.report(
                    child, join(path, name), f"is not a key of {self.what}", self.suggest(name), ""
                )
        return {k.attribute or k.name: self._read_key(k, node, path, reader) for k in self.keys}

    def _read_key(self, key: Key, node: Node, path: str, reader: Reader) -> Any:
        where = join(path, key.name)
        example = f"For example {key.name}: {write_example(key.example)}."
        if key.name not in node.entries:
            if key.default is not REQUIRED:
                return key.default
            return reader.report(node, where, "is missing", key.advice or example, "")
        child = node.entries[key.name]
        if child.kind == "scalar" and child.value is None:
            return reader.report(child, where, "has no value", "Write one, or remove the key.", "")
        first = len(reader.problems)
        value = key.rule.read(child, where, reader)
        add_advice(reader, first, where, example)
        return value

    def names(self) -> list[str]:
        return [key.name for key in self.keys]

    def suggest(self, name: str) -> str:
        """Return what to do about a key that does not exist."""
        if re.search(r":\S", name):
            return f"Put a space after the colon: {name.replace(':', ': ', 1)}."
        for key in self.keys:
            if name.lower().replace("-", "_") in (key.name, *key.aliases):
                return f"Did you mean {key.name}?"
        if name in self.elsewhere:
            return f"Did you mean {self.elsewhere[name]}?"
        near = closest(name, self.names())
        return f"Did you mean {near}?" if near else f"Known keys: {', '.join(self.names())}."

    def schema(self) -> dict[str, Any]:
        properties = {}
        for key in self.keys:
            schema = dict(key.rule.schema())
            schema["description"] = key.doc
            if key.example is not None:
                schema["examples"] = [key.example]
            if key.default not in (None, REQUIRED) and isinstance(key.default, str | int | float):
                schema["default"] = key.default
            properties[key.name] = schema
        result: dict[str, Any] = {
            "type": "object",
            "additionalProperties": False,
            "properties": properties,
        }
        required = [key.name for key in self.keys if key.default is REQUIRED]
        return result | ({"required": required} if required else {})


@dataclass(frozen=True)
class Variant:
    """A name, or a mapping with that name as its type and with the options of that type.

    Attributes:
        what: "sampler" or "pruner".
        options: The options of each type.
        meant: What people write instead of a type.
        nested: Give a plain mapping instead of a Choice (for one inside another).
    """

    what: str
    options: Mapping[str, tuple[Key, ...]]
    meant: Mapping[str, str] = field(default_factory=dict)
    nested: bool = False

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        types = Word(tuple(self.options), self.meant)
        first = len(reader.problems)
        example = next(iter(self.options))
        if node.kind != "map":
            name = types.read(node, path, reader)
            add_advice(reader, first, path, f"For example {self.what}: {example}.")
            if name is INVALID:
                return INVALID
            missing = [key.name for key in self.options[name] if key.default is REQUIRED]
            if missing:
                example = f"{self.what}: {{type: {name}, {missing[0]}: …}}"
                return reader.report(
                    node, path, f"needs {' and '.join(missing)}", f"Write {example}."
                )
            return {"type": name} if self.nested else Choice(name)
        if "type" not in node.entries:
            return reader.report(
                node, join(path, "type"), "is missing", f"One of {', '.join(self.options)}.", ""
            )
        name = types.read(node.entries["type"], join(path, "type"), reader)
        add_advice(reader, first, join(path, "type"), f"For example type: {example}.")
        if name is INVALID:
            return INVALID
        values = self.section(name).read(node, path, reader)
        if values is INVALID or self.nested:
            return values
        return Choice(name, {key: value for key, value in values.items() if key != "type"})

    def section(self, name: str) -> Section:
        """Return the keys of one type."""
        type_key = Key("type", Word((name,)), f"The {self.what}.", REQUIRED, name)
        return Section(f"{self.what} {name}", (type_key, *self.options[name]))

    def schema(self) -> dict[str, Any]:
        return either(
            [{"enum": list(self.options)}, *(self.section(name).schema() for name in self.options)]
        )


def write_example(value: Any) -> str:
    """Return a value as one writes it in a study file, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {write_example(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(write_example(v) for v in value) + "]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z/.~0-9][^:#,\[\]{}\"']*", value) and ":" not in value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
