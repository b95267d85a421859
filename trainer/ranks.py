"""The processes of one run: who they are, how they find each other, and what they agree on.

torchrun and srun start one process a device and say by environment variables which one it is. From
there on it is one code path: a run alone is a run of one rank, where agreeing costs nothing.

Read from the environment: RANK, LOCAL_RANK and WORLD_SIZE (torchrun), else SLURM_PROCID,
SLURM_LOCALID and SLURM_STEP_NUM_TASKS (srun); MASTER_ADDR and MASTER_PORT; SWEEP_TOKEN, which is
the same in all ranks of one attempt; SWEEP_DDP_TIMEOUT_S, after which silence is a failure.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import connection, hardware
from .failures import InputError, RanksError
from .pulse import Pulse

Value = TypeVar("Value")

# A trial whose rank died or hangs must have ended within a minute: this, and time to say so.
TIMEOUT_S = 50.0


@dataclass
class Ranks:
    """This process among those of its run; by default the only one.

    Attributes:
        rank: Of this process; rank 0 reports and writes.
        local_rank: Of this process on its host: the number of its GPU.
        world: Processes of the run.
        pulse: Tells the others that this process lives, and where it is in the run.
    """

    rank: int = 0
    local_rank: int = 0
    world: int = 1
    pulse: Pulse | None = field(default=None, repr=False)

    def sum(self, value: Tensor) -> Tensor:
        """Replace a tensor, on any device, by the sum of all ranks' ones; return it."""
        if self.world > 1:
            torch.distributed.all_reduce(value)
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, in their order."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(values, value)
        return values

    def share(self, make: Callable[[], Value]) -> Value:
        """Return in all ranks what the function gives in rank 0.

        Raises:
            InputError: In all ranks, where the function raises it in rank 0.
        """
        if self.world == 1:
            return make()
        told: list[Any] = [None]
        if self.rank == 0:
            try:
                told = [(None, make())]
            except InputError as error:
                told = [(str(error), None)]
        torch.distributed.broadcast_object_list(told, src=0)
        problem, value = told[0]
        if problem is not None:
            raise InputError(problem)
        return value

    def agree(self, *numbers: int) -> tuple[int, ...]:
        """Return rank 0's whole numbers in all ranks: cheap, and without the GPU."""
        if self.world == 1:
            return numbers
        told = torch.tensor(numbers, dtype=torch.int64)
        torch.distributed.broadcast(told, src=0)
        return tuple(told.tolist())

    def note(self, place: str) -> None:
        """Say where this process is in the run, for the case that it hangs there."""
        if self.pulse:
            self.pulse.place = place

    def leave(self) -> None:
        """End the connection after a run that ended well."""
        if self.pulse:
            self.pulse.stop()
            torch.distributed.destroy_process_group()
            self.pulse = None


ALONE = Ranks()


def find_place(environ: Mapping[str, str]) -> Ranks | None:
    """Return what torchrun or srun say about this process; None where neither started it.

    A batch script has SLURM_PROCID and SLURM_NTASKS too, although nothing was started n times
    there; only srun says SLURM_STEP_ID.

    Raises:
        InputError: The variables contradict each other.
    """
    if environ.get("WORLD_SIZE"):
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
        texts = [environ.get("RANK", ""), environ.get("LOCAL_RANK", "0"), environ["WORLD_SIZE"]]
    elif environ.get("SLURM_STEP_ID") and environ.get("SLURM_PROCID"):
        names = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS")
        world = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS", "1")
        texts = [environ["SLURM_PROCID"], environ.get("SLURM_LOCALID", "0"), world]
    else:
        return None
    got = ", ".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))
    if not all(text.isdecimal() for text in texts):
        raise InputError(f"{got}: must be whole numbers. Start with torchrun or srun.")
    rank, local_rank, world_size = (int(text) for text in texts)
    if not rank < world_size:
        raise InputError(f"{got}: the rank must be below the number of ranks.")
    return Ranks(rank, local_rank, world_size)


def read_timeout_s(environ: Mapping[str, str]) -> float:
    """Return SWEEP_DDP_TIMEOUT_S, else the default.

    Raises:
        InputError: It is no number above 0.
    """
    text = environ.get("SWEEP_DDP_TIMEOUT_S") or str(TIMEOUT_S)
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise InputError(f"SWEEP_DDP_TIMEOUT_S: must be seconds above 0 (got {text}).")
    return value


def join(parallel: str, cuda: bool, environ: Mapping[str, str] | None = None) -> Ranks:
    """Return this process's place, after all ranks of the run have met.

    Args:
        parallel: The option: ``auto``, ``none``, ``dp``, ``ddp`` or ``fsdp``.
        cuda: Whether the run trains on GPUs: nccl then sums gradients, gloo all else.
        environ: The environment.

    Raises:
        InputError: Option and environment contradict each other, or something is missing.
        RanksError: The ranks did not meet, or are of different runs; says why and what to do.
    """
    environ = os.environ if environ is None else environ
    place = find_place(environ)
    if parallel in ("ddp", "fsdp") and place is None:
        raise InputError(
            f"--parallel {parallel}: needs one process a device. Start with torchrun "
            f"(torchrun --standalone --nproc-per-node 2 -m {__package__}.train …) or srun."
        )
    if place is None or (place.world == 1 and parallel not in ("ddp", "fsdp")):
        return ALONE
    if parallel in ("none", "dp"):
        raise InputError(
            f"--parallel {parallel}: {place.world} processes were started, and each would train "
            "the same on its own. Start one, or take --parallel ddp."
        )
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not environ.get(name):
            raise InputError(
                f"{name}: is not set, so {place.world} ranks cannot find each other. torchrun sets "
                "it; under srun set MASTER_ADDR to the first host and MASTER_PORT to a free port."
            )
    connection.check_interfaces(environ, cuda)
    timeout_s = read_timeout_s(environ)
    # Without a token (not under sweep) the address is all that the ranks have in common.
    token = environ.get("SWEEP_TOKEN", "")
    digest = hashlib.sha256(token.encode()).hexdigest()[:16]
    try:
        _meet(place, cuda, timeout_s, digest)
    except RanksError:
        raise
    except Exception as error:  # torch raises RuntimeError, ValueError and its own kinds
        raise RanksError(connection.explain(error, environ, timeout_s)) from error
    return place


def _meet(place: Ranks, cuda: bool, timeout_s: float, digest: str) -> None:
    """Connect to rank 0's store, make sure that it is ours, form the group, start the pulse."""
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    limit = timedelta(seconds=timeout_s)
    store, _, _ = next(
        iter(rendezvous("env://", rank=place.rank, world_size=place.world, timeout=limit))
    )
    store.set_timeout(limit)
    own = dist.PrefixStore("sweep", store)
    # Before anything is shared: a rank that came to another run's store leaves without harm to it.
    if place.rank == 0:
        own.set("token", digest)
    elif own.get("token").decode() != digest:
        raise RanksError(connection.strangers(os.environ))
    if cuda:
        torch.cuda.set_device(hardware.choose("cuda", place.local_rank))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=dist.PrefixStore("group", own),
        rank=place.rank,
        world_size=place.world,
        timeout=limit,
    )
    if len(set(place.gather(digest))) > 1:
        raise RanksError(connection.strangers(os.environ))
    place.pulse = Pulse(own, place.rank, place.world, timeout_s)
