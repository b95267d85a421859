"""Which file is a template: sweep's own, or one of the same name that a site or a user has put up.

The first of these that has the name wins: ``templates/`` in the study's folder, the user's folder,
the site's folder (see ``settings``), sweep's own. A ``*.j2`` file right beside the study file
counts as well, before the user's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import samestat
from pathlib import Path

from sweep.core.errors import InputError, closest
from sweep.core.files import write_output
from sweep.core.paths import PACKAGE
from sweep.core.settings import USER, homes

STUDY, SWEEP = "study", "sweep"
FOLDER = "templates"


def own_folder() -> Path:
    """Return sweep's own templates: inside the package, or beside it in a checkout."""
    installed = PACKAGE / FOLDER
    return installed if (installed / "task.sh.j2").is_file() else PACKAGE.parent / FOLDER


def folders(
    study_folder: Path | None, environ: Mapping[str, str] = os.environ
) -> list[tuple[str, Path]]:
    """Return whose templates lie where, the strongest first."""
    found = []
    if study_folder is not None:
        found += [(STUDY, study_folder / FOLDER), (STUDY, study_folder)]
    found += [(home.whose, home.templates) for home in reversed(homes(environ))]
    return [*found, (SWEEP, own_folder())]


@dataclass(frozen=True)
class TemplateFile:
    """A template and the file that is in force.

    Attributes:
        name: Relative to a folder of templates, such as ``task.sh.j2``.
        path: The file in force.
        whose: STUDY, "user", "site" or SWEEP.
        hidden: Files of the same name that it wins over, the strongest first.
    """

    name: str
    path: Path
    whose: str
    hidden: Sequence[Path] = ()


def names() -> list[str]:
    """Return the names of all templates."""
    own = own_folder()
    files = (path for path in own.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return sorted(path.relative_to(own).as_posix() for path in files)


def find(
    name: str, study_folder: Path | None = None, environ: Mapping[str, str] = os.environ
) -> TemplateFile:
    """Return the template of this name that is in force.

    Raises:
        InputError: sweep has no template of this name.
    """
    if name not in names():
        near = closest(name, names())
        raise InputError(
            f"There is no template {name!r}.",
            f"Did you mean {near}?" if near else f"One of {', '.join(names())}.",
        )
    there = []
    for whose, folder in folders(study_folder, environ):
        is_beside = folder == study_folder
        if is_beside and not name.endswith(".j2"):
            continue  # a study.yaml beside a study file is no template
        if (folder / name).is_file():
            there.append((whose, folder / name))
    (whose, path), *others = there
    return TemplateFile(name, path, whose, [other for _, other in others])


def copy_out(
    name: str,
    study_folder: Path,
    *,
    to_user: bool,
    force: bool,
    environ: Mapping[str, str] = os.environ,
) -> Path:
    """Copy the template in force, other than a copy there, to where it can be changed; return the
    copy.

    Args:
        to_user: Into the user's folder, for all studies, instead of the study's.

    Raises:
        InputError: There is one already, or no such template.
    """
    found = find(name, study_folder, environ)
    folder = study_folder / FOLDER
    if to_user:
        mine = [home.templates for home in homes(environ) if home.whose == USER]
        if not mine:
            raise InputError("SWEEP_USER_CONFIG is set to nothing: you have no folder of settings.")
        folder = mine[0]
    target = folder / name
    if target.exists() and not force:
        raise InputError(f"{target} exists.", "Replace it with --force.")
    # A copy that is there would be the one in force: it is to be replaced by what it hides.
    there = target.stat() if target.exists() else None
    sources = (p for p in (found.path, *found.hidden) if not there or not samestat(p.stat(), there))
    content = next(sources).read_bytes()
    target.parent.mkdir(parents=True, exist_ok=True)
    write_output(target, content, "Copy it to another folder.")
    return target
