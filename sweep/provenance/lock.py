"""A trial's packages as a file of requirements that ``pip install -r`` takes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.core.errors import InputError

_COMMIT = re.compile(r"(?P<url>.+)@(?P<commit>[0-9a-f]{7,64})")
# PyTorch's own builds are not on PyPI: their local version names the index that has them.
_OF_TORCH = ("torch", "torchvision", "torchaudio", "torchtext")
_BUILD = re.compile(r"\+(cpu|cu\d+|rocm[\d.]+|xpu)$")
_TORCH_INDEX = "https://download.pytorch.org/whl/"
_INSTALLER = "pip"  # which would replace itself while it installs


@dataclass(frozen=True)
class Lock:
    """Requirements, and what they could not say.

    Attributes:
        text: Of the file.
        notes: Sentences on packages that pip cannot have from it.
    """

    text: str
    notes: Sequence[str]


def write_lock(environment: Mapping[str, Any], title: str) -> Lock:
    """Return the requirements that an environment's record amounts to, each with its version.

    Args:
        environment: The axis of that name, with what is installed within its image or modules.
        title: What the file is of, in one line.

    Raises:
        InputError: It records no packages of pip's.
    """
    runtime, packages = environment.get("runtime"), environment.get("packages")
    if runtime == "conda":
        raise InputError(
            "The training's environment is conda's, whose packages are not pip's.",
            f"Its own lock file: conda list --explicit -p {_prefix(environment)}",
        )
    if not packages:
        raise InputError(
            "No packages are recorded of that trial.",
            "They are where training starts with a Python that sweep can ask: `python` as the "
            "command's first word, a venv, or an image with Python.",
        )
    lines, notes = [f"# {title}", f"# Python {environment.get('python') or 'unknown'}"], []
    lines += [f"--extra-index-url {_TORCH_INDEX}{build}" for build in _torch_builds(packages)]
    for name, recorded in sorted(packages.items()):
        if name == _INSTALLER:
            continue
        version, _, origin = str(recorded).partition(" @ ")
        line = f"{name}=={version}"
        if origin:
            found = _COMMIT.fullmatch(origin)
            line = f"{name} @ " + (
                f"git+{found['url'].removeprefix('git+')}@{found['commit']}" if found else origin
            )
        if "***" in origin:
            notes.append(
                f"{name} came from {origin}, an address with a password, which is not recorded: "
                "write it into the file"
            )
            line = f"# {line}"
        elif origin.startswith("file:"):
            notes.append(f"{name} came from a folder or file of that machine: {origin}")
        lines.append(line)
    return Lock("\n".join(lines) + "\n", notes)


def _torch_builds(packages: Mapping[str, Any]) -> list[str]:
    found = (_BUILD.search(str(packages.get(name, ""))) for name in _OF_TORCH)
    return list(dict.fromkeys(build[1] for build in found if build))


def _prefix(environment: Mapping[str, Any]) -> str:
    return str(environment.get("interpreter") or "…/bin/python").removesuffix("/bin/python")
