"""Several ranks: the same curve as one, one decision for all, and an end when one fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter, decode  # noqa: E402
from tests.ports import quiet_port  # noqa: E402
from tests.trainer.ranks_of_trainer import QUICK, finish, start  # noqa: E402
from trainer import checkpoint, config, loop  # noqa: E402

pytestmark = pytest.mark.real

# Sums over a batch are taken in another order, which changes the last bit of a float32 (6e-8) in
# each step; over some ten steps of a network that learns without chaos it stays far below this.
TOLERANCE = 1e-5
# Seconds that a run may be silent in these tests; by default it is 50.
PATIENCE = {"SWEEP_DDP_TIMEOUT_S": "15"}
HANG = (
    "import os, time\nfrom trainer.run import Run\nstep = Run.step\n"
    "def hang(self, index):\n"
    "    if os.environ['RANK'] == '1' and self.sampler.epoch == 1: time.sleep(1e6)\n"
    "    step(self, index)\n"
    "Run.step = hang"
)
SLOW = (
    "import time\nfrom trainer.run import Run\nstep = Run.step\n"
    "def wait(self, index):\n    time.sleep(0.05)\n    step(self, index)\nRun.step = wait"
)


def curve(folder: Path) -> dict[int, dict[str, float]]:
    found = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        step, _, metrics = decode(line)
        metrics.pop("epoch_s")
        found[step] = metrics
    return found


@pytest.mark.parametrize(
    ("world", "slurm", "more"),
    [
        (2, False, ["--dropout", "0", "--augment", "crop", "--model", "cnn"]),
        pytest.param(
            2,
            True,
            ["--model", "resnet", "--norm", "group", "--layers", "1", "--width", "8"],
            marks=pytest.mark.long,
        ),
        pytest.param(4, True, ["--optimizer", "adamw", "--lr", "0.01"], marks=pytest.mark.long),
    ],
)
def test_ranks_give_the_curve_of_one_process(
    tmp_path: Path, world: int, slurm: bool, more: list[str]
) -> None:
    """The global batch counts, not who computes it; rank 0 alone speaks and reports."""
    argv = [*QUICK, "--epochs", "2", *more]
    done = finish(start(world, tmp_path / "many", *argv, slurm=slurm))
    assert [code for code, _, _ in done] == [0] * world, done
    assert [len(out.splitlines()) for _, out, _ in done] == [3] + [0] * (world - 1)
    (tmp_path / "one").mkdir()
    alone = Reporter({"SWEEP_METRICS": str(tmp_path / "one" / "metrics.jsonl")})
    loop.train(config.parse(argv, {}), alone, lambda line: None)
    got, expected = curve(tmp_path / "many"), curve(tmp_path / "one")
    assert got.keys() == expected.keys() == {1, 2}
    for step in expected:
        assert got[step] == pytest.approx(expected[step], rel=TOLERANCE)


def test_where_the_time_goes(tmp_path: Path) -> None:
    """Asked for, one process and two ranks report their shares, and only ranks communicate."""
    argv = [*QUICK, "--epochs", "2", "--batch-size", "8"]  # more steps than are looked at
    done = finish(start(2, tmp_path / "two", *argv, SWEEP_PROFILE="1"))
    assert [code for code, _, _ in done] == [0, 0], done
    (tmp_path / "one").mkdir()
    alone = Reporter({"SWEEP_METRICS": str(tmp_path / "one" / "metrics.jsonl")})
    loop.train(config.parse(argv, {"SWEEP_PROFILE": "1"}), alone, lambda line: None)
    one, two = curve(tmp_path / "one"), curve(tmp_path / "two")
    assert one.keys() == two.keys() == {1, 2}
    for row in (*one.values(), *two.values()):
        shares = [row[f"share_{name}"] for name in ("compute", "communication", "data")]
        assert row["share_compute"] > 0 and min(shares) >= 0 and 0 < sum(shares) <= 1.000001
        assert row["samples_per_s"] > 0 and row["memory_gb"] > 0.05
    assert {row["share_communication"] for row in one.values()} == {0.0}
    assert all(row["share_communication"] > 0 for row in two.values())


def test_pruning_stops_all_ranks_at_the_same_step(tmp_path: Path) -> None:
    """Rank 0 reads the control file; nobody waits for a rank that left."""
    ranks = start(2, tmp_path, *QUICK, "--epochs", "1000", plant=SLOW)
    assert ranks[0].stdout.readline(), "rank 0 has ended"
    (tmp_path / "control.json").write_text(json.dumps({"stop": "pruned"}))
    done = finish(ranks)
    assert [code for code, _, _ in done] == [0, 0], done
    assert "stopped (pruned) after epoch" in done[0][1]


@pytest.mark.long
def test_ranks_that_leave_in_mid_epoch_go_on_bit_for_bit(tmp_path: Path) -> None:
    """With dropout, whose random states are each rank's own; --resume FILE names the checkpoint."""
    argv = [*QUICK, "--epochs", "2", "--dropout", "0.3", "--batch-size", "8"]
    ranks = start(2, tmp_path / "1", *argv, plant=SLOW)
    assert ranks[0].stdout.readline(), "rank 0 has ended"
    time.sleep(1)
    (tmp_path / "1" / "control.json").write_text(json.dumps({"stop": "checkpoint"}))
    assert [code for code, _, _ in finish(ranks)] == [0, 0]
    left = checkpoint.find(tmp_path / "1" / "checkpoints")[0]
    assert checkpoint.load(left)["batch"] > 0
    whole = start(2, tmp_path / "whole", *argv)
    second = start(2, tmp_path / "2", *argv, "--resume", str(left))
    assert [code for code, _, _ in finish(whole) + finish(second)] == [0] * 4
    got, expected = (
        checkpoint.load(checkpoint.find(tmp_path / name / "checkpoints")[0])
        for name in ("2", "whole")
    )
    assert got["metrics"] == expected["metrics"]
    assert all(torch.equal(got["model"][name], expected["model"][name]) for name in got["model"])
    assert [each["random"]["torch"].tolist() for each in got["ranks"]] == [
        each["random"]["torch"].tolist() for each in expected["ranks"]
    ]


