"""``track: [wandb]`` with the real package, offline: its files have what ``collect`` shows."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweep import load
from sweep.core.files import make_private, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.integrations.wandb import BLOCK, FIRST, HEADER, LAST, WHOLE
from sweep.tasks.tracking.outbox import Outbox
from tests.conftest import Sweep
from tests.frameworks.scene import LIMIT_S, need
from tests.study_rows import make_study
from tests.tasks.test_tracking import (
    LAUNCH_S,
    Points,
    collected,
    points,
    report,
    wait_for_no_feeder,
    write_resuming,
)

pytestmark = pytest.mark.real


@dataclass
class Run:
    """A run as its file has it."""

    name: str = ""
    group: str = ""
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, int, float]] = field(default_factory=list)


def read_runs(folder: Path) -> dict[str, Run]:
    """Return the offline runs below a folder, by their names, read by W&B's own reader."""
    found = [read_run(path) for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))]
    assert len({run.name for run in found}) == len(found)
    return {run.name: run for run in found}


def records(path: Path) -> Iterator[Any]:
    """Yield W&B's own messages; its file is a log as LevelDB has it, of which it has no reader."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, pieces = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        piece = data[at + HEADER : at + HEADER + size]
        at += HEADER + size
        pieces = piece if kind in (WHOLE, FIRST) else pieces + piece
        if kind in (WHOLE, LAST):
            record = Record()
            record.ParseFromString(pieces)
            yield record


def read_run(path: Path) -> Run:
    run = Run()
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.name, run.group = record.run.display_name, record.run.run_group
            run.tags = list(record.run.tags)
            run.config |= {
                item.key: json.loads(item.value_json) for item in record.run.config.update
            }
        elif kind == "history":
            row = {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            step = row["sweep/step"]
            run.rows += [
                (name, step, value)
                for name, value in row.items()
                if not name.startswith(("_", "sweep/"))
            ]
        elif kind == "summary":
            run.summary |= {
                item.key or ".".join(item.nested_key): json.loads(item.value_json)
                for item in record.summary.update
            }
    return run


def shown(run: Run) -> Points:
    """Return what a run shows of trial 0."""
    return points((0, name, step, value) for name, step, value in run.rows)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody has logged in."""
    need("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))


def test_a_run_starts_with_what_survives(runs: Path) -> None:
    """By the worker's own end: metrics cut where they are reported again, the objective as summary,
    parameters; the earlier attempt's run is tagged, and keeps what it had."""
    study = make_study(track=("wandb",))
    folder: StudyFolder = Runs(runs).study("digits")
    make_private(folder.root)
    write_atomic(folder.study, study.to_json())
    outbox = Outbox(study, folder, os.environ)
    first = report(folder, 1, range(5))
    first |= report(folder, 1, range(5), "rare") | report(folder, 1, range(5), "once")
    outbox.begin(0, 1, 0, "node1")
    outbox.end(0, 1, "killed")
    assert outbox.close(LIMIT_S) == []
    before = read_runs(folder.root)
    assert list(before) == ["trial 0"]
    assert shown(before["trial 0"]) == first
    assert before["trial 0"].tags == []
    again = report(folder, 2, range(3, 7)) | report(folder, 2, [4], "rare")
    outbox.begin(0, 2, 0, "node2")
    outbox.end(0, 2, "complete")
    assert outbox.close(LIMIT_S) == [], (folder.tracking / "wandb.log").read_text()
    found = read_runs(folder.root)
    assert sorted(found) == ["trial 0", "trial 0 (attempt 2)"]
    old, new = found["trial 0"], found["trial 0 (attempt 2)"]
    assert (old.tags, new.tags) == (["superseded"], [])
    assert (old.group, new.group) == ("digits", "digits")
    assert shown(old) == first
    assert shown(new) == first | again
    # What survives of the objective comes first.
    objective = study.objective.metric
    steps = [step for name, step, _ in new.rows if name == objective]
    assert steps == sorted(steps)
    values = [value for (_, name, _), value in shown(new).items() if name == objective]
    best = max if study.objective.direction == "maximize" else min
    assert new.summary[objective] == best(values)
    assert (new.config["lr"], new.config["sweep.host"]) == (0.25, "node2")


def test_what_a_retry_takes_back_is_tagged(runs: Path) -> None:
    """A trial that was given back begins anew: its earlier run keeps what it had, and is tagged."""
    study = make_study(track=("wandb",))
    folder: StudyFolder = Runs(runs).study("digits")
    make_private(folder.root)
    write_atomic(folder.study, study.to_json())
    outbox = Outbox(study, folder, os.environ)
    first = report(folder, 1, range(4))
    outbox.begin(0, 1, 0, "node1")
    outbox.end(0, 1, "failed")
    assert outbox.close(LIMIT_S) == []
    again = report(folder, 2, range(2))
    outbox.begin(0, 2, 0, "node1", first=2)
    outbox.end(0, 2, "complete")
    assert outbox.close(LIMIT_S) == [], (folder.tracking / "wandb.log").read_text()
    found = read_runs(folder.root)
    old, new = found["trial 0"], found["trial 0 (attempt 2)"]
    assert (old.tags, new.tags) == (["superseded"], [])
    assert (shown(old), shown(new)) == (first, again)


def test_a_killed_study_shows_what_collect_shows(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """All of it: launch says how to send it, a kill, and the same numbers in the end."""
    study = write_resuming(tmp_path, "wandb")
    ran = sweep("launch", study, "--wait", timeout_s=LAUNCH_S)
    assert ran.code == 0
    root = runs / "resuming"
    assert f"wandb sync {root}/wandb/offline-run-*" in ran.err
    wait_for_no_feeder(root)
    found = read_runs(root)
    assert sorted(found) == ["trial 0", "trial 0 (attempt 2)"]
    assert found["trial 0"].tags == ["superseded"]
    run = found["trial 0 (attempt 2)"]
    assert shown(run) == collected(runs)
    with load(runs=runs) as loaded:
        [row] = loaded.trials().to_dict("records")
    assert run.summary["acc"] == row["value"]
    assert run.config["x"] == row["params.x"]
    assert not list((root / "tracking").glob("*.trouble"))


OWN = """
import os, wandb
from sweep.report import Reporter
r = Reporter()
run = wandb.init(project="mine", mode="offline")
for step in range(3):
    run.log({"acc": step / 4}, step=step)
    r.log(step=step, acc=step / 4)
run.finish()
"""


def test_where_training_has_a_run_none_is_added(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """Two runs of one trial would be one too many."""
    study = write_resuming(tmp_path, "wandb")
    (tmp_path / "train.py").write_text(OWN)
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    root = runs / "resuming"
    wait_for_no_feeder(root)
    attempt = StudyFolder(root).attempt(0, 1).root
    assert len(list(attempt.glob("wandb/offline-run-*"))) == 1
    assert read_runs(root) == {}
    assert "its training has a run of W&B's itself" in (root / "tracking/wandb.log").read_text()
