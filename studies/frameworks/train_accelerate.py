"""A loop with Accelerate; three lines, marked `sweep`, are what it needs for sweep."""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed

from sweep.integrations.accelerate import Epochs  # sweep


def make_data(seed, size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=generator)
    return torch.utils.data.TensorDataset(x, x.sin().sum(dim=1, keepdim=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    set_seed(args.seed)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    model = torch.nn.Sequential(
        torch.nn.Linear(8, args.hidden), torch.nn.ReLU(), torch.nn.Linear(args.hidden, 1)
    )
    model, optimizer, train, valid = accelerator.prepare(
        model,
        torch.optim.Adam(model.parameters(), lr=args.lr),
        torch.utils.data.DataLoader(make_data(0, 512), batch_size=32, shuffle=True),
        torch.utils.data.DataLoader(make_data(1, 256), batch_size=64),
    )
    for epoch in (epochs := Epochs(args.epochs, accelerator)):  # sweep
        model.train()
        for x, y in train:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            losses = [torch.nn.functional.mse_loss(model(x), y) for x, y in valid]
        val_loss = accelerator.gather(torch.stack(losses)).mean().item()
        accelerator.print(f"epoch {epoch} val_loss={val_loss:.4f}")
        epochs.log(val_loss=val_loss)  # sweep


if __name__ == "__main__":
    main()
