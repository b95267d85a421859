"""What the names of a script's options mean: worth varying, how long, a seed, a place for files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from sweep.studyfile.starter.flags import Flag

# What the names of flags mean. Names are compared in lower case, with "_" for "-".
_EFFORT = re.compile(r"((num|n|max|total|train)_)*(epochs?|steps|iterations|iters|updates|rounds)")
_NOT_VARIED = re.compile(
    r".*(device|data|dataset|mode|precision|backend|dist|log|level|dtype|format|split|task|gpu|"
    r"strategy|path|dir|file|eval|test|metric|monitor).*"
)
_EVALUATION = re.compile(r"(^|_)(eval|evaluation|test|val|valid|infer|inference|sample)(_|$)")
# Bounds of a schedule, which follow from the learning rate.
_SCHEDULE = re.compile(r"(min|final|end|warmup|init)_(lr|learning_rate)")
# Groups of a configuration that say nothing of how the model is trained.
_GROUPS = {
    *("callbacks", "callback", "logger", "loggers", "logging", "paths", "extras", "hydra", "wandb"),
    *("test", "eval", "evaluation", "val", "validation", "early_stopping", "profiler"),
}
_NAMED_DEPTH = 18  # from here on depths are those of architectures: ResNet-50
_YES_OR_NO = ({"true", "false"}, {"0", "1"}, {"yes", "no"}, {"on", "off"})
_PLACES = (
    (re.compile(r"((random|manual|rng)_)?(seed|random_state)|seed_everything"), "{seed}"),
    (
        re.compile(r"(checkpoint|ckpt|save)s?_?(dir|folder)|save_(path|to)|checkpoints"),
        "{checkpoint_dir}",
    ),
    (
        re.compile(
            r"out|output|(out|output|log|run|exp|work|results?|default_root|logging)_?(dir|path|folder)"
        ),
        "{trial_dir}",
    ),
    (
        re.compile(
            r"resume(_(from(_checkpoint)?|path|ckpt|checkpoint))?|(load|from)_(checkpoint|ckpt)|"
            r"(checkpoint|ckpt)(_(path|file))?|restore(_(from|path))?|load_from"
        ),
        "{resume}",
    ),
)
# Where the library writes its checkpoints into the folder of its outputs.
_SAVES_IN_OUTPUT = ("HfArgumentParser", "its globals")


def _plain(flag: Flag) -> str:
    return flag.name.lower().replace("-", "_").rpartition(".")[2]


def is_effort(flag: Flag) -> bool:
    """Tell whether a flag says how long to train: a study fixes it."""
    return _EFFORT.fullmatch(_plain(flag)) is not None


def find_place(flag: Flag, library: str) -> str | None:
    """Return the placeholder that belongs to a flag: the seed, a folder, a checkpoint; else None.

    Args:
        library: What makes the flags.
    """
    for names, place in _PLACES:
        if not names.fullmatch(_plain(flag)):
            continue
        if place == "{resume}" and (flag.required or flag.default not in (None, "", "None")):
            return None  # a file of the user's own, which no folder of ours replaces
        if place == "{trial_dir}" and library in _SAVES_IN_OUTPUT:
            return "{checkpoint_dir}"
        return place
    return None


def guess_parameter(flag: Flag) -> dict[str, Any] | None:
    """Return the range or choices worth trying for a flag, or None where its name says nothing."""
    name = _plain(flag)
    groups = set(flag.name.lower().split(".")[:-1])
    if _EVALUATION.search(name) or _SCHEDULE.fullmatch(name) or groups & _GROUPS:
        return None
    if name == "width" and groups & {"data", "input", "dataset", "image"}:  # of images
        return None
    if flag.choices:
        if None in flag.choices:  # which no command line can say
            return None
        is_switch = {str(choice).lower() for choice in flag.choices} in _YES_OR_NO
        is_other = _NOT_VARIED.fullmatch(name) or _EFFORT.fullmatch(name)
        if is_switch or is_other or len(flag.choices) < 2:
            return None
        return {"type": "categorical", "choices": list(flag.choices)}
    if flag.type not in ("int", "float", ""):
        return None
    default = flag.default if isinstance(flag.default, int | float) else None
    if name.endswith("depth") and default and default >= _NAMED_DEPTH:
        return None
    for names, guess in _GUESSES:
        if names.fullmatch(name):
            return guess(default)
    return None


def _round(value: float) -> float:
    """Return a value with one significant digit."""
    return float(f"{value:.0e}")


def _around(low: float, high: float) -> Callable[[float | None], dict[str, Any]]:
    """Guess a logarithmic range: a decade on both sides of the default, else the given one; from
    a default of 0 an even one."""

    def guess(default: float | None) -> dict[str, Any]:
        bounds = (low, high)
        if default == 0:  # which no logarithmic range holds
            return {"type": "float", "low": 0.0, "high": high}
        if default and default > 0:
            bounds = (_round(default / 10), _round(default * 10))
        return {"type": "float", "low": bounds[0], "high": bounds[1], "log": True}

    return guess


def _between(low: float, high: float) -> Callable[[float | None], dict[str, Any]]:
    def guess(default: float | None) -> dict[str, Any]:
        return {"type": "float", "low": min(low, default or 0.0), "high": max(high, default or 0.0)}

    return guess


def _doublings(usual: int) -> Callable[[float | None], dict[str, Any]]:
    """Guess half of the default, the default and its double."""

    def guess(default: float | None) -> dict[str, Any]:
        if default and 1 <= default < 2:
            return {"type": "categorical", "choices": [1, 2, 4]}
        middle = int(default) if default and default >= 2 else usual
        return {"type": "categorical", "choices": [middle // 2, middle, middle * 2]}

    return guess


def _count(default: float | None) -> dict[str, Any]:
    high = max(4, 2 * math.ceil(abs(default or 2)))
    return {"type": "int", "low": 1, "high": high}


_GUESSES: tuple[tuple[re.Pattern[str], Callable[[float | None], dict[str, Any]]], ...] = (
    (re.compile(r"lr|learning_rate|(\w+_)(lr|learning_rate)|lr0"), _around(1e-4, 1e-1)),
    (re.compile(r"weight_decay|wd|l2(_reg)?|l1(_reg)?"), _around(1e-6, 1e-2)),
    (re.compile(r"(\w+_)?batch(_size)?|bs"), _doublings(64)),
    (re.compile(r"(\w+_)?drop(out|_rate|_prob|path|_path)?(_rate|_prob|_p)?"), _between(0.0, 0.5)),
    (re.compile(r"momentum"), _between(0.0, 0.99)),
    (re.compile(r"(label_)?smoothing"), _between(0.0, 0.2)),
    (re.compile(r"((num|n)_?)?(hidden_)?(layers?|blocks)|(max_)?depth"), _count),
    (
        re.compile(
            r"((num|n)_)?hidden(_(size|dim|units|features))?|n_?hid|em_?size|width|d_model|"
            r"(\w+_)?(embed|embedding|emb|model)_?(dim|size)|((num|n)_)?(units|channels|filters)"
        ),
        _doublings(128),
    ),
)
