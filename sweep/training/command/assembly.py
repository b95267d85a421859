"""One attempt's argv and environment, from the study and the trial's values."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.core.errors import InputError, closest
from sweep.core.executors import kind_of
from sweep.core.study import Study
from sweep.training.command import launchers, pyxis, reference_trainer
from sweep.training.command.containers import CONTAINERS, folders_of, image_of, split_bind
from sweep.training.command.environment import TrialValues, environment
from sweep.training.command.filling import EDIT, explain_missing, fill, find_script
from sweep.training.command.runtimes import RUNTIMES, Built

if TYPE_CHECKING:
    from sweep.training.command.rendezvous import Rendezvous


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
    contain = _choose("environment.runtime", study.environment.runtime, RUNTIMES)
    names = [*study.space.names(), *study.fixed]
    argv = fill(study.command, values, names, base_env)
    if not argv:
        raise InputError("command: nothing is left of it once the values are in.")
    argv = launchers.inside(study, argv, meeting, values.trial_dir)
    found = environment(study, values, launchers.without_launchers(study, base_env), python_path)
    # What the study file sets by itself wins, as does what the shell around sweep tuned.
    given = {name for name, value in study.environment.env.items() if value is not None}
    ours = {
        name: value
        for name, value in launchers.variables(study, meeting, values.trial_dir).items()
        if name not in given and not (name == "OMP_NUM_THREADS" and name in found)
    }
    folders = folders_of(study, values, python_path, found)
    argv, found = contain(study, argv, found | ours, folders)
    options: list[str] = []
    if study.environment.runtime == launchers.PYXIS:
        options = pyxis.options(study, found, folders)
    return launchers.outside(study, argv, options), found


def find_missing(
    study: Study, values: TrialValues, base_env: Mapping[str, str], workdir: Path
) -> str | None:
    """Say which program or script of an attempt is not there, or None where all are.

    Raises:
        InputError: As ``build``.
    """
    argv, env = build(study, values, base_env, workdir)
    if study.environment.runtime in (*CONTAINERS, "modules"):
        names = [*study.space.names(), *study.fixed]
        return _find_missing_outside(
            study, fill(study.command, values, names, base_env), env, workdir
        )
    missing = explain_missing(argv, env, workdir)
    if missing is None and launchers.choose(study) != launchers.PYTHON:
        # A launcher around it hides the script that it would not find.
        alone = replace(study, launcher=launchers.PYTHON)
        argv, env = build(alone, values, base_env, workdir)
        missing = explain_missing(argv, env, workdir)
    if missing is None and not (kind_of(study).runs_setup and study.slurm.setup):
        # What a site's setup brings to a task's Python, this machine cannot tell.
        missing = reference_trainer.explain_gone(argv, env, workdir)
    return missing


def _find_missing_outside(
    study: Study, argv: Sequence[str], env: Mapping[str, str], workdir: Path
) -> str | None:
    """Say what of a command is not there, where its program is in an image or a module's."""
    given = study.environment
    if any(EDIT in element for element in argv):
        return f"command: {EDIT} still stands in it."
    script = find_script(argv)
    inside = given.workdir and given.workdir != study.workdir
    if script and not inside and not os.path.isabs(script) and not os.path.isfile(workdir / script):
        return f"command: {script} does not exist in {workdir}."
    if given.runtime not in CONTAINERS:
        return None
    program = "srun" if given.runtime == launchers.PYXIS else given.runtime
    # A module of the site's may bring it, which only the tasks load.
    if not study.slurm.setup and not shutil.which(program, path=env.get("PATH")):
        return f"environment.runtime: no program named {program} on PATH."
    made = given.built or given.name  # by sweep, and again where it is gone; or by the user
    if not made:
        image = image_of(study)
        if os.path.isabs(image) and not os.path.exists(image):
            return f"environment.image: {image} does not exist."
    for bind in given.binds:
        source, _, read_only = split_bind(study, bind)
        # Of a cluster's nodes this machine cannot tell.
        is_here = not kind_of(study).shares_this_machine or os.path.exists(source)
        if not is_here and (read_only or not given.make_binds):
            return f"environment.binds: {source} does not exist."
    return None


def _choose(kind: str, name: str, table: Mapping[str, Any]) -> Any:
    if name in table:
        return table[name]
    near = closest(name, list(table))
    raise InputError(
        f"{kind}: unknown (got {name!r}).",
        f"Did you mean {near}?" if near else f"One of {', '.join(table)}.",
    )
