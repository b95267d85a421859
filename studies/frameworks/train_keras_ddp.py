"""A Keras 3 model under torch's DDP, as Keras' guide has it: `fit` knows one process, so a loop.

Three lines, marked `sweep`, are what it needs for sweep.
"""

import argparse
import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sweep.integrations.dcp import Epochs  # sweep


def make_data(seed, size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=generator)
    return x, x.sin().sum(dim=1, keepdim=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--units", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    train(args)
    # Only now, as the DDP model is gone: one that outlives its group can hang at its end.
    dist.destroy_process_group()


def train(args):
    keras.utils.set_random_seed(args.seed)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(args.units, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    # Where there are GPUs: model.to(local_rank), and device_ids=[local_rank].
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = (part[rank::world] for part in make_data(0, 512))
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


if __name__ == "__main__":
    main()
