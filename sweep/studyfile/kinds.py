"""Kinds of values that only one or two keys of a study file have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sweep.core.placeholders import split
from sweep.core.shell_text import MOST_CHARACTERS, TooLong, split_words
from sweep.core.study import FOR_TRAINING
from sweep.studyfile.rules import INVALID, Entry, Rule, either

# Words in the names of variables that hold secrets (TOKENIZERS_PARALLELISM is none).
_SECRET = {"KEY", "APIKEY", "TOKEN", "PASSWORD", "PASSWD", "SECRET"}
SHELLS = ("sh", "bash", "zsh", "dash", "ksh", "fish")
_OPERATOR = re.compile(r"\|\|?|&&?|;+|\d*(>>?|<|>&|&>)\S*|\S*;")
_ADDRESS = r"[A-Za-z0-9._%+-]{1,64}(@[A-Za-z0-9.-]{1,200})?"  # Slurm takes a user's name as well
_EXPANSION = re.compile(r"\$[A-Za-z_{(]|`")


@dataclass(frozen=True)
class Command:
    """The training command: text, split as a shell would, or a list of arguments."""

    in_words = "text or a list"

    def read(self, at: Entry) -> Any:
        if at.node.kind == "list":
            return self._read_list(at)
        if not isinstance(at.node.value, str):
            return at.report("must be text or a list of arguments")
        text = at.node.value.replace("\\\n", " ")
        try:
            words = split(text)
        except TooLong:
            rule = f"must have at most {MOST_CHARACTERS:,} characters"
            return at.report(rule, "Put long values into a file.")
        except ValueError as error:
            if "quotation" in str(error):
                return at.report("has a quote that is never closed", "Close it.")
            return at.report("ends in '\\'", "Remove it.")
        if not words or not words[0]:
            return at.report("must not be empty")
        return self._refuse_shell(words, text, at) or tuple(words)

    def _read_list(self, at: Entry) -> Any:
        for item in at.items():
            if item.node.kind != "scalar" or item.node.value is None:
                return item.report("must be text", "Each argument is one text.")
        words = tuple(item.text for item in at.node.items)
        return words if words and words[0] else at.report("must not be empty")

    def _refuse_shell(self, words: list[str], text: str, at: Entry) -> Any:
        """Refuse what only a shell understands; none runs the command. Returns INVALID or None."""
        if words[0].rpartition("/")[2] in SHELLS and "-c" in words:
            return None
        if re.match(r"[A-Za-z_]\w*=", words[0]):
            advice = f"Put {words[0].partition('=')[0]} under environment.env."
            rule = "must start with a program, not with a variable"
            return at.report(rule, advice, words[0])
        # Non-POSIX splitting keeps the quotes, so that '$x' and "a;" are told from $x and a;.
        raw = split_words(text.replace("{params: }", "{params:}"), posix=False)
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
            return at.report("is not run by a shell, which alone understands this", advice, word)
        return None

    def schema(self) -> dict[str, Any]:
        item = {"type": ["string", "number", "boolean"]}
        return either(
            [{"type": "string", "minLength": 1}, {"type": "array", "items": item, "minItems": 1}]
        )


@dataclass(frozen=True)
class Commands:
    """Commands by name."""

    in_words = "names with commands"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map":
            example = "For example commands: {evaluate: python evaluate.py {checkpoint}}."
            return at.report("must be a mapping of names to commands", example)
        return at.read_each(self._read_one)

    def _read_one(self, name: str, at: Entry) -> Any:
        if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", name):
            return Command().read(at)
        return at.report("must be named by up to 40 letters, digits, _ and -", "Rename it.", "")

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": Command().schema()}


@dataclass(frozen=True)
class Email:
    """Whether a mail is sent; or to which address."""

    in_words = "true, false or an address"

    def read(self, at: Entry) -> Any:
        value = at.node.value
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and re.fullmatch(_ADDRESS, value, re.ASCII):
            return value
        return at.report("must be true, false or an address", "For example me@example.org.")

    def schema(self) -> dict[str, Any]:
        return either([{"type": "boolean"}, {"type": "string", "pattern": f"^{_ADDRESS}$"}])


@dataclass(frozen=True)
class Gpus:
    """A number of GPUs, or "type:number"; a type alone is one of it."""

    in_words = "whole number, or type:number"

    def read(self, at: Entry) -> Any:
        value = at.node.value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000:
            return value
        advice = 'For example 2 or "a100:2".'
        if isinstance(value, str):
            if re.fullmatch(r"gpu:[1-9]\d{0,3}", value):
                return int(value[4:])
            value = value.removeprefix("gpu:")
            # 1g.10gb, 2080ti and 3090 are types, too; of a number alone a count is meant.
            found = re.fullmatch(r"(\w[\w.-]*):([1-9]\d{0,3})", value, re.ASCII)
            alone = re.fullmatch(r"\w[\w.-]*", value, re.ASCII) and re.search("[A-Za-z]", value)
            if found or alone:
                return value if found else f"{value}:1"
            if value.isdecimal():
                advice = f"Write {value} without quotes."
        return at.report("must be a number or type:number", advice)

    def schema(self) -> dict[str, Any]:
        kind = {
            "type": "string",
            "pattern": r"^((gpu:)?\w[\w.-]*:[1-9]\d{0,3}|[\w.-]*[A-Za-z][\w.-]*)$",
        }
        return either([{"type": "integer", "minimum": 0, "maximum": 10_000}, kind])


@dataclass(frozen=True)
class PortRange:
    """Two ports, the first and the last: [20000, 29999]. Read as a tuple."""

    in_words = "list of two ports"

    def read(self, at: Entry) -> Any:
        values = tuple(item.value for item in at.node.items)
        whole = all(isinstance(v, int) and not isinstance(v, bool) for v in values)
        if len(values) == 2 and whole and 1024 <= values[0] <= values[1] <= 65535:
            return values
        return at.report(
            "must be two ports from 1024 to 65535, the lower one first",
            "For example [20000, 29999].",
            None if at.node.kind == "scalar" else str(list(values)),
        )

    def schema(self) -> dict[str, Any]:
        port = {"type": "integer", "minimum": 1024, "maximum": 65535}
        return {"type": "array", "items": port, "minItems": 2, "maxItems": 2}


@dataclass(frozen=True)
class OneOrMore:
    """A mapping, or a list of such mappings. Read as a tuple."""

    rule: Rule

    in_words = "keys, or a list of them"

    def read(self, at: Entry) -> Any:
        if at.node.kind == "map" or (at.node.kind == "list" and at.node.items):
            values = [self.rule.read(one) for one in at.items() or [at]]
            return INVALID if INVALID in values else tuple(values)
        advice = "For example objective: {metric: val_accuracy, direction: maximize}."
        return at.report("must be a mapping or a list of mappings", advice)

    def schema(self) -> dict[str, Any]:
        one = self.rule.schema()
        return either([one, {"type": "array", "items": one, "minItems": 1}])


@dataclass(frozen=True)
class Variables:
    """Variables of an environment: text, whole numbers as text, or nothing to pass one on."""

    in_words = "names with texts"

    def read(self, at: Entry) -> Any:
        if at.node.kind != "map":
            return at.report("must be a mapping of names to values")
        return at.read_each(self._read_one)

    def _read_one(self, name: str, at: Entry) -> Any:
        node = at.node
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            return at.report("must be named by letters, digits and _", "Rename it.", f'"{name}"')
        if name.startswith("SWEEP_") and name not in FOR_TRAINING:
            return at.report("is one of sweep's own variables", "Remove it.", "")
        if node.value is None and node.kind == "scalar":
            return None
        if set(name.upper().split("_")) & _SECRET:
            advice = f"Write {name}: without a value to pass the launching shell's."
            return at.report("looks like a secret, which a study file must not hold", advice, "")
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.text
        if isinstance(node.value, str):
            return node.value
        is_scalar = node.kind == "scalar"
        advice = f'Put it in quotes: "{node.text}".' if is_scalar else "Write one text."
        return at.report("must be text", advice)

    def schema(self) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": {"type": ["string", "integer", "null"]}}
