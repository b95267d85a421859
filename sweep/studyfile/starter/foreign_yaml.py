"""Read YAML as W&B and Hydra do (PyYAML, YAML 1.1): ``no`` is false, ``012`` ten, ``1:30`` 90.

Two things are otherwise. ``1e-4`` is a number, as everybody means it and as Hydra reads it; W&B
reads a text, which its ranges refuse (``Read.numbers`` names these). Dates stay text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from sweep.studyfile.tree import DEPTH_LIMIT, NODE_LIMIT, YamlError, compose

_TAG = "tag:yaml.org,2002:"
_BOOL = re.compile(r"yes|Yes|YES|true|True|TRUE|on|On|ON|(no|No|NO|false|False|FALSE|off|Off|OFF)")
_NULL = re.compile(r"~|null|Null|NULL|")
_INT = re.compile(
    r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*|[1-9][0-9_]*(?::[0-5]?[0-9])+)"
)
_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
# Numbers for every reader but that of YAML 1.1.
_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)[eE][-+]?[0-9]+")


@dataclass
class Read:
    """A file's content.

    Attributes:
        numbers: Places of numbers that PyYAML takes for texts, with what is written there.
        twice: Keys that are given twice, with the line of the later, which PyYAML takes.
    """

    data: Any = None
    numbers: dict[str, str] = field(default_factory=dict)
    twice: dict[str, int] = field(default_factory=dict)
    nodes: int = 0
    text: str = ""


def read_yaml(text: str, file: str) -> Read:
    """Return the content of a YAML (or JSON) text, with text keys. Raises: YamlError."""
    read = Read(text=text)
    node = compose(text, file)
    if node is not None:
        read.data = _build(node, read, file, "", 0)
    return read


def _build(node: Any, read: Read, file: str, path: str, depth: int) -> Any:
    read.nodes += 1
    line = node.start_mark.line + 1
    if depth > DEPTH_LIMIT or read.nodes > NODE_LIMIT:
        raise YamlError(file, line, "is too large or too deep")
    if node.id == "scalar":
        return _scalar(node, read, file, path)
    if not str(node.tag).startswith(_TAG):
        raise YamlError(file, line, "makes an object by a tag", str(node.tag), path=path)
    if node.id == "sequence":
        return [
            _build(child, read, file, f"{path}[{i}]", depth + 1)
            for i, child in enumerate(node.value)
        ]
    found: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for key, value in node.value:
        if key.id != "scalar":
            raise YamlError(file, key.start_mark.line + 1, "has a key that is no text", path=path)
        name = str(key.value)
        below = f"{path}.{name}" if path else name
        if name in found:
            read.twice[below] = key.start_mark.line + 1
        built = _build(value, read, file, below, depth + 1)
        if name == "<<" and key.style is None:
            sources = built if isinstance(built, list) else [built]
            for source in sources:
                if not isinstance(source, dict):
                    raise YamlError(file, line, "merges (<<) what is no mapping", path=below)
                merged = source | merged
        else:
            found[name] = built
    return merged | found


def _scalar(node: Any, read: Read, file: str, path: str) -> Any:
    tag, text = str(node.tag), str(node.value)
    if node.style is not None or tag == "!":
        return text
    if not tag.startswith(_TAG):
        raise YamlError(file, node.start_mark.line + 1, "makes an object by a tag", tag, path=path)
    value = read_word(text)
    is_tagged = read.text.startswith("!!float", node.start_mark.index)
    if isinstance(value, float) and not _FLOAT.fullmatch(text) and not is_tagged:
        read.numbers[path] = text
    return value


def read_word(text: str) -> Any:
    """Return what a word without quotes is."""
    if _NULL.fullmatch(text):
        return None
    found = _BOOL.fullmatch(text)
    if found:
        return not found[1]
    digits = text.replace("_", "")
    if _INT.fullmatch(text) and digits.strip("+-"):
        return _whole(digits)
    if _FLOAT.fullmatch(text) or _NUMBER.fullmatch(text):
        return _real(digits.lower())
    return text


def _whole(digits: str) -> int | float:
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-").lower()
    if len(digits) > 400:
        return float("inf")  # no range and no choice takes it
    if ":" in digits:
        return sign * int(_sixties(digits))
    for prefix, base in (("0b", 2), ("0x", 16)):
        if digits.startswith(prefix):
            return sign * int(digits[2:] or "0", base)
    return sign * int(digits, 8 if digits[0] == "0" else 10)


def _real(digits: str) -> float:
    if ":" in digits:
        sign = -1 if digits.startswith("-") else 1
        return sign * _sixties(digits.lstrip("+-"))
    return float(digits.replace(".inf", "inf").replace(".nan", "nan"))


def _sixties(digits: str) -> float:
    total = 0.0
    for part in digits.split(":"):
        total = total * 60 + float(part)
    return total
