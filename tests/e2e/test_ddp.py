"""Trials of several ranks on one machine, through ``sweep launch``: real torchrun, gloo, digits."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.core.system import processes
from sweep.report import Reporter
from tests.conftest import Sweep, run_sweep
from tests.trainer.curves import read_curve
from tests.waiting import wait_for
from trainer import config, loop

# Sums over a batch are taken in another order, which changes the last bit of a float32 (6e-8) in
# each step; over some hundred steps of a network that learns without chaos it stays below this.
TOLERANCE = 1e-4
EPOCHS = 6
FIXED = {"epochs": EPOCHS, "batch_size": 64, "width": 16, "optimizer": "adamw", "lr": 0.01}
STUDY: dict[str, Any] = {
    "name": "ranks",
    "command": "python -m trainer.train --data digits --config {config}",
    "objective": {"metric": "val_accuracy", "direction": "maximize"},
    "space": {},
    "trials": 1,
    "sampler": "random",
    "executor": "local",
    "fixed": FIXED,
    "ddp": {"ranks_per_node": 2, "timeout_s": 40},
}
# An epoch takes a while; the second rank of the first attempt does not begin the third before it is
# killed.
WAITS = """
import os, sys, time
from trainer import train
from trainer.run import Run
begin = Run.begin_epoch
def wait(self):
    time.sleep(0.1)
    held = "holds" in sys.argv and os.environ["SWEEP_ATTEMPT"] + os.environ["RANK"] == "11"
    while held and self.sampler.epoch == 2:
        time.sleep(0.1)
    begin(self)
Run.begin_epoch = wait
sys.exit(train.main([word for word in sys.argv[1:] if word != "holds"]))
"""
WAITING = "python waits.py --data digits --config {config}"
# Ranks that need no torch: what counts is which of them says and does what.
RAISES = """
import os, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
if os.environ["RANK"] == "1":
    raise ValueError("no such layer")
time.sleep(600)
"""
# Tells how many ranks there are too many; needs no torch.
COUNTS = """
import os
from sweep.report import Reporter
if os.environ["RANK"] == "0":
    Reporter().log(step=0, val_accuracy=int(os.environ["WORLD_SIZE"]) - 2)
"""
# Of the first attempt's torchrun: it does not begin before its port was taken.
LATE = """
import os, sys, time
while (
    "torch.distributed.run" in sys.orig_argv
    and os.environ["SWEEP_ATTEMPT"] == "1"
    and not os.path.exists(os.environ["STOLEN"])
):
    time.sleep(0.05)
