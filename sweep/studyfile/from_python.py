"""A study written in Python: keys, or a function, as the study file that they stand for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.files import make_private, write_atomic
from sweep.core.paths import Runs
from sweep.studyfile.given_function import command_of


class GivenStudy:
    """A study written in Python: the keys of a study file as arguments.

    It is checked as a file is when it is launched.

        study = sweep.Study(name="digits", command="python train.py {params} --seed {seed}",
                            objective={"metric": "acc", "direction": "maximize"},
                            space={"lr": {"type": "float", "low": 1e-5, "high": 0.1, "log": True}},
                            trials=50)
        sweep.launch(study, wait=True)

    Attributes:
        keys: Names to values.
    """

    def __init__(self, **keys: Any) -> None:
        self.keys = keys


def as_file(
    study: GivenStudy | Mapping[str, Any] | Callable[..., Any] | str | os.PathLike[str],
    keys: dict[str, Any],
    runs: Runs,
) -> tuple[Path, list[str]]:
    """Return a study's file and what overrides it: one that is given, or one written for it.

    So the shell's commands go on with it as with any other: ``sweep launch runs/NAME.yaml``.
    """
    if isinstance(study, str | os.PathLike):
        overrides = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
        return Path(study), overrides
    if isinstance(study, GivenStudy):
        keys = {**plain(study.keys), **keys}
    elif isinstance(study, Mapping):
        keys = {**plain(study), **keys}
    elif callable(study):
        keys = _with_function(study, keys)
    else:
        raise InputError(
            f"A study is a path, a dict, a sweep.Study or a function (got {type(study).__name__})."
        )
    name = keys.get("name")
    if not isinstance(name, str) or not name or Path(name).name != name or name.startswith("."):
        raise InputError(f"A study needs a name (got {name!r}).", 'Give name="digits".')
    keys.setdefault("workdir", os.getcwd())
    if isinstance(keys.get("points"), str):
        keys["points"] = os.path.abspath(keys["points"])
    try:
        text = json.dumps(keys, indent=2, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"A study's keys hold what a file cannot: {error}.") from None
    make_private(runs.root)
    path = runs.root / f"{name}.yaml"
    write_atomic(path, f"# Written by sweep.launch in Python.\n{text}\n")
    return path, []


def plain(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with ``objective="loss", direction="minimize"`` as a study file says it."""
    found = dict(keys)
    if isinstance(found.get("objective"), str):
        found["objective"] = {"metric": found["objective"]}
        if "direction" in found:
            found["objective"]["direction"] = found.pop("direction")
    return found


def _with_function(function: Callable[..., Any], keys: dict[str, Any]) -> dict[str, Any]:
    if "command" in keys:
        raise InputError("A function and a command were given.", "Leave one of them out.")
    objective = keys.get("objective", keys.get("objectives"))
    first = objective[0] if isinstance(objective, Sequence) and objective else objective
    metric = first.get("metric") if isinstance(first, Mapping) else None
    if not isinstance(metric, str):
        raise InputError(
            "It is not said what the function's number is.",
            'Give objective="loss", direction="minimize".',
        )
    given = keys.get("workdir")
    made = command_of(function, None if given is None else Path(given), metric)
    config = {**made["config"], **keys.get("config", {}), "format": "json"}
    return {"name": function.__name__, **made, **keys, "config": config}
