"""The training: learning, determinism, reports, stopping, and going on exactly."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")

from sweep.report import Reporter, decode  # noqa: E402
from trainer import checkpoint, evaluate, loop, model, optimizer, split  # noqa: E402
from trainer import train as command  # noqa: E402
from trainer.config import InputError, Options  # noqa: E402

QUICK = Options(epochs=4, width=16, dropout=0.2, train_fraction=0.3, lr=0.1)


class Attempt(Reporter):
    """A reporter over a folder, that asks to stop at the given look at the control file."""

    def __init__(self, folder: Path, stop: str = "", at: int = 0, resume: Path | None = None):
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(
            {
                "SWEEP_METRICS": str(folder / "metrics.jsonl"),
                "SWEEP_CHECKPOINT_DIR": str(folder / "checkpoints"),
                "SWEEP_RESUME": str(resume or ""),
            }
        )
        self.folder, self._stop, self._at, self._looks = folder / "checkpoints", stop, at, 0
        self.journal = folder / "metrics.jsonl"

    def should_stop(self) -> str | None:
        self._looks += 1
        return self._stop if self._stop and self._looks >= self._at else None

    def reports(self) -> list[tuple[int, dict[str, float]]]:
        """What was reported, without the time that an epoch took."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        found = [decode(line) for line in lines]
        return [
            (step, {k: v for k, v in metrics.items() if k != "epoch_s"})
            for step, _, metrics in found
        ]


def quiet(line: str) -> None:
    """Say nothing."""


def weights(folder: Path) -> dict[str, Any]:
    return checkpoint.load(checkpoint.find(folder)[0])["model"]


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) for name in first
    )


def test_the_digits_are_learned() -> None:
    """The recipe behind the demo study reaches 0.97 with a good learning rate."""
    result = loop.train(Options(optimizer="adamw", lr=0.01), Reporter({}), quiet)
    assert result.ended == "finished"
    assert result.best_accuracy >= 0.97


def test_each_epoch_is_reported_as_a_step_from_one(tmp_path: Path) -> None:
    """Sweep gets these metrics, and an epoch's time in seconds."""
    attempt = Attempt(tmp_path)
    loop.train(QUICK, attempt, quiet)
    assert [step for step, _ in attempt.reports()] == [1, 2, 3, 4]
    _, _, metrics = decode(attempt.journal.read_text().splitlines()[0])
    assert sorted(metrics) == ["epoch_s", "lr", "train_loss", "val_accuracy", "val_loss"]


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(tmp_path: Path) -> None:
    """Identical metrics and weights, bit for bit."""
    first, second, third = (Attempt(tmp_path / name) for name in "abc")
    loop.train(QUICK, first, quiet)
    torch.rand(7)  # whatever the process drew before must not matter
    loop.train(QUICK, second, quiet)
    loop.train(dataclasses.replace(QUICK, seed=1), third, quiet)
    assert first.reports() == second.reports()
    assert same(weights(first.folder), weights(second.folder))
    assert first.reports() != third.reports()


# One epoch of each for the short form, and all of one.
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"optimizer": "adamw", "lr": 0.01},
    {"schedule": "one-cycle"},
    {"schedule": "constant"},
    {"model": "cnn", "width": 4},
)
LEFT = [
    pytest.param(at, changes, marks=pytest.mark.long if changes and at != 2 else ())
    for at in (1, 2, 3)
    for changes in CHANGES
]


@pytest.mark.parametrize(("at", "changes"), LEFT)
def test_a_run_that_left_after_an_epoch_goes_on_exactly(
    tmp_path: Path, changes: dict[str, Any], at: int
) -> None:
    """Reports and weights of both attempts together equal the uninterrupted run's."""
    options = dataclasses.replace(QUICK, **changes)
    whole, first = Attempt(tmp_path / "whole"), Attempt(tmp_path / "1", "checkpoint", at)
    loop.train(options, whole, quiet)
    assert loop.train(options, first, quiet).ended == "checkpoint"
    second = Attempt(tmp_path / "2", resume=checkpoint.find(first.folder)[0])
    assert loop.train(options, second, quiet).ended == "finished"
    assert first.reports() + second.reports() == whole.reports()
    assert same(weights(second.folder), weights(whole.folder))


