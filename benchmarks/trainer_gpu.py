"""Training speed on GPUs: the trainer against a plain PyTorch loop, and over several GPUs.

    python -m benchmarks.trainer_gpu --gpus 1,2 --output results.json

Measured in one run on the same card: samples a second of MNIST's CNN and of a ResNet-18 on
synthetic images of CIFAR's size, by the trainer as it is used for speed (bf16, CUDA graphs or
torch.compile, data on the device) and by a loop as a tutorial would write it (DataLoader with
workers, float32, no compilation). Both train the same network with the same optimiser, batch size
and number of epochs from the same weights' distribution, and both are measured on the same
validation images, so that speed is not bought with accuracy. With several GPUs torchrun starts one
process each; each has the batch that one GPU has (weak scaling), and the efficiency is
samples/s(n) / (n · samples/s(1)).

Printed: JSON on one line, then a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "mnist-cnn": {
        "model": "cnn",
        "layers": 3,
        "width": 32,
        "synthetic_pixels": 28,
        "synthetic_channels": 1,
        "lr": 0.05,
        "precision": "bf16",
        "compile": True,
        "cuda_graphs": True,
    },
    "resnet18": {
        "model": "resnet",
        "layers": 2,
        "width": 64,
        "synthetic_pixels": 32,
        "synthetic_channels": 3,
        "lr": 0.05,
        "precision": "bf16",
        "compile": True,
        "cuda_graphs": True,
    },
}


def build_options(case: str, batch: int, size: int, epochs: int, device: str, seed: int = 0) -> Any:
    """Return the trainer's options of a case.

    Args:
        case: A key of CASES.
        batch: Examples a step, over all ranks.
        size: Training examples.
        epochs: How many are trained; the first one is not timed.
        device: ``cuda`` or ``cpu``.
        seed: Of the weights and the order; the data stay the same.
    """
    from trainer.config import Options

    values = dict(CASES[case])
    if device == "cpu":  # for tests: what only a GPU is good for is left out
        values |= {"cuda_graphs": False, "compile": False, "width": 8, "layers": 1}
    return Options(
        data="synthetic",
        synthetic_size=size,
        batch_size=batch,
        epochs=epochs,
        device=device,
        deterministic=False,
        seed=seed,
        **values,
    )


def time_trainer(options: Any) -> dict[str, Any]:
    """Return samples/s, accuracy and memory of the trainer, measured in this process's rank."""
    import torch

    from trainer import data, hardware, loop
    from trainer.run import Run

    said: list[str] = []
    ranks = loop.meet(options)
    device = hardware.prepare(options, ranks.local_rank)
    run = Run(options, data.load(options).to(device), device, ranks, said.append)
    took_s = 0.0
    for epoch in range(options.epochs):
        _wait(device)
        started = time.perf_counter()
        run.begin_epoch()
        for index in run.sampler.rest_of_epoch(device):
            run.step(index)
        _wait(device)
        if epoch:  # the first one compiles and captures
            took_s += time.perf_counter() - started
        run.end_epoch()
    run.close()
    samples = (options.epochs - 1) * run.sampler.batches * run.sampler.batch_size
    found = {
        "samples_per_s": samples / took_s,
        "accuracy": run.best_accuracy,
        "gpus": ranks.world,
        "rank": ranks.rank,
        "memory_gb": _memory_gb(torch, device),
        "given_up": said,
    }
    ranks.leave()
    return found


