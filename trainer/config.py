"""The trainer's parameters: declared once, read from a flat file and from the command line.

Flags beat the file, the file beats ``$SWEEP_SEED``, that beats the defaults (``RECIPES`` first).
Everything that is wrong is reported at once. No torch here, so that ``--help`` and mistakes answer
at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .convert import Every, convert
from .failures import InputError
from .flat_file import read_config


def _option(default: Any, kind: type, text: str, **rules: Any) -> Any:
    """Declare one parameter; rules are ``choices``, ``low``, ``above``, ``high`` and ``below``."""
    return field(default=default, metadata={"kind": kind, "help": text, **rules})


@dataclass(frozen=True)
class Options:
    """One training run, complete: what ``loop.train`` needs and what a checkpoint records."""

    data: str = _option(
        "digits",
        str,
        "data set",
        choices=(
            *("digits", "mnist", "fashion-mnist", "cifar10", "shards", "images", "parquet"),
            "synthetic",
        ),
    )
    data_dir: str = _option(
        "",
        str,
        "folder of the data files (default: $SWEEP_DATA, else ./data); "
        "the files lie there or in its subfolder of the data set's name; shards: train-*.tar; "
        "images: a folder for each class, perhaps within train, val and test",
    )
    stream: bool = _option(
        False,
        bool,
        "read shards, images and Parquet while training, never whole into memory; the order of "
        "examples is another one, of some shards at a time",
    )
    workers: int = _option(
        2, int, "processes of each rank that read and decode (with --stream)", low=0, high=1024
    )
    image_size: int = _option(
        0,
        int,
        "height and width of images and Parquet (and of shards with --stream): scaled and cut to "
        "it; 0: as they are",
        low=0,
        high=4096,
    )
    model: str = _option(
        "auto",
        str,
        "network; auto: mlp for digits, resnet for cifar10, else cnn",
        choices=("auto", "mlp", "cnn", "resnet"),
    )
    lr: float = _option(0.05, float, "learning rate", above=0)
    batch_size: int = _option(64, int, "examples a step, over all ranks", low=1)
    layers: int = _option(
        2,
        int,
        "hidden layers (mlp), convolutions (cnn), or blocks of each of the four stages "
        "(resnet; 2 makes ResNet-18)",
        low=1,
        high=64,
    )
    width: int = _option(
        0,
        int,
        "units of a hidden layer or channels of the first convolution; "
        "0: 256 (mlp), 16 (cnn), 64 (resnet)",
        low=0,
        high=65536,
    )
    norm: str = _option(
        "batch",
        str,
        "normalisation of the resnet; group: the same numbers on any number of ranks",
        choices=("batch", "group"),
    )
    dropout: float = _option(0.0, float, "dropout probability", low=0, below=1)
    optimizer: str = _option("sgd", str, "optimiser", choices=("sgd", "adamw"))
    momentum: float = _option(0.9, float, "momentum (sgd only)", low=0, below=1)
    nesterov: bool = _option(True, bool, "Nesterov's momentum (sgd only)")
    weight_decay: float = _option(0.0, float, "weight decay", low=0)
    schedule: str = _option(
        "cosine",
        str,
        "course of the learning rate, step by step",
        choices=("constant", "cosine", "one-cycle"),
    )
    label_smoothing: float = _option(0.0, float, "label smoothing", low=0, below=1)
    augment: str = _option(
        "none",
        str,
        "random changes of training images: shifted by up to 2 pixels (4 of 32 and "
        "more, 1 of fewer than 16), or shifted and mirrored",
        choices=("none", "crop", "crop-flip"),
    )
    epochs: int = _option(5, int, "passes over the training data", low=1, high=9999)
    seed: int = _option(
        0,
        int,
        "seed of weights, order and dropout (default: $SWEEP_SEED, else 0)",
        low=0,
        below=2**63,
    )
    split_seed: int = _option(
        0,
        int,
        "seed of the train/validation/test split; all trials of a study share it",
        low=0,
        below=2**63,
    )
    train_fraction: float = _option(
        1.0, float, "part of the training data to use, to be quick", above=0, high=1
    )
    synthetic_size: int = _option(
        10000, int, "training examples of the synthetic data set", low=10, high=10**9
    )
    synthetic_pixels: int = _option(
        28, int, "height and width of synthetic images", low=4, high=1024
    )
    synthetic_channels: int = _option(1, int, "channels of synthetic images", low=1, high=64)
    device: str = _option("auto", str, "where to train", choices=("auto", "cpu", "cuda"))
    threads: int = _option(
        0,
        int,
        "CPU threads; 0: $SWEEP_CPUS, else $SLURM_CPUS_PER_TASK, else 1. "
        "Another number of threads can change the last bits of a result",
        low=0,
        high=4096,
    )
    deterministic: bool = _option(True, bool, "same seed, same numbers; slower on a GPU")
    precision: str = _option(
        "float32",
        str,
        "numbers of the forward pass; weights stay float32",
        choices=("float32", "bf16"),
    )
    channels_last: bool = _option(True, bool, "the memory layout that convolutions like best")
    compile: bool = _option(False, bool, "torch.compile the network; where that fails, says so")
    cuda_graphs: bool = _option(
        False, bool, "replay each step as one CUDA graph; where that fails, says so"
    )
    parallel: str = _option(
        "auto",
        str,
        "none: one device; ddp: one process a device, started by torchrun or srun; "
        "fsdp: likewise, with weights and optimizer divided among them and saved in shards; "
        "dp: several GPUs in one process, slower than ddp; auto: ddp where several were started",
        choices=("auto", "none", "dp", "ddp", "fsdp"),
    )
    profile: bool = _option(
        False,
        bool,
        "report where the time goes: samples_per_s, share_compute, "
        "share_communication, share_data, memory_gb (default: $SWEEP_PROFILE, else false)",
    )
    checkpoint_every: int | str = _option(
        1, Every, "epochs between checkpoints, or a time such as 5min; 0: only when asked to stop"
    )
    resume: str = _option(
        "", str, "checkpoint to go on from; auto: the newest of --output (default: $SWEEP_RESUME)"
    )
    output: str = _option(
        "",
        str,
        "folder for checkpoints (default: $SWEEP_CHECKPOINT_DIR, which wins, else none) "
        "and for result.json with --test",
    )
    test: bool = _option(
        False, bool, "measure the test set once, after training; never while searching"
    )


# How a run is carried out, not what it computes: these may differ when a run is resumed. More
# epochs prolong a run, which only makes sense (and is only let through) at a constant rate.
CARRIED_OUT_BY = frozenset(
    {
        "data_dir",
        "device",
        "threads",
        "workers",
        "channels_last",
        "compile",
        "cuda_graphs",
        "parallel",
        "profile",
        "checkpoint_every",
        "resume",
        "output",
        "test",
    }
)
# Defaults of a data set and network that differ from the general ones; whatever is given beats
# them. Without any option MNIST comes to 99.4 % of the test images.
RECIPES: dict[tuple[str, str], dict[str, Any]] = {
    ("mnist", "cnn"): {"layers": 3, "width": 32, "dropout": 0.2, "augment": "crop", "epochs": 12}
}

EXAMPLES = f"""\
examples:
  python -m {__package__}.train --data digits --lr 0.1
  python -m {__package__}.train --data digits --optimizer adamw --lr 0.01 --output runs/alone
  python -m {__package__}.train --data digits --optimizer adamw --lr 0.01 --output runs/alone --resume auto
  python -m {__package__}.data fetch mnist && python -m {__package__}.train --data mnist --test
  python -m {__package__}.train --data mnist --precision bf16 --compile --cuda-graphs \\
    --deterministic false                  # what a GPU is fastest with
  torchrun --standalone --nproc-per-node 2 -m {__package__}.train --data digits
  python -m {__package__}.train --config config.yaml --epochs 5