def test_a_killed_rank_ends_the_others_who_name_it(tmp_path: Path) -> None:
    """SIGKILL: exit code 1, and which rank it was and where."""
    ranks = start(2, tmp_path, *QUICK, "--epochs", "1000", plant=SLOW, **PATIENCE)
    for _ in range(12):  # three seconds: time for signs of life
        assert ranks[0].stdout.readline(), "rank 0 has ended"
    ranks[1].send_signal(signal.SIGKILL)
    done = finish(ranks)
    assert [code for code, _, _ in done] == [1, -9]
    assert "[rank 0] trainer: rank 1 died or is frozen; its last place was " in done[0][2]


@pytest.mark.long
def test_a_hung_rank_ends_with_its_stack_and_the_others_name_it(tmp_path: Path) -> None:
    """Its own thread ends it, whoever started it: no launcher is needed for that."""
    done = finish(start(2, tmp_path, *QUICK, plant=HANG, **PATIENCE))
    assert [code for code, _, _ in done] == [1, 1]
    assert "[rank 0] trainer: rank 1 hangs; its last place was epoch 2, batch 1." in done[0][2]
    assert "in hang" in done[1][2]
    assert "[rank 1] trainer: another rank failed: rank 0: another rank was not heard" in done[1][2]


@pytest.mark.long
def test_a_frozen_rank_ends_the_others(tmp_path: Path) -> None:
    """SIGSTOP, as a host that swaps to death: no sign of life."""
    ranks = start(2, tmp_path, *QUICK, "--epochs", "1000", plant=SLOW, **PATIENCE)
    assert ranks[0].stdout.readline(), "rank 0 has ended"
    ranks[1].send_signal(signal.SIGSTOP)
    code, _, err = finish(ranks[:1])[0]
    ranks[1].kill()
    finish(ranks[1:])
    assert code == 1
    assert "rank 1" in err


def test_a_rank_that_fails_alone_ends_the_others_with_its_reason(tmp_path: Path) -> None:
    """A full disk on rank 0: the others do not wait for it."""
    plant = (
        "import os\nfrom trainer import checkpoint\n"
        "def full(descriptor): raise OSError(28, 'No space left on device')\n"
        "checkpoint.os.fsync = full"
    )
    done = finish(start(2, tmp_path, *QUICK, plant=plant, **PATIENCE))
    assert [code for code, _, _ in done] == [1, 1]
    assert "No space left on device. Free some space" in done[0][2]


def test_a_rank_of_another_run_at_the_same_port_is_turned_away(tmp_path: Path) -> None:
    """Two runs on one port: nothing is summed, and the message says so."""
    done = finish(start(2, tmp_path, *QUICK, SWEEP_TOKEN="token-{rank}", **PATIENCE))
    assert [code for code, _, _ in done] == [1, 1]
    assert "its ranks have another SWEEP_TOKEN. Two runs took one port" in done[1][2]
    assert not (tmp_path / "metrics.jsonl").exists()


@pytest.mark.long
def test_a_run_goes_on_when_a_stranger_knocks(tmp_path: Path) -> None:
    """The stranger leaves; the run that owns the port ends well."""
    port = quiet_port()
    ranks = start(
        2,
        tmp_path / "own",
        *QUICK,
        "--epochs",
        "20",
        port=port,
        plant=SLOW,
        SWEEP_TOKEN="own",
        **PATIENCE,
    )
    assert ranks[0].stdout.readline(), "rank 0 has ended"
    stranger = start(
        2, tmp_path / "other", *QUICK, port=port, only=(1,), SWEEP_TOKEN="other", **PATIENCE
    )
    ((code, _, err),) = finish(stranger)
    assert (code, "Two runs took one port" in err) == (1, True)
    assert [code for code, _, _ in finish(ranks)] == [0, 0]


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    """Rank 0 cannot listen."""
    import socket

    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ((code, _, err),) = finish(start(2, tmp_path, *QUICK, port=port, only=(0,), **PATIENCE))
    assert code == 1
    assert f"port {port} of 127.0.0.1 is taken by another program" in err


def test_a_wrong_interface_is_named_at_once(tmp_path: Path) -> None:
    """Planted: an interface that the host does not have."""
    done = finish(start(2, tmp_path, *QUICK, GLOO_SOCKET_IFNAME="eth99"))
    assert [code for code, _, _ in done] == [2, 2]
    assert "GLOO_SOCKET_IFNAME=eth99: host " in done[0][2]
    assert "Set GLOO_SOCKET_IFNAME to the one" in done[0][2]


def test_a_batch_that_ranks_cannot_share_is_refused(tmp_path: Path) -> None:
    """65 examples for 2 ranks."""
    done = finish(start(2, tmp_path, *QUICK, "--batch-size", "65"))
    assert [code for code, _, _ in done] == [2, 2]
    assert "2 ranks cannot share it evenly. Take a multiple of 2." in done[0][2]


@pytest.mark.long  # e2e/test_ddp starts it so in every form
def test_torchrun_starts_it(tmp_path: Path) -> None:
    """The launcher's own store and variables."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            "-m",
            "trainer.train",
            *QUICK,
            "--epochs",
            "1",
            "--parallel",
            "ddp",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:2] == ["epoch", "1/1"]
