"""NNI's and Determined's experiments, and seml's, as study files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.studyfile.starter.determined import convert_determined
from sweep.studyfile.starter.draft import HINTS, Draft
from sweep.studyfile.starter.nni import convert_nni, is_nni
from sweep.studyfile.starter.seml import convert_seml


def find_other(data: Any) -> str | None:
    """Return which of these tools a file belongs to, or None."""
    if not isinstance(data, Mapping):
        return None
    if is_nni(data):
        return "NNI"
    if isinstance(data.get("searcher"), Mapping) and (
        isinstance(data.get("hyperparameters"), Mapping) or "entrypoint" in data
    ):
        return "Determined"
    if isinstance(data.get("seml"), Mapping):
        return "seml"
    return None


def convert_other(kind: str, data: Mapping[str, Any], path: Path, lost: list[str]) -> Draft:
    """Return the study of an experiment; what could not be carried over is added to ``lost``."""
    draft = begin_other(kind, path)
    if kind == "NNI":
        convert_nni(draft, data, path, lost)
    elif kind == "Determined":
        convert_determined(draft, data, lost)
    else:
        convert_seml(draft, data, lost)
    draft.more.setdefault("max_parallel", 4)
    return draft


def begin_other(kind: str, path: Path) -> Draft:
    return Draft(
        f"Made from the {kind} file {path.name}.",
        "study",
        [],
        hints=list(HINTS),
        more={"trials": 20, "seed": 0, "sampler": "auto"},
    )
