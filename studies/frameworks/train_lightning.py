"""A Lightning training; the three lines marked `sweep` are all that it needs for sweep."""

import argparse

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset

from sweep.integrations.lightning import SweepCallback  # sweep


class Model(L.LightningModule):
    def __init__(self, lr, hidden):
        super().__init__()
        self.lr = lr
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1)
        )

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def make_data(seed, size):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 8, generator=generator)
    y = x.sin().sum(dim=1, keepdim=True)
    return TensorDataset(x, y)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    L.seed_everything(args.seed)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="auto",
        devices=args.devices,
        strategy="ddp" if args.devices > 1 else "auto",
        enable_progress_bar=False,
        logger=False,
        callbacks=[SweepCallback()],  # sweep
    )
    trainer.fit(
        Model(args.lr, args.hidden),
        DataLoader(make_data(0, 512), batch_size=32, shuffle=True),
        DataLoader(make_data(1, 256), batch_size=64),
        ckpt_path=SweepCallback.resume(),  # sweep
    )


if __name__ == "__main__":
    main()
