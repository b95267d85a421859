"""SIGKILL at random moments, one rank or two, and a full disk: the same weights in the end."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from tests.ports import quiet_port  # noqa: E402
from trainer import checkpoint, ranks, train  # noqa: E402
from trainer.run import Run  # noqa: E402

pytestmark = pytest.mark.real

ARGV = [
    "--data",
    "digits",
    "--epochs",
    "4",
    "--width",
    "16",
    "--dropout",
    "0.2",
    "--optimizer",
    "adamw",
    "--lr",
    "0.01",
    "--device",
    "cpu",
    "--augment",
    "crop",
    "--checkpoint-every",
]


def fork_ranks(
    world: int, folder: Path, resume: Path | None, plant: Callable[[int], None], every: str = "1"
) -> list[int]:
    """Start the ranks as forked processes, which need not import torch again; return their ids."""
    folder.mkdir(parents=True, exist_ok=True)
    port = quiet_port()
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 70
            with contextlib.suppress(BaseException):
                os.environ.update(
                    SWEEP_METRICS=str(folder / "metrics.jsonl"),
                    SWEEP_RESUME=str(resume or ""),
                    SWEEP_CHECKPOINT_DIR=str(folder / "checkpoints"),
                    SWEEP_DDP_TIMEOUT_S="30",
                )
                if world > 1:
                    os.environ.update(
                        RANK=str(rank),
                        LOCAL_RANK=str(rank),
                        WORLD_SIZE=str(world),
                        MASTER_ADDR="127.0.0.1",
                        MASTER_PORT=str(port),
                    )
                sys.stdout = sys.stderr = open(folder / f"log.{rank}", "a")  # noqa: SIM115
                plant(rank)
                code = train.main([*ARGV, every])
            os._exit(code)
        children.append(child)
    return children


def wait(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def do_nothing(rank: int) -> None:
    """Plant nothing."""


def newest(folder: Path) -> Path | None:
    found = checkpoint.find(folder / "checkpoints")
    return found[0] if found else None


@pytest.fixture(scope="module", params=[1, 2], ids=["one-process", "two-ranks"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The uninterrupted run: (how many ranks, state of its last checkpoint)."""
    folder = tmp_path_factory.mktemp("whole")
    assert wait(fork_ranks(request.param, folder, None, do_nothing)) == [0] * request.param
    last = newest(folder)
    assert last is not None
    return request.param, checkpoint.load(last)


def assert_same_end(folder: Path, expected: dict[str, Any]) -> None:
    last = newest(folder)
    assert last is not None, (folder / "log.0").read_text()
    got = checkpoint.load(last)
    assert (got["epoch"], got["batch"], got["metrics"]) == (4, 0, expected["metrics"])
    assert all(torch.equal(got["model"][name], expected["model"][name]) for name in got["model"])
    assert [each["random"]["torch"].tolist() for each in got["ranks"]] == [
        each["random"]["torch"].tolist() for each in expected["ranks"]
    ]


def slow_down(rank: int) -> None:
    """Make each step take 10 ms, so that a random moment is one of training."""
    step = Run.step

    def slow(self: Run, index: Any) -> None:
        time.sleep(0.01)
        step(self, index)

    Run.step = slow  # type: ignore[method-assign]


@pytest.mark.parametrize(("seed", "kills"), [(1, 2), pytest.param(2, 20, marks=pytest.mark.long)])
def test_killed_at_random_moments(tmp_path: Path, whole: Any, seed: int, kills: int) -> None:
    """All ranks or one of them, whatever they are doing; checkpoints by time, also in mid-epoch."""
    world, expected = whole
    source = random.Random(seed)
    resume: Path | None = None
    for number in range(kills):
        folder = tmp_path / str(number)
        children = fork_ranks(world, folder, resume, slow_down, "0.05s")
        time.sleep(source.uniform(0.3, 1.2))
        for child in children if source.random() < 0.5 else [source.choice(children)]:
            os.kill(child, signal.SIGKILL)
        codes = wait(children)
        assert set(codes) <= {0, 1, -9}, (folder / "log.0").read_text()
        resume = newest(folder) or resume
    assert wait(fork_ranks(world, tmp_path / "last", resume, do_nothing)) == [0] * world
    assert_same_end(tmp_path / "last", expected)


@pytest.mark.long
def test_a_full_disk_costs_no_checkpoint_and_no_exactness(tmp_path: Path, whole: Any) -> None:
    """A file may not grow beyond some kilobytes, as on a full disk: exit 1, then on from before."""
    world, expected = whole

    def die_in_epoch_3(rank: int) -> None:
        begin = Run.begin_epoch

        def begin_or_die(self: Run) -> None:
            if self.sampler.epoch == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            begin(self)

        Run.begin_epoch = begin_or_die  # type: ignore[method-assign]

    def fill_disk(rank: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    wait(fork_ranks(world, tmp_path / "1", None, die_in_epoch_3))
    left = newest(tmp_path / "1")
    assert left is not None
    assert wait(fork_ranks(world, tmp_path / "2", left, fill_disk)) == [1] * world
    assert "File too large. Free some space" in (tmp_path / "2" / "log.0").read_text()
    assert newest(tmp_path / "2") is None
    assert wait(fork_ranks(world, tmp_path / "3", left, do_nothing)) == [0] * world
    assert_same_end(tmp_path / "3", expected)


@pytest.mark.long
@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_killed_within_the_write_of_a_checkpoint(tmp_path: Path, whole: Any, name: str) -> None:
    """Rank 0 dies between the temporary file and its last name; nothing half-written is taken."""
    world, expected = whole

    def die_writing(rank: int) -> None:
        original, calls = getattr(checkpoint.os, name), [0]

        def die(*args: Any, **more: Any) -> Any:
            calls[0] += 1
            if calls[0] == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **more)

        setattr(checkpoint.os, name, die)

    codes = wait(fork_ranks(world, tmp_path / "1", None, die_writing))
    assert codes[0] == -9
    second = fork_ranks(world, tmp_path / "2", newest(tmp_path / "1"), do_nothing)
    assert wait(second) == [0] * world
    assert_same_end(tmp_path / "2", expected)


def test_the_timeout_is_read_from_the_environment() -> None:
    """Half a minute in these tests, 50 s by default; nonsense is refused."""
    assert ranks.read_timeout_s({}) == 50
    assert ranks.read_timeout_s({"SWEEP_DDP_TIMEOUT_S": "30"}) == 30
    with pytest.raises(ranks.InputError, match="SWEEP_DDP_TIMEOUT_S: must be seconds above 0"):
        ranks.read_timeout_s({"SWEEP_DDP_TIMEOUT_S": "soon"})
