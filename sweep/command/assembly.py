"""One attempt's argv and environment, from the study and the trial's values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.command import launchers
from sweep.command.filling import explain_missing, fill
from sweep.command.rendezvous import Rendezvous
from sweep.command.runtimes import LATER_RUNTIMES, RUNTIMES, Built
from sweep.errors import InputError, closest
from sweep.study import Study
from sweep.training_env import TrialValues, environment


def build(
    study: Study,
    values: TrialValues,
    base_env: Mapping[str, str],
    python_path: Path,
    meeting: Rendezvous | None = None,
) -> Built:
    """Return the argv and the environment of one attempt, to be started in ``study.workdir``.

    Args:
        study: Whose executor is decided.
        base_env: The task's environment.
        python_path: As for ``training_env.environment``.
        meeting: Where several ranks meet; ``rendezvous.meet`` finds it. Without one the command can
            be looked at, not run.

    Raises:
        InputError: The command, the launcher or the environment cannot be used.
    """
    contain = _choose("environment.runtime", study.environment.runtime, RUNTIMES, LATER_RUNTIMES)
    names = [*study.space.names(), *study.fixed]
    argv = fill(study.command, values, names)
    if not argv:
        raise InputError("command: nothing is left of it once the values are in.")
    argv = launchers.inside(study, argv, meeting, values.trial_dir)
    found = environment(study, values, launchers.without_launchers(study, base_env), python_path)
    # What the study file sets by itself wins, as does what the shell around sweep tuned.
    given = {name for name, value in study.environment.env.items() if value is not None}
    ours = {
        name: value for name, value in launchers.variables(study, meeting).items()
        if name not in given and not (name == "OMP_NUM_THREADS" and name in found)
    }  # fmt: skip
    argv, found = contain(study, argv, found | ours)
    return launchers.outside(study, argv), found


def find_missing(
    study: Study, values: TrialValues, base_env: Mapping[str, str], workdir: Path
) -> str | None:
    """Say which program or script of an attempt is not there, or None where all are.

    Raises:
        InputError: As ``build``.
    """
    argv, env = build(study, values, base_env, workdir)
    missing = explain_missing(argv, env, workdir)
    if missing is None and launchers.choose(study) != launchers.PYTHON:
        # A launcher around it hides the script that it would not find.
        alone = dataclasses.replace(study, launcher=launchers.PYTHON)
        argv, env = build(alone, values, base_env, workdir)
        missing = explain_missing(argv, env, workdir)
    return missing


def _choose(kind: str, name: str, table: Mapping[str, Any], later: Sequence[str]) -> Any:
    if name in table:
        return table[name]
    if name in later:
        raise InputError(f"{kind}: {name} comes with a later release.", f"Now: {', '.join(table)}.")
    near = closest(name, [*table, *later])
    raise InputError(
        f"{kind}: unknown (got {name!r}).",
        f"Did you mean {near}?" if near else f"One of {', '.join([*table, *later])}.",
    )
