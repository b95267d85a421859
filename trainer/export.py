"""A checkpoint's network in formats that need no trainer: weights, torch.export and ONNX.

    python -m trainer.export CHECKPOINT --output DIR [--formats pt,pt2,onnx]

Each must give the network's own outputs (ONNX in onnxruntime) before it gets its name. The network
takes pixels as they are stored (unsigned bytes) and normalises them itself.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import model
from .config import Options, from_record
from .evaluate import guard, load_state
from .failures import InputError

# Another runtime sums in another order: some thousand terms of float32 differ by about 1e-5.
TOLERANCE = 1e-4
# Images of the comparison; another number than the example's, so that a fixed batch shows.
_CHECKED = 5


class Differs(InputError):
    """An exported file does not compute what the network does."""


def rebuild(state: dict[str, Any]) -> tuple[nn.Module, Options]:
    """Return the network of a checkpoint, on the CPU and ready to answer, without its data set."""
    options = from_record(state["options"])
    mean, deviation = state["pixels"]
    network = model.build(options, torch.Size(state["shape"]), state["classes"], mean, deviation)
    network.load_state_dict(state["model"])
    # Weights in the plain layout: exporters would otherwise write the other one's strides down.
    return network.to(memory_format=torch.contiguous_format).eval(), options  # type: ignore[call-overload]


def describe(state: dict[str, Any], source: Path) -> dict[str, Any]:
    """Return what a reader of the weights needs to know, as plain data."""
    return {
        "input": {"type": "uint8", "shape": ["n", *state["shape"]]},
        "output": {"type": "float32", "shape": ["n", state["classes"]], "meaning": "logits"},
        "options": state["options"],
        "epoch": state["epoch"],
        "metrics": state["metrics"],
        "checkpoint": source.name,
        "torch": str(torch.__version__),
    }


def export(
    state: dict[str, Any],
    source: Path,
    folder: Path,
    formats: list[str],
    say: Callable[[str], object] = print,
) -> list[Path]:
    """Write the network in the given formats and compare each file's outputs with the network's.

    Args:
        state: Of a checkpoint.
        source: The file that it came from.
        folder: Gets ``model.pt``, ``model.pt2`` and ``model.onnx``; made if missing.
        formats: Of ``pt``, ``pt2`` and ``onnx``.
        say: Gets one line a file.

    Raises:
        InputError: A package for a format is not installed.
        Differs: A file's outputs are not the network's; the file is removed.
        OSError: A file cannot be written.
    """
    network, _ = rebuild(state)
    about = describe(state, source)
    source_of_pixels = torch.Generator().manual_seed(0)
    shape = tuple(state["shape"])
    pixels = torch.randint(256, (_CHECKED, *shape), generator=source_of_pixels).to(torch.uint8)
    with torch.inference_mode():
        expected = network(pixels)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for kind in formats:
        target = folder / f"model.{kind}"
        part = folder / f".{os.getpid()}.model.{kind}"  # the ending says the format to torch
        try:
            got = _WRITERS[kind](network, about, pixels, part)
            apart = float((got - expected).abs().max())
            if not apart <= TOLERANCE * max(1.0, float(expected.abs().max())):
                raise Differs(
                    f"{target}: its outputs differ from the network's by {apart:.2g}; not written."
                )
            os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        say(f"{target}: {target.stat().st_size / 1e6:.2f} MB, outputs within {apart:.1g}")
        written.append(target)
    return written


def _write_pt(network: nn.Module, about: dict[str, Any], pixels: Tensor, path: Path) -> Tensor:
    torch.save({"model": network.state_dict(), "about": about}, path)
    read = torch.load(path, weights_only=True)
    options = from_record(read["about"]["options"])
    # Built anew from what the file says; mean and deviation are among the weights.
    again = model.build(
        options,
        torch.Size(read["about"]["input"]["shape"][1:]),
        read["about"]["output"]["shape"][1],
        0.0,
        1.0,
    )
    again.load_state_dict(read["model"])
    with torch.inference_mode():
        return again.eval()(pixels)


def _write_pt2(network: nn.Module, about: dict[str, Any], pixels: Tensor, path: Path) -> Tensor:
    batch = torch.export.Dim("batch")
    program = torch.export.export(network, (pixels[:2],), dynamic_shapes=({0: batch},))
    torch.export.save(program, path, extra_files={"about.json": json.dumps(about)})
    with torch.inference_mode():
        return torch.export.load(path).module()(pixels)


def _write_onnx(network: nn.Module, about: dict[str, Any], pixels: Tensor, path: Path) -> Tensor:
    # torch's exporter is built on the first two, and its check runs in the third.
    missing = [
        name
        for name in ("onnx", "onnxscript", "onnxruntime")
        if importlib.util.find_spec(name) is None
    ]
    if missing:
        raise InputError(
            f"ONNX needs {', '.join(missing)}. Install with "
            f"`pip install {' '.join(missing)}`, or leave onnx out of --formats."
        )
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        program = torch.onnx.export(
            network,
            (pixels[:2],),
            input_names=["pixels"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # it is with dynamo
    program.model.metadata_props["about"] = json.dumps(about)
    program.save(path, external_data=False)
    # Calling the program runs it in onnxruntime.
    (logits,) = program(pixels)
    return logits


_WRITERS: dict[str, Callable[[nn.Module, dict[str, Any], Tensor, Path], Tensor]] = {
    "pt": _write_pt,
    "pt2": _write_pt2,
    "onnx": _write_onnx,
}


def _formats(text: str) -> list[str]:
    found = [each.strip() for each in text.split(",") if each.strip()]
    unknown = [each for each in found if each not in _WRITERS]
    if unknown or not found:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(_WRITERS)} (got {text})")
    return found


def main(argv: list[str] | None = None) -> int:
    """Run ``python -m trainer.export``; return its exit code."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.export",
        description="Write a checkpoint's network for use.",
        epilog=f"example: python -m {__package__}.export runs/alone --output exported "
        "--formats pt,onnx",
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint, or a folder: its newest")
    parser.add_argument(
        "--output", type=Path, default=Path("exported"), metavar="DIR", help="(default: exported)"
    )
    parser.add_argument(
        "--formats",
        type=_formats,
        default=list(_WRITERS),
        metavar="LIST",
        help="of pt, pt2 and onnx, with commas (default: all)",
    )
    given = parser.parse_args(argv)

    def work() -> None:
        state, source = load_state(given.checkpoint)
        export(state, source, given.output, given.formats)

    return guard(work)


if __name__ == "__main__":
    sys.exit(main())
