"""``--fetch``: the job that brings a study's data to shared storage before its tasks start;
``--fetch-alone``: the same for somebody who waits."""

from __future__ import annotations

import json
import os

from sweep.control import short_job
from sweep.control.place import training_environ
from sweep.core.errors import EXIT_DONE, SweepError
from sweep.core.files import write_atomic
from sweep.core.masking import mask
from sweep.core.paths import StudyFolder
from sweep.provenance import manifest
from sweep.provenance.data import capture_data
from sweep.tasks.job_study import read_study
from sweep.training import fetching


def run(folder: StudyFolder, options: list[str]) -> int:
    """Fetch what is missing, and record it as the launch would have."""
    if options == ["--fetch"]:
        _fetch(folder)
        return EXIT_DONE
    answer: dict[str, object] = {"done": True}
    try:
        _fetch(folder)
    except SweepError as error:
        answer |= {"error": error.message, "hint": error.hint}
    write_atomic(short_job.result_file(folder), json.dumps(answer) + "\n")
    return EXIT_DONE


def _fetch(folder: StudyFolder) -> None:
    study, _ = read_study(folder)
    names = [name for name, one in study.datasets.items() if one.fetch]
    fetching.fetch(study, names, training_environ(folder, os.environ), _say)
    paths = {study.datasets[name].path: study.data_paths[name] for name in names}
    came = {given: capture_data(path) for given, path in paths.items()}
    manifest.complete(folder, "data", came)


def _say(text: str) -> None:
    print(mask(text), flush=True)
