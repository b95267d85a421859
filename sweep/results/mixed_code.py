"""Whether a study's trials ran different code, and which each did.

A study may be launched again with its code changed. Its results are then not of one thing, and
whoever reads them is told: with a short id for each code, and what differs between them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core.files import read_json
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.trial import TrialRecord
from sweep.provenance import manifest
from sweep.provenance.differences import differences

ID_LETTERS = 8
SIGN = "c"  # before an id, or readers of CSV would take some for numbers (12345678, 1234e567)
CHANGES_SHOWN = 3


@dataclass(frozen=True)
class MixedCode:
    """What the trials ran where it is not the same; empty where it is.

    Attributes:
        ids: Of each trial by number; of several, joined by "+", where its attempts ran different
            code; "" where no training of it is recorded.
        sentence: How many ran which, and what differs.
    """

    ids: Mapping[int, str] = field(default_factory=dict)
    sentence: str = ""


def id_of(code: Mapping[str, Any]) -> str:
    """Return a short id of recorded code: of its snapshot, else of its commit and changes."""
    known = {key: code.get(key) for key in ("snapshot", "modified")}
    if not known["snapshot"]:
        known = {key: code.get(key) for key in ("commit", "diff", "files")}
    if not any(known.values()):
        return ""
    if known.get("snapshot") and not known.get("modified"):
        return SIGN + str(known["snapshot"])[:ID_LETTERS]
    return (
        SIGN + hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:ID_LETTERS]
    )


def read(folder: StudyFolder, study: Study, records: Iterable[TrialRecord]) -> MixedCode:
    """Return what the trials ran.

    Trials are looked at one by one only where that may differ: not where all launches froze the
    same code.
    """
    whole = manifest.read(folder)
    launched = [
        manifest.of_run(whole, run)["code"] for run in (None, *(whole.get("earlier") or ()))
    ]
    if study.code == "frozen" and len({id_of(code) for code in launched}) < 2:
        return MixedCode()
    found: dict[int, str] = {}
    codes: dict[str, Mapping[str, Any]] = {}
    for record in records:
        ids: dict[str, None] = {}
        for attempt in record.attempts:
            place = folder.attempt(record.number, attempt.number)
            if read_json(place.provenance) is None:
                continue  # it never trained, or what it has left is gone
            code = manifest.of_attempt(whole, place)["code"]
            codes.setdefault(id_of(code), code)
            ids[id_of(code)] = None
        found[record.number] = "+".join(filter(None, ids))
    if len([one for one in codes if one]) < 2:
        return MixedCode()
    return MixedCode(found, _describe(found, codes))


def _describe(found: Mapping[int, str], codes: Mapping[str, Mapping[str, Any]]) -> str:
    counts = Counter(one for ids in found.values() for one in ids.split("+") if one)
    words = [
        f"{count} trial{'s' if count > 1 else ''} ran {one}" for one, count in counts.most_common()
    ]
    (most, _), *others = counts.most_common()
    changes = {
        sentence.removeprefix("code: ").removesuffix("."): None
        for other, _ in others
        for sentence in differences({"code": codes[most]}, {"code": codes[other]})
        if sentence.startswith("code: ")
    }
    what = "; ".join([*changes][:CHANGES_SHOWN])
    more = f"; and {len(changes) - CHANGES_SHOWN} more" if len(changes) > CHANGES_SHOWN else ""
    return f"The trials ran different code: {', '.join(words)}." + (
        f" What differs: {what}{more}." if what else ""
    )
