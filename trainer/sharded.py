"""Weights and optimiser divided among the ranks (FSDP2), and saved by each: no rank ever holds all.

A sharded checkpoint is a folder of torch.distributed.checkpoint, ``epoch-0003-sharded``: a file of
each rank, ``run.pt`` with all else that the run is, and ``.metadata``, which is written last. It is
written under a temporary name and renamed once all ranks are done. Any number of ranks goes on from
it; ``load`` puts it together as the single file of one process has it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .ranks import Ranks

END = "-sharded"
METADATA = ".metadata"
_RUN = "run.pt"


def divide(network: nn.Module, ranks: Ranks, device: torch.device) -> None:
    """Divide a network's weights among the ranks, in place; before its optimiser is made."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    fully_shard(network, mesh=init_device_mesh(device.type, (ranks.world,)))


def save(
    folder: Path,
    place: str,
    state: dict[str, Any],
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks,
) -> Path:
    """Write a checkpoint; all ranks call it together.

    Args:
        folder: One run's own folder, which all ranks see.
        place: Begins its name.
        state: What of the run is neither weights nor the optimiser's.

    Raises:
        OSError: It could not be written; the earlier ones are untouched.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    part, target = folder / f".{place}{END}.tmp", folder / f"{place}{END}"

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        names = [name for name, _ in network.named_parameters()]
        torch.save({**state, "names": names}, part / _RUN)

    ranks.share(begin)
    weights, moments = get_state_dict(network, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=part)

    def end() -> None:
        if target.exists():  # of the same place in the run: the same content
            shutil.rmtree(target)
        os.rename(part, target)

    ranks.share(end)
    return target


def restore(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Give each rank its part of a sharded checkpoint, whatever number of ranks wrote it."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    weights, moments = get_state_dict(network, optimizer)
    state: dict[str, Any] = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        network, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )


def restore_whole(
    state: dict[str, Any], network: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Divide among the ranks what a single file holds."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    names = [name for name, _ in network.named_parameters()]
    moments = state["optimizer"]
    set_state_dict(
        network,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict={
            "state": {names[number]: values for number, values in moments["state"].items()},
            "param_groups": [
                {**group, "params": [names[number] for number in group["params"]]}
                for group in moments["param_groups"]
            ],
        },
        options=StateDictOptions(full_state_dict=True),
    )


def is_whole(path: Path) -> bool:
    return (path / METADATA).is_file() and (path / _RUN).is_file()


def load_run(path: Path) -> dict[str, Any]:
    """Return what a sharded checkpoint holds besides weights and the optimiser's state."""
    return dict(torch.load(path / _RUN, map_location="cpu", weights_only=True))


def load(path: Path) -> dict[str, Any]:
    """Return a sharded checkpoint as the state that a single file holds, on the CPU.

    Its ``.metadata`` is a pickle: read only what is your own.
    """
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    state = load_run(path)
    names = {name: number for number, name in enumerate(state.pop("names"))}
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.pt"
        dcp_to_torch_save(path, whole)
        found = torch.load(whole, map_location="cpu", weights_only=True)
    moments = found["optimizer"]
    return {
        **state,
        "model": found["model"],
        "optimizer": {
            "state": {names[name]: values for name, values in moments["state"].items()},
            "param_groups": [
                {**group, "params": [names[name] for name in group["params"]]}
                for group in moments["param_groups"]
            ],
        },
    }
