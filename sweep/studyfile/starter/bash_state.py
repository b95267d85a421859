"""What a script of bash has set, and the marks around what is not known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

UNKNOWN = "\ue000"  # stands, twice, around what is not known


class LeftBlock(Exception):
    """``exit``, ``return``, ``break`` or ``continue``."""


class NotKnown(ValueError):
    """What only a run of the script would tell."""


@dataclass
class Ran:
    """A command that a task runs: its place in the script, what is set for it alone (``A=1``), and
    its words, with ``UNKNOWN`` around what is not known."""

    line: int
    settings: str
    words: tuple[str, ...]


@dataclass
class BashState:
    """What a script has set; ``local`` is what was before, for each function that runs."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, dict[str, str]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    keyed: set[str] = field(default_factory=set)
    local: list[dict[str, str | None]] = field(default_factory=list)
    substitute: Callable[[str], str] = lambda _: UNKNOWN * 2

    def get(self, name: str) -> str | None:
        if name.isdecimal():
            number = int(name)
            return self.arguments[number - 1] if 0 < number <= len(self.arguments) else None
        if name in self.texts:
            return self.texts[name]
        return self.arrays[name].get("0", "") if name in self.arrays else None

    def put(self, name: str, value: str) -> None:
        """Set a variable; of an array its first element."""
        if name in self.arrays:
            self.arrays[name] = {**self.arrays[name], "0": value}
        else:
            self.texts[name] = value

    def keep(self, words: list[str]) -> None:
        """Keep what names were that a function has for itself. Raises: NotKnown."""
        for word in words if self.local else []:
            name = word.partition("=")[0].removesuffix("+")
            if name in self.arrays:
                raise NotKnown(f"{name}: is a list of its own within a function")
            if not name.startswith("-") and name not in self.local[-1]:
                self.local[-1][name] = self.texts.get(name)
                if "=" not in word:
                    self.texts.pop(name, None)

    def leave(self) -> None:
        """Forget what names were within a function."""
        for name, text in self.local.pop().items():
            self.arrays.pop(name, None)
            self.texts.pop(name, None)
            if text is not None:
                self.texts[name] = text

    def keys(self, name: str) -> list[str]:
        """Return the keys of an array in its order. Raises: NotKnown."""
        keys = self.arrays.get(name, {})
        if len(keys) > 1 and (name in self.keyed or not all(map(str.isdecimal, keys))):
            raise NotKnown(f"{name}: bash has its keys in no order")
        return sorted(keys, key=order)

    def elements(self, name: str) -> list[str]:
        """Return the elements of an array in its order."""
        if name in self.arrays:
            return [self.arrays[name][key] for key in self.keys(name)]
        if name in ("@", "*"):
            return self.arguments
        value = self.get(name)
        return [mark(name)] if value is None else [value]


def order(key: str) -> tuple[int, str]:
    """Return by what the keys of an array are sorted."""
    return (int(key), "") if key.isdecimal() else (0, key)


def mark(name: str) -> str:
    """Return what stands in a text for a variable that is not known."""
    return f"{UNKNOWN}{name}{UNKNOWN}"


def known(text: str) -> str:
    """Return a text. Raises: NotKnown where a part of it is not known."""
    if UNKNOWN in text:
        raise NotKnown(text.replace(UNKNOWN, ""))
    return text
