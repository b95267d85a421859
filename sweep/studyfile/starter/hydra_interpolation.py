"""OmegaConf's interpolations within one file: ``${seed}`` becomes the value that stands there.

What lies elsewhere (``${oc.env:USER}``, ``${hydra.job.num}``, a key of another file) stays as it is
written, and so does ``???``, a value that the user must give.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_INNER = re.compile(r"(?<!\\)\$\{([^${}]+)\}")
_MOST_STEPS = 50
_MISSING = object()


def resolve(data: Any) -> Any:
    """Return a file's content with what its interpolations name within it."""
    return _walk(data, data, ())


def is_open(value: Any) -> bool:
    """Tell whether a value is not known from its file."""
    if isinstance(value, list):
        return any(is_open(item) for item in value)
    return isinstance(value, str) and (value == "???" or "${" in value)


def _walk(value: Any, root: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {key: _walk(below, root, (*path, str(key))) for key, below in value.items()}
    if isinstance(value, list):
        return [_walk(item, root, (*path, str(i))) for i, item in enumerate(value)]
    return _fill(value, root, path) if isinstance(value, str) else value


def _fill(text: str, root: Any, path: tuple[str, ...], depth: int = 0) -> Any:
    for _ in range(_MOST_STEPS):
        for found in _INNER.finditer(text):
            value = _look_up(found[1].strip(), root, path, depth)
            if value is _MISSING or isinstance(value, Mapping):
                continue
            if found[0] == text:
                return value
            if isinstance(value, list) or len(text) > 10_000:
                continue
            shown = "null" if value is None else str(value)
            if "${" in shown:
                continue
            text = text[: found.start()] + shown + text[found.end() :]
            break
        else:
            return text
    return text


def _look_up(name: str, root: Any, path: tuple[str, ...], depth: int) -> Any:
    """Return the value at an absolute (``a.b``) or relative (``.b``, ``..c``) place."""
    if depth > _MOST_STEPS or not re.fullmatch(r"\.*[\w/-]+(?:\.[\w/-]+|\[\w+\])*", name):
        return _MISSING
    dots = len(name) - len(name.lstrip("."))
    if dots > len(path):
        return _MISSING
    keys = [*path[: len(path) - dots]] if dots else []
    keys += [key for key in re.split(r"[.\[\]]+", name.lstrip(".")) if key]
    at = root
    for key in keys:
        if isinstance(at, Mapping) and key in at:
            at = at[key]
        elif isinstance(at, list) and key.isdecimal() and int(key) < len(at):
            at = at[int(key)]
        else:
            return _MISSING
    # What stands there is read from its own place.
    return _fill(at, root, tuple(keys), depth + 1) if isinstance(at, str) else at
