"""Every reader of outside text: what it is given when all is well, and how it is called.

A reader answers or refuses with an error of sweep's. A new one gets a row here: ``test_readers``
looks for modules of sweep that parse text and have none.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep import report
from sweep.cli import run_command
from sweep.control import identity, sick_nodes
from sweep.core import cells, placeholders, shell_text
from sweep.core.errors import EXIT_FAULT, SweepError
from sweep.core.files import read_json, read_tail
from sweep.core.hostlist import expand_nodes
from sweep.core.masking import hide_arguments, mask, mask_url
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.programs import read_program
from sweep.core.space import Parameter, Space
from sweep.core.study import Objective, Study
from sweep.core.system import memory
from sweep.core.terminal_text import VisibleText, visible_lines
from sweep.provenance import container, installed, manifest, packages
from sweep.schedulers.local import events
from sweep.schedulers.slurm import own_task
from sweep.schedulers.slurm.text import (
    accounting,
    consumed_energy,
    extra,
    limits,
    nodes,
    queue,
    reasons,
    scontrol,
    states,
    steps,
    submit,
)
from sweep.storage.embedded.folder import Folder, is_local, read_record
from sweep.storage.url import describe, dsn, normalise
from sweep.studyfile import load
from sweep.studyfile.defaults import read_defaults
from sweep.studyfile.overrides import parse_setting
from sweep.studyfile.starter.convert import convert
from sweep.studyfile.starter.flags import read_help, scan
from sweep.studyfile.starter.init import draft_study
from sweep.tasks.sharding import examples
from sweep.training import attempt_files, layouts, memory_messages, save_names
from sweep.training.command import first_failure, foreign_failure
from sweep.training.journal import Journal, read_line

STUDY = """\
name: s
command: python train.py --lr {lr} --opt {opt}
objective: {metric: loss, direction: minimize, from: {stdout: "loss=([0-9.e+-]+)"}}
space:
  lr: {type: float, low: 1e-4, high: 1e-1, log: true}
  opt: {type: categorical, choices: [sgd, 2, "2", true, null]}
  momentum: {type: float, low: 0, high: 1, when: {opt: sgd}}
fixed: {epochs: 5, sizes: [1, 2]}
trials: 30
max_parallel: 4
resources: {time: "1-00:30:00", nodes: 1, gpus: "a100:2", cpus: 4, memory: 8G}
sampler: {type: tpe}
pruner: {type: asha, min_resource: 3, reduction_factor: 3}
slurm: {partition: gpu, extra: ["--exclude=n[1-3]", "--nodelist n7"]}
environment: {runtime: apptainer, image: a.sif, binds: ["/data:/data:ro"], env: {A: b, B: null}}
storage: postgresql://user@host:5432/database
"""
WANDB = """\
program: train.py
method: bayes
metric: {name: loss, goal: minimize}
parameters:
  lr: {distribution: log_uniform_values, min: 0.001, max: 0.1}
  batch: {values: [16, 32]}
  layers: {distribution: q_uniform, min: 8, max: 64, q: 8}
run_cap: 20
early_terminate: {type: hyperband, min_iter: 3}
"""
HYDRA = """\
defaults: [_self_, {override hydra/sweeper: optuna}]
hydra:
  sweeper:
    n_trials: 20
    n_jobs: 2
    direction: minimize
    sampler: {_target_: optuna.samplers.TPESampler, seed: 3}
    params:
      lr: tag(log, interval(1e-4, 1e-1))
      opt: choice(sgd, adam)
      n: "range(1, 9, step=2)"
lr: 0.1
out: ${lr}
"""
NNI = """\
searchSpace:
  lr: {_type: loguniform, _value: [0.0001, 0.1]}
  n: {_type: randint, _value: [1, 10]}
