"""Values as YAML text that readers of YAML 1.1 (PyYAML) and 1.2 take for the same values.

The two versions disagree on ``1e-05`` (text in 1.1), on ``on`` and ``yes`` (booleans in 1.1) and on
line separators inside strings; written as here they agree. JSON's text is that already but for
floats, keys, and characters that YAML does not read back. (ruamel.yaml writes for one version.)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

_PLAIN = r"[A-Za-z_][A-Za-z0-9_./-]*"
# Words that one of the two versions reads as a boolean or as null.
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"}
# What JSON leaves as it is and YAML does not read back: DEL and the C1 controls, the line
# separators of YAML 1.1, the byte order mark, lone surrogates and the non-characters.
_UNSAFE = "[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]"


def write_key(name: str) -> str:
    """Return a mapping's key: plain where that is safe, else quoted."""
    if re.fullmatch(_PLAIN, name) and name.lower() not in _WORDS:
        return name
    return _quote(name)


def write_value(value: Any) -> str:
    """Return a value in one line: strings quoted, floats with a dot, lists and maps as flow.

    Args:
        value: None, a bool, int, float or string, or lists, tuples and mappings of those.

    Raises:
        TypeError: A value of another type.
    """
    return _write(value, _quote)


def write_plain(value: Any) -> str:
    """Return a value as people write it: as ``write_value`` does, with quotes only where needed."""
    return _write(value, write_key)


def write_mapping(values: Mapping[str, Any]) -> str:
    """Return a flat mapping, one ``name: value`` a line; dots in a name stay a part of it."""
    if not values:
        return "{}\n"
    return "".join(f"{write_key(name)}: {write_value(value)}\n" for name, value in values.items())


def write_tree(values: Mapping[str, Any], indent: str = "") -> str:
    """Return mappings within a mapping, each in a block of its own."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{write_key(str(name))}:\n{write_tree(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{write_key(str(name))}: {write_value(value)}\n")
    return "".join(lines) or "{}\n"


def _write(value: Any, write_text: Callable[[str], str]) -> str:
    if value is None or isinstance(value, int):  # a bool too
        return json.dumps(value)
    if isinstance(value, float):
        return _write_float(value)
    if isinstance(value, str):
        return write_text(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_write(item, write_text) for item in value) + "]"
    if isinstance(value, Mapping):
        items = (f"{write_key(str(k))}: {_write(item, write_text)}" for k, item in value.items())
        return "{" + ", ".join(items) + "}"
    raise TypeError(f"no YAML form for a {type(value).__name__}: {value!r}")


def _write_float(value: float) -> str:
    if math.isnan(value):
        return ".nan"
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    mantissa, exponent, power = repr(float(value)).partition("e")
    return (mantissa if "." in mantissa else f"{mantissa}.0") + exponent + power


def _quote(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub(_UNSAFE, lambda found: f"\\u{ord(found[0]):04x}", quoted)