The config file holds flat `name: value` lines, or one JSON object. Flags beat the file.
"""  # noqa: E501


def build_parser(prog: str = f"python -m {__package__}.train") -> argparse.ArgumentParser:
    """Return the command line of the trainer; flags that were not given are absent."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Train a small classifier, alone or as a trial of sweep.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", metavar="FILE", help="flat YAML or JSON file of parameters")
    for each in fields(Options):
        rules = each.metadata
        text = rules["help"]
        special = [
            f"{recipe[each.name]} for the {model} on {data}"
            for (data, model), recipe in RECIPES.items()
            if each.name in recipe
        ]
        if "default:" not in text and each.default != "":
            text += f" (default: {', '.join([json.dumps(each.default).strip(chr(34)), *special])})"
        shape: dict[str, Any] = {"metavar": rules["kind"].__name__.upper()}
        if "choices" in rules:
            shape["metavar"] = "|".join(rules["choices"])
        if rules["kind"] is bool:
            shape = {"nargs": "?", "const": "true", "metavar": "true|false"}
        parser.add_argument(_flag(each.name), help=text.replace("%", "%%"), **shape)
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def parse(argv: list[str], environ: dict[str, str] | None = None) -> Options:
    """Return the options of a command line and the config file that it names.

    Args:
        argv: The arguments after the program's name; ``--batch_size`` and ``--batch-size`` mean
            the same.
        environ: The environment; ``SWEEP_SEED`` and ``SWEEP_PROFILE`` hold where nothing else does.

    Raises:
        InputError: Unknown names, values of the wrong kind or out of range: all in one text.
        SystemExit: ``--help`` was asked for, or a flag lacks its value.
    """
    environ = dict(os.environ) if environ is None else environ
    parser = build_parser()
    given, unknown = parser.parse_known_args([_with_dashes(each) for each in argv])
    flags = vars(given)
    problems = [_unknown_flag(each) for each in unknown]
    values: dict[str, Any] = {}
    if environ.get("SWEEP_SEED"):
        values["seed"] = convert(_RULES["seed"], environ["SWEEP_SEED"], "$SWEEP_SEED", problems)
    if environ.get("SWEEP_PROFILE"):
        values["profile"] = convert(
            _RULES["profile"], environ["SWEEP_PROFILE"], "$SWEEP_PROFILE", problems
        )
    if "config" in flags:
        path = Path(flags.pop("config"))
        for name, value in read_config(path).items():
            key = name.replace("-", "_")
            if key not in _RULES:
                problems.append(f"{path}: {name}: is no parameter of the trainer. {_advice(key)}")
            elif value is not None:
                values[key] = convert(_RULES[key], value, f"{path}: {name}", problems)
    for name, value in flags.items():
        values[name] = convert(_RULES[name], value, _flag(name), problems)
    if problems:
        raise InputError("\n".join(problems))
    model = values.get("model", "auto")
    recipe = RECIPES.get((values.get("data", ""), "cnn" if model == "auto" else model), {})
    return Options(**{**recipe, **values})


