"""DDP by torch.multiprocessing.spawn, of which no variable tells; three lines are for sweep."""

import argparse
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from sweep.integrations.dcp import Epochs  # sweep


def make_data(seed, size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=generator)
    return x, x.sin().sum(dim=1, keepdim=True)


def run(rank, args, port):
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=args.processes
    )
    train(rank, args)
    # Only now, as the DDP model is gone: one that outlives its group can hang at its end.
    dist.destroy_process_group()


def train(rank, args):
    torch.manual_seed(args.seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 1)
    )
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    x, y = (part[rank :: args.processes] for part in make_data(0, 512))
    valid_x, valid_y = make_data(1, 256)
    for epoch in (epochs := Epochs(args.epochs, model, optimizer)):  # sweep
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(32):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            val_loss = torch.nn.functional.mse_loss(model(valid_x), valid_y)
        epochs.log(val_loss=val_loss)  # sweep


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(run, (args, port), nprocs=args.processes)


if __name__ == "__main__":
    main()