trialCommand: python train.py
trialConcurrency: 2
maxTrialNumber: 20
tuner: {name: TPE, classArgs: {optimize_mode: maximize}}
"""
DETERMINED = """\
name: d
entrypoint: python3 train.py
hyperparameters:
  lr: {type: log, base: 10, minval: -4, maxval: -1}
  n: {type: int, minval: 1, maxval: 8}
searcher: {name: adaptive_asha, metric: loss, max_trials: 20, max_length: {batches: 100}}
"""
SBATCH = """\
#!/bin/bash
#SBATCH --array=0-29%4
#SBATCH --time=1-01:00:00
#SBATCH --nodes=1
#SBATCH --cpus-per-task=4
#SBATCH --gres=gpu:a100:2
#SBATCH --mem=8G
LRS=(0.1 0.01 0.001)
LR=${LRS[$SLURM_ARRAY_TASK_ID % 3]}
python train.py --lr $LR --seed $SLURM_ARRAY_TASK_ID
"""
TASKS = """\
#!/bin/bash
#SBATCH --array=1-6
declare -A rate=([sgd]=0.1 [adam]=1e-3)
seeds=(1 2)
n=$(( (SLURM_ARRAY_TASK_ID - 1) / 2 ? 8 << 1 : ${#seeds[@]} ** 2 ))
for opt in sgd adam; do
  case "$opt" in sgd|rms) wd=0 ;; *) wd=1e-2 ;; esac
  [[ $SLURM_ARRAY_TASK_ID -gt 4 && $opt == sgd ]] && continue
  read -r a b <<< "$(seq -f %02g 1 3 | tail -n 2 | tr '\\n' ' ')"
  python train.py --lr "${rate[$opt]}" --wd $wd --n $n --seed ${seeds[n % 2]} --tag "${opt%d}_$a$b"
done
"""
OPTUNA = """\
import optuna
def objective(trial):
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    n = trial.suggest_int("n", 1, 9, step=2)
    o = trial.suggest_categorical("o", ["a", "b"])
    return lr
study = optuna.create_study(direction="minimize")
study.optimize(objective, n_trials=20)
"""
WANDB_DICT = 'config = {"method": "grid", "parameters": {"a": {"values": [1, 2]}}}\n'
SCRIPT = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3, help="rate")
parser.add_argument("--opt", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--epochs", type=int, default=10)
args = parser.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch} loss={0.1:.4f} acc: {1.0}")
"""
NOTEBOOK = json.dumps(
    {
        "cells": [{"cell_type": "code", "source": WANDB_DICT.splitlines(True), "metadata": {}}],
        "nbformat": 4,
        "metadata": {"language_info": {"name": "python"}},
    }
)
SHELL = """\
#!/bin/bash
LR=${LR:-0.1}
while getopts "l:n:" o; do case $o in l) LR=$OPTARG;; n) N=$OPTARG;; esac; done
case "$1" in --lr) LR="$2"; shift 2;; *) ;; esac
python train.py --lr "$LR"
"""
HELP = "usage: t [-h] [--lr LR]\n\noptions:\n  --lr LR  rate (default: 0.1)\n  --opt {sgd,adam}\n"
METRICS = (
    '{"step": 3, "metrics": {"loss": 0.5, "acc": 1}, "time": 1.5}\n'
    '{"step": 4, "metrics": {"loss": "NaN"}, "rank": 0, "pid": 17}\n{"step": 5, "metrics": {}}\n'
)
PRINTED = "epoch 1: 10%|#   | 1/10 [00:01<00:09, loss=0.5]\rloss=0.25 step=3\n| a | loss=1e-3 |\n"
CSV = "rank,trial,state,value,params.lr,params.opt,params.momentum\n1,7,complete,0.5,0.01,sgd,0.9\n"
SQUEUE = (
    "55|3|58|RUNNING|1-00:10:00|2024-01-01T00:00:00|2024-01-01T00:00:00|n[1-2]|None\n"
    "55|4-9%4|55|PENDING|UNLIMITED|N/A|2024-01-01T00:00:00||Priority\n"
    "60|N/A|60|COMPLETED|0:00|x|y|n1|None\n"
)
SACCT = (
    "55_3|58|CANCELLED by 1000|0:15|0:0|12|n[1-2]|2024-01-01T00:00:00|2024-01-01|Unknown|None\n"
    "55_3.batch|58.batch|OUT_OF_MEMORY|0:125||12|n1|a|b|c|\n"
    "55_[4-9%4]|55|PENDING|0:0|0:0|0|None assigned|2024-01-01T00:00:00|Unknown|Unknown|Priority\n"
)
CONFIG = (
    "ClusterName             = c\nMaxArraySize            = 1001\nKillWait   = 30 sec\n"
    "AccountingStorageType   = accounting_storage/slurmdbd\nSLURM_VERSION           = 22.05.8\n"
)
PARTITION = (
    "PartitionName=main AllocNodes=ALL Default=YES MaxTime=1-00:00:00 Nodes=n[1-4] State=UP\n"
    "PartitionName=gpu AllocNodes=n[1-3] DefaultTime=00:01:00 MaxTime=UNLIMITED Nodes=n[1-4]\n"
)
ASSOCIATIONS = "proj|me||10|100|5|50|1-00:00:00|normal,long|normal|proj\nother|me|gpu||||||||proj\n"
QOS = "normal|10|100|5|50|7|70|1-00:00:00\nlong|||||||\n"
JOB = (
    "JobId=55 ArrayJobId=55 TRES=cpu=4,mem=8G,node=1 AllocTRES=cpu=4,mem=1.5T,node=1 NodeList=n1\n"
)
MANIFEST = json.dumps(
    {
        "run": "r",
        "code": {"commit": "a" * 40, "snapshot": "s"},
        "environment": {"packages": {"torch": "2"}, "variables": {}},
        "data": {},
        "execution": {"command": ["python", "t.py"], "launcher": "python"},
        "earlier": {"q": {"code": {}}},
    }
)
EXIT = '{"exit_code": 1, "signal": null, "told": "", "resumed": true, "suspended_s": 1.5}'
FAILURES = (
    'Traceback (most recent call last):\n  File "t.py", line 3\nValueError: bad lr\n'
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    "[rank1]: RuntimeError: NCCL error\nsrun: error: n1: task 3: Exited with exit code 9\n"
    "ROOT CAUSE: [0]: time: 2024-01-01_00:00:00 host: n1 rank: 1 (local_rank: 1) "
    "exitcode: -9 (pid: 1)\n"
)
SPACE = Space(
    (
        Parameter("lr", "float", low=1e-4, high=0.1),
        Parameter("n", "int", low=1, high=9),
        Parameter("opt", "categorical", choices=("sgd", 1, "1", True, None, [1, 2])),
    )
)


@dataclass(frozen=True)
class Reader:
    """One reader.

    Attributes:
        good: Texts as they are when all is well.
        read: Called with a text's bytes and an empty folder.
        covers: Modules of sweep that it reaches, for the inventory.
        refuses: Errors of a plain function that its callers handle.
    """

    name: str
    good: Sequence[str]
    read: Callable[[bytes, Path], Any]
    covers: tuple[str, ...] = ()
    refuses: tuple[type[Exception], ...] = ()


def text_of(data: bytes) -> str:
    """Return bytes as a program's output or an argument is decoded."""
    return data.decode("utf-8", "surrogateescape")


def answer_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def in_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes, Path], Any]:
    """Return a reader of a file of that name."""

    def run(data: bytes, folder: Path) -> Any:
        path = folder / name
        path.write_bytes(data)
        return read(path)

    return run