def from_record(record: dict[str, Any], **changes: Any) -> Options:
    """Return the options that a checkpoint recorded, with changes."""
    return Options(**{k: v for k, v in {**record, **changes}.items() if k in _RULES})


def differences(now: Options, record: dict[str, Any]) -> list[str]:
    """Return what hinders going on from a checkpoint with these options, as ``name: was → is``."""
    was = dataclasses.asdict(from_record(record))
    found = []
    for name, value in dataclasses.asdict(now).items():
        longer = name == "epochs" and now.schedule == "constant"
        if value != was[name] and name not in CARRIED_OUT_BY and not longer:
            found.append(f"{name}: {was[name]} in the checkpoint, {value} now")
    return found


def _with_dashes(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def _unknown_flag(argument: str) -> str:
    if not argument.startswith("-"):
        return f"{argument}: the trainer takes flags only. See --help."
    name = argument.lstrip("-").partition("=")[0].replace("-", "_")
    return f"{argument.partition('=')[0]}: is no flag of the trainer. {_advice(name, '--')}"


def _advice(name: str, dashes: str = "") -> str:
    found = get_close_matches(name, _RULES, n=1, cutoff=0.5)
    if not found:
        return "The parameters are " + ", ".join(_RULES) + "."
    return f"Did you mean {_flag(found[0]) if dashes else found[0]}?"


_RULES: dict[str, Any] = {each.name: each.metadata for each in fields(Options)}
