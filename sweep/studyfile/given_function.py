"""A Python function as what a study trains: ``sweep.launch(train, ...)``.

A training is another process, on another machine: it must find the function in a file.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError

CALLER = "sweep.integrations.function"


def command_of(function: Callable[..., Any], workdir: Path | None, metric: str) -> dict[str, Any]:
    """Return the keys of a study file that run a function: command, workdir, config.

    Args:
        workdir: The folder that is to be frozen; where its module is imported from when None.
        metric: What a number that it returns is.

    Raises:
        InputError: It cannot be found in a file, or not below ``workdir``.
    """
    module, folder = _place(function)
    if workdir is not None:
        try:
            inside = folder.relative_to(workdir.resolve())
        except ValueError:
            raise InputError(
                f"{function.__name__} is imported from {folder}, which is not in the workdir "
                f"{workdir}.",
                "Leave workdir out, or name a folder that holds its file.",
            ) from None
        module = ".".join([*inside.parts, module])
    _check_arguments(function)
    return {
        "command": [
            *("python", "-m", CALLER, "--metric", metric),
            *(f"{module}:{function.__name__}", "{config}"),
        ],
        "workdir": str(workdir or folder),
        "config": {"format": "json"},
    }


def _place(function: Callable[..., Any]) -> tuple[str, Path]:
    """Return the name by which a training imports a function's module, and from which folder."""
    name = getattr(function, "__qualname__", None)
    if name is None or not inspect.isfunction(function):
        raise InputError(
            f"{function!r} is no function that a training could find in a file.",
            "Write `def train(config, reporter): ...` at the top level of a file, and give that.",
        )
    if "<lambda>" in name or "<locals>" in name or "." in name:
        kind = "a lambda" if "<lambda>" in name else f"inside {name.rpartition('.')[0]}"
        raise InputError(
            f"{name} is {kind}: a training, another process, cannot find it in its file.",
            "Write it at the top level of a file: def train(config, reporter): ...",
        )
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        raise InputError(
            f"{name} was typed in (a notebook, a console): it stands in no file that a training "
            "could import.",
            "Write it into a file beside the notebook, train.py, and launch what you import: "
            f"from train import {name}.",
        )
    path = Path(file).resolve()
    if function.__module__ == "__main__":
        return _own_name(path), _root(path)
    parts = function.__module__.split(".")
    package = path.parent if path.stem == "__init__" else path.with_suffix("")
    return function.__module__, package.parents[len(parts) - 1]


def _own_name(path: Path) -> str:
    """Return the module name of a file that runs as ``__main__``."""
    inside = path.with_suffix("").relative_to(_root(path))
    if not all(part.isidentifier() for part in inside.parts):
        raise InputError(
            f"{path.name} is no name that Python can import.",
            "Rename it: letters, digits and underscores, as in train.py.",
        )
    return ".".join(inside.parts)


def _root(path: Path) -> Path:
    """Return the folder from which a file's module is imported: above its packages."""
    folder = path.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _check_arguments(function: Callable[..., Any]) -> None:
    signature = inspect.signature(function)
    for count in (1, 2):
        try:
            signature.bind(*range(count))
            return
        except TypeError:
            continue
    raise InputError(
        f"{function.__name__}{signature} cannot be called with a configuration, or with a "
        "configuration and a reporter.",
        f"Write it as: def {function.__name__}(config, reporter): ...",
    )