def of_text(read: Callable[[str], Any]) -> Callable[[bytes, Path], Any]:
    return lambda data, folder: read(answer_of(data))


def of_lines(read: Callable[[list[str]], Any]) -> Callable[[bytes, Path], Any]:
    return lambda data, folder: read(visible_lines(answer_of(data)))


def by_override(data: bytes, folder: Path) -> Any:
    path = folder / "study.yaml"
    path.write_text(STUDY)
    return load(path, (text_of(data),), {})


def by_points(data: bytes, folder: Path) -> Any:
    (folder / "points.csv").write_bytes(data)
    path = folder / "study.yaml"
    path.write_text(f"{STUDY}points: points.csv\n")
    return load(path, (), {})


def by_labels(data: bytes, folder: Path) -> Any:
    (folder / "d").mkdir(exist_ok=True)
    for number in range(2):
        (folder / "d" / f"{number}.png").touch()
    (folder / "labels.csv").write_bytes(data)
    return examples.read_folder(folder / "d", folder / "labels.csv")


def by_features(data: bytes, folder: Path) -> Any:
    import pyarrow

    from sweep.tasks.sharding import table_rows

    schema = pyarrow.schema([("label", "int64")], metadata={"huggingface": data})
    return table_rows.class_names(schema, "label")


def by_defaults(data: bytes, folder: Path) -> Any:
    path = folder / "config.yaml"
    path.write_bytes(data)
    return read_defaults({"SWEEP_USER_CONFIG": str(path), "SWEEP_SITE_CONFIG": ""})


