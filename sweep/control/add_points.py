"""``sweep add``: further trials at points of the user's; N grows by one each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.control import waves
from sweep.control.alone import keep_launches_away
from sweep.control.open_study import Opened
from sweep.core.attributes import ADDED
from sweep.core.cells import read_cell
from sweep.core.errors import CouldNotAsk, InputError, closest
from sweep.core.files import write_atomic
from sweep.core.paths import Runs
from sweep.core.relations import breaches, read_relations
from sweep.core.scheduler import Scheduler
from sweep.core.space import Space
from sweep.core.study import Study
from sweep.search import design, propose
from sweep.storage import bulk, studies
from sweep.storage.connection import Database
from sweep.studyfile.conditions import describe_values
from sweep.studyfile.relation_keys import known_values

MOST = 10_000  # at once


@dataclass(frozen=True)
class Added:
    """What was added.

    Attributes:
        numbers: Of the new trials.
        trials: N now.
        state: The study's.
        has_array: Whether tasks of it are there, or come, to run them.
    """

    numbers: Sequence[int]
    trials: int
    state: studies.StudyState
    has_array: bool


def parse_point(text: str, space: Space) -> dict[str, Any]:
    """Return ``lr=0.01,layers=2`` as a configuration.

    Raises:
        InputError: It cannot be read, or is none of the space's.
    """
    names = "|".join(re.escape(name) for name in sorted(space.names(), key=len, reverse=True))
    # A choice may hold commas: one ends a value where another parameter's name follows.
    given: dict[str, str] = {}
    for part in re.split(rf",\s*(?=(?:{names})=)", text):
        name, equals, value = part.partition("=")
        name = name.strip()
        if not equals or name not in space.names():
            near = closest(name, space.names())
            meant = f" Did you mean {near}?" if near else ""
            raise InputError(
                f"--point {text}: {name!r} is not a parameter of the space.{meant}",
                f"Write name=value,…; its names: {', '.join(space.names())}.",
            )
        if name in given:
            raise InputError(f"--point {text}: {name} is given twice.", "Leave one out.")
        given[name] = value.strip()
    return {name: read_cell(value, space.get(name)) for name, value in given.items()}


def check_point(point: Mapping[str, Any], space: Space) -> None:
    """Refuse a configuration that the space does not hold.

    Raises:
        InputError: So it is.
    """
    if not point:
        raise InputError("A point without any value was given.", "Write name=value,…")
    known: dict[str, Any] = {}
    for parameter in space:  # parents come before what depends on them
        name = parameter.name
        if name not in point:
            continue
        value = point[name]
        if not parameter.contains(value):
            raise InputError(
                f"{name}={value} is no value that {name} can take.",
                describe_values(parameter, value),
            )
        parents = [parent for parent in parameter.when if parent in point]
        if len(parents) == len(parameter.when) and not parameter.is_active(known):
            shown = ", ".join(f"{parent}={point[parent]}" for parent in parents)
            raise InputError(f"{name} does not exist when {shown}.", f"Leave {name} out.")
        known[name] = value


def check_relations(point: Mapping[str, Any], study: Study) -> None:
    """Refuse a point that breaks the study's ``where``, as far as the point itself tells.

    Raises:
        InputError: It does.
    """
    known = known_values(point, study.fixed, study.space)
    for clause, why in breaches(read_relations(tuple(study.where)), known):
        shown = ", ".join(f"{name}={value}" for name, value in point.items())
        raise InputError(f"{shown} breaks {clause}: {why}.", "Correct the point; see where.")


def with_added(study: Study, db: Database) -> Study:
    """Return a study file's study with the trials that ``sweep add`` has added to it."""
    study_id = db.retry(lambda _: studies.find_study(db, study.name))
    if study_id is None:
        return study
    return dataclasses.replace(study, trials=study.trials + count_added(db, study_id))


def count_added(db: Database, study_id: int) -> int:
    """Return how many trials ``sweep add`` has added."""
    return int(db.retry(lambda _: studies.read_attribute(db, study_id, ADDED)) or 0)


def add(
    opened: Opened, runs: Runs, schedule: Scheduler, points: Sequence[Mapping[str, Any]]
) -> Added:
    """Add a trial for each point; what a point leaves out is drawn by chance.

    Raises:
        InputError: A point is none of the space's, or the study has ended early.
        BusyError: A launch of the study is at work, or tasks of another version serve it.
        OSError: The study's folder cannot be written to; nothing was added.
    """
    if len(points) > MOST:
        raise InputError(f"{len(points)} points are too many at once.", f"At most {MOST}.")
    for point in points:
        check_point(point, opened.study.space)
        check_relations(point, opened.study)
    ledger = opened.ledger
    with keep_launches_away(runs, opened.study.name, ledger.db.url):
        waves.refuse_other_versions(ledger, schedule)
        state = ledger.db.retry(lambda db: studies.read_state(db, ledger.study_id))
        if state.word == studies.ENDED:
            raise InputError(
                f"The study has ended early, and a further trial would be cancelled: "
                f"{state.reason}.",
                "Raise or remove that limit in the study file, and launch it first.",
            )
        # Refused here, before a row is written, where the folder may not be written to.
        write_atomic(opened.folder.study, opened.study.to_json() + "\n")
        before = ledger.db.retry(lambda db: studies.read_attribute(db, ledger.study_id, ADDED))
        expected = int(before or 0)
        study, numbers = ledger.db.retry(
            lambda db: _insert(db, ledger.study_id, opened.study, points, expected)
        )
        write_atomic(opened.folder.study, study.to_json() + "\n")
        try:
            has_array = waves.live_wave(ledger, schedule) is not None
        except CouldNotAsk:
            has_array = any(wave.job for wave in waves.open_waves(ledger))
    return Added(numbers, study.trials, state, has_array)


def _insert(
    db: Database, study_id: int, opened: Study, points: Sequence[Mapping[str, Any]], expected: int
) -> tuple[Study, list[int]]:
    have = bulk.lock_study(db, study_id)
    study = studies.read_specification(db, study_id) or opened
    added = int(studies.read_attribute(db, study_id, ADDED) or 0)
    if added > expected:  # the answer to our own COMMIT was lost
        return study, list(range(have - len(points), have))
    numbers = list(range(have, have + len(points)))
    rows = [
        {"params": propose.internal(study, design.place_point(study, number, point))}
        for number, point in zip(numbers, points, strict=True)
    ]
    study = dataclasses.replace(study, trials=study.trials + len(points))
    studies.write_specification(db, study_id, study)
    studies.write_attribute(db, study_id, ADDED, added + len(points))
    bulk.insert_waiting_trials(db, study_id, rows)
    return study, numbers
