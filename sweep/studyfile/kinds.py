"""Kinds of values that only one or two keys of a study file have."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

from sweep.studyfile.rules import INVALID, Reader, Rule, either, join
from sweep.studyfile.tree import Node

# Words in the names of variables that hold secrets (TOKENIZERS_PARALLELISM is none).
_SECRET = {"KEY", "APIKEY", "TOKEN", "PASSWORD", "PASSWD", "SECRET"}
SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish")
_OPERATOR = re.compile(r"\|\|?|&&?|;+|\d*(>>?|<|>&|&>)\S*|\S*;")
_EXPANSION = re.compile(r"\$[A-Za-z_{(]|`")


@dataclass(frozen=True)
class Command:
    """The training command: text, split as a shell would, or a list of arguments."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind == "list":
            return self._read_list(node, path, reader)
        if not isinstance(node.value, str):
            return reader.report(node, path, "must be text or a list of arguments")
        text = node.value.replace("\\\n", " ")
        try:
            words = shlex.split(text)
        except ValueError as error:
            advice = "Close it." if "quotation" in str(error) else "Remove it."
            rule = "has a quote that is never closed" if advice == "Close it." else "ends in '\\'"
            return reader.report(node, path, rule, advice)
        if not words or not words[0]:
            return reader.report(node, path, "must not be empty")
        return self._refuse_shell(words, text, node, path, reader) or tuple(words)

    def _read_list(self, node: Node, path: str, reader: Reader) -> Any:
        words = []
        for i, item in enumerate(node.items):
            if item.kind != "scalar" or item.value is None:
                reader.report(item, f"{path}[{i}]", "must be text", "Each argument is one text.")
                return INVALID
            words.append(item.text)
        if not words or not words[0]:
            return reader.report(node, path, "must not be empty")
        return tuple(words)

    def _refuse_shell(
        self, words: list[str], text: str, node: Node, path: str, reader: Reader
    ) -> Any:
        """Refuse what only a shell understands; none runs the command. Returns INVALID or None."""
        if words[0].rpartition("/")[2] in SHELLS and "-c" in words:
            return None
        if re.match(r"[A-Za-z_]\w*=", words[0]):
            name = words[0].partition("=")[0]
            return reader.report(
                node,
                path,
                "must start with a program, not with a variable",
                f"Put {name} under environment.env.",
                words[0],
            )
        # Non-POSIX splitting keeps the quotes, so that '$x' and "a;" are told from $x and a;.
        raw = shlex.split(text, posix=False)
        for word in raw if len(raw) == len(words) else words:
            if word == "cd" or _OPERATOR.fullmatch(word):
                advice = 'Use a script, or bash -c "…".'
                if words[0] == "cd":
                    advice = "Use workdir."
            elif not word.startswith("'") and _EXPANSION.search(word):
                advice = 'Write the value, or use bash -c "…".'
            elif word.startswith("~/"):
                advice = "Write the whole path."
            else:
                continue
            return reader.report(
                node, path, "is not run by a shell, which alone understands this", advice, word
            )
        return None

    def schema(self) -> dict[str, Any]:
        item = {"type": ["string", "number", "boolean"]}
        return either(
            [{"type": "string", "minLength": 1}, {"type": "array", "items": item, "minItems": 1}]
        )


@dataclass(frozen=True)
class Commands:
    """Commands by name."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "map":
            return reader.report(
                node,
                path,
                "must be a mapping of names to commands",
                "For example commands: {evaluate: python evaluate.py {checkpoint}}.",
            )
        values: dict[str, Any] = {}
        for name, child in node.entries.items():
            if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
                rule = "must be named by up to 40 letters, digits, _ and -"
                values[name] = reader.report(child, join(path, name), rule, "Rename it.", "")
            else:
                values[name] = Command().read(child, join(path, name), reader)
        return INVALID if INVALID in values.values() else values

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": Command().schema()}


@dataclass(frozen=True)
class Gpus:
    """A number of GPUs, or "type:number"; a type alone is one of it."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
            return value
        if isinstance(value, str):
            found = re.fullmatch(r"([A-Za-z][\w.-]*)(?::([1-9]\d{0,3}))?", value, re.ASCII)
            if found:
                return f"{found[1]}:{found[2] or 1}"
            if value.isdecimal():
                return reader.report(
                    node, path, "must be a number or type:number", f"Write {value} without quotes."
                )
        advice = 'For example 2 or "a100:2".'
        return reader.report(node, path, "must be a number or type:number", advice)

    def schema(self) -> dict[str, Any]:
        kind = {"type": "string", "pattern": r"^[A-Za-z][\w.-]*(:[1-9]\d{0,3})?$"}
        return either([{"type": "integer", "minimum": 0, "maximum": 10_000}, kind])


@dataclass(frozen=True)
class PortRange:
    """Two ports, the first and the last: [20000, 29999]. Read as a tuple."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        values = tuple(item.value for item in node.items) if node.kind == "list" else ()
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        if len(values) == 2 and whole and 1024 <= values[0] <= values[1] <= 65535:
            return values
        return reader.report(
            node,
            path,
            "must be two ports from 1024 to 65535, the lower one first",
            "For example [20000, 29999].",
            None if node.kind == "scalar" else str(list(values)),
        )

    def schema(self) -> dict[str, Any]:
        port = {"type": "integer", "minimum": 1024, "maximum": 65535}
        return {"type": "array", "items": port, "minItems": 2, "maxItems": 2}


@dataclass(frozen=True)
class OneOrMore:
    """A mapping, or a list of such mappings. Read as a tuple."""

    rule: Rule

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind == "map":
            value = self.rule.read(node, path, reader)
            return value if value is INVALID else (value,)
        if node.kind == "list" and node.items:
            values = [self.rule.read(n, f"{path}[{i}]", reader) for i, n in enumerate(node.items)]
            return INVALID if INVALID in values else tuple(values)
        advice = "For example objective: {metric: val_accuracy, direction: maximize}."
        return reader.report(node, path, "must be a mapping or a list of mappings", advice)

    def schema(self) -> dict[str, Any]:
        one = self.rule.schema()
        return either([one, {"type": "array", "items": one, "minItems": 1}])


@dataclass(frozen=True)
class Variables:
    """Variables of an environment: text, whole numbers as text, or nothing to pass one on."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if node.kind != "map":
            return reader.report(node, path, "must be a mapping of names to values")
        values: dict[str, Any] = {}
        for name, child in node.entries.items():
            values[name] = self._read_one(name, child, join(path, name), reader)
        return INVALID if INVALID in values.values() else values

    def _read_one(self, name: str, child: Node, path: str, reader: Reader) -> Any:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            rule = "must be named by letters, digits and _"
            return reader.report(child, path, rule, "Rename it.", f'"{name}"')
        if name.startswith("SWEEP_"):
            return reader.report(child, path, "is one of sweep's own variables", "Remove it.", "")
        if child.value is None and child.kind == "scalar":
            return None
        if set(name.upper().split("_")) & _SECRET:
            return reader.report(
                child,
                path,
                "looks like a secret, which a study file must not hold",
                f"Write {name}: without a value to pass the launching shell's.",
                "",
            )
        if isinstance(child.value, int) and not isinstance(child.value, bool):
            return child.text
        if not isinstance(child.value, str):
            quoted = f'Put it in quotes: "{child.text}".' if child.kind == "scalar" else ""
            return reader.report(child, path, "must be text", quoted or "Write one text.")
        return child.value

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": ["string", "integer", "null"]}}