def by_metrics(data: bytes, folder: Path) -> Any:
    attempt = AttemptFolder(folder)
    attempt.metrics.write_bytes(data)
    journal = Journal(attempt)
    found = list(journal.rest())
    position = journal.position()
    journal.close()
    Journal(attempt, position=position).close()
    for line in answer_of(data).splitlines()[:50]:
        read_line(line)
    return found


def by_output(data: bytes, folder: Path) -> Any:
    attempt = AttemptFolder(folder)
    attempt.log.write_bytes(data)
    objective = Objective("loss", pattern=r"loss=([0-9.e+-]+)", step_pattern=r"step=(\d+)")
    journal = Journal(attempt, [objective])
    found = list(journal.rest())
    journal.notes()
    journal.close()
    return found


def by_attempt_files(data: bytes, folder: Path) -> Any:
    attempt = AttemptFolder(folder)
    for path in (attempt.exit, attempt.answer, attempt.mark):
        path.write_bytes(data)
    attempt_files.read_answer(attempt)
    attempt_files.has_resumed(attempt)
    attempt_files.read_suspended_s(attempt)
    attempt_files.odd_files(attempt)
    read_tail(attempt.exit)
    return attempt_files.read_exit(attempt)


def by_reporter(data: bytes, folder: Path) -> Any:
    control = folder / "control.json"
    control.write_bytes(data)
    environ = {"SWEEP_CONTROL": str(control), "SWEEP_METRICS": str(folder / "metrics.jsonl")}
    with contextlib.suppress(UnicodeError):
        environ["TF_CONFIG"] = text_of(data).replace("\0", "")
    return report.Reporter(environ).should_stop()


def by_manifest(data: bytes, folder: Path) -> Any:
    study = StudyFolder(folder)
    study.provenance.write_bytes(data)
    (study.attempt(0, 1).root).mkdir(parents=True)
    study.attempt(0, 1).provenance.write_bytes(data)
    whole = manifest.read(study)
    manifest.of_run(whole, None)
    manifest.of_attempt(whole, study.attempt(0, 1))
    return manifest.of_trial(study, 0)


def by_record(data: bytes, folder: Path) -> Any:
    study = StudyFolder(folder)
    study.identity.write_bytes(data)
    identity.read_mark(study)
    place = Folder(folder)
    place.record_file.parent.mkdir(parents=True, exist_ok=True)
    place.record_file.write_bytes(data)
    return read_record(place)