def time_plain(options: Any, workers: int) -> dict[str, Any]:
    """Return samples/s and accuracy of a plain loop over the same data and network."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    from trainer import data, hardware, model
    from trainer.evaluate import measure

    class Images(Dataset):  # type: ignore[type-arg]
        """One example at a time, as floats, as a data set's class usually does."""

        def __init__(self, split: Any) -> None:
            self.split = split

        def __len__(self) -> int:
            return len(self.split)

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            return self.split.images[index].float(), self.split.labels[index]

    torch.manual_seed(options.seed)
    device = hardware.choose(options.device)
    loaded = data.load(options)
    network = model.build(options, loaded.train.shape, 10, loaded.mean, loaded.deviation)
    # PyTorch takes it, but no signature of its own says so.
    network = network.to(device, memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        network.parameters(), lr=options.lr, momentum=options.momentum, nesterov=True
    )
    loader = DataLoader(
        Images(loaded.train),
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )
    steps = options.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    loss_of = torch.nn.CrossEntropyLoss()
    took_s, samples, best = 0.0, 0, 0.0
    for epoch in range(options.epochs):
        network.train()
        _wait(device)
        started = time.perf_counter()
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(network(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            schedule.step()
            if epoch:
                samples += len(labels)
        _wait(device)
        if epoch:
            took_s += time.perf_counter() - started
        best = max(best, measure(network, loaded.validation.to(device))["accuracy"])
    return {"samples_per_s": samples / took_s, "accuracy": best}


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def _memory_gb(torch: Any, device: Any) -> float | None:
    return torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None


def start_ranks(case: str, gpus: int, given: argparse.Namespace, seed: int = 0) -> dict[str, Any]:
    """Run ``time_trainer`` in as many processes and return rank 0's numbers.

    Raises:
        SystemExit: They failed; their output has been shown.
    """
    command = (
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(gpus),
        ]
        if gpus > 1
        else [sys.executable]
    )
    part = [
        "-m",
        "benchmarks.trainer_gpu",
        "--one",
        case,
        "--batch",
        str(given.batch * gpus),
        "--size",
        str(given.size * gpus),
        "--epochs",
        str(given.epochs),
        "--device",
        given.device,
        "--seed",
        str(seed),
    ]
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    # Compiling takes longer than ranks usually wait for each other.
    clean.setdefault("SWEEP_DDP_TIMEOUT_S", "300")
    done = subprocess.run([*command, *part], capture_output=True, text=True, env=clean)
    if done.returncode:
        sys.exit(f"{case} on {gpus} GPUs failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def describe_machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    return {
        "card": card or platform.machine(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cpus": os.cpu_count(),
    }


def show_mean(values: list[float]) -> str:
    """Return the mean, with its standard error where there are several values."""
    mean = f"{statistics.mean(values):.4f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.4f}"


def table(results: dict[str, Any]) -> str:
    """Return the results as a table in Markdown."""
    machine = results["machine"]
    lines = [
        f"{machine['card']}, torch {machine['torch']}, CUDA {machine['cuda']}; batch "
        f"{results['batch']} a GPU, {results['epochs']} epochs of {results['size']} images a GPU, "
        "the first not timed.",
        "",
        "| Case | GPUs | samples/s | against the plain loop | weak-scaling efficiency | accuracy "
        "(plain) |",
        "|---|---|---|---|---|---|",
    ]
    for case, found in results["cases"].items():
        plain = found["plain"]
        for each in found["trainer"]:
            efficiency = each.get("efficiency")
            ratio = each["samples_per_s"] / plain["samples_per_s"]
            lines.append(
                f"| {case} | {each['gpus']} | {each['samples_per_s']:,.0f} "
                f"| {f'{ratio:.1f} x' if each['gpus'] == 1 else ''} "
                f"| {f'{efficiency:.3f}' if efficiency else ''} "
                f"| {show_mean(each.get('accuracies') or [each['accuracy']])} "
                f"({show_mean(plain['accuracies'])}) |"
            )
        lines.append(
            f"| {case}, plain loop | 1 | {plain['samples_per_s']:,.0f} | | | "
            f"{show_mean(plain['accuracies'])} |"
        )
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trainer_gpu", description="Training speed on GPUs."
    )
    parser.add_argument("--gpus", default="1", help="numbers of GPUs, with commas (default: 1)")
    parser.add_argument("--cases", default=",".join(CASES), help="(default: all)")
    parser.add_argument("--batch", type=int, default=512, help="examples a step and GPU")
    parser.add_argument("--size", type=int, default=50000, help="training images a GPU")
    parser.add_argument("--epochs", type=int, default=4, help="the first is not timed; at least 2")
    parser.add_argument("--workers", type=int, default=4, help="of the plain loop's DataLoader")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--output", type=Path, help="write the JSON there as well")
    parser.add_argument(
        "--seeds",
        type=int,
        default=1,
        help="runs of each on one GPU, whose accuracies are averaged (default: 1)",
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)  # one case, in this process
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.epochs < 2:
        parser.error("--epochs: at least 2, the first is not timed")
    if given.one:
        options = build_options(
            given.one, given.batch, given.size, given.epochs, given.device, given.seed
        )
        found = time_trainer(options)
        if found.pop("rank") == 0:
            print(json.dumps(found), flush=True)
        return 0
    results: dict[str, Any] = {
        "machine": describe_machine(),
        "batch": given.batch,
        "size": given.size,
        "epochs": given.epochs,
        "cases": {},
    }
    for case in given.cases.split(","):
        runs = [start_ranks(case, int(count), given) for count in given.gpus.split(",")]
        plain = [
            time_plain(
                build_options(case, given.batch, given.size, given.epochs, given.device, seed),
                given.workers,
            )
            for seed in range(given.seeds)
        ]
        for each in runs:
            if each["gpus"] == 1:
                others = [start_ranks(case, 1, given, seed) for seed in range(1, given.seeds)]
                each["accuracies"] = [one["accuracy"] for one in (each, *others)]
        alone = next((each["samples_per_s"] for each in runs if each["gpus"] == 1), None)
        for each in runs:
            if alone and each["gpus"] > 1:
                each["efficiency"] = each["samples_per_s"] / (each["gpus"] * alone)
        results["cases"][case] = {
            "trainer": runs,
            "plain": {
                "samples_per_s": statistics.median(one["samples_per_s"] for one in plain),
                "accuracies": [one["accuracy"] for one in plain],
            },
        }
    text = json.dumps(results)
    print(text)
    print(table(results))
    if given.output:
        given.output.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
