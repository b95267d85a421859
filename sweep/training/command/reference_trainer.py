"""Whether the reference trainer is where a command looks for it.

Installed with sweep it is ``sweep.trainer``, in a checkout of sweep ``trainer``. Earlier wheels
installed ``trainer``, which hid users' packages of that name; study files may still name it so.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.training.command.filling import PYTHON

IN_CHECKOUT, INSTALLED = "trainer", "sweep.trainer"
COMMANDS = ("train", "evaluate", "export", "data")
ASK_TIMEOUT_S = 30.0

# Prints those of the named modules that are there. Asks Python's own finders, one package after the
# other: importlib.util.find_spec would run the packages' __init__, the user's too.
_FIND = """\
import sys

def find(name, folders):
    for finder in sys.meta_path:
        spec = finder.find_spec(name, folders)
        if spec:
            return spec

for module in sys.argv[1:]:
    folders, name = None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = find(name, folders)
        folders = spec.submodule_search_locations if spec else None
        if folders is None:
            break
    if spec and name == module:
        print(module)
"""


def explain_gone(argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> str | None:
    """Say how the reference trainer is run where a command finds none by the name it uses.

    None where it is found, where the command runs something else, and where nobody can tell.

    Args:
        argv: As it is started, without a container around it.
    """
    named = _find_module(argv)
    python = _find_python(argv, env, workdir)
    if named is None or python is None:
        return None
    before, _, last = named.rpartition(".")
    if os.path.isfile(workdir.joinpath(*named.split(".")).with_suffix(".py")):
        return None
    other = f"{INSTALLED if before == IN_CHECKOUT else IN_CHECKOUT}.{last}"
    found = _ask(python, [named, other], env, workdir)
    if found is None or named in found:
        return None
    text = f"command: {python} finds no module {named} (nor is it in {workdir})."
    if other in found:
        return f"{text} The reference trainer is run by `python -m {other}` here."
    return (
        f"{text} The reference trainer is run by `python -m {INSTALLED}.{last}` where that Python "
        f"has sweep installed (pip install 'sweep-hpo[trainer]'), and by `python -m "
        f"{IN_CHECKOUT}.{last}` from within a checkout of sweep."
    )


def _find_module(argv: Sequence[str]) -> str | None:
    """Return the module of the reference trainer that a command runs."""
    modules = {f"{package}.{name}" for package in (IN_CHECKOUT, INSTALLED) for name in COMMANDS}
    after = [element for option, element in itertools.pairwise(argv) if option == "-m"]
    return next((element for element in after if element in modules), None)


def _find_python(argv: Sequence[str], env: Mapping[str, str], workdir: Path) -> str | None:
    """Return the interpreter that a command runs, or None where another program chooses it."""
    name = os.path.basename(argv[0])
    if not PYTHON.fullmatch(name) and name != "torchrun":
        return None
    program = str(workdir / argv[0]) if os.sep in argv[0] else argv[0]
    found = shutil.which(program, path=env.get("PATH"))
    if found is None or name != "torchrun":
        return found
    beside = os.path.join(os.path.dirname(found), "python")  # pip puts both into one folder
    return beside if os.access(beside, os.X_OK) else None


def _ask(
    python: str, modules: Sequence[str], env: Mapping[str, str], workdir: Path
) -> list[str] | None:
    """Return which modules an interpreter finds from a folder, or None where it does not answer."""
    try:
        done = subprocess.run(
            [python, "-c", _FIND, *modules],
            cwd=workdir,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.split() if done.returncode == 0 else None
