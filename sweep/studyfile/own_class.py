"""A user's own sampler or pruner: the name of a class in the workdir, and its arguments."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from sweep.core.study import HUB, Choice
from sweep.studyfile.amounts import Duration
from sweep.studyfile.rules import INVALID, Entry

_CLASS = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"
_TIME_LIMIT = "time_limit"
TIME_LIMIT_S = 60
HUB_KEYS = {  # of one of OptunaHub's registry: what it says, an example, its default
    "registry": (
        "The Git repository: an address, or an absolute path.",
        "/data/optunahub-registry",
        "https://github.com/optuna/optunahub-registry",
    ),
    "revision": (
        "A branch, a tag or a commit's full name; what it names at the first launch stays.",
        "main",
        "main",
    ),
    "class": ("The class, where the package has several.", "MOEADSampler", ""),
}
_HUB_NAME = re.escape(HUB) + r"[A-Za-z_]\w*"
LIMIT_DOC = "How long one answer may take. All other keys are arguments of the class."
LIMIT_EXAMPLE = "60s"


@dataclass(frozen=True)
class OwnClass:
    """``package.module:Class``, or a mapping with that as its type and the class's arguments.

    Or ``optunahub:name``. Read as a Choice with the options ``arguments`` and ``time_limit_s``, and
    what else such a choice has.
    """

    what: str

    def is_named(self, at: Entry) -> bool:
        """Tell whether a value is meant as a class, and none of the known words."""
        named = at["type"] if at.node.kind == "map" and "type" in at else at
        return isinstance(named.node.value, str) and ":" in named.node.value

    def read(self, at: Entry) -> Any:
        named = at["type"] if at.node.kind == "map" else at
        name = str(named.node.value)
        if name.startswith(HUB) and not re.fullmatch(_HUB_NAME, name, re.ASCII):
            advice = f"For example {self.what}: {HUB}auto_sampler."
            return named.report("must be optunahub: and a name of its registry", advice)
        if not re.fullmatch(_CLASS, name, re.ASCII):
            advice = f"For example {self.what}: {{type: my_search.{self.what}s:Mine}}."
            return named.report("must be package.module:Class", advice)
        arguments: dict[str, Any] = {}
        limit_s: Any = TIME_LIMIT_S
        of_hub: dict[str, Any] = {}
        if name.startswith(HUB):
            of_hub = {key: default for key, (_, _, default) in HUB_KEYS.items()}
        for key, entry in at.entries().items():
            if key == _TIME_LIMIT:
                with entry.advising(f"For example {_TIME_LIMIT}: 60s."):
                    limit_s = Duration().read(entry)
            elif key in of_hub:
                if _is_text(entry):
                    of_hub[key] = entry.node.value
                else:
                    limit_s = INVALID
            elif not key.isidentifier():
                entry.report("must be named as an argument of the class", "Rename it.", key)
                limit_s = INVALID
            elif not _is_finite(entry):
                limit_s = INVALID
            elif key != "type":
                arguments[key] = entry.node.plain()
        if limit_s is INVALID:
            return INVALID
        return Choice(name, {"arguments": arguments, "time_limit_s": limit_s, **of_hub})

    def schemas(self) -> list[dict[str, Any]]:
        name = {"type": "string", "pattern": f"^{_CLASS}$"}
        type_key = {
            "description": f"The {self.what}, package.module:Class or optunahub:name.",
            "examples": ["my:Mine"],
        }
        limit_key = {"description": LIMIT_DOC, "examples": [LIMIT_EXAMPLE]}
        hub_keys = {
            key: {
                "type": "string",
                "description": f"With optunahub:name. {doc}",
                "examples": [example],
            }
            for key, (doc, example, _) in HUB_KEYS.items()
        }
        limit = {_TIME_LIMIT: Duration().schema() | limit_key}
        properties = {"type": name | type_key, **limit, **hub_keys}
        return [name, {"type": "object", "required": ["type"], "properties": properties}]


def _is_text(at: Entry) -> bool:
    """Tell whether a value can be given to git: it is text that is no option."""
    value = at.node.value
    if isinstance(value, str) and value and not value.startswith("-"):
        return True
    at.report("must be text", "For example revision: main.")
    return False


def _is_finite(at: Entry) -> bool:
    for node in at.node.walk():
        if isinstance(node.value, float) and not math.isfinite(node.value):
            Entry(node, at.path, at.reader).report("must be finite", "Write a number with an end.")
            return False
    return True
