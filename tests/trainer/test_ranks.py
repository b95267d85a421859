"""Which rank this is, when ranks decide, what torch's errors mean, and the step's options."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter  # noqa: E402
from trainer import checkpoint, connection, convert, loop, model, ranks, writer  # noqa: E402
from trainer.config import InputError, Options, parse  # noqa: E402
from trainer.ranks import ALONE, Ranks  # noqa: E402

QUICK = Options(epochs=2, width=16, train_fraction=0.3, lr=0.1, device="cpu")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}, (3, 1, 4)),
        (
            {
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": "2",
                "SLURM_LOCALID": "0",
                "SLURM_STEP_NUM_TASKS": "4",
                "SLURM_NTASKS": "8",
            },
            (2, 0, 4),
        ),
        (
            {"SLURM_STEP_ID": "1", "SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NTASKS": "2"},
            (1, 1, 2),
        ),
        # torchrun under srun; and a batch script, which srun did not start.
        (
            {
                "RANK": "1",
                "LOCAL_RANK": "1",
                "WORLD_SIZE": "2",
                "SLURM_STEP_ID": "0",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "1",
            },
            (1, 1, 2),
        ),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}, None),
    ],
)
def test_the_place_is_read_from_torchrun_or_srun(
    environ: dict[str, str], expected: tuple[int, int, int] | None
) -> None:
    """torchrun's variables first; srun's only where srun started the process."""
    got = ranks.find_place(environ)
    assert (got and (got.rank, got.local_rank, got.world)) == expected


@pytest.mark.parametrize(
    ("parallel", "environ", "expected"),
    [
        ("auto", {"RANK": "2", "WORLD_SIZE": "2"}, "the rank must be below the number of ranks"),
        ("auto", {"RANK": "x", "WORLD_SIZE": "2"}, "RANK=x, LOCAL_RANK=0, WORLD_SIZE=2: must be"),
        ("ddp", {}, "--parallel ddp: needs one process a device. Start with torchrun"),
        ("none", {"RANK": "0", "WORLD_SIZE": "2"}, "2 processes were started, and each would"),
        ("dp", {"RANK": "0", "WORLD_SIZE": "2"}, "2 processes were started, and each would"),
        ("auto", {"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR: is not set, so 2 ranks cannot"),
        ("auto", {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "MASTER_PORT: is not set"),
    ],
)
def test_contradictions_are_refused(parallel: str, environ: dict[str, str], expected: str) -> None:
    """Before anything is waited for."""
    with pytest.raises(InputError) as caught:
        ranks.join(parallel, False, environ)
    assert expected in str(caught.value)


def test_one_process_is_a_run_of_one_rank() -> None:
    """Agreeing costs nothing there."""
    assert ranks.join("auto", False, {}) is ALONE
    assert ranks.join("auto", False, {"RANK": "0", "WORLD_SIZE": "1"}) is ALONE
    assert (ALONE.gather(3), ALONE.agree(1, 2), ALONE.share(lambda: 4)) == ([3], (1, 2), 4)


@pytest.mark.parametrize(
    ("environ", "cuda", "refused"),
    [
        ({}, True, None),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, False, None),
        ({"GLOO_SOCKET_IFNAME": "eth"}, False, "GLOO_SOCKET_IFNAME=eth: host "),
        ({"GLOO_SOCKET_IFNAME": "ib0"}, False, "it has lo, eth0. Set GLOO_SOCKET_IFNAME to"),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, False, None),
        ({"NCCL_SOCKET_IFNAME": "ib0"}, True, "NCCL_SOCKET_IFNAME=ib0: host "),
        ({"NCCL_SOCKET_IFNAME": "ib,eth"}, True, None),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, True, "NCCL_SOCKET_IFNAME==eth: host "),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, True, None),
    ],
)
def test_interfaces_that_do_not_exist_are_refused(
    environ: dict[str, str], cuda: bool, refused: str | None
) -> None:
    """gloo takes names, NCCL also prefixes, exact names and exclusions."""
    if refused is None:
        connection.check_interfaces(environ, cuda, ["lo", "eth0"])
        return
    with pytest.raises(InputError) as caught:
        connection.check_interfaces(environ, cuda, ["lo", "eth0"])
    assert refused in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The server socket has failed to listen. port: 7, code: -98, name: EADDRINUSE",
            "port 7 of h is taken by another program. Start again with another MASTER_PORT.",
        ),
        (
            "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1",
            "the connection to another rank broke: that process has ended.",
        ),
        (
            "[gloo] Timed out waiting 5000ms for recv operation to complete",
            "another rank was not heard for 5 s (SWEEP_DDP_TIMEOUT_S) at h:7. It died, hangs, "
            "never started, or is not reached by the network that was chosen "
            "(GLOO_SOCKET_IFNAME=lo).",
        ),
        (
            "[gloo] enforce fail at device.cc:46: rv != -1. Unable to find address for: ib9",
            "the ranks' hosts do not reach each other by the network that was chosen "
            "(GLOO_SOCKET_IFNAME=lo).",
        ),
        (
            "The IPv4 network addresses of (h, 7) cannot be retrieved (gai error: -2)",
            "the name h does not resolve on this host.",
        ),
        ("something else", "the ranks could not work together. (torch says: 'something else')"),
    ],
)
def test_errors_of_the_network_are_said_in_sentences(text: str, expected: str) -> None:
    """With what to do, and torch's own words at the end."""
    environ = {"MASTER_ADDR": "h", "MASTER_PORT": "7", "GLOO_SOCKET_IFNAME": "lo"}
    assert connection.explain(RuntimeError(text), environ, 5).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", (3, 0.0)),
        ("0", (0, 0.0)),
        ("90s", (0, 90.0)),
        ("5min", (0, 300.0)),
        ("1.5 h", (0, 5400.0)),
    ],
)
def test_checkpoint_intervals_are_epochs_or_times(text: str, expected: tuple[int, float]) -> None:
    """A number counts epochs; a time has its unit."""
    value = parse(["--checkpoint-every", text], {}).checkpoint_every
    assert convert.split_interval(value) == expected


