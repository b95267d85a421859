"""Trainings that know nothing of sweep, through the frameworks' own interfaces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Sweep
from tests.frameworks.scene import need

LIGHTNING_CLI = """\
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI

class Model(LightningModule):
    def __init__(self, lr: float = 0.1, hidden: int = 4):
        super().__init__()
        self.lr, self.net = lr, torch.nn.Linear(4, hidden)

    def training_step(self, batch, _):
        return self.net(batch[0]).square().mean()

    def on_train_epoch_end(self):
        print(f"lr={self.lr} hidden={self.net.out_features} epochs={self.trainer.max_epochs}")

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr)

if __name__ == "__main__":
    LightningCLI(Model, save_config_callback=None)
"""
DRACCUS = """\
from dataclasses import dataclass, field
import draccus

@dataclass
class Model:
    lr: float = 0.1
    hidden: int = 4

@dataclass
class Train:
    model: Model = field(default_factory=Model)
    epochs: int = 1
    seed: int = 0

train = draccus.parse(Train)
print(f"lr={train.model.lr} hidden={train.model.hidden} epochs={train.epochs}")
"""
# By name: packages, the script, the command's arguments, the name of the number of epochs.
CASES = {
    "LightningCLI": (
        ("lightning", "jsonargparse"),
        LIGHTNING_CLI,
        "fit --config {config} --seed_everything={seed} --trainer.accelerator=cpu "
        "--trainer.logger=false --trainer.enable_progress_bar=false "
        "--trainer.enable_checkpointing=false",
        "trainer.max_epochs",
    ),
    "draccus": (("draccus",), DRACCUS, "--config_path={config} --seed={seed}", "epochs"),
}


@pytest.mark.parametrize("kind", ["yaml", "json"])
@pytest.mark.parametrize("name", CASES)
def test_the_config_as_a_framework_wants_it(
    sweep: Sweep, tmp_path: Path, runs: Path, name: str, kind: str
) -> None:
    """Nested, without keys that are not its own: real parsers take it, with a trial's values."""
    packages, script, arguments, epochs = CASES[name]
    need(*packages)
    (tmp_path / "t.py").write_text(script)
    (tmp_path / "study.yaml").write_text(
        f"name: nested\ncommand: python t.py {arguments}\n"
        f"config: {{seed: false, nested: true, format: {kind}}}\n"
        "objective: {metric: lr, direction: maximize, from: {stdout: 'lr=([0-9.e-]+)'}}\n"
        "space:\n  model.lr: {type: float, low: 0.001, high: 0.01}\n"
        f"fixed: {{model.hidden: 7, {epochs}: 2}}\ntrials: 1\n"
    )
    trial = launch(sweep, tmp_path, "nested")
    log = (runs / "nested/trials/00000/attempts/1/log.txt").read_text()
    assert trial["state"] == "complete", log
    assert trial["value"] == pytest.approx(trial["params"]["model.lr"])
    assert "hidden=7 epochs=2" in log


PLAIN_TRAINER = """\
import argparse, os, signal
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--learning_rate", type=float)
parser.add_argument("--die_at", type=int)
args = parser.parse_args()

class Counting(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        ids = (torch.arange(8) + index) % 50
        return {"input_ids": ids, "labels": ids}

class Dies(TrainerCallback):
    def on_save(self, arguments, state, control, **more):
        if state.global_step == args.die_at and os.environ["SWEEP_ATTEMPT"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

torch.manual_seed(0)
config = GPT2Config(vocab_size=50, n_positions=8, n_embd=8, n_layer=1, n_head=1)
trainer = Trainer(
    GPT2LMHeadModel(config),
    TrainingArguments(
        output_dir=args.output_dir, learning_rate=args.learning_rate, num_train_epochs=4,
        per_device_train_batch_size=16, eval_strategy="epoch", save_strategy="epoch",
        logging_strategy="epoch", report_to="none", use_cpu=True,
    ),
    train_dataset=Counting(),
    eval_dataset=Counting(),
    callbacks=[Dies()],
)
found = get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None
print("goes on from", found and os.path.basename(found), flush=True)
trainer.train(resume_from_checkpoint=found)
"""


def test_a_trainer_that_looks_in_its_own_folder(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """With `resume: folder` Hugging Face's Trainer goes on by itself: no line is for sweep."""
    need("transformers", "accelerate")
    (tmp_path / "t.py").write_text(PLAIN_TRAINER)
    (tmp_path / "study.yaml").write_text(
        "name: plain\ncommand: python t.py --output_dir {checkpoint_dir} {params} --die_at 4\n"
        "objective:\n  metric: eval_loss\n  direction: minimize\n"
        "  from: {stdout: '.eval_loss.: .?([0-9.]+)'}\n"
        "space:\n  learning_rate: {type: float, low: 0.001, high: 0.01}\n"
        "resume: folder\ntrials: 1\n"
    )
    trial = launch(sweep, tmp_path, "plain")
    logs = [(runs / f"plain/trials/00000/attempts/{n}/log.txt").read_text() for n in (1, 2)]
    assert (trial["state"], trial["attempts"]) == ("complete", 2), logs
    assert "goes on from None" in logs[0] and "goes on from checkpoint-4" in logs[1]
    # Two epochs are left of four: they stand at the steps after those of the first attempt.
    assert logs[1].count("eval_loss") == 2, logs[1]
    shown = json.loads(sweep("status", "plain", "--json").out)
    assert shown["counts"]["complete"] == 1


def launch(sweep: Sweep, folder: Path, name: str) -> dict[str, Any]:
    """Run the study of a folder to its end; return its only trial."""
    ran = sweep("launch", "study.yaml", "--wait", "--executor", "local", cwd=folder, timeout_s=600)
    assert ran.code in (0, 1), ran.out + ran.err
    trial: dict[str, Any] = json.loads(sweep("collect", name, "--format", "json").out)[0]
    return trial
