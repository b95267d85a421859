"""What is said of each trial that trains now: where, how far, how well, until when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sweep.core.files import read_record
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.core.times import iso_utc, span
from sweep.storage.running_rows import RunningTrial

UNHEARD_S = 60.0  # a task says every few seconds that it lives
SILENT_S = 60.0
SILENT_INTERVALS = 5.0  # of a training's own pace of reports
# Complete trials whose lengths differ by more tell nothing of how long another will be.
LENGTHS_ALIKE = 1.1


@dataclass(frozen=True)
class RunningLine:
    """One running trial, for people.

    Attributes:
        node: Its machine; gpu: which of its GPUs ("0", "0,1", an UUID), or "".
        step: Of its last report of the objective, or None; share: of the steps that complete trials
            had, 0 to 1, or None where those do not tell, or it goes on beyond them.
        last, best: The objective's last and best value so far, or None.
        elapsed_s: Seconds that it has trained, earlier attempts included.
        left_s: Until its end, estimated; None where nothing is known.
        waits: What it waits for, in words; "" where it gets on.
        replicate: Which of the trial's trainings it is, from 1, where it has several.
    """

    trial: int
    attempt: int
    node: str
    gpu: str
    step: int | None
    share: float | None
    last: float | None
    best: float | None
    elapsed_s: float
    left_s: float | None
    waits: str
    replicate: int = 1

    def ends(self, now: datetime) -> datetime | None:
        """When it is expected to end."""
        return None if self.left_s is None else now + timedelta(seconds=self.left_s)

    def to_dict(self, now: datetime) -> dict[str, Any]:
        """Return what ``status --json`` prints of it."""
        return {
            "trial": self.trial,
            "attempt": self.attempt,
            "replicate": self.replicate,
            "node": self.node,
            "gpu": self.gpu or None,
            "step": self.step,
            "share": self.share,
            "last": self.last,
            "best": self.best,
            "elapsed_s": self.elapsed_s,
            "expected_end": iso_utc(self.ends(now)),
            "waits": self.waits,
        }


def lines_of(
    rows: Sequence[RunningTrial],
    study: Study,
    lengths: tuple[int, int] | None,
    mean_s: float | None,
    folder: StudyFolder,
    shown: int | None = None,
    usual_s: Mapping[int, float] | None = None,
) -> list[RunningLine]:
    """Return what is said of each running trial; those that wait for something come first.

    Args:
        lengths: The least and the greatest last step of complete trials, where there are some.
        mean_s: How long those took on average.
        shown: The GPUs of so many are read, a file each; of all when None.
        usual_s: How long a trial takes where one trains, by its number, where that differs from
            ``mean_s``: beside others on a GPU.
    """
    wants_more = study.objective.direction == "maximize"
    last_step = _usual_end(lengths)
    found = []
    for row in rows:
        summary = row.summary
        best = None
        if summary is not None:
            best = summary.greatest if wants_more else summary.least
        found.append(
            RunningLine(
                trial=row.trial,
                attempt=row.attempt,
                node=row.host,
                gpu="",
                step=row.last_step,
                share=_share(row, last_step),
                last=None if summary is None else summary.last,
                best=best,
                elapsed_s=row.used_s + row.trained_s,
                left_s=_left_s(row, last_step, (usual_s or {}).get(row.trial, mean_s)),
                waits=_waits(row),
                replicate=row.replicate,
            )
        )
    found.sort(key=lambda line: (not line.waits, line.trial))
    if study.resources.gpu_count:
        found[:shown] = [replace(line, gpu=_read_gpu(folder, line)) for line in found[:shown]]
    return found


def _usual_end(lengths: tuple[int, int] | None) -> int | None:
    """Return the step at which trials end, where complete ones agree on it."""
    if lengths is None or not 0 < lengths[1] <= LENGTHS_ALIKE * max(lengths[0], 1):
        return None
    return lengths[1]


def _share(row: RunningTrial, last_step: int | None) -> float | None:
    if last_step is None or row.last_step is None or row.last_step > last_step:
        return None  # it goes on beyond where others have ended
    return row.last_step / last_step


def _left_s(row: RunningTrial, last_step: int | None, mean_s: float | None) -> float | None:
    """Estimate by a trial's own pace; by how long others took where that is not known. Nobody knows
    of one whose task is not heard of."""
    if row.unseen_s > UNHEARD_S:
        return None
    if last_step is not None and row.last_step is not None and row.last_step > last_step:
        return None
    pace_s = _seconds_a_step(row)
    if last_step is not None and row.last_step is not None and pace_s is not None:
        return max((last_step - row.last_step) * pace_s - max(row.silent_s or 0.0, 0.0), 0.0)
    return None if mean_s is None else max(mean_s - row.used_s - row.trained_s, 0.0)


def _seconds_a_step(row: RunningTrial) -> float | None:
    if None in (row.first_step, row.last_step) or row.first_step == row.last_step:
        return None
    assert row.last_step is not None and row.first_step is not None
    assert row.last_s is not None and row.first_s is not None
    return max(row.last_s - row.first_s, 0.0) / (row.last_step - row.first_step)


def _waits(row: RunningTrial) -> str:
    if row.unseen_s > UNHEARD_S:
        return f"its task has not been heard of for {span(row.unseen_s, rough=True)}"
    if not row.is_started:
        return "its training is about to start"
    if row.last_step is None:
        return "no report yet" if row.attempt == 1 else "no report yet of this attempt"
    # No longer than it has trained, whatever that machine's clock says.
    silent_s = min(row.silent_s or 0.0, row.trained_s)
    interval_s = _seconds_a_step(row) or 0.0
    if silent_s > max(SILENT_S, SILENT_INTERVALS * interval_s):
        return f"no report for {span(silent_s, rough=True)}"
    return ""


def _read_gpu(folder: StudyFolder, line: RunningLine) -> str:
    """Return which GPUs an attempt's record says that it sees; "" where it says nothing."""
    record, _ = read_record(folder.attempt(line.trial, line.attempt).provenance)
    environment = (record or {}).get("environment")
    seen = environment.get("cuda_visible_devices") if isinstance(environment, dict) else None
    return seen if isinstance(seen, str) else ""
