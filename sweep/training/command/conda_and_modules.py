"""Conda and modules: software of the host that a shell has to be told of."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.training.command.containers import Built, around

# Where the shell function `module` is defined: as the site says, Lmod's, environment-modules'.
_FIND_MODULE = """\
if ! type module >/dev/null 2>&1; then
  for file in "${LMOD_PKG:-/nowhere}/init/bash" "${MODULESHOME:-/nowhere}/init/bash" \\
      /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh \\
      /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash; do
    if [ -r "$file" ]; then . "$file" >/dev/null 2>&1 || :; fi
    if type module >/dev/null 2>&1; then break; fi
  done
fi
if ! type module >/dev/null 2>&1; then
  echo "no command 'module' on this node (neither Lmod nor environment-modules)" >&2; false
fi"""
_ACTIVATE = """\
for file in "$CONDA_PREFIX"/etc/conda/activate.d/*.sh; do
  if [ -r "$file" ]; then . "$file"; fi
done"""
# Where environments lie that have a name, below the home folder.
_HOMES = (
    ".conda",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "micromamba",
    ".local/share/mamba",
)


def load_modules(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    """Return the command after the lines of ``setup``, in which ``module`` works.

    Raises:
        InputError: No line is given, or a key that only containers know.
    """
    given = study.environment
    refuse(study, ("image", "binds", "make_binds", "workdir", "options", "remap_root", "name"))
    if not given.setup:
        raise InputError(
            "environment.setup: is missing for runtime modules.",
            'Write the lines that load them: setup: ["module load python/3.11"].',
        )
    return around(argv, [_FIND_MODULE, *given.setup], shell="bash"), env


def activate_conda(
    study: Study, argv: Sequence[str], env: dict[str, str], folders: Sequence[str]
) -> Built:
    """Return the command within a conda environment, activated as ``conda activate`` does it.

    The program ``conda`` is not needed: an environment is a folder. Its variables and its scripts
    in ``etc/conda/activate.d`` count.

    Raises:
        InputError: The environment is not there.
    """
    given = study.environment
    refuse(study, ("binds", "make_binds", "workdir", "options", "remap_root", "name"))
    prefix = find_conda(study, env)
    if not os.path.isdir(prefix / "conda-meta"):
        raise InputError(
            f"environment.image: no conda environment at {prefix} (conda-meta is missing).",
            "Give its folder or its name (`conda env list`), or a lock file for `sweep build`.",
        )
    env = (
        env
        | _conda_variables(prefix)
        | {
            "CONDA_PREFIX": str(prefix),
            "CONDA_DEFAULT_ENV": given.image or str(prefix),
            "CONDA_SHLVL": "1",
            "PATH": os.pathsep.join([str(prefix / "bin"), env["PATH"]]),
        }
    )
    for name in ("PYTHONHOME", "VIRTUAL_ENV"):
        env.pop(name, None)
    has_scripts = any((prefix / "etc/conda/activate.d").glob("*.sh"))
    return around(argv, [*[_ACTIVATE] * has_scripts, *given.setup], shell="bash"), env


def find_conda(study: Study, env: Mapping[str, str]) -> Path:
    """Return the folder of the environment that a study names.

    Raises:
        InputError: It has a name, and no folder of that name is found.
    """
    if study.environment.built:
        return Path(study.environment.built)
    name = study.environment.image or ""
    if not name:
        raise InputError("environment.image: is missing for runtime conda.")
    beside = study.at_workdir(name)
    if "/" in name or os.path.isdir(beside):
        return beside
    searched = _named_places(env)
    if name == "base":
        searched, name = [place.parent for place in searched if place.name == "envs"], "."
    for place in searched:
        if os.path.isdir(place / name / "conda-meta"):
            return place / name
    raise InputError(
        f"environment.image: there is no conda environment {study.environment.image!r}.",
        f"Give its folder (`conda env list` shows it). Looked in "
        f"{', '.join(map(str, searched)) or 'no place'}.",
    )


def _named_places(env: Mapping[str, str]) -> list[Path]:
    listed = [env.get("CONDA_ENVS_DIRS", ""), env.get("CONDA_ENVS_PATH", "")]
    found = [Path(part) for text in listed for part in text.split(os.pathsep) if part]
    if env.get("MAMBA_ROOT_PREFIX"):
        found.append(Path(env["MAMBA_ROOT_PREFIX"], "envs"))
    if env.get("CONDA_EXE"):
        found.append(Path(env["CONDA_EXE"]).parents[1] / "envs")
    home = Path(env.get("HOME") or "/nonexistent")
    found += [home / name / "envs" for name in _HOMES]
    return [place for place in dict.fromkeys(found) if os.path.isdir(place)]


def _conda_variables(prefix: Path) -> dict[str, str]:
    """Return what ``conda env config vars set`` has stored."""
    try:
        state = json.loads((prefix / "conda-meta/state").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in (state.get("env_vars") or {}).items()}


def refuse(study: Study, names: Sequence[str]) -> None:
    """Refuse keys of ``environment`` that mean nothing with the study's runtime.

    Raises:
        InputError: One is given.
    """
    given = study.environment
    for name in names:
        if getattr(given, name):
            hint = (
                ""
                if given.runtime != "none"
                else ("Name the runtime that it is for, or leave it out.")
            )
            raise InputError(
                f"environment.{name}: has no meaning with runtime {given.runtime}.", hint
            )
