"""Output that trials write into the code that they share, where it mixes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from sweep.core.errors import DamagedFile
from sweep.core.files import read_json
from sweep.core.output_folders import NAMES
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.provenance.code_tree import Tree, inside


def in_tree(study: Study, tree: Tree) -> list[str]:
    """Return the names of output folders that are about to be frozen, or linked, with the code."""
    within = inside(Path(study.workdir), tree.root)
    prefix = f"{within}/" if within and within != "." else ""
    tops = {
        path[len(prefix) :].split("/", 1)[0]
        for path in (*tree.files, *tree.links)
        if path.startswith(prefix)
    }
    return sorted(tops & NAMES)


def in_snapshots(folder: StudyFolder) -> list[str]:
    """Return the names of output folders that lie in a study's frozen code: trials wrote them."""
    found: set[str] = set()
    for path in folder.code.glob("*.json"):
        with contextlib.suppress(OSError, DamagedFile, KeyError, TypeError):
            found |= NAMES & set(os.listdir(path.with_suffix("") / read_json(path)["workdir"]))
    return sorted(found)


def notes(study: Study, folder: StudyFolder, tree: Tree | None) -> list[str]:
    """Return, in a sentence, which output of trials mixes; nothing where each has its own folder.

    Args:
        tree: What is about to be frozen; None where that is nothing.
    """
    if study.own_workdir:
        return []
    found = sorted({*in_snapshots(folder), *(in_tree(study, tree) if tree else ())})
    if not found:
        return []
    verb, it = ("lies", "it") if len(found) == 1 else ("lie", "them")
    return [
        f"{', '.join(found)} {verb} in the code that all trials share, so what they write into "
        f"{it} mixes. Write workdir: trial in the study file: each attempt then has a working "
        "folder of its own."
    ]
