"""What trackers have missed is sent again, and nothing twice; by trackers' own readers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.control import tracker_gaps, tracker_trouble
from sweep.control.tracker_gaps import begin_work, end_work, note_sent, note_told
from sweep.control.tracker_trouble import Trouble
from sweep.core.errors import SweepError
from sweep.core.files import make_private, take_lock, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.tasks.tracking.outbox import Outbox
from sweep.tasks.tracking.resend import LOCK, Resent, resend
from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep
from tests.needs import require
from tests.ports import quiet_port
from tests.study_rows import make_study
from tests.tasks.test_tracking import (  # noqa: F401
    LAUNCH_S,
    TRIALS,
    collected,
    folder,
    mlflow_database,
    of_csv,
    of_mlflow,
    of_tensorboard,
    report,
    serve_mlflow,
)
from tests.toys import TRAINING, write_toy
from tests.waiting import wait_for

pytestmark = pytest.mark.real


def begin(trial: int, attempt: int) -> dict[str, object]:
    return {"event": "begin", "trial": trial, "attempt": attempt, "mlflow": ""}


def all_complete(numbers: Sequence[int]) -> dict[int, str]:
    return dict.fromkeys(numbers, "complete")


def send(there: StudyFolder, others_s: float = 0.0) -> list[Resent]:
    return resend(
        all_complete, there, os.environ, print, wait_s=240.0, busy_s=600.0, others_s=others_s
    )


def test_what_a_tracker_lacks(folder: StudyFolder) -> None:  # noqa: F811
    """What was told and not taken whole; a line that was cut short spoils no other one."""
    study = make_study(track=("mlflow", "csv"))
    assert tracker_gaps.notes(folder, study) == []
    for trial, attempt in [(0, 1), (7, 1), (7, 2), (12, 1)]:
        note_told(folder, begin(trial, attempt))
    note_told(folder, {"event": "end", "trial": 7, "attempt": 1, "state": "killed"})
    note_told(folder, {"event": "end", "trial": 9, "attempt": 1, "state": "killed"})  # no begin
    [path] = folder.tracking.glob("*.told")
    path.write_text(path.read_text() + '{"event": "beg')
    note_told(folder, begin(13, 1))
    told = tracker_gaps.read_told(folder)
    assert list(told) == [(0, 1), (7, 1), (7, 2), (12, 1), (13, 1)]
    assert told[7, 1]["end"]["state"] == "killed" and "end" not in told[7, 2]
    for trial, attempt in [(0, 1), (7, 1), (13, 1)]:
        note_sent(folder, "csv", trial, attempt)
    assert tracker_gaps.missing(folder, "csv", told) == [7, 12]
    assert tracker_gaps.missing(folder, "mlflow", told) == [0, 7, 12, 13]
    assert tracker_gaps.notes(folder, study) == [
        "tracker mlflow lacks what trials 0, 7, 12, 13 reported, or a part of it: "
        "sweep resend digits sends it again",
        "tracker csv lacks what trials 7, 12 reported, or a part of it: "
        "sweep resend digits sends it again",
    ]
    lock = begin_work(folder, "mlflow")
    assert len(tracker_gaps.notes(folder, study)) == 1  # it is at it
    end_work(lock)
    assert len(tracker_gaps.notes(folder, study)) == 2


def lose(there: StudyFolder, name: str) -> dict[tuple[int, str, int], float]:
    """Two attempts of a trial, of which the tracker takes the first, and is killed in the second;
    return what counts of both."""
    study = make_study(track=(name,))
    write_atomic(there.study, study.to_json())
    outbox = Outbox(study, there, os.environ)
    expected = report(there, 1, range(5)) | report(there, 1, range(5), "once")
    outbox.begin(0, 1, 0, "node1")
    outbox.end(0, 1, "killed")
    assert outbox.close(240.0, 600.0) == [], (there.tracking / f"{name}.log").read_text()
    expected |= report(there, 2, range(3, 6))
    outbox.begin(0, 2, 0, "node2")
    # It has taken nothing, or begun; then the trial goes on without it.
    for process in outbox._processes.values():
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    expected |= report(there, 2, range(6, 8))
    outbox.end(0, 2, "complete")
    outbox.close(240.0)
    return expected


def test_a_killed_trackers_file_is_written_again(folder: StudyFolder) -> None:  # noqa: F811
    """All of it, and nothing twice; what was noted of the trouble is over."""
    expected = lose(folder, "csv")
    assert of_csv(folder) != expected
    Trouble(folder, "csv").note("it was killed")
    assert send(folder) == [Resent("csv", [0], [])]
    assert of_csv(folder) == expected
    assert tracker_trouble.notes(folder) == []
    assert send(folder) == []


def test_a_killed_trackers_events_are_written_again(folder: StudyFolder) -> None:  # noqa: F811
    pytest.importorskip("tensorboard", reason="tensorboard (extra: tensorboard)")
    expected = lose(folder, "tensorboard")
    assert send(folder) == [Resent("tensorboard", [0], [])]
    assert of_tensorboard(folder.tensorboard) == pytest.approx(expected)


@pytest.mark.long
def test_mlflow_gets_no_point_twice(folder: StudyFolder, mlflow_database: str) -> None:  # noqa: F811
    """A run that is there in part gets the rest; sent again altogether, it gets nothing more."""
    expected = lose(folder, "mlflow")
    assert send(folder) == [Resent("mlflow", [0], [])], (folder.tracking / "mlflow.log").read_text()
    found, [run] = of_mlflow(mlflow_database, "digits")
    assert found == pytest.approx(expected)
    assert (run.info.status, run.data.tags["sweep.attempt"]) == ("FINISHED", "2")
    for path in folder.tracking.glob("*.sent"):
        path.unlink()  # as if nobody knew that it has all of it
    assert send(folder) == [Resent("mlflow", [0], [])]
    found, [again] = of_mlflow(mlflow_database, "digits")  # which refuses a point that comes twice
    assert found == pytest.approx(expected)
    assert again.info.run_id == run.info.run_id


def test_it_is_not_sent_elsewhere(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Where a shell names another server than the study's tasks had."""
    write_atomic(folder.study, make_study(track=("mlflow",)).to_json())
    note_told(folder, {**begin(0, 1), "mlflow": "http://mlflow:5000"})
    report(folder, 1, range(2))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    [said] = send(folder)
    assert said.lacking == [0] and "export MLFLOW_TRACKING_URI=http://mlflow:5000" in said.why
    note_told(folder, begin(0, 1))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    [said] = send(folder)
    assert "unset MLFLOW_TRACKING_URI" in said.why


