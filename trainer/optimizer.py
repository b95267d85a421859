"""The optimiser and the course of its learning rate."""

from __future__ import annotations

import inspect
import math
from typing import TypeVar

import torch

from .config import Options
from .split import Sampler
from .stream import StreamSampler

Kind = TypeVar("Kind", bound=torch.optim.Optimizer)


def build_optimizer(options: Options, network: torch.nn.Module) -> torch.optim.Optimizer:
    """Return the optimiser; fused, because it is one pass over the weights on a CPU as on a GPU.

    Args:
        options: ``optimizer``, ``lr``, ``momentum``, ``nesterov``, ``weight_decay``.
        network: Its parameters are already on their device.
    """
    if options.optimizer == "adamw":
        return _start_lightly(torch.optim.AdamW)(
            network.parameters(), lr=options.lr, weight_decay=options.weight_decay, fused=True
        )
    return _start_lightly(torch.optim.SGD)(
        network.parameters(),
        lr=options.lr,
        momentum=options.momentum,
        # Without momentum Nesterov's is plain descent, but torch refuses the combination.
        nesterov=options.nesterov and options.momentum > 0,
        weight_decay=options.weight_decay,
        fused=True,
    )


def _start_lightly(kind: type[Kind]) -> type[Kind]:
    """Return the optimiser class without the wrappers that import torch's compiler.

    They only matter when the optimiser itself is compiled, which ours never is, and that import
    costs about two seconds of CPU: as much as all of torch's, and as a whole small trial. Where a
    torch has no such wrappers, ``unwrap`` changes nothing.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    plain = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), plain)


def schedule(options: Options, sampler: Sampler | StreamSampler) -> float:
    """Return the learning rate of the next step: a function of the place in the run alone.

    ``cosine`` falls from ``lr`` to 0 (Loshchilov and Hutter 2017, without restarts); ``one-cycle``
    rises from lr/25 for the first 30 %, then falls the same way (Smith and Topin 2018, with the
    constants of torch's OneCycleLR, except that it ends at 0).
    """
    total = options.epochs * sampler.batches
    done = (sampler.epoch * sampler.batches + sampler.batch) / total
    if options.schedule == "constant":
        return options.lr
    if options.schedule == "cosine":
        return options.lr * _fall(done)
    if done < 0.3:
        return options.lr * (1 - (1 - 1 / 25) * _fall(done / 0.3))
    return options.lr * _fall((done - 0.3) / 0.7)


def _fall(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))
