"""``track: [wandb]`` online: the real client against a stand-in for its server (wandb_server)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep import load
from sweep.control.check.trackers import ask_wandb
from sweep.core.paths import StudyFolder
from tests.conftest import Sweep
from tests.frameworks.scene import need
from tests.frameworks.test_wandb_tracker import read_run, read_runs, shown
from tests.frameworks.wandb_server import KEY, NOBODY, Sent, Standin, standing_in
from tests.ports import quiet_port
from tests.tasks.test_tracking import (
    LAUNCH_S,
    Points,
    collected,
    points,
    wait_for_no_feeder,
    write_resuming,
)
from tests.waiting import text_of, wait_for

pytestmark = pytest.mark.real


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Standin]:
    """A stand-in, and a key that it knows."""
    need("wandb")
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with standing_in() as found:
        monkeypatch.setenv("WANDB_BASE_URL", found.url)
        yield found


def sent(run: Sent) -> Points:
    """Return what a run shows of trial 0."""
    return points(
        (0, name, row["sweep/step"], value)
        for row in run.rows.values()
        for name, value in row.items()
        if not name.startswith(("_", "sweep/"))
    )


def test_a_killed_study_shows_what_collect_shows(
    server: Standin, sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """A kill, and the same numbers in the end; the earlier attempt's run is tagged; the key is
    nowhere in what is left."""
    ran = sweep("launch", write_resuming(tmp_path, "wandb"), "--wait", timeout_s=LAUNCH_S)
    assert ran.code == 0 and "W&B" not in ran.err
    root = runs / "resuming"
    wait_for_no_feeder(root)
    log = text_of(root / "tracking/wandb.log")
    by_name = {run.name: run for run in server.runs.values()}
    assert sorted(by_name) == ["trial 0", "trial 0 (attempt 2)"], log
    old, run = by_name["trial 0"], by_name["trial 0 (attempt 2)"]
    assert (old.tags, run.tags) == (["superseded"], []), log
    assert (old.group, run.group) == ("resuming", "resuming")
    assert run.is_over and sent(run) == collected(runs)
    with load(runs=runs) as loaded:
        [row] = loaded.trials().to_dict("records")
    assert run.summary["acc"] == row["value"]
    assert run.config["x"] == row["params.x"]
    assert {"config.yaml", "log.txt"} <= set(run.files)
    assert not list((root / "tracking").glob("*.trouble"))
    told = [
        path for path in root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()
    ]
    assert [path.name for path in told if path != StudyFolder(root).secrets] == []


def free_address() -> str:
    """Return an address at which nobody listens."""
    return f"http://127.0.0.1:{quiet_port()}"


@pytest.mark.parametrize("wrong", ["key", "address"])
def test_what_the_server_does_not_take_is_kept(
    wrong: str,
    server: Standin,
    sweep: Sweep,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong key, or a server that is not there: check, launch and status say so, training comes
    to its end, and the runs are files that W&B's command sends."""
    if wrong == "key":
        monkeypatch.setenv("WANDB_API_KEY", NOBODY)
        said = "refuses the key (HTTP 401)"
    else:
        monkeypatch.setenv("WANDB_BASE_URL", free_address())
        said = "does not answer here"
    study = write_resuming(tmp_path, "wandb")
    assert said in sweep("check", study).out
    ran = sweep("launch", study, "--wait", timeout_s=LAUNCH_S)
    assert ran.code == 0 and said in ran.err
    assert f"wandb sync {runs / 'resuming'}/wandb/offline-run-*" in ran.err
    wait_for_no_feeder(runs / "resuming")
    found = read_runs(runs / "resuming")
    assert found["trial 0"].tags == ["superseded"]
    assert shown(found["trial 0 (attempt 2)"]) == collected(runs)
    status = sweep("status").out
    assert "tracker wandb does not get everything" in status and said in " ".join(status.split())
    assert server.runs == {}


GATED = """
import os, time
from sweep.report import Reporter
r = Reporter()
for step in range(4):
    r.log(step=step, acc=step / 4)
    while step == 1 and not os.path.exists("GATE"):
        time.sleep(0.05)
"""


def test_a_server_that_goes_away(server: Standin, sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """In mid-run: status says so while it trains, the study comes to its end, and each trial's
    numbers are in W&B's own files: of the one that began before, and the one that began after."""
    study = write_resuming(tmp_path, "wandb")
    text = study.read_text()
    study.write_text(text.replace("trials: 1\n", "trials: 2\nmax_parallel: 1\n"))
    (tmp_path / "train.py").write_text(GATED.replace("GATE", str(tmp_path / "gate")))
    assert sweep("launch", study).code == 0
    root = runs / "resuming"
    wait_for(lambda: len(server.runs) == 1, "the first trial's run")
    server.go()
    wait_for(lambda: "does not answer" in sweep("status").out, "status to say so")
    (tmp_path / "gate").touch()
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    wait_for_no_feeder(root)
    with load(runs=runs) as loaded:
        assert list(loaded.trials().state) == ["complete"] * 2
    [online] = root.glob("wandb/run-*/run-*.wandb")
    [offline] = root.glob("wandb/offline-run-*/run-*.wandb")
    for path, name in ((online, "trial 0"), (offline, "trial 1")):
        run = read_run(path)
        assert run.name == name
        assert [(row[1], row[2]) for row in run.rows] == [(step, step / 4) for step in range(4)]
    assert "tracker wandb does not get everything" in sweep("status").out


def test_what_it_asks_of_the_server(server: Standin) -> None:
    """Whether it is there, and knows the key; a key of ~/.netrc too."""
    assert ask_wandb(os.environ) == ""
    assert "refuses the key" in ask_wandb({**os.environ, "WANDB_API_KEY": NOBODY})
    login = Path(os.environ["NETRC"])
    login.write_text(f"machine 127.0.0.1 login user password {KEY}\n")
    login.chmod(0o600)
    assert ask_wandb({**os.environ, "WANDB_API_KEY": ""}) == ""
