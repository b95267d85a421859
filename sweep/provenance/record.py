"""Which code a training runs, and the record of what made it: at launch, and where it trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.files import write_atomic
from sweep.core.paths import AttemptFolder, Runs, StudyFolder
from sweep.core.study import Study
from sweep.provenance import capture, container, manifest
from sweep.provenance import snapshot as code_snapshot
from sweep.provenance.code import has_commit
from sweep.provenance.differences import differences


def record_launch(
    study: Study,
    folder: StudyFolder,
    runs: Runs,
    environ: Mapping[str, str],
    code: code_snapshot.SnapshotPlan | None,
    say: Callable[[str], None],
    *,
    full: bool = False,
) -> list[str]:
    """Freeze the code and write the study's manifest; return in sentences what changed.

    Args:
        code: What is to be frozen; None for the live code.
        full: Hash all data byte by byte.
    """
    before = manifest.read(folder)
    if full and study.data:
        say("hashing all data")
    record, patch = capture.capture_study(
        study, environ, runs=runs.root, known=before or None, full=full
    )
    if code is not None:
        record["code"]["snapshot"] = code_snapshot.freeze(code, folder)
    folder.code.mkdir(mode=0o700, exist_ok=True)
    if patch:
        diff = record["code"]["diff"]
        record["code"]["patch"] = f"{diff[:16]}.patch"
        if not os.path.exists(folder.code / record["code"]["patch"]):
            write_atomic(folder.code / record["code"]["patch"], patch)
    manifest.write(folder, record)
    return _say_change(before, record)


def _say_change(before: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    old = (before.get("code") or {}).get("snapshot")
    new = record["code"].get("snapshot")
    if not before or old == new:
        return []
    if new is None:
        return ["the code is no longer frozen. New attempts run the files as they are."]
    sentences = [
        sentence for sentence in differences(before, record) if sentence.startswith("code:")
    ]
    why = " ".join(sentences) or "code: it is frozen now."
    return [
        f"{why} Trials that start from now on run the code as it is now; those that go on from a "
        "checkpoint keep the code that they began with."
    ]


def choose_snapshot(folder: StudyFolder, resume: Path | None, *, keep: bool) -> str | None:
    """Return the snapshot that an attempt runs; None for the live code.

    Args:
        resume: The checkpoint that it goes on from.
        keep: Whether the attempt that wrote the checkpoint keeps its code; not where its own code
            failed, and was corrected since.
    """
    newest = manifest.of_run(manifest.read(folder), None)["code"].get("snapshot")
    if resume is not None and keep:
        # attempts/<n>/checkpoints/…: the attempt that wrote it.
        for above in resume.parents:
            if above.parent.name == "attempts":
                newest = manifest.snapshot_of(folder, AttemptFolder(above))
                break
    return None if newest is None else str(newest)


def record_attempt(
    folder: StudyFolder,
    attempt: AttemptFolder,
    study: Study,
    snapshot: str | None,
    environ: Mapping[str, str],
    execution: Mapping[str, Any],
    gpus: Mapping[str, Any],
) -> str | None:
    """Write what made an attempt, as far as it differs from its launch.

    Returns:
        The key under which ``within`` keeps what is installed where it trains; None where the
        record itself says so.

    Args:
        study: With the live paths.
        environ: What training inherits.
        execution: What is this attempt's own: seed, argv, job, ….
        gpus: As ``machine.capture_gpus`` gives them.
    """
    whole = manifest.read(folder)
    run = manifest.run_of_snapshot(whole, snapshot)
    if run is None:
        return None  # launched by a sweep that kept no manifest
    base = manifest.of_run(whole, run)
    record = capture.capture_attempt(study, base, environ, runs=folder.root.parent, gpus=gpus)
    record["execution"] = {**record["execution"], **execution}
    key = container.key_of(study, run, record["environment"])
    if key is not None:
        record["environment"][manifest.INSIDE] = key
    manifest.write_attempt(attempt, run, base, record)
    return key


def what_is_missing(folder: StudyFolder, study: Study, trial: int) -> list[str]:
    """Return in sentences what a trial was made of and is gone: its code, image or data."""
    made = manifest.of_trial(folder, trial)
    code, environment, data = made["code"], made["environment"], made["data"]
    found = []
    snapshot = code.get("snapshot")
    workdir = Path(study.workdir)
    commit = code.get("commit")
    if snapshot and not code_snapshot.is_there(folder, snapshot):
        of = f" of commit {commit[:10]}" if commit else ""
        found.append(
            f"code: the snapshot{of} that trial {trial} ran is gone ({folder.code / snapshot})."
        )
    elif not snapshot and not os.path.isdir(workdir):
        found.append(f"code: the workdir {workdir} is gone.")
    elif not snapshot and commit and not has_commit(workdir, commit):
        found.append(
            f"code: the commit {commit[:10]} that trial {trial} ran is gone from the "
            f"repository of {workdir}."
        )
    image = environment.get("image")
    runtime = environment.get("runtime")
    path = study.at_workdir(image) if image else None
    if runtime == "venv":
        path = path or workdir / ".venv"
    was_there = runtime == "venv" or "image_sha256" in environment
    if path is not None and was_there and not os.path.exists(path):
        found.append(f"image: {path} is gone.")
    for name, entry in data.items():
        there = study.at_workdir(name)
        if not entry.get("missing") and not os.path.exists(there):
            found.append(f"data: {there} is gone.")
    return found


def refuse_missing(folder: StudyFolder, study: Study, trials: Sequence[int]) -> None:
    """Refuse to run trials again that lack what they were made of, naming it.

    Raises:
        InputError: Something is gone.
    """
    found = [one for trial in trials for one in what_is_missing(folder, study, trial)]
    if found:
        listed = "\n".join(f"  {sentence}" for sentence in dict.fromkeys(found))
        raise InputError(
            f"What the original ran with is not all there any more:\n{listed}",
            "Put it back. `sweep rerun-best --anyway` runs with what there is.",
        )
