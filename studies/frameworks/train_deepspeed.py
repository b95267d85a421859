"""DeepSpeed's engine; three lines, marked `sweep`, are what it needs for sweep."""

import argparse

import deepspeed
import torch

from sweep.integrations.deepspeed import Epochs  # sweep


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
    parser.add_argument("--local_rank", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 1)
    )
    engine, *_ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=args.lr),
        config={"train_micro_batch_size_per_gpu": 32, "zero_optimization": {"stage": 0}},
    )
    rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    x, y = (part[rank::world].to(engine.device) for part in make_data(0, 512))
    valid_x, valid_y = (part.to(engine.device) for part in make_data(1, 256))
    for epoch in (epochs := Epochs(args.epochs, engine)):  # sweep
        for batch in torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(
            32
        ):
            loss = torch.nn.functional.mse_loss(engine(x[batch]), y[batch])
            engine.backward(loss)
            engine.step()
        with torch.no_grad():
            val_loss = torch.nn.functional.mse_loss(engine(valid_x), valid_y)
        epochs.log(val_loss=val_loss)  # sweep


if __name__ == "__main__":
    main()
