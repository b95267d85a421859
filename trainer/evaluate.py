"""Loss and accuracy of a network on a split; as a command, of a checkpoint.

    python -m trainer.evaluate CHECKPOINT [--split validation|test] [--output metrics.json]
                               [--picture confusion.png]

The command is how a study's winner meets the test set: once, after the search.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from sweep.report import Reporter

from . import checkpoint, confusion, data, hardware, model
from .config import InputError, Options, from_record
from .failures import RanksError
from .ranks import ALONE, Ranks, join
from .split import Split
from .stream import Streamed

# Examples of one forward pass; only speed depends on it, and the last bits of the loss.
_AT_ONCE = 1000


@torch.inference_mode()
def measure(
    network: nn.Module, split: Split | Streamed, classes: int = 10, ranks: Ranks = ALONE
) -> dict[str, Any]:
    """Return ``loss``, ``accuracy``, ``count`` and ``confusion`` (rows: true classes) on a split.

    Sums are taken over all examples and divided once, so that no split of the work into parts
    (batches, ranks) weighs an example twice: each rank takes every world-th example, and none is
    repeated to make the parts even. A loss that is not finite makes the accuracy NaN as well: the
    winner among NaN logits means nothing.
    """
    network.eval()
    device = split.device
    # The sums in one tensor, and one exchange: 64-bit floats hold whole numbers up to 2^53.
    sums = torch.zeros(1 + classes * classes, dtype=torch.float64, device=device)
    cell = torch.arange(classes * classes, device=device)
    # All ranks pass through the network as often as rank 0, which has the most: where its weights
    # are divided among them, a pass is an exchange.
    for part in split.parts(ranks.rank, ranks.world, _AT_ONCE):
        labels = part.labels
        if not len(labels):
            network(torch.zeros(1, *split.shape, dtype=torch.uint8, device=device))
            continue
        logits = network(part.images)
        sums[0] += functional.cross_entropy(logits, labels, reduction="sum").double()
        cells = labels * classes + logits.argmax(1)
        # A comparison instead of bincount, which is not deterministic on a GPU.
        sums[1:] += (cells[:, None] == cell).sum(0)
    loss, *counts = ranks.sum(sums).tolist()
    table = [
        [int(n) for n in counts[row * classes : (row + 1) * classes]] for row in range(classes)
    ]
    mean = loss / len(split)
    right = sum(table[each][each] for each in range(classes)) / len(split)
    accuracy = right if mean - mean == 0 else float("nan")
    return {"loss": mean, "accuracy": accuracy, "count": len(split), "confusion": table}


def load_state(path: Path) -> tuple[dict[str, Any], Path]:
    """Return the state of a checkpoint, or of a folder's newest, and the file it came from.

    Raises:
        InputError: No readable checkpoint there.
    """
    found = checkpoint.load_newest(path, say=lambda line: print(line, file=sys.stderr))
    if found is None:
        raise InputError(f"{path}: no readable checkpoint.")
    return found


def load_network(
    path: Path, ranks: Ranks = ALONE, **changes: Any
) -> tuple[nn.Module, data.Data, Options, dict[str, Any]]:
    """Return the network of a checkpoint (or of a folder's newest), its data, options and state.

    Args:
        path: A checkpoint or a folder of them.
        ranks: The processes of this evaluation; rank 0 reads the file.
        changes: Options that differ from the recorded ones: where the data lies, the device.

    Raises:
        InputError: No readable checkpoint there, or its data set cannot be loaded.
    """
    state, _ = ranks.share(lambda: load_state(path))
    options = from_record(state["options"], **changes)
    device = hardware.prepare(options, ranks.local_rank)
    loaded = data.load(options, with_test=True).to(device)
    network = model.build(
        options, loaded.train.shape, loaded.classes, loaded.mean, loaded.deviation
    )
    network.load_state_dict(state["model"])
    return network.to(device), loaded, options, state


def build_parser() -> argparse.ArgumentParser:
    """Return the command line of ``python -m trainer.evaluate``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.evaluate",
        description="Measure a checkpoint on a split, with one process or several (torchrun).",
        epilog=f"example: python -m {__package__}.evaluate runs/alone --split test "
        "--output metrics.json --picture confusion.png",
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint, or a folder: its newest")
    parser.add_argument(
        "--split", choices=("validation", "test"), default="test", help="(default: test)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the metrics as JSON")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE.png", help="draw the confusion matrix"
    )
    parser.add_argument("--data-dir", help="folder of the data files, for this call")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to measure (default: auto)",
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``python -m trainer.evaluate``; return its exit code."""
    given = build_parser().parse_args(argv)
    changes = {"data_dir": given.data_dir} if given.data_dir else {}
    return guard(lambda: _measure_command(given, changes))


def _measure_command(given: argparse.Namespace, changes: dict[str, Any]) -> None:
    ranks = join("auto", hardware.choose(given.device).type == "cuda")
    network, loaded, _, state = load_network(
        given.checkpoint, ranks, device=given.device, **changes
    )
    split = loaded.test if given.split == "test" else loaded.validation
    assert split is not None
    found = measure(network, split, loaded.classes, ranks)
    metrics = {"split": given.split, "epoch": state["epoch"], **found}
    if ranks.rank == 0:
        # What a run of sweep's shows; nothing outside of it.
        Reporter().log(
            step=state["epoch"],
            metrics={f"{given.split}_{name}": found[name] for name in ("accuracy", "loss")},
        )
        if given.output:
            given.output.write_text(json.dumps(metrics) + "\n", encoding="utf-8")
        if given.picture:
            confusion.draw(found["confusion"], given.picture)
        print(
            f"{given.split}_accuracy={found['accuracy']:.4f} {given.split}_loss="
            f"{found['loss']:.4f} ({found['count']} images, after {state['epoch']} epochs)"
        )
    ranks.leave()


def guard(work: Callable[[], None]) -> int:
    """Do the work of a command; return its exit code after saying what went wrong."""
    try:
        work()
    except InputError as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 2
    except (OSError, RanksError) as error:
        print(f"trainer: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