def test_who_is_at_it_is_not_disturbed(folder: StudyFolder) -> None:  # noqa: F811
    """A tracker's process of a task, or another who sends again; and trials that are not over."""
    write_atomic(folder.study, make_study(track=("csv",)).to_json())
    note_told(folder, begin(0, 1))
    report(folder, 1, range(2))
    lock = begin_work(folder, "csv")
    [said] = send(folder)
    assert said == Resent("csv", (), [0], "its process of a task is still at work")
    end_work(lock)
    other = take_lock(make_private(folder.tracking) / LOCK)
    assert other is not None
    with pytest.raises(SweepError, match="Another process"):
        send(folder)
    os.close(other)
    [said] = resend(lambda _: {}, folder, os.environ, print, wait_s=60.0, busy_s=60.0, others_s=0.0)
    assert said.lacking == [0] and "not over" in said.why and said.trials == ()


def feeders(root: Path) -> list[int]:
    """Return the processes that feed a study's trackers."""
    lines = subprocess.run(["ps", "-ewwo", "pid,args"], capture_output=True, text=True, check=True)
    return [
        int(line.split()[0])
        for line in lines.stdout.splitlines()
        if "sweep.tasks.tracking.feeder" in line and str(root) in line
    ]


@pytest.mark.long
def test_what_a_killed_tracker_missed_is_sent_when_the_study_ends(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """SIGKILL in mid-run: nobody does anything, and MLflow's database has what collect has."""
    require("mlflow")
    gate, root = tmp_path / "gate", runs / "toy"
    study = write_toy(
        tmp_path,
        trials=TRIALS,
        training=TRAINING,
        fixed=f"{{steps: 4, gate: '{gate}'}}",
        track="[mlflow]",
    )
    assert sweep("launch", study).code == 0
    wait_for(lambda: bool(feeders(root)), "a tracker's process")
    for pid in feeders(root):
        os.kill(pid, signal.SIGKILL)
    gate.touch()
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    there = Runs(runs).study("toy")
    told = tracker_gaps.read_told(there)
    assert len(told) == TRIALS
    wait_for(lambda: not tracker_gaps.missing(there, "mlflow", told), "the rest to be sent again")
    wait_for_runners(root)
    assert "tracker mlflow" not in sweep("status").out
    found, tracked = of_mlflow(sweep("mlflow", "--url").out.strip(), "toy")
    assert found == pytest.approx(collected(runs)) and len(tracked) == TRIALS
    assert "nothing is missing in mlflow" in sweep("resend").out


@pytest.mark.long
def test_what_a_server_that_was_away_missed_is_sent_by_a_command(
    sweep: Sweep, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status says what is missing and names the command; twice it changes nothing."""
    require("mlflow")
    require("mlflow_server")
    port = quiet_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    study = write_toy(tmp_path, trials=TRIALS, fixed="{steps: 3}", track="[mlflow]")
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    wait_for_runners(runs / "toy")  # the finaliser tries it once
    said = sweep("status").out
    assert "tracker mlflow lacks what trials 0, 1, 2" in said and "sweep resend toy" in said
    with serve_mlflow(tmp_path, port) as address:
        sent = sweep("resend", timeout_s=LAUNCH_S)
        assert (sent.code, "has everything of 3 trials" in sent.out) == (0, True), sent
        for path in (runs / "toy/tracking").glob("*.sent"):
            path.unlink()
        assert sweep("resend", timeout_s=LAUNCH_S).code == 0
        found, tracked = of_mlflow(address, "toy")
    assert found == pytest.approx(collected(runs)) and len(tracked) == TRIALS
    assert "tracker mlflow" not in sweep("status").out
