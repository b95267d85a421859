"""One step of training: a batch in, weights moved; eager, compiled, or replayed as a CUDA graph.

Nothing in a step waits for the device: indices, learning rates and sums stay there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import checkpoint
from .augment import Augmentation
from .config import Options
from .gradients import Mean
from .ranks import Ranks
from .split import Split

# A captured exchange is out of nccl's sight, and a rank that hangs in the middle of an epoch would
# keep the others for ever; after so many steps comes one that nccl's watchdog times.
_WATCHED_EVERY = 64


class Step:
    """The step of one run.

    Args:
        options: ``precision``, ``label_smoothing``, ``compile``, ``cuda_graphs``, ``parallel``.
        network: On its device; the optimiser has its parameters.
        optimizer: Moves the weights; its learning rate is set through ``set_lr``.
        train: The training set, on the device.
        augmentation: Takes batches instead of plain indexing, if given.
        loss_sum: Gets each step's loss added.
        ranks: With several, gradients are averaged over them.
        say: Gets a line where an option had to be given up.
        whole: Indices of a whole batch, for which the step is prepared; else the first batch's.
    """

    def __init__(
        self,
        options: Options,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        train: Split,
        augmentation: Augmentation | None,
        loss_sum: Tensor,
        ranks: Ranks,
        say: Callable[[str], object],
        whole: Tensor | None = None,
    ) -> None:
        self._whole = whole
        self._options, self._network, self._optimizer = options, network, optimizer
        self._train, self._augmentation, self._loss_sum = train, augmentation, loss_sum
        self._ranks, self._say = ranks, say
        self._device = train.labels.device
        self._mean: Mean | None = None
        self._forward: Callable[[Tensor], Tensor] = self._wrap(network)
        self._loss: Callable[[Tensor], Tensor] = self._compute_loss
        self._graph: Any = None
        self._replays = 0
        self._index: Tensor | None = None
        self._lr: Tensor | None = None
        self._ready = False

    def _wrap(self, network: nn.Module) -> nn.Module:
        """Return the network as several devices train it: the one place that knows of them."""
        if self._options.parallel == "fsdp":
            return network  # divided already
        if self._ranks.world > 1 and self._options.cuda_graphs and self._device.type == "cuda":
            narrow = self._options.precision == "bf16" and not self._options.deterministic
            self._mean = Mean(
                network.parameters(), torch.bfloat16 if narrow else torch.float32, self._ranks.world
            )
            return network
        if self._ranks.world > 1:
            kind = nn.parallel.DistributedDataParallel
            # Running statistics are averaged once an epoch (Run.end_epoch), not sent each step. The
            # option was renamed in torch 2.13.
            new = "forward_sync_buffers" in inspect.signature(kind.__init__).parameters
            more: dict[str, Any] = {"forward_sync_buffers" if new else "broadcast_buffers": False}
            return kind(
                network,
                device_ids=[self._device.index] if self._device.type == "cuda" else None,
                gradient_as_bucket_view=True,
                **more,
            )
        if self._options.parallel == "dp":
            count = torch.cuda.device_count() if self._device.type == "cuda" else 0
            if count > 1:
                return nn.DataParallel(network)
            self._say(f"--parallel dp: {count} GPUs here; training on one device")
        return network

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        if self._lr is not None:
            self._lr.fill_(lr)
        else:
            for group in self._optimizer.param_groups:
                group["lr"] = lr

    def __call__(self, index: Tensor) -> None:
        """Learn from the examples of one batch."""
        if not self._ready:
            self._ready = True
            self._prepare(index if self._whole is None else self._whole)
        is_whole = self._index is not None and len(index) == len(self._index)
        if self._graph is not None and self._index is not None and is_whole:
            self._index.copy_(index)
            self._graph.replay()
            self._replays += 1
            if self._mean and self._replays % _WATCHED_EVERY == 0:
                self._ranks.sum(torch.zeros(1, device=self._device))
        else:
            self._optimizer.zero_grad(set_to_none=True)
            self._compute(index)

    def close(self) -> None:
        """Let go of the captured step: nccl does not end a connection that a graph still uses."""
        if self._graph is not None:
            torch.cuda.synchronize(self._device)
            self._graph.reset()
            self._graph = None
            self._ready = False

    def _compute_loss(self, index: Tensor) -> Tensor:
        images = self._augmentation.take(index) if self._augmentation else self._train.images[index]
        with torch.autocast(
            self._device.type, torch.bfloat16, enabled=self._options.precision == "bf16"
        ):
            logits = self._forward(images)
        return functional.cross_entropy(
            logits.float(), self._train.labels[index], label_smoothing=self._options.label_smoothing
        )

    def _compute(self, index: Tensor) -> None:
        loss = self._loss(index)
        loss.backward()
        if self._mean:
            self._mean()
        self._optimizer.step()
        self._loss_sum += loss.detach()

    def _prepare(self, index: Tensor) -> None:
        """Compile, capture or settle what the first steps would, without moving the weights."""
        if self._options.parallel == "fsdp":
            for flag in ("compile", "cuda_graphs"):
                if getattr(self._options, flag):
                    name = flag.replace("_", "-")
                    self._say(f"--{name}: does not go with --parallel fsdp; going on without")
            return
        if self._options.compile:
            self._try_compile(index)
        if self._ranks.world > 1 and self._mean is None:
            # DDP arranges its buckets anew after the first step, and the order of a sum over more
            # than two ranks depends on them: after this, a resumed run's are as the whole run's.
            self._rehearse(index, 2)
        if self._options.cuda_graphs:
            self._try_capture(index)

    def _try_compile(self, index: Tensor) -> None:
        plain = self._forward
        try:
            if self._ranks.world > 1 and self._mean is None:
                self._forward = torch.compile(plain)  # type: ignore[assignment]
            else:
                # With picking the images and with the loss, which then cost no kernels of their own
                self._loss = torch.compile(self._compute_loss)
            self._rehearse(index, 1)
        except Exception as error:  # many kinds: no C++ compiler, an old GPU, an unknown operator
            self._forward, self._loss = plain, self._compute_loss
            reason = str(error).strip().splitlines() or [type(error).__name__]
            self._say(f"--compile: not possible here ({reason[0][:150]}); going on without")

    def _try_capture(self, index: Tensor) -> None:
        refused = (
            "needs a GPU"
            if self._device.type != "cuda"
            else "does not go with --parallel dp"
            if self._options.parallel == "dp"
            else ""
        )
        if refused:
            self._say(f"--cuda-graphs: {refused}; going on without")
            return
        groups = self._optimizer.param_groups
        before = [(group["lr"], group.get("capturable")) for group in groups]
        try:
            self._lr = torch.tensor(float(before[0][0]), device=self._device)
            for group in groups:
                group["lr"] = self._lr
                if "capturable" in group:
                    group["capturable"] = True
            self._index = index.clone()
            self._rehearse(self._index, 3)
            kept = self._keep()
            graph = torch.cuda.CUDAGraph()
            self._optimizer.zero_grad(set_to_none=True)
            # nccl's watchdog asks the GPU in a thread of its own, which must not break the capture.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._compute(self._index)
            self._restore(kept)
            self._graph = graph
        except Exception as error:  # RuntimeError of many causes
            self._lr = self._graph = None
            for group, (lr, capturable) in zip(groups, before, strict=True):
                group["lr"] = lr
                if capturable is not None:
                    group["capturable"] = capturable
            self._say(
                f"--cuda-graphs: not possible here ({str(error).strip()[:150]}); going on without"
            )

    def _rehearse(self, index: Tensor, times: int) -> None:
        """Take some steps and undo them: weights, optimiser, sums and random states."""
        kept = self._keep()
        try:
            if self._device.type == "cuda":
                # Captured steps must have run on a side stream before.
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    self._take_steps(index, times)
                torch.cuda.current_stream().wait_stream(side)
            else:
                self._take_steps(index, times)
        finally:
            self._restore(kept)

    def _take_steps(self, index: Tensor, times: int) -> None:
        for _ in range(times):
            self._optimizer.zero_grad(set_to_none=True)
            self._compute(index)

    def _keep(self) -> dict[str, Any]:
        state = self._optimizer.state
        return {
            "network": {k: v.clone() for k, v in self._network.state_dict().items()},
            "optimizer": {
                parameter: {k: v.clone() for k, v in values.items() if isinstance(v, Tensor)}
                for parameter, values in state.items()
            },
            "loss_sum": self._loss_sum.clone(),
            "random": checkpoint.random_states(),
        }

    def _restore(self, kept: dict[str, Any]) -> None:
        """Set all back in place: a captured graph knows addresses, not names."""
        with torch.no_grad():
            for name, value in self._network.state_dict().items():
                value.copy_(kept["network"][name])
            for parameter, values in self._optimizer.state.items():
                before = kept["optimizer"].get(parameter, {})
                for name, value in values.items():
                    if isinstance(value, Tensor):
                        # What the rehearsal made begins at 0: the same as not being there.
                        value.copy_(before[name]) if name in before else value.zero_()
            self._loss_sum.copy_(kept["loss_sum"])
        self._optimizer.zero_grad(set_to_none=True)
        checkpoint.restore_random_states(kept["random"])
