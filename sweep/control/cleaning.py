"""``sweep clean``: what takes room and nobody needs any more.

Of trials that are final, and neither among the best nor what ``keep`` keeps: their checkpoints, and
all attempts before the last. Of the runs folder: images that no study names. What lives, may go on,
or is being trained again is left alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.control.kept_checkpoints import checkpoint_folders, kept_numbers, may_go_on
from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.files import locked, remove_tree, tree_bytes
from sweep.core.paths import Runs
from sweep.core.trial import TrialRecord
from sweep.storage import records, reruns
from sweep.storage.connection import Database

CHECKPOINTS, ATTEMPTS, IMAGES = "checkpoints", "attempts", "images"
YOUNG_S = 86400.0  # an image that was just built may be a launch's that is under way


@dataclass(frozen=True)
class Item:
    """Something to remove.

    Attributes:
        kind: CHECKPOINTS, ATTEMPTS or IMAGES.
        what: In words.
        path: A folder or file; of an image what stands beside it goes as well.
        size: In bytes.
    """

    kind: str
    what: str
    path: Path
    size: int


def of_study(opened: Opened) -> list[Item]:
    """Return what a study's trials have left that nobody needs."""
    ledger, folder = opened.ledger, opened.folder

    def read(db: Database) -> tuple[list[TrialRecord], set[int], set[int], list[int]]:
        everything = records.read_trials(db, ledger.study_id, ledger.study)
        asked = {r.trial for r in reruns.read_all(db, ledger.study_id) if r.outcome is None}
        final = [r.number for r in everything if r.state in outcomes.FINAL_STATES]
        ends = [number for number in final if may_go_on(ledger, number)]
        return everything, kept_numbers(ledger), asked, ends

    everything, kept, asked, ends = ledger.db.retry(read)
    if ledger.study.is_multi_objective:
        kept |= {r.number for r in everything if r.state == outcomes.COMPLETE}
    spared = {*kept, *asked, *ends}
    found: list[Item] = []
    for record in everything:
        if record.number in spared or not _is_final(record):
            continue
        last = record.attempts[-1].number if record.attempts else 0
        root = folder.trial(record.number) / "attempts"
        if root.is_symlink() or folder.trial(record.number).is_symlink():
            continue
        for path in _folders(root):
            if path.name == "aside" or (path.name.isdecimal() and int(path.name) < last):
                what = f"trial {record.number}, attempt {path.name}"
                if path.name == "aside":
                    what = f"trial {record.number}, what stood in an attempt's place"
                found.append(Item(ATTEMPTS, what, path, tree_bytes(path)))
        gone = {item.path for item in found}
        for path in checkpoint_folders(folder, record.number):
            if path.parent not in gone and not path.is_symlink():
                what = f"trial {record.number} ({record.state}), {path.parent.name}/{path.name}"
                found.append(Item(CHECKPOINTS, what, path, tree_bytes(path)))
    return [item for item in found if item.size]


def _is_final(record: TrialRecord) -> bool:
    """Tell whether a trial has ended for good; a failure that a launch gives back has not."""
    if record.state not in outcomes.FINAL_STATES:
        return False
    return record.ended is not None


def _folders(root: Path) -> list[Path]:
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())


def of_images(runs: Runs) -> tuple[list[Item], list[str]]:
    """Return the built images that no study of a runs folder names, and notes in sentences."""
    if not runs.images.is_dir():
        return [], []
    texts: list[str] = []
    for name in sorted(path.name for path in runs.root.iterdir() if path.is_dir()):
        if name.startswith("."):
            continue
        folder = runs.study(name)
        for path in (folder.study, folder.provenance):
            try:
                texts.append(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            except (OSError, UnicodeDecodeError) as error:
                return [], [f"no image is removed: {path} cannot be read ({error})"]
    found = []
    for record in sorted(runs.images.glob("*.json")):
        target = record.with_name(record.name.removesuffix(".json"))
        young = time.time() - record.stat().st_mtime < YOUNG_S
        if not os.path.lexists(target) or young or any(target.name in text for text in texts):
            continue
        found.append(Item(IMAGES, f"image {target.name}", target, tree_bytes(target)))
    return found, []


def carry_out(items: Sequence[Item]) -> Iterator[Item]:
    """Remove things, launches being kept away; yield each that is gone.

    Raises:
        SweepError: Something cannot be removed; it is named.
    """
    for item in items:
        if item.kind == IMAGES:
            lock = item.path.with_name(f".{item.path.name}.lock")
            with locked(lock, wait=False) as got:
                if not got:
                    continue  # it is being built
                # First what says that it is whole.
                item.path.with_name(item.path.name + ".json").unlink(missing_ok=True)
                remove_tree(item.path)
                item.path.with_name(item.path.name + ".log").unlink(missing_ok=True)
        else:
            remove_tree(item.path)
        yield item