def by_url(data: bytes, folder: Path) -> Any:
    url = text_of(data)
    mask(url)
    mask_url(url)
    return normalise(url), describe(dsn(url))


def by_checkpoint(data: bytes, folder: Path) -> Any:
    (folder / "model.safetensors.index.json").write_bytes(data)
    (folder / "latest").write_bytes(data)
    layouts.read_pointer(folder / "latest")
    content = layouts.look_into(folder)
    return layouts.find_layout(content), layouts.is_whole(content)


def by_slurm_nodes(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    own_task.threads_per_core(_put(folder / "siblings", data))
    scontrol.parse_excluded(f"avoids={text}")
    environ = {"SLURM_JOB_NODELIST": text, "SLURM_JOB_ID": "1"}
    return own_task.OwnTask.hosts_of(environ)


def _put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def by_squeue(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    queue.parse_time_left(text)
    tasks = queue.read_squeue(text, "", 0)
    with contextlib.suppress(SweepError):
        queue.read_squeue(text, text, 1)
    return queue.collect_tasks(tasks)


def by_sacct(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    consumed_energy.parse_energy(text)
    return accounting.find_latest_runs(accounting.read_sacct(text, "", 0))


def by_limits(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    config, partitions = limits.parse_config(text), limits.parse_partitions(text)
    return limits.find_limits(
        config, partitions, limits.parse_associations(text), limits.parse_qos(text)
    )


def by_scontrol(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    steps.parse_held(text)
    with contextlib.suppress(SweepError):
        scontrol.check_update("scontrol update", "", text, 1)
    return states.split_state(text), states.classify_state(text)


def by_sbatch(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    reasons.explain_reason(text)
    submit.explain_refusal(text)
    submit.parse_sbatch("", text, 1)
    return submit.parse_sbatch(text, "", 0)


def by_log(lines: list[str]) -> Any:
    memory_messages.explain(lines, 1)
    memory_messages.says_killed(lines)
    foreign_failure.find(lines)
    foreign_failure.find_lost_peer(lines)
    shown = VisibleText()
    shown.add("\n".join(lines))
    return first_failure.find(lines, "")


def by_cell(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    columns = cells.parameter_columns(text.split(",")[:1000], SPACE.names())
    return columns, [cells.read_cell(text, parameter) for parameter in SPACE]


def by_json(data: bytes, folder: Path) -> Any:
    read_json(_put(folder / "storage.json", data))
    return Study.read(_put(folder / "study.json", data))


def by_packages(data: bytes, folder: Path) -> Any:
    info = folder / "a-1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_bytes(data)
    (folder / "a.pth").write_bytes(data)
    (folder / "__editable___a_finder.py").write_bytes(data)
    (folder / "pyvenv.cfg").write_bytes(data)
    installed.list_packages([folder])
    packages.editable_folders([folder])
    return container._parse(answer_of(data))


def by_command(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    list(shell_text.list_commands(text))
    hide_arguments(text.split())
    read_program(text.split() or ["x"])
    with contextlib.suppress(ValueError):  # as the study file's reader and ``fill`` do
        placeholders.split(text)
    with contextlib.suppress(ValueError):
        placeholders.parse(text)
    return placeholders.names(text)


def by_extra(data: bytes, folder: Path) -> Any:
    return extra.excluded_by(extra.check_extra(text_of(data).split(), "slurm.extra"))


def by_machine(data: bytes, folder: Path) -> Any:
    text = answer_of(data)
    sick_nodes.hold_s({sick_nodes.HOLD_VARIABLE: text})
    is_local(folder, text)
    is_local(folder, f"36 35 98:0 / {folder} rw - ext4 /dev/sda rw\n{text}")
    memory.count_job_kills("17", _put(folder / "cgroup", data), folder)
    return memory.count_kills(_put(folder / "cgroup", data), folder)


CALLS: tuple[tuple[str, ...], ...] = (
    ("logs", "s", "{}"),
    ("logs", "{}", "3"),
    ("logs", "s", "3", "--attempt", "{}"),
    ("status", "{}"),
    ("status", "--runs", "{}"),
    ("collect", "{}", "--top", "3"),
    ("collect", "--top", "{}"),
    ("collect", "--format", "{}"),
    ("collect", "-o", "{}"),
    ("rerun-best", "--trial", "{}"),
    ("rerun-best", "--tolerance", "{}"),
    ("confirm", "--top", "{}"),
    ("report", "{}"),
    ("diff", "{}", "2"),
    ("stop", "{}"),
    ("config", "{}"),
    ("config", "study.yaml", "--set", "{}"),
    ("config", "study.yaml", "--set", "trials={}"),
    ("config", "study.yaml", "--set", "resources.time={}"),
    ("config", "study.yaml", "--set", "resources.memory={}"),
    ("config", "study.yaml", "--set", "storage={}"),
    ("launch", "{}", "--dry-run"),
    ("init", "{}"),
    ("templates", "{}"),
    ("{}",),
)


def by_command_line(data: bytes, folder: Path) -> int:
    """Give a text to a command line as an argument, and return its exit code."""
    text = text_of(data.replace(b"\0", b""))[
        :20_000
    ]  # the system takes no NUL, and not all lengths
    call = CALLS[len(data) % len(CALLS)]
    (folder / "study.yaml").write_text(STUDY)
    os.chdir(folder)
    os.environ["SWEEP_RUNS"] = str(folder / "runs")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = run_command([word.format(text) if "{}" in word else word for word in call])
    if code == EXIT_FAULT:
        crash = "".join(path.read_text() for path in folder.rglob("crash-*.txt"))
        raise AssertionError(f"exit code 70 of {call}: {crash[-3000:]}")
    return code


STUDYFILE = ("sweep.studyfile.tree", "sweep.studyfile.reading")
STARTER = "sweep.studyfile.starter."
SHARDING = "sweep.tasks.sharding."
FEATURES = '{"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}'

READERS: list[Reader] = [
    Reader("study file", [STUDY], in_file("s.yaml", lambda path: load(path, (), {})), STUDYFILE),
    Reader("--set", ["space.lr.high=0.5", "fixed.sizes=[1, {a: 2}]", "trials=3"], by_override),
    Reader("defaults", ["slurm: {partition: gpu}\nexecutor: auto\n"], by_defaults),
    Reader("points CSV", [CSV], by_points, ("sweep.studyfile.points_file", "sweep.core.cells")),
    Reader("labels", ["file,label\n0.png,cat\n1.png,2\n"], by_labels, (SHARDING + "examples",)),
    Reader("features", [FEATURES], by_features, (SHARDING + "table_rows",)),
    Reader("a CSV cell", ["0.5,lr,params.n", '"1"', "[1, 2]", "'=1"], by_cell),
    Reader(
        "W&B, Hydra, NNI, Determined",
        [WANDB, HYDRA, NNI, DETERMINED],
        in_file("sweep.yaml", convert),
        (STARTER + "hydra_values",),
    ),
    Reader(
        "sbatch script",
        [SBATCH, TASKS],
        in_file("job.sh", convert),
        (STARTER + "sbatch_indexes", STARTER + "bash_numbers"),
    ),
    Reader(
        "Optuna script",
        [OPTUNA, WANDB_DICT],
        in_file("tune.py", convert),
        (STARTER + "foreign_python", STARTER + "hydra_app"),
    ),
    Reader("notebook", [NOTEBOOK], in_file("tune.ipynb", convert)),
    Reader(
        "training script",
        [SCRIPT],
        in_file("train.py", lambda path: (scan(path), draft_study(path, path.parent))),
        tuple(
            STARTER + name for name in ("flags", "init", "python_flags", "config_objects", "yacs")
        ),
        (SyntaxError,),
    ),
    Reader(
        "shell script, to be started",
        [SHELL],
        in_file("train.sh", lambda path: draft_study(path, path.parent)),
        (STARTER + "shell_script",),
    ),
    Reader(
        "notebook, to be started",
        [NOTEBOOK],
        in_file("train.ipynb", lambda path: draft_study(path, path.parent)),
        (STARTER + "notebook",),
    ),
    Reader("--help of a script", [HELP], of_text(read_help)),
    Reader("metrics.jsonl", [METRICS], by_metrics, ("sweep.training.journal",)),
    Reader("training's output", [PRINTED], by_output),
    Reader("training's log", [FAILURES], of_lines(by_log)),
    Reader("exit, answer, mark", [EXIT], by_attempt_files, ("sweep.training.attempt_files",)),
    Reader("control.json", ['{"stop": "pruned"}'], by_reporter, ("sweep.report",)),
    Reader(
        "checkpoint index",
        ['{"weight_map": {"a": "b"}}', "step-3"],
        by_checkpoint,
        ("sweep.training.layouts",),
    ),
    Reader(
        "checkpoint name",
        ["epoch=3-step=100.ckpt", "model_00012_last.pt"],
        of_text(lambda text: save_names.parse(text[:250])),
    ),
    Reader(
        "study.json",
        ['{"name": "s", "command": ["a"], "objectives": [], "space": {}}'],
        by_json,
        ("sweep.core.study", "sweep.core.files"),
    ),
    Reader("manifest", [MANIFEST], by_manifest),
    Reader(
        "identity, server record",
        ['{"study": "x", "port": 5, "place": {}}'],
        by_record,
        ("sweep.storage.embedded.folder",),
    ),
    Reader(
        "local events",
        ['{"event": "start", "index": 3}\n{"a": 1}\n'],
        in_file("events", events.read_lines),
        ("sweep.schedulers.local.events",),
    ),
    Reader("storage URL", ["postgresql://u:p%40@h:5432/d?sslmode=require"], by_url),
    Reader("squeue", [SQUEUE], by_squeue),
    Reader("sacct", [SACCT], by_sacct),
    Reader("scontrol show, sacctmgr", [CONFIG, PARTITION, ASSOCIATIONS, QOS], by_limits),
    Reader(
        "scontrol job, update",
        [JOB, "30_0,3-9: No error\n30_1-2: Job is no longer pending execution"],
        by_scontrol,
    ),
    Reader("sinfo", ["state=idle\nstate=down*\n"], of_text(nodes.are_well)),
    Reader(
        "sbatch's answer",
        ["55;cluster\n", "sbatch: error: Batch job submission failed: Invalid qos"],
        by_sbatch,
    ),
    Reader("host list", ["n[1-3,07],login,r[1-2]c[3-4]"], by_slurm_nodes),
    Reader("host list, bare", ["n[1-3,07],login"], of_text(expand_nodes), refuses=(ValueError,)),
    Reader("slurm.extra", ["--exclude=n[1-3] -x n7 --comment=a"], by_extra),
    Reader(
        "packages",
        [
            '{"url": "https://h/x", "vcs_info": {"commit_id": "a"}}',
            installed.MARK + '{"packages": {}}',
        ],
        by_packages,
        ("sweep.provenance.installed", "sweep.provenance.packages", "sweep.provenance.container"),
    ),
    Reader(
        "command",
        ["srun -n 2 python train.py --lr {lr} {{x}} 'a b' | tee x; if y; then z; fi"],
        by_command,
    ),
    Reader("machine's files", ["0::/slice/job\n", "12.5"], by_machine),
    Reader(
        "NAME=VALUE",
        ["lr=0.5", "a=[1, {b: c}]"],
        of_text(lambda text: parse_setting(text, "--point", "lr=1")),
    ),
    Reader("command line", ["3", "study", "1%", "runs/s", "trials=3"], by_command_line),
]
