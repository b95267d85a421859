"""Values as JSON: what it cannot hold left out, and strings as they are where people read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def text_of(value: Any) -> str:
    """Return a value as people read it: a string as it is, else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def finite(value: Any) -> Any:
    """Return a value as JSON can hold it: None for each number in it that is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return value
