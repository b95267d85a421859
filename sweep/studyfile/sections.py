"""Mappings of a study file whose keys are known, and the row of its tables: a key with its rule,
its sentence and an example. What a key is when it is absent, the data class says that it fills.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core.errors import closest
from sweep.core.study import Choice
from sweep.studyfile.own_class import OwnClass
from sweep.studyfile.rules import INVALID, Entry, Rule, Word, either

REQUIRED: Any = object()  # default of a key that must be given
_OF_FIELD: Any = object()  # default of a key that has its field's


@dataclass(frozen=True)
class Key:
    """One key of a section: the source of its check, its schema and its documentation.

    Attributes:
        doc: What it is for, for people, as editors show it.
        example: A value as one writes it in the file; the default unless told here.
        aliases: What people write instead, between spaces; only used to suggest this key.
        field: Field of the section's data class that it fills; the one of its own name when empty.
        default: Value when it is absent; REQUIRED when it must be given. The field's own unless
            told here.
        advice: What to do when it is missing; the example when empty.
    """

    rule: Rule
    doc: str
    example: Any = None
    aliases: str = ""
    field: str = ""
    default: Any = _OF_FIELD
    advice: str = ""


@dataclass
class Section:
    """A mapping with known keys.

    Attributes:
        what: The noun for messages ("is not a key of {what}").
        fills: The data class that is read; None gives a dict without what is absent.
        elsewhere: Keys that belong to another place: the key, and that place.
    """

    what: str
    fills: Any
    keys: Mapping[str, Key]
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    in_words = "keys"

    def __post_init__(self) -> None:
        self.keys = {name: self._complete(name, key) for name, key in self.keys.items()}

    def _complete(self, name: str, key: Key) -> Key:
        """Return a key with its field's name, the default that the field has, and an example."""
        filled, default, example = key.field or name, key.default, key.example
        if default is _OF_FIELD:
            default = _default_of(self.fills, filled) if self.fills else None
        if example is None:
            example = default
        return dataclasses.replace(key, field=filled, default=default, example=example)

    def read(self, at: Entry) -> Any:
        values = self.read_values(at)
        if values is INVALID or INVALID in list(values.values()):
            return INVALID
        if self.fills is None:
            return {name: value for name, value in values.items() if name in at}
        return self.fills(**values)

    def read_values(self, at: Entry) -> Any:
        """Return {field: value or INVALID} with defaults, or INVALID if it is no mapping."""
        if at.node.kind != "map":
            return at.report("must be a mapping", f"Known keys: {', '.join(self.keys)}.")
        for name, entry in at.entries().items():
            if name not in self.keys:
                entry.report(f"is not a key of {self.what}", self.suggest(name), "")
        return {key.field: self._read_key(name, key, at) for name, key in self.keys.items()}

    def _read_key(self, name: str, key: Key, at: Entry) -> Any:
        example = f"For example {name}: {write_example(key.example)}."
        if name not in at:
            if key.default is not REQUIRED:
                return key.default
            return at.report_missing(name, key.advice or example)
        entry = at[name]
        if entry.node.kind == "scalar" and entry.node.value is None:
            return entry.report("has no value", "Write one, or remove the key.", "")
        with entry.advising(example):
            return key.rule.read(entry)

    def suggest(self, name: str) -> str:
        """Return what to do about a key that does not exist."""
        if re.search(r":\S", name):
            return f"Put a space after the colon: {name.replace(':', ': ', 1)}."
        written = name.lower().replace("-", "_")
        meant = next((k for k in self.keys if written in (k, *self.keys[k].aliases.split())), "")
        near = meant or self.elsewhere.get(name) or closest(name, list(self.keys))
        return f"Did you mean {near}?" if near else f"Known keys: {', '.join(self.keys)}."

    def schema(self) -> dict[str, Any]:
        properties = {}
        for name, key in self.keys.items():
            properties[name] = key.rule.schema() | {
                "description": key.doc,
                "examples": [key.example],
            }
            if isinstance(key.default, str | int | float):
                properties[name]["default"] = key.default
        required = [name for name, key in self.keys.items() if key.default is REQUIRED]
        closed = {"type": "object", "additionalProperties": False, "properties": properties}
        return closed | ({"required": required} if required else {})


def _default_of(cls: Any, name: str) -> Any:
    """Return what a field of a data class is unless given; REQUIRED where it must be.

    Raises:
        TypeError: There is no such field.
    """
    found = next((one for one in dataclasses.fields(cls) if one.name == name), None)
    if found is None:
        raise TypeError(f"{cls.__name__} has no field {name}, which a key of the study file fills.")
    if found.default_factory is not dataclasses.MISSING:
        return found.default_factory()
    return REQUIRED if found.default is dataclasses.MISSING else found.default


@dataclass(frozen=True)
class Variant:
    """A name, or a mapping with that name as its type and with the options of that type.

    Attributes:
        what: "sampler" or "pruner".
        options: The options of each type.
        meant: What people write instead of a type.
        nested: Give a plain mapping instead of a Choice (for one inside another).
        own: Takes a user's own class as well, package.module:Class.
    """

    what: str
    options: Mapping[str, Mapping[str, Key]]
    meant: Mapping[str, str] = field(default_factory=dict)
    nested: bool = False
    own: OwnClass | None = None

    in_words = "name, or keys"

    def read(self, at: Entry) -> Any:
        if self.own and self.own.is_named(at):
            return self.own.read(at)
        types = Word(tuple(self.options), self.meant)
        example = next(iter(self.options))
        if at.node.kind != "map":
            with at.advising(f"For example {self.what}: {example}."):
                name = types.read(at)
            if name is INVALID:
                return INVALID
            keys = self.options[name].items()
            missing = [option for option, key in keys if key.default is REQUIRED]
            if missing:
                advice = f"Write {self.what}: {{type: {name}, {missing[0]}: …}}."
                return at.report(f"needs {' and '.join(missing)}", advice)
            return {"type": name} if self.nested else Choice(name)
        if "type" not in at:
            return at.report_missing("type", f"One of {', '.join(self.options)}.")
        with at["type"].advising(f"For example type: {example}."):
            name = types.read(at["type"])
        values = INVALID if name is INVALID else self.section(name).read(at)
        if values is INVALID or self.nested:
            return values
        return Choice(name, {key: value for key, value in values.items() if key != "type"})

    def section(self, name: str) -> Section:
        """Return the keys of one type."""
        kind = Key(Word((name,)), f"The {self.what}.", name, default=REQUIRED)
        return Section(f"{self.what} {name}", None, {"type": kind, **self.options[name]})

    def schema(self) -> dict[str, Any]:
        known = [{"enum": list(self.options)}, *(self.section(n).schema() for n in self.options)]
        return either([*known, *(self.own.schemas() if self.own else ())])


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
