"""The trainer's config files: flat `name: value` lines, or one JSON object."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .failures import InputError


def read_config(path: Path) -> dict[str, Any]:
    """Return the parameters of a flat file: one JSON object, or ``name: value`` lines of YAML.

    One small reader instead of whichever YAML package an image happens to have: they disagree
    about ``1e-5`` and ``on``, and a parameter must mean the same everywhere. What it does not
    understand (nesting, anchors, blocks) is refused, never guessed.

    Raises:
        InputError: The file is missing, not text, or not flat.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(
            f"{path}: cannot read the config file ({error.strerror}). Check the path given to "
            "--config."
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the config file is not UTF-8 text.") from None
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise InputError(f"{path}: not a JSON object: {error}.") from None
    values: dict[str, Any] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#") or line.strip() in ("---", "..."):
            continue
        found = re.fullmatch(r"([\"']?)([A-Za-z_][\w.-]*)\1:(?:\s+(.*))?", line)
        if not found:
            raise InputError(
                f"{path}:{number}: not a flat `name: value` line (got {line.strip()[:60]!r}). "
                "The trainer's config has no nesting and no lists."
            )
        name = found.group(2)
        if name in values:
            raise InputError(f"{path}:{number}: {name}: is given twice. Remove one.")
        values[name] = _scalar((found.group(3) or "").strip(), f"{path}:{number}: {name}")
    return values


def _scalar(text: str, where: str) -> Any:
    quoted = re.match(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'", text)
    if quoted:
        rest = text[quoted.end() :].strip()
        if rest and not rest.startswith("#"):
            raise InputError(f"{where}: text after the closing quote (got {rest[:60]!r}).")
        body = quoted.group(0)
        return json.loads(body) if body[0] == '"' else body[1:-1].replace("''", "'")
    text = re.sub(r"(^|\s+)#.*$", "", text)
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text[0] in "[{&*!|>%@`":
        raise InputError(f"{where}: must be a single plain value (got {text[:60]!r}).")
    return text  # its kind is the parameter's: _convert knows