"""
# Each pair sums its trial's number over its ranks.
SUMS = """
import os, torch
from sweep.report import Reporter
from trainer.ranks import join
ranks = join("ddp", False)
own = 1.0 + int(os.environ["SWEEP_TRIAL"])
total = ranks.sum(torch.tensor([own])).item()
Reporter().log(step=0, val_accuracy=total - 2 * own)
ranks.leave()
"""


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own, on the server that all share."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env={"SWEEP_STORAGE": fresh_url})


def write(folder: Path, **more: Any) -> Path:
    path = folder / "study.yaml"
    path.write_text(json.dumps({**STUDY, **more}))  # JSON is YAML
    return path


def trials(sweep: Sweep) -> list[dict[str, Any]]:
    states = ("complete", "pruned", "failed", "running", "waiting")
    chosen = [part for state in states for part in ("--state", state)]
    return list(json.loads(sweep("collect", "--format", "json", *chosen).out))


def attempt(runs: Path, trial: int, number: int) -> Path:
    return runs / "ranks/trials" / f"{trial:05d}" / "attempts" / str(number)


def count_that_fit(most: int) -> int:
    """Return how many pairs may run at once: three processes with torch each, about 0.7 GB.

    Half of what is free is left to others; 50 pairs at once have ended other programs here.
    """
    lines = Path("/proc/meminfo").read_text().splitlines()
    (free_kb,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    return max(2, min(most, int(free_kb / 1e6 / 2 / 0.7)))


def test_a_killed_rank_and_the_curve_of_one_process(
    tmp_path: Path, sweep: Sweep, runs: Path
) -> None:
    """SIGKILL of rank 1: the trial goes on as attempt 2, to the curve of one process."""
    (tmp_path / "waits.py").write_text(WAITS)
    assert sweep("launch", write(tmp_path, command=f"{WAITING} holds")).code == 0
    first = attempt(runs, 0, 1)
    wait_for(lambda: len(list((first / "checkpoints").glob("*.pt"))) > 0, "a checkpoint")
    # Other tests on this machine may have a rank 1 as well.
    ours = {each.pid for each in processes.processes_with("SWEEP_TRIAL_DIR", str(first))}
    (rank,) = [each for each in processes.processes_with("RANK", "1") if each.pid in ours]
    rank.signal(signal.SIGKILL)
    code, out, err = sweep("launch", "study.yaml", "--wait")
    assert code == 0, out + err
    (trial,) = trials(sweep)
    assert (trial["state"], trial["attempts"]) == ("complete", 2)
    log = (first / "log.txt").read_text()
    assert "sweep: rank 1 of 2 on localhost failed first: killed by SIGKILL" in log
    assert not (first / "ranks").exists()
    assert "resumed from" in (attempt(runs, 0, 2) / "log.txt").read_text()
    got = read_curve(first / "metrics.jsonl") | read_curve(attempt(runs, 0, 2) / "metrics.jsonl")
    (tmp_path / "one").mkdir()
    alone = Reporter({"SWEEP_METRICS": str(tmp_path / "one/metrics.jsonl")})
    argv = [f"--{name.replace('_', '-')}={value}" for name, value in FIXED.items()]
    loop.train(config.parse([*argv, f"--seed={trial['seed']}"], {}), alone, lambda line: None)
    expected = read_curve(tmp_path / "one/metrics.jsonl")
    assert got.keys() == expected.keys() == set(range(1, EPOCHS + 1))
    for step, metrics in expected.items():
        assert got[step] == pytest.approx(metrics, rel=TOLERANCE), step


@pytest.mark.long  # trainer/test_ddp has the ranks' part, tasks/test_worker the verdict's way there
def test_pruning_ends_all_ranks(tmp_path: Path, sweep: Sweep, runs: Path) -> None:
    """The verdict reaches rank 0 by the control file, and the others through it."""
    (tmp_path / "waits.py").write_text(WAITS)
    fixed = {**FIXED, "epochs": 3000}
    pruner = {"type": "threshold", "lower": 2.0}  # an accuracy is never above it
    _, out, err = sweep(
        "launch", write(tmp_path, command=WAITING, fixed=fixed, pruner=pruner), "--wait"
    )
    log = (attempt(runs, 0, 1) / "log.txt").read_text()
    assert [trial["state"] for trial in trials(sweep)] == ["pruned"], out + err + log
    assert processes.processes_with("SWEEP_TRIAL_DIR", str(attempt(runs, 0, 1))) == []
    assert "[rank0]: stopped (pruned) after epoch" in log and "[rank1]" not in log


def test_the_rank_that_failed_is_shown(tmp_path: Path, sweep: Sweep, runs: Path) -> None:
    """Its error is the trial's, and its lines stand at the end of the log."""
    (tmp_path / "raises.py").write_text(RAISES)
    sweep("launch", write(tmp_path, command="python raises.py"), "--wait")
    (trial,) = trials(sweep)
    assert trial["state"] == "failed"
    assert trial["reason"] == ("rank 1 of 2 on localhost: exit code 1: ValueError: no such layer")
    log = (attempt(runs, 0, 1) / "log.txt").read_text().splitlines()
    end = log[log.index("sweep: the last lines of rank 1:") :]
    # torchrun passes on what was printed and what was raised through two pipes, in either order.
    assert "  rank 1 of 2" in (end[1], end[-1])
    raised = [line for line in end[1:] if line != "  rank 1 of 2"]
    assert raised[0] == "  Traceback (most recent call last):"
    assert raised[-1] == "  ValueError: no such layer"


