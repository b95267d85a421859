"""A training with transformers' Trainer; three lines, marked `sweep`, are for sweep."""

import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from sweep.integrations.transformers import SweepCallback  # sweep


class Counting(torch.utils.data.Dataset):
    """Sequences that count upwards from anywhere."""

    def __init__(self, seed, size):
        generator = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, 50, (size, 1), generator=generator)
        self.ids = (starts + torch.arange(8)) % 50

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=50, n_positions=8, n_embd=32, n_layer=2, n_head=2)
    )
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir="out",
            learning_rate=args.learning_rate,
            weight_decay=args.weight_decay,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=16,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            report_to="none",
            use_cpu=not torch.cuda.is_available(),
            seed=args.seed,
        ),
        train_dataset=Counting(0, 128),
        eval_dataset=Counting(1, 64),
        callbacks=[SweepCallback()],  # sweep
    )
    trainer.train(resume_from_checkpoint=SweepCallback.resume())  # sweep


if __name__ == "__main__":
    main()
