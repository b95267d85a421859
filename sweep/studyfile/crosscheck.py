"""Rules between the keys of a study file: how one is written, and applying them all.

A rule is a function under ``@crosscheck``. Its parameters are the file and, by their names, the
fields of the study that it is about: it is called where all of those are right, and reports what is
wrong between them at its place in the file. ``crosschecks`` has those about the search,
``site_checks`` those about where it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sweep.studyfile.rules import INVALID, Entry

_rules: list[tuple[Callable[..., None], list[str]]] = []


def crosscheck(check: Callable[..., None]) -> Callable[..., None]:
    """Add a rule to those that every study file is checked by."""
    _rules.append((check, list(inspect.signature(check).parameters)[1:]))
    return check


def check_together(values: Mapping[str, Any], root: Entry) -> None:
    """Report what is wrong between keys, as far as the keys themselves are right."""
    for check, names in _rules:
        given = [values[name] for name in names]
        if INVALID not in given:
            check(root, *given)
