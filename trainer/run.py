"""One run: network, optimiser, order of batches and progress, and all of it as plain data.

A run is a function of its options. Everything that it is made of at one moment is in
``Run.snapshot``; a run that continues from there computes the same numbers, bit for bit on a CPU,
as one that was never interrupted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import augment, checkpoint, data, model, sharded
from .config import Options
from .evaluate import measure
from .failures import InputError
from .optimizer import build_optimizer, schedule
from .ranks import ALONE, Ranks
from .split import Sampler, source_of
from .step import Step
from .stream import Batch, Streamed, StreamSampler

# Of the checkpoint's content; 1 had no states by rank.
FORMAT = 2


class Run:
    """Network, optimiser, order of batches and progress of one run."""

    def __init__(
        self,
        options: Options,
        loaded: data.Data,
        device: torch.device,
        ranks: Ranks = ALONE,
        say: Callable[[str], object] = print,
    ) -> None:
        torch.manual_seed(options.seed)
        self.options, self.data, self.device, self.ranks = options, loaded, device, ranks
        shape = loaded.train.shape
        self.network = model.build(
            options, shape, loaded.classes, loaded.mean, loaded.deviation
        ).to(device)
        self.is_sharded = options.parallel == "fsdp"
        if self.is_sharded:
            sharded.divide(self.network, ranks, device)
        self.optimizer = build_optimizer(options, self.network)
        batching = (options.batch_size, options.seed, ranks.rank, ranks.world)
        self.sampler: Sampler | StreamSampler
        self._whole: Tensor | None = None
        if isinstance(loaded.train, Streamed):
            self.sampler = StreamSampler(loaded.train, *batching)
            if self.sampler.padding:
                say(
                    f"{len(loaded.train)} examples, {ranks.world} ranks: {self.sampler.padding} "
                    "examples are shown twice in each epoch, so that all ranks have as many"
                )
            # A batch at a time is copied into these: a captured step knows their addresses.
            self._shown = loaded.train.make_buffer(options.batch_size // ranks.world)
            self._whole = torch.arange(len(self._shown), device=device)
            count: int | None = len(loaded.train)
        else:
            self.sampler = Sampler(len(loaded.train), *batching)
            self._shown, count = loaded.train, None
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.metrics: dict[str, float] = {}
        self.best_accuracy, self.best_epoch = math.nan, 0
        self._augmentation = augment.build(options.augment, self._shown.images, options.seed, count)
        self._step = Step(
            options,
            self.network,
            self.optimizer,
            self._shown,
            self._augmentation,
            self.loss_sum,
            ranks,
            say,
            self._whole,
        )
        if ranks.rank:
            # The weights are alike in all ranks; what dropout draws from here on must not be.
            torch.manual_seed(source_of(options.seed, "rank", ranks.rank).initial_seed())

    def begin_epoch(self) -> None:
        """Get ready for the (rest of the) present epoch."""
        self.network.train()
        if self._augmentation:
            self._augmentation.begin_epoch(self.sampler.epoch)

    def step(self, batch: Tensor | Batch) -> None:
        """Learn from one batch: of indices, or of examples. Nothing here waits for the device."""
        self._step.set_lr(schedule(self.options, self.sampler))
        self._step(self._show(batch) if isinstance(batch, Batch) else batch)

    def _show(self, batch: Batch) -> Tensor:
        """Copy streamed examples to where the step looks for them; return their indices there."""
        assert self._whole is not None
        count = len(batch)
        if self._augmentation:
            self._augmentation.show(batch.images, batch.positions)
        else:
            self._shown.images[:count].copy_(batch.images, non_blocking=True)
        self._shown.labels[:count].copy_(batch.labels, non_blocking=True)
        return self._whole[:count]

    def close(self) -> None:
        """End the training: what follows (measuring, leaving the other ranks) needs no step."""
        self._step.close()

    def end_epoch(self) -> None:
        """Measure the validation split and move on to the next epoch."""
        lr = float(self.optimizer.param_groups[0]["lr"])
        self._average_statistics()
        found = measure(self.network, self.data.validation, self.data.classes, self.ranks)
        loss = self.ranks.sum(self.loss_sum.clone()).item() / self.ranks.world
        self.metrics = {
            "val_accuracy": found["accuracy"],
            "val_loss": found["loss"],
            "train_loss": loss / self.sampler.batches,
            "lr": lr,
        }
        self.loss_sum.zero_()
        self.sampler.end_epoch()
        if not found["accuracy"] <= self.best_accuracy:  # also where there is no best yet
            self.best_accuracy, self.best_epoch = found["accuracy"], self.sampler.epoch

    def _average_statistics(self) -> None:
        """Replace each rank's running statistics by their mean, so that all measure one network."""
        for value in self._statistics().values():
            if self.ranks.world > 1 and value.is_floating_point():
                value.copy_(self.ranks.sum(value.clone()) / self.ranks.world)

    def _statistics(self) -> dict[str, Tensor]:
        """Return the buffers that batch norm changes in training, which differ between ranks."""
        return {
            f"{name}.{kind}": value
            for name, module in self.network.named_modules()
            if isinstance(module, nn.BatchNorm2d)
            for kind, value in module.named_buffers()
        }

    @property
    def diverged(self) -> bool:
        return any(not math.isfinite(value) for value in self.metrics.values())

    def snapshot(self, batch: int | None = None) -> dict[str, Any]:
        """Return all that the rest of the run depends on, as plain data and tensors.

        All ranks call it together; what differs between them is gathered under ``ranks``. The
        course of the learning rate and the order of batches are functions of epoch and batch, and
        bfloat16 needs no loss scaling, so these three have no state of their own.

        Args:
            batch: Batches done in this epoch, where the sampler has not counted the last one yet.
        """
        batch = self.sampler.batch if batch is None else batch
        own = {
            "random": checkpoint.random_states(),
            "loss_sum": self.loss_sum.cpu(),
            "statistics": {k: v.cpu() for k, v in self._statistics().items()}
            if self.ranks.world > 1
            else {},
        }
        return {
            "format": FORMAT,
            "options": dataclasses.asdict(self.options),
            "epoch": self.sampler.epoch,
            "batch": batch,
            "step": self.sampler.epoch * self.sampler.batches + batch,
            **(
                {}  # they are saved in shards
                if self.is_sharded
                else {"model": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
            ),
            "scaler": None,
            "ranks": self.ranks.gather(own),
            "metrics": self.metrics,
            "best_accuracy": self.best_accuracy,
            "best_epoch": self.best_epoch,
            "classes": self.data.classes,
            "shape": list(self.data.train.shape),
            "pixels": [self.data.mean, self.data.deviation],
        }

    def restore(
        self, state: dict[str, Any], say: Callable[[str], object] = print, path: Path | None = None
    ) -> None:
        """Become the run that a snapshot was taken of.

        Args:
            path: Where the weights lie in shards, if the state lacks them.

        Raises:
            InputError: The snapshot is of another version of the trainer.
        """
        if state.get("format") != FORMAT:
            raise InputError(
                f"a checkpoint of format {state.get('format')}, this trainer reads {FORMAT}. "
                "Resume with the version that wrote it, or start anew."
            )
        if "model" not in state:
            assert path is not None
            sharded.restore(path, self.network, self.optimizer)
        elif self.is_sharded:
            sharded.restore_whole(state, self.network, self.optimizer)
        else:
            self.network.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = float(group["lr"])  # a tensor where CUDA graphs were on
            if "capturable" in group:
                group["capturable"] = False
        self.sampler.epoch, self.sampler.batch = state["epoch"], state["batch"]
        self.metrics = state["metrics"]
        self.best_accuracy, self.best_epoch = state["best_accuracy"], state["best_epoch"]
        saved = state["ranks"]
        if len(saved) == self.ranks.world:
            own = saved[self.ranks.rank]
            self.loss_sum.copy_(own["loss_sum"])
            statistics = self._statistics()
            for name, value in own["statistics"].items():
                statistics[name].copy_(value)
            checkpoint.restore_random_states(own["random"])
            return
        say(
            f"the checkpoint is of {len(saved)} ranks, this run has {self.ranks.world}: dropout "
            "will draw other numbers than in an uninterrupted run"
        )
        mean = sum(each["loss_sum"] for each in saved) / len(saved)
        self.loss_sum.copy_(mean)
        checkpoint.restore_random_states(saved[0]["random"])
        if self.ranks.rank:
            source = source_of(self.options.seed, "rank", self.ranks.rank, state["step"])
            torch.manual_seed(source.initial_seed())
