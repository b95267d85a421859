"""What differs between a stored study and its edited file, and whether it may."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any

from sweep.core.space import Space
from sweep.core.study import Objective, Study
from sweep.studyfile.keys import STUDY
from sweep.studyfile.objective_keys import OBJECTIVE
from sweep.studyfile.site_keys import RESOURCES, SERVICE

# Where the study lives and is called; not a part of what it is.
_IGNORED = ("name", "source")
_REFUSED = ("seed", "fixed", "constraints", "where", "warm_start")
_ABSENT: Any = object()
_UNITS = {"_s": " s", "_mb": " MiB"}
# Names in the file of the fields that have another one.
_KEYS = {
    key.field: name
    for section in (STUDY, RESOURCES, SERVICE, OBJECTIVE)
    for name, key in section.keys.items()
    if key.field != name
} | {"pattern": "from.stdout", "step_pattern": "from.step", "own_workdir": "workdir: trial"}


def changes(
    old: Study, new: Study, *, is_measured: bool = True, is_judged: bool = True
) -> tuple[list[str], list[str]]:
    """Return what differs, as sentences that name the old and the new value.

    Refused is what would make finished trials and new ones answer different questions: the space,
    the objective (a corrected pattern is allowed), the seed, the fixed values, points of trials
    that exist already, fewer trials. All else may change, the command too: a typo in it must be
    curable.

    Args:
        is_measured: Whether a trial has told a value of the objective; until then its metric may
            change as well.
        is_judged: Whether a trial was held against the constraints; until then they may change.

    Returns:
        (allowed differences, refused differences)
    """
    allowed: list[str] = []
    refused: list[str] = []
    for field in dataclasses.fields(Study):
        name = field.name
        before, after = getattr(old, name), getattr(new, name)
        if name in _IGNORED or _text(before) == _text(after):
            continue
        if name == "data" and (old.datasets or new.datasets):
            continue  # what follows says more
        if name == "datasets":
            allowed += _compare("data", before, after)
        elif name == "space":
            refused += _compare_spaces(before, after)
        elif name == "objectives":
            same = [_question(one, is_measured) for one in (before, after)]
            (allowed if same[0] == same[1] else refused).extend(
                _compare("objective", before, after)
            )
        elif name == "points":
            sentence = _sentence(name, before, after)
            if _text(after[: len(before)]) != _text(before):
                refused.append(sentence)
            elif len(before) < old.trials:
                # A point is the trial of its place, and that one has its parameters by now.
                refused.append(f"{sentence[:-1]}; trial {len(before)} exists already.")
            else:
                allowed.append(sentence)
        elif name == "trials" and after < before:
            refused.append(f"{_sentence(name, before, after)[:-1]}; it can only grow.")
        elif name == "constraints" and not is_judged:
            allowed += _compare(name, before, after)
        elif name == "command":
            allowed.append(f"{_sentence(name, before, after)} New attempts run the new one.")
        else:
            (refused if name in _REFUSED else allowed).extend(_compare(name, before, after))
    return allowed, refused


def _question(objectives: tuple[Objective, ...], is_measured: bool) -> str:
    """Return what the objectives ask, whatever the output says it by."""
    changed = {"pattern": None, "step_pattern": None} | ({} if is_measured else {"metric": ""})
    return _text([dataclasses.replace(one, **changed) for one in objectives])  # type: ignore[arg-type]


def _compare_spaces(old: Space, new: Space) -> list[str]:
    before = {parameter.name: parameter for parameter in old}
    after = {parameter.name: parameter for parameter in new}
    found = [f"space.{name} was removed." for name in before if name not in after]
    found += [f"space.{name} was added." for name in after if name not in before]
    for name in before:
        if name in after:
            found += _compare(f"space.{name}", before[name], after[name])
    return found  # empty where only the order differs


def _compare(path: str, old: Any, new: Any) -> list[str]:
    """Return one sentence for each leaf that differs."""
    if _text(old) == _text(new):
        return []
    pairs: list[tuple[str, Any, Any]] = []
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        if all(isinstance(one, Objective) for one in old):
            pairs = [
                (path if len(old) == 1 else f"{path}[{i}]", a, b)
                for i, (a, b) in enumerate(zip(old, new, strict=True))
            ]
    elif type(old) is type(new) and dataclasses.is_dataclass(old):
        names = [field.name for field in dataclasses.fields(old) if field.compare]
        pairs = [(f"{path}.{name}", getattr(old, name), getattr(new, name)) for name in names]
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        pairs = [
            (f"{path}.{name}", old.get(name, _ABSENT), new.get(name, _ABSENT))
            for name in {**old, **new}
        ]
    if pairs:
        return [sentence for pair in pairs for sentence in _compare(*pair)]
    return [_sentence(path, old, new)]


def _sentence(path: str, old: Any, new: Any) -> str:
    above, _, field = path.rpartition(".")
    key = _KEYS.get(field, field)
    unit = next((unit for suffix, unit in _UNITS.items() if field.endswith(suffix)), "")
    name = f"{above}.{key}" if above else key
    return f"{name} was {_shown(field, old, unit)} and is now {_shown(field, new, unit)}."


def _shown(field: str, value: Any, unit: str) -> str:
    if value is _ABSENT or value is None:
        return "absent"
    if field == "command":
        return shlex.join(value)
    text = _text(value)
    return f"{text}{unit}" if len(text) <= 100 else f"{text[:96]} …"


def _text(value: Any) -> str:
    """Return JSON text: it tells 1, 1.0 and true apart, which Python calls equal."""

    def plain(one: Any) -> Any:
        return repr(one) if one is _ABSENT else dataclasses.asdict(one)

    return json.dumps(value, ensure_ascii=False, default=plain)
