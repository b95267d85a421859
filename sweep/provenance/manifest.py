"""What made a study and each of its attempts: one record a study, small differences an attempt.

``manifest.json`` holds the four axes of the newest launch, its run id, and under ``earlier`` those
of launches before it that differed. An attempt's own ``manifest.json`` names the run that it
belongs to and holds what differs from it. What a container holds is asked once for all of them
(``within``); an attempt's record names the key of the answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from sweep.core.errors import DamagedFile
from sweep.core.files import read_object, read_record, write_atomic
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.provenance import container
from sweep.provenance.differences import AXES

INSIDE = "inside"  # of an environment: under which key ``within`` keeps what is installed in it
Record = Mapping[str, Any]


def run_id(record: Record) -> str:
    """Return a name for a launch: when it was, and of which code."""
    code = record.get("code") or {}
    which = (code.get("commit") or code.get("snapshot") or "no-commit")[:10]
    dirty = "-dirty" if code.get("dirty") else ""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{which}{dirty}"


def read(folder: StudyFolder) -> dict[str, Any]:
    """Return a study's manifest; empty where there is none.

    Raises:
        DamagedFile: It cannot be understood.
    """
    advice = (
        "Move that file away: the next launch writes it anew. What earlier launches ran is then "
        "known from their frozen code alone."
    )
    found = read_object(folder.provenance, advice)
    if found is None:
        return {}
    earlier = found.get("earlier", {})
    launches = [found, *(earlier.values() if isinstance(earlier, dict) else [earlier])]
    if not isinstance(found.get("run"), str) or not all(map(_is_launch, launches)):
        raise DamagedFile(
            f"{folder.provenance} should hold what made the study's runs, and does not.", advice
        )
    return found


def _is_launch(found: Any) -> bool:
    return isinstance(found, dict) and all(
        isinstance(found.get(axis), dict | None) for axis in AXES
    )


def write(folder: StudyFolder, record: Record) -> str:
    """Make a record the study's newest; return its run id, the old one where nothing differs."""
    before = read(folder)
    now = _clean({axis: record.get(axis) or {} for axis in AXES})
    if before and all(before.get(axis) == now[axis] for axis in AXES):
        return str(before["run"])
    earlier = dict(before.get("earlier") or {})
    if before:
        earlier[before["run"]] = {axis: before.get(axis) for axis in AXES}
    name = run_id(now)
    taken = {*earlier}
    number = 1
    while name in taken:
        number += 1
        name = f"{run_id(now)}-{number}"
    whole = {"run": name, **now, "earlier": earlier}
    write_atomic(folder.provenance, json.dumps(whole, indent=1) + "\n")
    return name


def complete(folder: StudyFolder, axis: str, came: Record) -> None:
    """Write into an axis of the newest launch's record what has come since: of its data, by their
    paths; of the image that a job has built."""
    whole = read(folder)
    if whole:
        whole[axis] = {**(whole.get(axis) or {}), **_clean(came)}
        write_atomic(folder.provenance, json.dumps(whole, indent=1) + "\n")


def of_run(whole: Record, run: str | None) -> dict[str, Any]:
    """Return the four axes of a launch; of the newest where it is not known."""
    found = (whole.get("earlier") or {}).get(run) or whole
    return {axis: found.get(axis) or {} for axis in AXES}


def run_of_snapshot(whole: Record, snapshot: str | None) -> str | None:
    """Return the newest launch that froze a snapshot."""
    if (whole.get("code") or {}).get("snapshot") == snapshot:
        return whole.get("run")
    runs = [
        name
        for name, axes in (whole.get("earlier") or {}).items()
        if (axes.get("code") or {}).get("snapshot") == snapshot
    ]
    return runs[-1] if runs else whole.get("run")


def write_attempt(folder: AttemptFolder, run: str, base: Record, record: Record) -> None:
    """Write what an attempt's record differs in from its run's."""
    differing = subtract(_clean(record), _clean(base))
    text = json.dumps({"run": run, **differing}, separators=(",", ":"))
    write_atomic(folder.provenance, text + "\n")


def of_attempt(whole: Record, folder: AttemptFolder) -> dict[str, Any]:
    """Return the four axes of an attempt; its study's where it has left no record."""
    own = read_record(folder.provenance)[0] or {}
    run = own.get("run")
    base = of_run(whole, run if isinstance(run, str) else None)
    found = add(base, {axis: own[axis] for axis in AXES if isinstance(own.get(axis), dict)})
    return {axis: found.get(axis) or {} for axis in AXES}


def of_trial(folder: StudyFolder, number: int) -> dict[str, Any]:
    """Return the four axes of a trial: of its last attempt, with how often it was interrupted."""
    whole = read(folder)
    attempts = sorted(int(path.name) for path in (folder.trial(number) / "attempts").glob("[0-9]*"))
    if not attempts:
        return of_run(whole, None)
    found = of_attempt(whole, folder.attempt(number, attempts[-1]))
    snapshots = (
        {of_attempt(whole, folder.attempt(number, n))["code"].get("snapshot") for n in attempts}
        if len(attempts) > 1
        else set()
    )
    key = found["environment"].get(INSIDE)
    if key:
        found["environment"] = {**found["environment"], **container.read(folder, key)}
    if len(snapshots) > 1:
        found["execution"] = {**found["execution"], "snapshots": len(snapshots)}
    return found


def snapshot_of(folder: StudyFolder, attempt: AttemptFolder) -> str | None:
    """Return the snapshot that an attempt ran; None for the live code."""
    found = of_attempt(read(folder), attempt)["code"].get("snapshot")
    return None if found is None else str(found)


def subtract(full: Record, base: Record) -> dict[str, Any]:
    """Return what must be added to ``base`` to get ``full``; None marks what goes."""
    found: dict[str, Any] = {}
    for key in [*full, *(key for key in base if key not in full)]:
        if key not in full:
            found[key] = None
        elif isinstance(full[key], Mapping) and isinstance(base.get(key), Mapping):
            inner = subtract(full[key], base[key])
            if inner:
                found[key] = inner
        elif key not in base or full[key] != base[key]:
            found[key] = full[key]
    return found


def add(base: Record, differing: Record) -> dict[str, Any]:
    """Return ``base`` with what ``subtract`` gave."""
    found = dict(base)
    for key, value in differing.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
            found[key] = add(found[key], value)
        else:
            found[key] = value
    return found


def _clean(record: Any) -> Any:
    """Return plain JSON data without None, which here means that something goes."""
    if isinstance(record, Mapping):
        return {str(k): _clean(v) for k, v in record.items() if v is not None}
    if isinstance(record, list | tuple):
        return [_clean(one) for one in record]
    return record