def test_a_run_that_left_in_mid_epoch_goes_on_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at every batch: the place in the order and the loss so far are in the checkpoint."""
    whole = Attempt(tmp_path / "whole")
    loop.train(QUICK, whole, quiet)
    monkeypatch.setattr(loop, "LOOK_EVERY_S", -1.0)
    reports, resume = [], None
    for number in range(100):
        attempt = Attempt(tmp_path / str(number), "checkpoint", 2, resume)
        ended = loop.train(QUICK, attempt, quiet).ended
        reports += attempt.reports()
        resume = checkpoint.find(attempt.folder)[0]
        if ended == "finished":
            break
    assert number >= 8
    assert reports == whole.reports()
    assert same(weights(attempt.folder), weights(whole.folder))


def test_a_pruned_run_ends_at_once_and_keeps_its_checkpoint(tmp_path: Path) -> None:
    """A paused trial may be promoted later."""
    attempt = Attempt(tmp_path, "pruned", 2)
    result = loop.train(dataclasses.replace(QUICK, checkpoint_every=0), attempt, quiet)
    assert (result.ended, result.epochs) == ("pruned", 2)
    assert [path.name[:10] for path in checkpoint.find(attempt.folder)] == ["epoch-0002"]


def test_a_damaged_newest_checkpoint_costs_one_epoch_and_no_exactness(tmp_path: Path) -> None:
    """The older one serves; the repeated epoch is reported again with the same numbers."""
    whole, first = Attempt(tmp_path / "whole"), Attempt(tmp_path / "1", "checkpoint", 3)
    loop.train(QUICK, whole, quiet)
    loop.train(QUICK, first, quiet)
    newest = checkpoint.find(first.folder)[0]
    newest.write_bytes(newest.read_bytes()[:1000])
    second = Attempt(tmp_path / "2", resume=newest)
    said: list[str] = []
    loop.train(QUICK, second, said.append)
    assert "damaged" in said[0]
    assert second.reports() == whole.reports()[2:]
    assert same(weights(second.folder), weights(whole.folder))


def test_checkpoints_that_are_all_damaged_mean_a_start_from_the_beginning(tmp_path: Path) -> None:
    """Under sweep the result is the same, later."""
    attempt = Attempt(tmp_path / "2", resume=tmp_path / "gone.pt")
    said: list[str] = []
    loop.train(QUICK, attempt, said.append)
    assert [step for step, _ in attempt.reports()] == [1, 2, 3, 4]
    assert said[1].endswith("starting from the beginning")


def test_a_run_killed_after_its_last_checkpoint_reports_its_last_epoch_again(
    tmp_path: Path,
) -> None:
    """Attempt 2 has nothing to train, yet a value to show."""
    first = Attempt(tmp_path / "1")
    loop.train(QUICK, first, quiet)
    second = Attempt(tmp_path / "2", resume=checkpoint.find(first.folder)[0])
    assert loop.train(QUICK, second, quiet).ended == "finished"
    assert second.reports() == first.reports()[-1:]


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    """Going on with another learning rate would be neither run."""
    attempt = Attempt(tmp_path)
    loop.train(QUICK, attempt, quiet)
    changed = dataclasses.replace(QUICK, lr=0.5, resume=str(attempt.folder))
    with pytest.raises(InputError, match=r"lr: 0\.1 in the checkpoint, 0\.5 now"):
        loop.train(changed, Reporter({}), quiet)


def test_a_named_checkpoint_must_be_there(tmp_path: Path) -> None:
    """A mistyped --resume is an error, not a new run."""
    with pytest.raises(InputError, match="no such file or folder"):
        loop.train(dataclasses.replace(QUICK, resume=str(tmp_path / "x.pt")), Reporter({}), quiet)


def test_divergence_is_reported_as_nan_and_ends_the_run(tmp_path: Path) -> None:
    """Sweep decides what to make of it; the accuracy of NaN logits is no accuracy."""
    attempt = Attempt(tmp_path)
    result = loop.train(
        dataclasses.replace(QUICK, lr=1e30, momentum=0.99, batch_size=8), attempt, quiet
    )
    assert (result.ended, result.epochs) == ("diverged", 1)
    ((step, metrics),) = attempt.reports()
    assert (step, math.isnan(metrics["val_accuracy"])) == (1, True)


def test_alone_it_needs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside sweep and without --output nothing is written."""
    monkeypatch.chdir(tmp_path)
    loop.train(QUICK, Reporter({}), quiet)
    assert list(tmp_path.iterdir()) == []


