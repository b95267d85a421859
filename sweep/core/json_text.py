"""Values as JSON: what it cannot hold left out, and strings as they are where people read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_WORDS = frozenset({"null", "~", "true", "false"})


def text_of(value: Any) -> str:
    """Return a value as people read it: as JSON, but a string as it is unless it would be taken
    for another value."""
    is_plain = isinstance(value, str) and not is_mistakable(value)
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def is_mistakable(text: str) -> bool:
    """Tell whether a string without quotation marks looks like another value: "1", "null"."""
    if text != text.strip() or text[:1] in ("", '"', "[", "{") or text.lower() in _WORDS:
        return True
    try:
        float(text)  # also "inf", "nan" and "1_000"
    except ValueError:
        return False
    return True


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: None for each number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
