"""``resume: folder``: a checkpoint put into the next attempt's folder, as its framework left it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.training import carry_over as module
from sweep.training.carry_over import carry_over
from sweep.training.checkpoints import newest, newest_checkpoint
from sweep.training.digests import digest
from tests.training.test_saves import build

# What lies in the earlier attempt's folder -> what is handed on, and all that the next one finds.
FOLDERS = [
    (
        "HF: get_last_checkpoint takes the highest",
        [
            "runs/:events.out.tfevents.1",
            "checkpoint-8/:model.safetensors trainer_state.json",
            "checkpoint-16/:model.safetensors trainer_state.json",
            *("checkpoint-24/:model.safetensors", "README.md", "trainer_log.jsonl"),
        ],
        "checkpoint-16",
        "README.md checkpoint-16/model.safetensors checkpoint-16/trainer_state.json "
        "trainer_log.jsonl",
    ),
    (
        "DeepSpeed: by its pointer",
        [
            "global_step10/:mp_rank_00_model_states.pt",
            *("latest:=global_step10", "zero_to_fp32.py"),
            "global_step20/:mp_rank_00_model_states.pt",
        ],
        "global_step10",
        "global_step10/mp_rank_00_model_states.pt latest zero_to_fp32.py",
    ),
    (
        "Keras' BackupAndRestore",
        ["latest.weights.h5", "training_metadata.json"],
        "latest.weights.h5",
        "latest.weights.h5 training_metadata.json",
    ),
    (
        "Orbax",
        [
            *(f"{n}/:default/d/x _CHECKPOINT_METADATA" for n in (8, 9)),
            "10.orbax-checkpoint-tmp/:default/d/x",
        ],
        "9",
        "9/_CHECKPOINT_METADATA 9/default/d/x",
    ),
    (
        "last, its twin and the best; not the older ones",
        ["epoch_1.pt", "best.pt", "epoch_2.pt", "last.pt", "args.yaml", "train.log", ".x.tmp"],
        "last.pt",
        "args.yaml best.pt epoch_2.pt last.pt",
    ),
    (
        "a last that was left behind stays behind",
        ["last.pt", "epoch_1.pt", "epoch_2.pt", "epoch_3.pt", "best.pt"],
        "epoch_3.pt",
        "best.pt epoch_3.pt",
    ),
    (
        "Lightning's link to its last",
        ["epoch=1-step=9.ckpt", "epoch=2-step=18.ckpt", "last.ckpt->epoch=2-step=18.ckpt"],
        "epoch=2-step=18.ckpt",
        "epoch=2-step=18.ckpt last.ckpt",
    ),
    (
        "saved into the folder itself",
        ["__0_0.distcp", "__1_0.distcp", ".metadata"],
        ".",
        ".metadata __0_0.distcp __1_0.distcp",
    ),
    (
        "several ranks",
        ["s9-rank0.pt", "s9-rank1.pt", "s10-rank0.pt", "s10-rank1.pt", "s11-rank0.pt"],
        "s10-rank0.pt",
        "s10-rank0.pt s10-rank1.pt",
    ),
    (
        "skorch: parts without a number",
        ["params.pt", "optimizer.pt", "criterion.pt", "history.json"],
        "params.pt",
        "criterion.pt history.json optimizer.pt params.pt",
    ),
    (
        "DINOv2: each rank's pointer to its own file",
        [
            *(f"model_{n}.rank_{rank}.pth" for n in (9, 10) for rank in (0, 1)),
            *(f"last_checkpoint.rank_{n}:=model_10.rank_{n}.pth" for n in (0, 1)),
            "model_11.rank_0.pth",
        ],
        "model_10.rank_0.pth",
        "last_checkpoint.rank_0 last_checkpoint.rank_1 model_10.rank_0.pth model_10.rank_1.pth",
    ),
    (
        "what may be no state: not another step's tensors",
        [
            *("x-000001-state/:optimizer.bin random_states_0.pkl", "x-000001.safetensors"),
            *("x-000002.safetensors", "classes_80.txt", "vocab_of_mine.json"),
        ],
        "x-000001-state",
        "classes_80.txt vocab_of_mine.json x-000001-state/optimizer.bin "
        "x-000001-state/random_states_0.pkl",
    ),
    (
        "Marian: what continues its name",
        ["model.npz", "model.npz.optimizer.npz", "model.npz.progress.yml"],
        "model.npz",
        "model.npz model.npz.optimizer.npz model.npz.progress.yml",
    ),
    (
        "a folder for each rank",
        ["mp_rank_00/step=9.ckpt", "mp_rank_01/step=9.ckpt"],
        "mp_rank_00/step=9.ckpt",
        "mp_rank_00/step=9.ckpt mp_rank_01/step=9.ckpt",
    ),
    (
        "a framework's own folders",
        ["lightning_logs/version_0/checkpoints/last.ckpt", "lightning_logs/version_0/hparams.yaml"],
        "lightning_logs/version_0/checkpoints/last.ckpt",
        "lightning_logs/version_0/checkpoints/last.ckpt lightning_logs/version_0/hparams.yaml",
    ),
]


@pytest.fixture
def folders(tmp_path: Path) -> list[AttemptFolder]:
    study = StudyFolder(tmp_path / "study")
    found = [study.attempt(0, number) for number in (1, 2)]
    for folder in found:
        folder.checkpoints.mkdir(parents=True)
    return found


def all_of(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


@pytest.mark.parametrize(
    ("entries", "name", "files"), [case[1:] for case in FOLDERS], ids=[case[0] for case in FOLDERS]
)
def test_what_is_put_there(
    entries: list[str], name: str, files: str, folders: list[AttemptFolder]
) -> None:
    """The newest whole one with what belongs to it; no link leads to the earlier attempt."""
    first, second = folders
    build(first.checkpoints, entries)
    before = all_of(first.checkpoints)
    found = newest_checkpoint([first], {})
    assert found is not None and found.path == first.checkpoints / name
    put = carry_over(found.path, first, second)
    assert put == second.checkpoints / name == newest(second.checkpoints)
    assert all_of(second.checkpoints) == files.split()
    again = newest_checkpoint([second], {})
    assert again is not None and again.digest == found.digest
    for path in second.checkpoints.rglob("*"):
        assert path.resolve().is_relative_to(second.checkpoints.resolve())
        assert path.is_dir() or path.stat().st_ino != (first.checkpoints / name).stat().st_ino
    assert all_of(first.checkpoints) == before


def test_each_ranks_pointer_names_its_own_file(folders: list[AttemptFolder]) -> None:
    """Also where they had come further than the save from which the training goes on."""
    first, second = folders
    ranks = (0, 1)
    build(
        first.checkpoints,
        [
            *(f"model_{n}.rank_{rank}.pth" for n in (9, 10) for rank in ranks),
            *(f"last_checkpoint.rank_{rank}:=model_10.rank_{rank}.pth" for rank in ranks),
        ],
    )
    carry_over(first.checkpoints / "model_9.rank_0.pth", first, second)
    told = [(second.checkpoints / f"last_checkpoint.rank_{rank}").read_text() for rank in ranks]
    assert told == ["model_9.rank_0.pth", "model_9.rank_1.pth"]


def test_a_step_back(folders: list[AttemptFolder]) -> None:
    """The newest could not be resumed: neither it nor a pointer to it is handed on."""
    first, second = folders
    build(
        first.checkpoints,
        [f"global_step{n}/:mp_rank_00_model_states.pt" for n in (8, 9, 10)]
        + ["latest:=global_step10"],
    )
    for number in (8, 9, 10):
        path = first.checkpoints / f"global_step{number}/mp_rank_00_model_states.pt"
        path.write_text(str(number))
    refused = {digest(first.checkpoints / "global_step10")}
    found = newest_checkpoint([first], {}, refused=refused)
    assert found is not None
    assert carry_over(found.path, first, second) == second.checkpoints / "global_step9"
    assert (second.checkpoints / "latest").read_text() == "global_step9"
    assert sorted(os.listdir(second.checkpoints)) == ["global_step9", "latest"]


def test_all_or_nothing(folders: list[AttemptFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk is full in the middle, the new folder stays empty."""
    first, second = folders
    build(first.checkpoints, ["epoch_1/:a.pt b.pt c.pt"])
    copied = []

    def full(path: Path, goal: Path, *_: object) -> bool:
        copied.append(goal)
        if len(copied) == 2:
            raise OSError(28, "No space left on device")
        return True

    monkeypatch.setattr(module, "_clone_file", full)
    with pytest.raises(OSError, match="No space left"):
        carry_over(first.checkpoints / "epoch_1", first, second)
    assert os.listdir(second.root) == ["checkpoints"] and not os.listdir(second.checkpoints)


def test_by_the_users_pattern(folders: list[AttemptFolder]) -> None:
    first, second = folders
    build(first.checkpoints, ["a/state_1.bin", "a/state_2.bin", "last.pt"])
    found = newest_checkpoint([first], {}, "a/state_*.bin")
    assert found is not None
    put = carry_over(found.path, first, second, "a/state_*.bin")
    assert put == second.checkpoints / "a/state_2.bin"
    assert all_of(second.checkpoints) == ["a/state_2.bin"]
