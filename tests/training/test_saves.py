"""Which entry of a framework's own folder is its newest whole checkpoint.

Entries stand in the order in which they are written, a second apart: ``name``, ``folder/:files``,
``name:=text`` (a pointer's content; nothing for an empty file), ``link->name``. A ``/`` within a
name makes the folders above it.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.training.checkpoints import newest

LAYOUTS = [
    # transformers
    ("HF, TensorBoard on, killed before its first", ["runs/:events"], None),
    ("HF, killed in its first save", ["checkpoint-8/:model.safetensors config.json"], None),
    (
        "HF, killed in save",
        ["checkpoint-8/:model.safetensors trainer_state.json", "checkpoint-16/:model.safetensors"],
        "checkpoint-8",
    ),
    (
        "HF, ended",
        [
            "checkpoint-8/:model.safetensors trainer_state.json",
            "checkpoint-16/:model.safetensors trainer_state.json",
            *("config.json", "model.safetensors", "training_args.bin", "trainer_state.json"),
            *("all_results.json", "tokenizer.json", "README.md", "vocab.txt"),
        ],
        "checkpoint-16",
    ),
    (
        "HF, 999 and 1000",
        [
            "checkpoint-1000/:model.safetensors trainer_state.json",
            "checkpoint-999/:model.safetensors trainer_state.json",
        ],
        "checkpoint-1000",
    ),
    (
        "HF, shards and an index, one shard short",
        [
            "checkpoint-500/:model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
            "model.safetensors.index.json trainer_state.json optimizer.pt",
            "checkpoint-600/:model-00001-of-00002.safetensors trainer_state.json optimizer.pt",
        ],
        "checkpoint-500",
    ),
    (
        "HF before 4.40, killed in save",
        [
            "checkpoint-8/:pytorch_model.bin trainer_state.json",
            "tmp-checkpoint-16/:pytorch_model.bin trainer_state.json",
        ],
        "checkpoint-8",
    ),
    (
        "HF on several ranks, killed while they wrote",
        [
            "checkpoint-8/:model.safetensors rng_state_0.pth rng_state_1.pth trainer_state.json",
            "checkpoint-16/:model.safetensors rng_state_0.pth trainer_state.json",
        ],
        "checkpoint-8",
    ),
    (
        "HF with DeepSpeed",
        [
            "checkpoint-8/:latest zero_to_fp32.py global_step8/mp_rank_00_model_states.pt "
            "trainer_state.json",
            "checkpoint-16/:latest global_step16/mp_rank_00_model_states.pt",
        ],
        "checkpoint-8",
    ),
    (
        "PEFT",
        ["checkpoint-8/:adapter_model.safetensors adapter_config.json trainer_state.json"],
        "checkpoint-8",
    ),
    # Accelerate
    (
        "Accelerate, its own numbering",
        [
            f"checkpoints/checkpoint_{n}/:model.safetensors optimizer.bin scheduler.bin "
            "random_states_0.pkl"
            for n in (9, 10)
        ]
        + ["checkpoints/checkpoint_11/:model.safetensors optimizer.bin"],
        "checkpoints/checkpoint_10",
    ),
    (
        "diffusers with Accelerate",
        [
            "checkpoint-500/:model.safetensors optimizer.bin random_states_0.pkl",
            "checkpoint-1000/:model.safetensors",
            "logs/:text2image/events.out.tfevents.1",
        ],
        "checkpoint-500",
    ),
    (
        "a folder for each epoch of a loop of one's own",
        ["epoch_1/:model.safetensors config.json opt.pt", "epoch_2/:model.safetensors config.json"],
        "epoch_1",
    ),
    # PyTorch
    (
        "DCP, killed in save",
        ["step-10/:__0_0.distcp .metadata", "step-20/:__0_0.distcp"],
        "step-10",
    ),
    ("DCP, killed in its first save", ["step-20/:__0_0.distcp __1_0.distcp"], None),
    (
        "torchtitan",
        [f"checkpoint/step-{n}/:__0_0.distcp __1_0.distcp .metadata" for n in (90, 100)],
        "checkpoint/step-100",
    ),
    ("nanoGPT", ["ckpt.pt"], "ckpt.pt"),
    ("last and a weights-only best", ["last.pt", "best.pt"], "last.pt"),
    ("the ImageNet example", ["checkpoint.pth.tar", "model_best.pth.tar"], "checkpoint.pth.tar"),
    (
        "timm",
        ["args.yaml", "summary.csv", "last.pth.tar", "checkpoint-5.pth.tar", "model_best.pth.tar"],
        "last.pth.tar",
    ),
    (
        "YOLO",
        [
            *("train/weights/epoch9.pt", "train/weights/last.pt", "train/weights/best.pt"),
            *("train/weights/epoch10.pt", "train/args.yaml", "train/results.csv"),
        ],
        "train/weights/last.pt",
    ),
    (
        "YOLO in its own runs",
        ["runs/detect/train/weights/last.pt", "runs/detect/train2/weights/last.pt"],
        "runs/detect/train2/weights/last.pt",
    ),
    (
        "detectron2",
        [
            "model_0000999.pth",
            "last_checkpoint:=model_0000999.pth",
            "model_0001999.pth:=",
            "log.txt",
        ],
        "model_0000999.pth",
    ),
    (
        "detectron2, ended",
        [
            "model_0000999.pth",
            "model_final.pth",
            "last_checkpoint:=model_final.pth",
            "metrics.json",
        ],
        "model_final.pth",
    ),
    (
        "mmengine",
        [
            "epoch_9.pth",
            "epoch_10.pth",
            "last_checkpoint:=/old/place/epoch_10.pth",
            "vis_data/:a.json",
        ],
        "epoch_10.pth",
    ),
    (
        "fairseq",
        [
            *("checkpoint2.pt", "checkpoint_2_500.pt", "checkpoint3.pt"),
            *("checkpoint_best.pt", "checkpoint_last.pt"),
        ],
        "checkpoint_last.pt",
    ),
    (
        "fairseq, its last is empty",
        ["checkpoint9.pt", "checkpoint10.pt", "checkpoint_last.pt:="],
        "checkpoint10.pt",
    ),
    (
        "guided-diffusion, killed before the optimizer",
        [
            *("model010000.pt", "ema_0.9999_010000.pt", "opt010000.pt"),
            *("model020000.pt", "ema_0.9999_020000.pt"),
        ],
        "model010000.pt",
    ),
    (
        "Stable-Baselines3",
        [
            "rl_model_1000_steps.zip",
            "rl_model_10000_steps.zip",
            "rl_model_9000_steps.zip",
            "best_model.zip",
        ],
        "rl_model_10000_steps.zip",
    ),
    (
        "Stable-Baselines3 with its buffer, killed before it",
        [
            *("rl_model_1000_steps.zip", "rl_model_replay_buffer_1000_steps.pkl"),
            *("rl_model_vecnormalize_1000_steps.pkl", "rl_model_2000_steps.zip"),
        ],
        "rl_model_1000_steps.zip",
    ),
    # Lightning
    ("Lightning", ["epoch=3-step=120.ckpt", "last.ckpt"], "last.ckpt"),
    ("Lightning, run again in place", ["last-v1.ckpt", "last.ckpt"], "last-v1.ckpt"),
    (
        "Lightning, a metric in the name",
        ["epoch=9-val_loss=0.25.ckpt", "epoch=10-val_loss=0.31.ckpt", "hparams.yaml"],
        "epoch=10-val_loss=0.31.ckpt",
    ),
    (
        "Lightning's own folders",
        [
            "lightning_logs/version_1/checkpoints/epoch=0-step=10.ckpt",
            "lightning_logs/version_1/metrics.csv",
            "lightning_logs/version_0/checkpoints/epoch=9-step=100.ckpt",
            "lightning_logs/version_0/hparams.yaml",
        ],
        "lightning_logs/version_1/checkpoints/epoch=0-step=10.ckpt",
    ),
    (
        "Lightning, last is a link",
        ["epoch=3-step=120.ckpt", "epoch=4-step=160.ckpt", "last.ckpt->epoch=4-step=160.ckpt"],
        "epoch=4-step=160.ckpt",
    ),
    (
        "Lightning, sharded, killed in save",
        [
            "epoch=0-step=10.ckpt/:.metadata __0_0.distcp meta.pt",
            "epoch=1-step=20.ckpt/:__0_0.distcp",
        ],
        "epoch=0-step=10.ckpt",
    ),
    ("Lightning, told to leave by Slurm", ["last.ckpt", "hpc_ckpt_1.ckpt"], "hpc_ckpt_1.ckpt"),
    # DeepSpeed, Megatron, Composer and others that point
    (
        "DeepSpeed, killed in save",
        [
            "global_step10/:mp_rank_00_model_states.pt zero_pp_rank_0_mp_rank_00_optim_states.pt",
            *("latest:=global_step10", "zero_to_fp32.py"),
            "global_step20/:mp_rank_00_model_states.pt zero_pp_rank_0_mp_rank_00_optim_states.pt",
        ],
        "global_step10",
    ),
    ("DeepSpeed, killed in its first save", ["global_step10/:mp_rank_00_model_states.pt"], None),
    (
        "DeepSpeed, killed in the pointer",
        [
            "global_step9/:mp_rank_00_model_states.pt",
            "global_step10/:mp_rank_00_model_states.pt",
            "latest:=",
        ],
        "global_step10",
    ),
    (
        "DeepSpeed, the pointer says nothing that is known",
        ["global_step9/:mp_rank_00_model_states.pt", "latest"],
        "global_step9",
    ),
    (
        "TensorFlow's pointer, too",
        ["ckpt-4.index", "ckpt-4.data-00000-of-00001", "checkpoint"],
        "ckpt-4",
    ),
    (
        "DeepSpeed, the named one is gone",
        [
            "global_step9/:mp_rank_00_model_states.pt",
            "latest:=global_step10",
            "global_step11/:mp_rank_00_model_states.pt",
        ],
        "global_step9",
    ),
    (
        "Megatron",
        [
            "iter_0000100/:mp_rank_00/model_optim_rng.pt mp_rank_01/model_optim_rng.pt",
            "latest_checkpointed_iteration.txt:=100",
            "iter_0000200/:mp_rank_00/model_optim_rng.pt",
        ],
        "iter_0000100",
    ),
    (
        "verl, killed in save",
        [
            "global_step_100/:data.pt actor/model_world_size_2_rank_0.pt "
            "actor/model_world_size_2_rank_1.pt",
            "latest_checkpointed_iteration.txt:=100",
            "global_step_200/:actor/model_world_size_2_rank_0.pt",
        ],
        "global_step_100",
    ),
    (
        "Composer",
        [
            *("ep0-ba50-rank0.pt", "ep0-ba50-rank1.pt", "ep1-ba100-rank0.pt", "ep1-ba100-rank1.pt"),
            "latest-rank0.pt->ep1-ba100-rank0.pt",
        ],
        "ep1-ba100-rank0.pt",
    ),
    (
        "ranks' files, killed half way",
        ["step100-rank0.pt", "step100-rank1.pt", "step200-rank0.pt"],
        "step100-rank0.pt",
    ),
    ("parts of four, one short", ["model-00001-of-00002.pt"], None),
    # JAX
    ("Orbax, killed in save", ["4/:_CHECKPOINT_METADATA", "5.orbax-checkpoint-tmp/:d"], "4"),
    (
        "Orbax, with a time",
        ["99/:default/_METADATA default/d/x", "100.orbax-checkpoint-tmp-1712345678/:default/d/x"],
        "99",
    ),
    (
        "Orbax on a store without renaming",
        ["9/:default/d/x commit_success.txt", "10/:default/d/x"],
        "9",
    ),
    ("Orbax, an item being written", ["9/:_METADATA", "10/:state.orbax-checkpoint-tmp-7/d/x"], "9"),
    ("Flax", ["checkpoint_9", "checkpoint_10", "checkpoint_tmp"], "checkpoint_10"),
    # TensorFlow, Keras
    (
        "TensorFlow",
        [
            *(
                "ckpt-4.index",
                "ckpt-4.data-00000-of-00001",
                'checkpoint:=model_checkpoint_path: "ckpt-4"',
            ),
            "ckpt-5.data-00000-of-00001",
        ],
        "ckpt-4",
    ),
    (
        "TensorFlow without its file",
        [
            "ckpt-9.index",
            "ckpt-9.data-00000-of-00001",
            "ckpt-10.index",
            "ckpt-10.data-00000-of-00001",
        ],
        "ckpt-10",
    ),
    ("Keras", ["epoch-09.keras", "epoch-10.keras", "logs/:train/events"], "epoch-10.keras"),
    ("Keras, weights", ["ckpt.09.weights.h5", "ckpt.10.weights.h5"], "ckpt.10.weights.h5"),
    (
        "Keras' BackupAndRestore",
        ["latest.weights.h5", "training_metadata.json"],
        "latest.weights.h5",
    ),
    ("… in a folder", ["backup/:latest.weights.h5 training_metadata.json"], "backup"),
    (
        "Orbax, its items are whole and it is not",
        [
            "9/:_CHECKPOINT_METADATA commit_success.txt default/commit_success.txt default/d/x",
            "10/:_CHECKPOINT_METADATA default/commit_success.txt default/d/x",
        ],
        "9",
    ),
    # Trees, scikit-learn
    (
        "CatBoost",
        [
            *("catboost_info/experiment.cbsnapshot", "catboost_info/learn_error.tsv"),
            *("catboost_info/catboost_training.json", "catboost_info/learn/events.out.tfevents"),
        ],
        "catboost_info/experiment.cbsnapshot",
    ),
    ("XGBoost", ["model_9.ubj", "model_10.ubj"], "model_10.ubj"),
    ("XGBoost's JSON", ["model_9.json", "model_10.json", "config.json"], "model_10.json"),
    ("LightGBM", ["model_9.txt", "model_10.txt", "log.txt"], "model_10.txt"),
    (
        "LightGBM's snapshots",
        ["m.txt.snapshot_iter_9", "m.txt.snapshot_iter_10"],
        "m.txt.snapshot_iter_10",
    ),
    (
        "scikit-learn",
        ["random_forest_9.joblib", "random_forest_10.joblib"],
        "random_forest_10.joblib",
    ),
    # A file beside it says that it is unfinished
    (
        "NeMo, killed in save",
        [
            *("m--val_loss=2.1-step=100.ckpt", "m--val_loss=2.0-step=200-last.ckpt"),
            "m--val_loss=2.0-step=200-last-unfinished:=",
        ],
        "m--val_loss=2.1-step=100.ckpt",
    ),
    (
        "NeMo 2, killed in save",
        [
            *(f"m--step={n}/:weights/.metadata weights/__0_0.distcp" for n in (99, 199)),
            "m--step=199-unfinished:=",
        ],
        "m--step=99",
    ),
    (
        "NeMo, a folder for each rank, killed in save",
        [
            *(f"mp_rank_{rank:02}/m-step={n}.ckpt" for n in (10, 20) for rank in (0, 1)),
            "m-step=20-unfinished:=",
        ],
        "mp_rank_00/m-step=10.ckpt",
    ),
    (
        "a folder for each rank, one of them killed",
        ["mp_rank_00/step=10.ckpt", "mp_rank_01/step=10.ckpt", "mp_rank_00/step=20.ckpt"],
        "mp_rank_00/step=10.ckpt",
    ),
    # Pointers of other names
    (
        "DINOv2, a pointer for each rank, killed in save",
        [
            *(f"model_0001249.rank_{rank}.pth" for rank in (0, 1)),
            *(f"last_checkpoint.rank_{n}:=model_0001249.rank_{n}.pth" for n in (0, 1)),
            "model_0002499.rank_0.pth",
        ],
        "model_0001249.rank_0.pth",
    ),
    (
        "big_vision",
        [
            *("checkpoint.bv-000001000/:a.npy", "checkpoint.bv-000002000/:a.npy"),
            "checkpoint.bv-LAST:=000001000",
        ],
        "checkpoint.bv-000001000",
    ),
    (
        "OpenRLHF: DeepSpeed's in a folder",
        ["_actor/global_step50/:mp_rank_00_model_states.pt", "_actor/latest:=global_step50"],
        "_actor/global_step50",
    ),
    (
        "ESPnet: latest links to a model, the state is kept up beside",
        ["1epoch.pth", "checkpoint.pth", "2epoch.pth", "latest.pth->2epoch.pth"],
        "checkpoint.pth",
    ),
    # Several files that are one save
    (
        "AllenNLP, killed before the optimizer's",
        ["model_state_e0_b0.th", "training_state_e0_b0.th", "model_state_e1_b0.th"],
        "training_state_e0_b0.th",
    ),
    ("a GAN, killed between its two", ["net_g_5.pth", "net_d_5.pth", "net_g_6.pth"], "net_d_5.pth"),
    (
        "BasicSR, killed before the state",
        ["models/net_g_5000.pth", "training_states/5000.state", "models/net_g_10000.pth"],
        "training_states/5000.state",
    ),
    (
        "SpeechBrain, which writes its list first, killed in save",
        [
            "CKPT+2024-01-01+10-00-00+00/:CKPT.yaml brain.ckpt model.ckpt",
            "CKPT+2024-01-01+11-00-00+00/:CKPT.yaml brain.ckpt",
        ],
        "CKPT+2024-01-01+10-00-00+00",
    ),
    (
        "PaddleDetection",
        ["0.pdparams", "0.pdopt", "1.pdparams", "1.pdopt", "best_model.pdparams"],
        "1.pdparams",
    ),
    # What lies beside states, and came later
    (
        "TRL, with what was generated",
        ["checkpoint-10/:model.safetensors trainer_state.json", "completions/:c_00010.parquet"],
        "checkpoint-10",
    ),
    ("TRL, before its first", ["completions/:completions_00010.parquet"], None),
    ("RSL-RL", ["model_950.pt", "model_1000.pt", "git/:rsl_rl.diff"], "model_1000.pt"),
    (
        "StyleGAN3",
        ["network-snapshot-000400.pkl", "training_options.json", "fakes000400.png"],
        "network-snapshot-000400.pkl",
    ),
    ("StyleGAN3, before its first", ["training_options.json", "reals.png"], None),
    ("OpenCLIP", ["checkpoints/epoch_latest.pt", "params.txt"], "checkpoints/epoch_latest.pt"),
    (
        "kohya's scripts",
        ["out-000001-state/:optimizer.bin random_states_0.pkl", "out-000001.safetensors"],
        "out-000001-state",
    ),
    (
        "nnU-Net",
        ["fold_0/checkpoint_latest.pth", "fold_0/checkpoint_best.pth"],
        "fold_0/checkpoint_latest.pth",
    ),
    (
        "data that a loop pickles",
        ["train_state_2000", "dataset.pkl", "labels.json"],
        "train_state_2000",
    ),
    ("a text of one's own, alone", ["c.txt"], "c.txt"),
    ("an agent of one's own, alone", ["agent.pth", "curve.png"], "agent.pth"),
    ("skorch", ["params.pt", "optimizer.pt", "criterion.pt", "history.json"], "params.pt"),
    ("Marian", ["model.npz", "model.npz.optimizer.npz", "model.npz.progress.yml"], "model.npz"),
    ("gensim", ["w_9.model", "w_9.model.npy", "w_10.model", "w_10.model.npy"], "w_10.model"),
    ("gensim, killed in save", ["w_9.model", "w_9.model.npy", "w_10.model"], "w_9.model"),
    (
        "LAVIS",
        ["20240101123/checkpoint_3.pth", "20240101123/checkpoint_best.pth"],
        "20240101123/checkpoint_3.pth",
    ),
    (
        "SheepRL",
        ["checkpoint/ckpt_1000_0.ckpt", "checkpoint/ckpt_2000_0.ckpt"],
        "checkpoint/ckpt_2000_0.ckpt",
    ),
    ("MindSpore", ["net-1_100.ckpt", "net-2_100.ckpt", "net-graph.meta"], "net-2_100.ckpt"),
    (
        "torchsnapshot, killed in save",
        ["step-10/:0/x .snapshot_metadata", "step-20/:0/x"],
        "step-10",
    ),
    (
        "samples by epoch",
        ["epoch_1.pt", "samples/epoch_2.pt", "samples/grid/a.pt", "eval/epoch_2.pkl"],
        "epoch_1.pt",
    ),
    # In a folder of a run's name
    (
        "rl_games",
        ["nn/last_Ant_ep_100_rew_5.12.pth", "nn/last_Ant_ep_200_rew_4.0.pth", "nn/Ant.pth"],
        "nn/last_Ant_ep_200_rew_4.0.pth",
    ),
    (
        "RLlib",
        [
            *(
                f"PPO_x/checkpoint_0000{n}/:algorithm_state.pkl rllib_checkpoint.json"
                for n in (10, 20)
            ),
            *("PPO_x/params.pkl", "PPO_x/result.json"),
        ],
        "PPO_x/checkpoint_000020",
    ),
    (
        "parts of several kinds in a folder",
        ["agent/actor_latest.pt", "agent/critic_latest.pt"],
        "agent",
    ),
    # Saved into the folder itself
    ("DCP, flat", ["__0_0.distcp", "__1_0.distcp", ".metadata"], "."),
    ("DCP, flat, killed in save", ["__0_0.distcp", "__1_0.distcp"], None),
    ("Accelerate, flat", ["model.safetensors", "optimizer.bin", "random_states_0.pkl"], "."),
    # By hand
    ("DETR", ["checkpoint.pth", "checkpoint0099.pth"], "checkpoint.pth"),
    ("a model exported at the end", ["checkpoint.pt", "model.pt"], "checkpoint.pt"),
    ("an optimizer's own file", ["epoch-3-model.pt", "epoch-3-optimizer.pt"], "epoch-3-model.pt"),
    ("days first", ["31-12-2023.pt", "01-01-2024.pt"], "01-01-2024.pt"),
    ("days first in one year", ["28-02-2024.pt", "01-03-2024.pt"], "01-03-2024.pt"),
    ("dates", ["2024-01-05_10-22-33.pt", "2024-01-05_09-59-59.pt"], "2024-01-05_10-22-33.pt"),
    (
        "safetensors alone",
        ["step_900.safetensors", "step_1000.safetensors"],
        "step_1000.safetensors",
    ),
    ("a best alone", ["best.pt"], "best.pt"),
    ("an older best, a numbered state", ["epoch_3.pt", "best.pt"], "epoch_3.pt"),
    ("all empty", ["last.pt:=", "epoch_1.pt:="], None),
    ("an empty weight in a folder", ["step_1/:model.pt", "step_2/:model.pt:="], "step_1"),
    (
        "being written",
        ["epoch_1.pt", ".epoch_2.pt", "epoch_2.pt.tmp", "tmpab12cd34", "e.part"],
        "epoch_1.pt",
    ),
    ("a backup", ["last.pt.bak", "last.pt"], "last.pt"),
    ("a backup, and the last is empty", ["last.pt.bak", "last.pt:="], "last.pt.bak"),
    ("last left behind", ["last.pt", "step_100.pt", "step_200.pt"], "step_200.pt"),
    ("copied, times by chance", ["step_200.pt", "last.pt", "step_100.pt", "step_50.pt"], "last.pt"),
    ("a marker of one's own", ["step_1/:model.pt DONE", "step_2/:model.pt"], "step_1"),
    ("killed_in_save", ["checkpoint-2/:state.json", "checkpoint-3/:part.bin"], "checkpoint-2"),
    ("logs", ["wandb/:run-1/files/x", "plots/:a.png", "tb_logs/:events", "train.log"], None),
    ("an empty folder", ["epoch_1/:"], None),
    (
        "the reference trainer",
        [
            "epoch-0003-0123456789abcdef.pt",
            "epoch-0003.000120-fedcba9876543210.pt",
            "epoch-0002-00112233445566aa.pt",
        ],
        "epoch-0003.000120-fedcba9876543210.pt",
    ),
]


def build(folder: Path, entries: list[str]) -> None:
    for number, entry in enumerate(entries):
        name, link, target = entry.partition("->")
        if link:
            (folder / name).symlink_to(target)
            continue
        name, is_folder, files = entry.partition("/:")
        name, is_told, text = name.partition(":=")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            path.mkdir()
            for file in files.split():
                inside, is_empty, _ = file.partition(":=")
                (path / inside).parent.mkdir(parents=True, exist_ok=True)
                (path / inside).write_text("" if is_empty else "x")
        else:
            path.write_text(text if is_told else "x")
        os.utime(path, (1e9 + number, 1e9 + number))


def test_layouts(tmp_path: Path) -> None:
    """All in one process: they are many, and each is quick."""
    wrong = []
    for number, (what, entries, expected) in enumerate(LAYOUTS):
        folder = tmp_path / str(number) / "checkpoints"
        folder.mkdir(parents=True)
        build(folder, entries)
        found = newest(folder)
        name = None if found is None else str(found.relative_to(folder))
        if name != expected:
            wrong.append(f"{what}: {name}, not {expected}")
    assert not wrong, "\n".join(wrong)


def with_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"model": torch.zeros(50, 50), "epoch": 3}, path)


def with_old_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"model": torch.ones(50, 50)}, path, _use_new_zipfile_serialization=False)


def with_joblib(path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("joblib").dump({"coefficients": numpy.ones((50, 50))}, path)


def with_safetensors(path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [50], "data_offsets": [0, 200]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\1" * 200)


def with_keras(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.weights.h5", b"\2" * 500)


def with_hdf5(path: Path) -> None:
    path.write_bytes(
        b"\x89HDF\r\n\x1a\n" + bytes([2, 8, 8, 0]) + struct.pack("<QQQ", 0, 0, 500) + b"\3" * 464
    )


def with_xgboost(path: Path) -> None:
    path.write_text(json.dumps({"learner": {"trees": list(range(100))}}))


def with_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": list(range(1000))}))


WRITERS = [
    *((with_torch, ".pt"), (with_joblib, ".joblib"), (with_safetensors, ".safetensors")),
    *((with_keras, ".keras"), (with_hdf5, ".h5"), (with_xgboost, ".json"), (with_pickle, ".pkl")),
]


@pytest.mark.parametrize(("write", "end"), WRITERS)
def test_a_file_that_was_cut_short(write: Callable[[Path], None], end: str, tmp_path: Path) -> None:
    """Killed in the middle of a save: the one before is the newest, also within a folder."""
    old, new = tmp_path / f"epoch_1{end}", tmp_path / f"epoch_2{end}"
    write(old)
    write(new)
    assert newest(tmp_path) == new
    whole = new.read_bytes()
    for length in (len(whole) // 2, len(whole) - 1):
        new.write_bytes(whole[:length])
        assert newest(tmp_path) == old
    inside = tmp_path / "saves"
    for number, content in ((1, whole), (2, whole[:-1])):
        (inside / f"step_{number}").mkdir(parents=True)
        (inside / f"step_{number}" / f"model{end}").write_bytes(content)
    assert newest(inside) == inside / "step_1"


def test_old_torch_files_are_whole(tmp_path: Path) -> None:
    """Their numbers lie behind what looks like their end."""
    with_old_torch(tmp_path / "last.pt")
    assert newest(tmp_path) == tmp_path / "last.pt"


def test_distributed_checkpoints(tmp_path: Path) -> None:
    """A real one of torch.distributed.checkpoint is whole; without .metadata it is not."""
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    for step in (9, 10):
        dcp.save({"w": torch.ones(4)}, checkpoint_id=tmp_path / f"step-{step}", no_dist=True)
    assert newest(tmp_path) == tmp_path / "step-10"
    (tmp_path / "step-10" / ".metadata").unlink()
    assert newest(tmp_path) == tmp_path / "step-9"


PATTERNS = [
    ("last*.pt", ["last.pt", "epoch_9.pt", "last2.pt"], "last2.pt"),
    ("best.pt", ["last.pt", "best.pt"], "best.pt"),
    ("**/step-*", ["a/step-9/:x.pt", "a/step-10/:x.pt", "b.pt"], "a/step-10"),
    ("config.json", ["config.json", "last.pt"], "config.json"),
    ("checkpoint-*", ["checkpoint-8/:model.safetensors config.json"], "checkpoint-8"),
    (
        "checkpoint-*",
        [
            "checkpoint-8/:model.safetensors trainer_state.json",
            "checkpoint-16/:model.safetensors",
            "tmp-checkpoint-24/:model.safetensors",
        ],
        "checkpoint-8",
    ),
    ("*.pt", ["a.pt:=", "b.pt.tmp"], None),
    ("nothing*", ["last.pt"], None),
    ("*", ["step-1/:__0_0.distcp"], None),
]


def test_what_the_user_says_are_checkpoints(tmp_path: Path) -> None:
    """``checkpoint_files``: that alone counts, and what is not whole still does not."""
    for number, (pattern, entries, expected) in enumerate(PATTERNS):
        folder = tmp_path / str(number) / "checkpoints"
        folder.mkdir(parents=True)
        build(folder, entries)
        found = newest(folder, pattern)
        assert (found and str(found.relative_to(folder))) == expected, pattern


def test_a_pattern_leads_out_of_no_folder(tmp_path: Path) -> None:
    """Nor does a link that matches it."""
    folder = tmp_path / "checkpoints"
    (folder / "own").mkdir(parents=True)
    (folder / "own/last.pt").write_text("x")
    (tmp_path / "last.pt").write_text("x")
    (folder / "last.pt").symlink_to(tmp_path / "last.pt")
    assert newest(folder, "last*.pt") is None
    assert newest(folder, "**/last.pt") == folder / "own/last.pt"
