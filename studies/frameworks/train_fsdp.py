"""FSDP2, saved by torch.distributed.checkpoint; three lines, marked `sweep`, are for sweep."""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from sweep.integrations.dcp import Epochs  # sweep


def make_data(seed, size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=generator)
    return x, x.sin().sum(dim=1, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group()
    rank, world = dist.get_rank(), dist.get_world_size()
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(args.seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 1)
    ).to(device)
    fully_shard(model, mesh=dist.init_device_mesh(device, (world,)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    x, y = (part[rank::world].to(device) for part in make_data(0, 512))
    valid_x, valid_y = (part.to(device) for part in make_data(1, 256))
    for epoch in (epochs := Epochs(args.epochs, model, optimizer)):  # sweep
        for batch in torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(
            32
        ):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = torch.nn.functional.mse_loss(model(valid_x), valid_y)
        epochs.log(val_loss=val_loss)  # sweep
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