def two_free_ports() -> int:
    """Return the lower of two ports in a row that nobody has, and no system hands out by chance."""
    for low in random.sample(range(20000, 32000, 2), 100):
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("0.0.0.0", low))
            other.bind(("0.0.0.0", low + 1))
            return low
    raise AssertionError("no two free ports in 100 tries")


def test_a_port_taken_after_the_test_costs_an_attempt(
    tmp_path: Path, sweep: Sweep, runs: Path
) -> None:
    """A forced clash is reported as one; the next attempt takes another port."""
    (tmp_path / "counts.py").write_text(COUNTS)
    low = two_free_ports()
    ddp = {"ranks_per_node": 2, "port_range": [low, low + 1]}
    stolen, late = tmp_path / "stolen", tmp_path / "late"
    late.mkdir()
    (late / "sitecustomize.py").write_text(LATE)
    environment = {"env": {"PYTHONPATH": str(late), "STOLEN": str(stolen)}}
    path = write(tmp_path, command="python counts.py", ddp=ddp, environment=environment)
    assert sweep("launch", path).code == 0
    locks = [Path(f"/tmp/sweep-ports-{os.geteuid()}/{port}") for port in (low, low + 1)]

    def held() -> list[int]:
        found = []
        for path in locks:
            if path.exists():
                with path.open() as stream:
                    try:
                        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        found.append(int(path.name))
        return found

    wait_for(lambda: bool(held()), "the trial's port")
    wait_for((attempt(runs, 0, 1) / "log.txt").exists, "torchrun to start")
    # Chosen and tested; torchrun, which is to listen there, has not begun.
    with socket.socket() as thief:
        thief.bind(("0.0.0.0", held()[0]))
        thief.listen()
        stolen.touch()
        _, out, err = sweep("launch", "study.yaml", "--wait")
    log = (attempt(runs, 0, 1) / "log.txt").read_text()
    assert "EADDRINUSE" in log, log
    (trial,) = trials(sweep)
    assert (trial["state"], trial["attempts"], trial["value"]) == ("complete", 2, 0.0), out + err


def test_a_wrong_interface_is_named(tmp_path: Path, sweep: Sweep) -> None:
    """At once, with what the host has and which key to set."""
    ddp = {"ranks_per_node": 2, "interface": "eth99"}
    sweep("launch", write(tmp_path, ddp=ddp), "--wait")
    (trial,) = trials(sweep)
    assert trial["state"] == "failed"
    assert "ddp.interface: host " in trial["reason"]
    assert "has no network interface eth99; it has lo" in trial["reason"]


def test_a_missing_script_is_known_before(tmp_path: Path, sweep: Sweep) -> None:
    """Also behind a launcher, which would find out in each rank."""
    code, _, err = sweep("launch", write(tmp_path, command="python gone.py"))
    assert code == 2 and "gone.py does not exist" in err


@pytest.mark.long  # training/test_launchers has which port each takes
@pytest.mark.parametrize("pairs", [2, 50])
def test_pairs_that_start_at_once_keep_to_themselves(
    tmp_path: Path, sweep: Sweep, pairs: int
) -> None:
    """Each pair sums over its own two ranks."""
    (tmp_path / "sums.py").write_text(SUMS)
    ddp = {"ranks_per_node": 2, "timeout_s": 600}
    path = write(
        tmp_path,
        command="python sums.py",
        trials=pairs,
        max_parallel=count_that_fit(pairs),
        ddp=ddp,
    )
    code, out, err = sweep("launch", path, "--wait", timeout_s=1800)
    assert code == 0, out + err
    found = trials(sweep)
    assert [(trial["state"], trial["value"], trial["attempts"]) for trial in found] == [
        ("complete", 0.0, 1)
    ] * pairs