@pytest.mark.parametrize("text", ["-1", "5m", "1.5", "min", "1d"])
def test_other_intervals_are_refused(text: str) -> None:
    """5m could mean months or minutes."""
    with pytest.raises(
        InputError,
        match="--checkpoint-every: must be a whole number of epochs, "
        "or a time such as 90s, 5min or 1h",
    ):
        parse([f"--checkpoint-every={text}"], {})


def test_looks_settle_at_one_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranks count steps instead of looking at clocks: 1, 2, 4 … up to a second's worth."""

    class Two(Ranks):
        def agree(self, *numbers: int) -> tuple[int, ...]:
            return numbers

    clock = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    asked: list[float] = []

    class Asked(Reporter):
        def should_stop(self) -> str | None:
            asked.append(clock[0])
            return "pruned" if clock[0] > 6 else None

    looks = loop.Looks(Asked({}), Two(0, 0, 2), save_every_s=3.0)
    found = []
    while not found or found[-1][1] != "pruned":
        clock[0] += 0.01
        if decision := looks.after_step():
            found.append((round(clock[0]), decision))
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    assert [round(gap, 2) for gap in gaps[:4]] == [0.02, 0.04, 0.08, 0.16]
    assert max(gaps) == pytest.approx(1.0, abs=0.05)
    assert [decision for _, decision in found] == ["save", "pruned"]


def test_checkpoints_by_time_are_written_in_mid_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on after each; the last one is of the end."""
    monkeypatch.setattr(loop, "LOOK_EVERY_S", -1.0)
    saved: list[tuple[int, int]] = []
    original = checkpoint.save

    def save(folder: Path, state: Any, epoch: int, batch: int = 0) -> Path:
        saved.append((epoch, batch))
        return original(folder, state, epoch, batch)

    monkeypatch.setattr(checkpoint, "save", save)
    options = dataclasses.replace(QUICK, checkpoint_every="0.000001s", output=str(tmp_path))
    loop.train(options, Reporter({}), lambda line: None)
    assert saved == [
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
        (0, 5),
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
        (1, 4),
        (1, 5),
        (2, 0),
    ]


def test_a_checkpoint_is_a_copy_and_its_error_comes_with_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training changes its tensors while the thread writes."""
    go = threading.Event()
    original = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda *a: (go.wait(10), original(*a)))
    weights, saver = torch.ones(3), writer.Writer(tmp_path)
    saver.save({"w": [weights]}, 1)
    weights.zero_()
    go.set()
    saver.finish()
    assert checkpoint.load(checkpoint.find(tmp_path)[0])["w"][0].tolist() == [1, 1, 1]

    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save", fail)
    saver.save({}, 2)
    with pytest.raises(OSError, match="No space left"):
        saver.finish()
    saver.finish()


def run(**changes: Any) -> tuple[loop.Result, list[str]]:
    said: list[str] = []
    result = loop.train(dataclasses.replace(QUICK, **changes), Reporter({}), said.append)
    return result, [line for line in said if not line.startswith("epoch")]


def test_options_that_do_not_work_here_are_given_up_with_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without changing a number of the run."""

    def refuse(*args: Any, **more: Any) -> None:
        raise RuntimeError("no compiler found\nmore")

    plain, _ = run(dropout=0.2)
    monkeypatch.setattr(torch, "compile", refuse)
    got, said = run(dropout=0.2, compile=True, cuda_graphs=True, parallel="dp")
    assert said == [
        "--parallel dp: 0 GPUs here; training on one device",
        "--compile: not possible here (no compiler found); going on without",
        "--cuda-graphs: needs a GPU; going on without",
    ]
    assert got == plain


def test_a_rehearsal_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes a step and undoes it: weights, momentum, dropout and running statistics."""
    more = {"model": "resnet", "width": 8, "layers": 1, "dropout": 0.2}
    for optimizer in ("sgd", "adamw"):
        monkeypatch.setattr(torch, "compile", lambda network: network)
        got, said = run(compile=True, optimizer=optimizer, **more)
        assert (said, got) == ([], run(optimizer=optimizer, **more)[0])


def test_bfloat16_learns_and_differs() -> None:
    """The forward pass is rounded, the weights are not."""
    rounded, plain = run(precision="bf16", epochs=6)[0], run(epochs=6)[0]
    assert rounded.best_accuracy > 0.8
    assert rounded.metrics["train_loss"] != plain.metrics["train_loss"]
    assert rounded.metrics["train_loss"] == pytest.approx(plain.metrics["train_loss"], rel=0.1)


def test_the_resnet_is_the_published_one() -> None:
    """11.17 million weights for CIFAR-10 at ResNet-18's width; other widths fit the formula."""
    options = Options(data="cifar10")
    network = model.build(options, torch.Size((3, 32, 32)), 10, 0.0, 1.0)
    assert sum(each.numel() for each in network.parameters()) == 11_173_962
    with pytest.raises(InputError, match="--width 12: of a resnet must be a multiple of 8"):
        model.build(Options(model="resnet", width=12), torch.Size((3, 32, 32)), 10, 0.0, 1.0)