def test_the_command_goes_on_from_its_output_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--resume auto takes the newest of --output."""
    argv = ["--output", str(tmp_path), "--width", "16", "--schedule", "constant"]
    assert command.main([*argv, "--epochs", "1"]) == 0
    assert command.main([*argv, "--epochs", "2", "--resume", "auto"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["epoch", "1/1"],
        ["best", lines[1].split()[1]],
        ["resumed", "from"],
        ["epoch", "2/2"],
        ["best", lines[4].split()[1]],
    ]


def test_the_test_set_is_measured_once_and_on_request_only(tmp_path: Path) -> None:
    """result.json appears with --test, and not without."""
    argv = ["--output", str(tmp_path), "--width", "16", "--epochs", "1"]
    assert command.main(argv) == 0
    assert not (tmp_path / "result.json").exists()
    assert command.main([*argv, "--test"]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert 0.1 < result["test_accuracy"] <= 1
    assert evaluate.main([str(tmp_path), "--output", str(tmp_path / "m.json")]) == 0
    assert json.loads((tmp_path / "m.json").read_text())["accuracy"] == result["test_accuracy"]


def test_a_missing_gpu_is_said_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """--device cuda without a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="torch sees no GPU here"):
        loop.train(dataclasses.replace(QUICK, device="cuda"), Reporter({}), quiet)


def test_a_full_disk_ends_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and no traceback."""

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint.os, "fsync", fail)
    assert command.main(["--output", str(tmp_path), "--epochs", "1", "--width", "16"]) == 1
    assert "No space left on device. Free some space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", [1.0, 1.0, 1.0, 1.0]),
        ("cosine", [1.0, 0.853553, 0.5, 0.146447]),
        ("one-cycle", [0.04, 0.935692, 0.811745, 0.283058]),
    ],
)
def test_schedules_follow_the_place_in_the_run(name: str, expected: list[float]) -> None:
    """Four steps of two epochs."""
    options = Options(lr=1.0, epochs=2, schedule=name)
    sampler = split.Sampler(2, 1, seed=0)
    got = []
    for sampler.epoch in (0, 1):
        for sampler.batch in (0, 1):
            got.append(round(optimizer.schedule(options, sampler), 6))
    assert got == expected


def test_the_light_optimizers_are_torchs_own(tmp_path: Path) -> None:
    """Leaving out the compiler's wrappers changes no number."""

    def descend(make: Any) -> list[float]:
        torch.manual_seed(0)
        network = torch.nn.Linear(3, 2)
        chosen = make(network.parameters())
        for _ in range(5):
            chosen.zero_grad()
            network(torch.ones(1, 3)).square().sum().backward()
            chosen.step()
        return network.weight.flatten().tolist()

    for kind, more in [
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (torch.optim.AdamW, {"weight_decay": 0.1}),
    ]:
        light = optimizer._start_lightly(kind)
        assert descend(lambda p, k=light, m=more: k(p, lr=0.05, fused=True, **m)) == descend(
            lambda p, k=kind, m=more: k(p, lr=0.05, fused=True, **m)
        )


@pytest.mark.parametrize(
    ("size", "layers", "expected"), [(28, 1, 3136), (28, 2, 1568), (28, 4, 128), (8, 3, 64)]
)
def test_the_cnn_halves_the_image_at_each_layer(size: int, layers: int, expected: int) -> None:
    """Inputs of the last linear layer: channels × what is left of the image."""
    options = Options(model="cnn", layers=layers)
    network = model.build(options, torch.Size((1, size, size)), 10, 0.0, 1.0)
    assert network.body[-1].in_features == expected
    assert tuple(network(torch.zeros(2, 1, size, size, dtype=torch.uint8)).shape) == (2, 10)


def test_a_cnn_too_deep_for_the_image_is_refused() -> None:
    """The message names the most that fits."""
    with pytest.raises(InputError, match="Take at most 3, or --model mlp"):
        model.build(Options(model="cnn", layers=4), torch.Size((1, 8, 8)), 10, 0.0, 1.0)


def test_measuring_counts_every_example_once() -> None:
    """Sums over uneven parts are divided once; rows of the confusion are true classes."""

    class Echo(torch.nn.Module):
        def forward(self, pixels: Any) -> Any:
            return torch.nn.functional.one_hot(pixels.flatten().long(), 3).float() * 100

    images = torch.tensor([0, 1, 2, 2] * 600, dtype=torch.uint8).view(-1, 1, 1, 1)
    labels = torch.tensor([0, 1, 2, 1] * 600)
    got = evaluate.measure(Echo(), split.Split(images, labels), classes=3)
    assert got == {
        "loss": 25.0,
        "accuracy": 0.75,
        "count": 2400,
        "confusion": [[600, 0, 0], [0, 600, 600], [0, 0, 600]],
    }
