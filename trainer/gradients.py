"""The mean of the ranks' gradients in one exchange: what a captured step takes instead of DDP.

DDP's hooks start one exchange a bucket while the gradients are still made. A compiled network makes
them all at once, at the end, so nothing would overlap; one exchange of one buffer is then faster.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class Mean:
    """Replaces gradients by their mean over all ranks.

    Args:
        parameters: The same in all ranks, in the same order, on one device.
        kind: Of the numbers that travel: float32, or bfloat16 (half as many bytes), which loses
            little where a bfloat16 network made the gradients.
        world: Number of ranks.
    """

    def __init__(self, parameters: Iterable[Tensor], kind: torch.dtype, world: int) -> None:
        self._parameters = list(parameters)
        self._world = world
        first = self._parameters[0]
        size = sum(each.numel() for each in self._parameters)
        self._buffer = torch.zeros(size, dtype=kind, device=first.device)
        # nccl divides on its way; gloo cannot.
        self._divides = first.device.type == "cuda"
        self._views = []
        at = 0
        for each in self._parameters:
            # In the parameter's own memory layout: then packing is a plain copy.
            self._views.append(self._buffer.as_strided(each.shape, each.stride(), at))
            at += each.numel()

    def __call__(self) -> None:
        """Exchange the gradients of all parameters; each must have one."""
        gradients = [each.grad for each in self._parameters]
        assert all(each is not None for each in gradients)
        torch._foreach_copy_(self._views, gradients)  # type: ignore[arg-type]
        operation = torch.distributed.ReduceOp
        torch.distributed.all_reduce(
            self._buffer, op=operation.AVG if self._divides else operation.SUM
        )
        if not self._divides:
            self._buffer.div_(self._world)
        torch._foreach_copy_(gradients, self._views)  # type: ignore[arg-type]
