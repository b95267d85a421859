"""Tools whose searches are not converted: known by name, with where their words are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

PAGE = "docs/coming-from.md"


def _is_of_tune(value: Any) -> bool:
    """Tell whether a mapping is an experiment: ``{env: CartPole-v1, run: PPO, stop: …}``."""
    return isinstance(value, Mapping) and isinstance(value.get("run"), str)


_DATA: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("Katib", lambda d: "kubeflow.org" in str(d.get("apiVersion"))),
    ("Azure ML", lambda d: "sampling_algorithm" in d or "azureml" in str(d.get("$schema"))),
    ("Comet", lambda d: "algorithm" in d and {"spec", "parameters"} <= d.keys()),
    ("MLflow", lambda d: "entry_points" in d),
    ("DVC", lambda d: isinstance(d.get("stages"), Mapping)),
    ("Google Vizier", lambda d: "studySpec" in d or "trialJobSpec" in d),
    ("ConfigSpace", lambda d: isinstance(d.get("hyperparameters"), list)),
    ("Ax", lambda d: isinstance(d.get("parameters"), list) and "experiment" in d),
    ("Ray Tune", lambda d: any(_is_of_tune(value) for value in d.values())),
)
_SOURCES = (
    ("Ray Tune", r"^[ \t]*(?:from\s+ray\s+import\s.*\btune\b|(?:from|import)\s+ray\.tune)"),
    ("Keras Tuner", r"^[ \t]*(?:import|from)\s+(?:keras_tuner|kerastuner)\b"),
    ("Syne Tune", r"^[ \t]*(?:import|from)\s+syne_tune\b"),
    ("ConfigSpace", r"^[ \t]*(?:import|from)\s+ConfigSpace\b"),
    ("Ax", r"^[ \t]*(?:import|from)\s+ax(?:\.\w+)*\s+import"),
    ("submitit", r"^[ \t]*(?:import|from)\s+submitit\b"),
    ("Hyperopt", r"^[ \t]*(?:import|from)\s+hyperopt\b"),
)


def recognise_data(data: Any) -> str | None:
    """Return the name of the tool that a YAML or JSON file belongs to, or None."""
    if isinstance(data, list):
        is_guild = any(isinstance(one, Mapping) and "operations" in one for one in data)
        return "guild" if is_guild else None
    if not isinstance(data, Mapping):
        return None
    for name, is_its in _DATA:
        if is_its(data):
            return name
    if any(isinstance(v, Mapping) and {"main", "flags"} <= v.keys() for v in data.values()):
        return "guild"
    return None


def recognise_source(text: str) -> str | None:
    """Return the name of the library whose search a script holds, or None."""
    for name, pattern in _SOURCES:
        if re.search(pattern, text, re.MULTILINE):
            return name
    return None
