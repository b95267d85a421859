"""``sweep init`` on scripts that are no Python modules: what is read of notebooks, bash and R."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.core.study import Study
from sweep.studyfile import loads
from sweep.studyfile.starter.draft import Draft, write_draft
from sweep.studyfile.starter.init import draft_study

LR = {"type": "float", "low": 0.01, "high": 1.0, "log": True}
# (the script, its command after its own name, space, fixed)
SHELL: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "by number": (
        "lr=${1:-0.1}\nepochs=${2:-6} name=${3:-x}\n",
        "{lr} {epochs}",
        {"lr": LR},
        {"epochs": 6},
    ),
    "by number, one between": ("name=${1:-a b} lr=${2:-0.1}\n", "'a b' {lr}", {"lr": LR}, {}),
    "by number, in quotes": (
        'export LR="$1"\nreadonly data="${2:?a folder}"\n',
        "{LR} EDIT_ME",
        {"LR": {"type": "float", "low": 1e-4, "high": 0.1, "log": True}},
        {},
    ),
    "by number, named by what gets it": (
        "python other.py --lr $1 --seed=$2\n",
        "{lr} {seed}",
        {"lr": {"type": "float", "low": 1e-4, "high": 0.1, "log": True}},
        {},
    ),
    "not of functions and awk": (
        "save() {\n  where=$1 dropout=$2\n}\nawk '{ print $3 }' x\nlr=${1:-0.1}\n",
        "{lr}",
        {"lr": LR},
        {},
    ),
    "getopts": (
        'lr=0.1 epochs=6\nwhile getopts "l:e:s:v" o; do\n  case $o in\n    l) lr=$OPTARG ;;\n'
        "    e) epochs=$OPTARG ;;\n    s) seed=$OPTARG ;;\n    v) loud=1 ;;\n  esac\ndone\n",
        "-l {lr} -e {epochs} -s {seed}",
        {"lr": LR},
        {"epochs": 6},
    ),
    "long options": (
        'LR=0.1\nwhile [ $# -gt 0 ]; do\n  case "$1" in\n    -l|--lr) LR="$2"; shift 2 ;;\n'
        '    --dropout=*) DROP="${1#*=}"; shift ;;\n    --fast) FAST=1; shift ;;\n'
        "    *) exit 2 ;;\n  esac\ndone\n",
        "--lr {lr} --dropout={dropout}",
        {"lr": LR, "dropout": {"type": "float", "low": 0.0, "high": 0.5}},
        {},
    ),
}


def draft(folder: Path, name: str, text: str) -> Draft:
    script = folder / name
    script.write_text(text)
    return draft_study(script, folder)


def loaded(made: Draft) -> Study:
    """Return the study that the file loads as."""
    return loads(write_draft(made), "study.yaml")


@pytest.mark.parametrize("name", SHELL)
def test_what_a_shell_script_takes(tmp_path: Path, name: str) -> None:
    """Each way to take values becomes words of the command, and the file loads."""
    text, command, space, fixed = SHELL[name]
    made = draft(tmp_path, "train.sh", text)
    assert made.command == ["bash", "train.sh", *shlex.split(command)]
    assert (made.space, made.fixed) == (space, fixed)
    loaded(made)


@pytest.mark.parametrize(
    "text",
    [
        'LR=${LR:-0.1}\nEPOCHS=${EPOCHS:-6}\necho "loss=$x"\n',
        ': "${LR:=0.1}" "${EPOCHS:=6}"\n',
        "export LR=${LR-0.1} EPOCHS=${EPOCHS:-6}\n: ${SLURM_JOB_ID:-0} ${HOME:-/}\n",
        "python x.py --lr ${LR:-0.1} --n ${EPOCHS:-6}\n",
    ],
)
def test_variables_of_a_shell_script(tmp_path: Path, text: str) -> None:
    """What a script takes from its environment, env gives it; the system's is left alone."""
    made = draft(tmp_path, "train.sh", text)
    assert made.command == ["env", "LR={LR}", "EPOCHS={EPOCHS}", "bash", "train.sh"]
    assert (made.space, made.fixed) == ({"LR": LR}, {"EPOCHS": 6})
    loaded(made)


def test_a_variable_that_the_script_sets_is_not_given(tmp_path: Path) -> None:
    """`${lr:-0.1}` after `lr=$1` reads the script's own."""
    made = draft(tmp_path, "train.sh", "lr=$1\npython x.py --lr ${lr:-0.1}\n")
    assert made.command == ["bash", "train.sh", "{lr}"]


def test_a_shell_script_that_passes_all_on(tmp_path: Path) -> None:
    """`"$@"` gives a Python script's flags to the command; its metric is the objective."""
    (tmp_path / "fit.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\np.add_argument('--seed', type=int)\n"
        "print(f'val_acc={1.0}')\n"
    )
    made = draft(tmp_path, "train.sh", 'module load cuda\nexec python fit.py --amp "$@"\n')
    assert made.command == ["bash", "train.sh", "{params}", "--seed", "{seed}"]
    assert made.space == {"lr": LR}
    assert made.objectives[0]["metric"] == "val_acc"
    assert loaded(made).objectives[0].metric == "val_acc"


def test_the_shell_is_the_one_of_the_first_line(tmp_path: Path) -> None:
    """A script without an ending is known by it, too."""
    assert draft(tmp_path, "run", "#!/bin/sh\nlr=$1\n").command == ["sh", "run", "{lr}"]
    assert draft(tmp_path, "go.sh", "#!/usr/bin/env zsh\nlr=$1\n").command[0] == "zsh"


@pytest.mark.parametrize(
    ("text", "metric", "pattern_finds"),
    [
        ('echo "epoch $e: val_loss=$loss"\n', "val_loss", "epoch 3: val_loss=0.25"),
        ("printf 'acc: %.3f\\n' $x\nloss=$(awk y)\n", "acc", "acc: 0.25"),
        (
            'echo "{\\"step\\": $e, \\"metrics\\": {\\"loss\\": $x}}" >>"$SWEEP_METRICS"\n',
            "loss",
            "",
        ),
    ],
)
def test_metrics_of_a_shell_script(
    tmp_path: Path, text: str, metric: str, pattern_finds: str
) -> None:
    """What it prints is read by a pattern, what it reports needs none; assignments are neither."""
    made = draft(tmp_path, "train.sh", text)
    objective = made.objectives[0]
    assert objective["metric"] == metric
    assert ("from" in objective) == bool(pattern_finds)
    if pattern_finds:
        found = subprocess.run(
            ["grep", "-P", objective["from"]["stdout"]],
            input=pattern_finds,
            text=True,
            capture_output=True,
            check=False,
        )
        assert found.stdout.strip() == pattern_finds


def test_a_job_script_is_told_of_its_lines(tmp_path: Path) -> None:
    """#SBATCH lines are not lost without a word."""
    made = draft(tmp_path, "job.sh", "#!/bin/bash\n#SBATCH --gres=gpu:1\nlr=$1\n")
    assert any("#SBATCH" in remark for remark in made.remarks)


R_SCRIPTS = {
    "by number": (
        "a <- commandArgs(trailingOnly = TRUE)\n"
        "lr <- if (length(a) >= 1) as.numeric(a[1]) else 0.1\n"
        "epochs <- ifelse(length(a) > 1, as.integer(a[[2]]), 6L)\n",
        ["{lr}", "{epochs}"],
    ),
    "by number, at once": (
        "lr <- as.numeric(commandArgs(TRUE)[1]) %||% 0.1\n"
        "epochs <- if (TRUE) commandArgs(trailingOnly=TRUE)[2] else 6\n",
        ["{lr}", "{epochs}"],
    ),
    "optparse": (
        'library(optparse)\nl <- list(\nmake_option(c("-l", "--lr"), type = "double",\n'
        "default = 0.1, "
        'help = "rate (see [1])"), make_option("--epochs", type="integer", default=6L),\n'
        'make_option("--verbose", action="store_true"))\n',
        ["--lr", "{lr}", "--epochs", "{epochs}"],
    ),
    "argparse": (
        'p <- ArgumentParser()\np$add_argument("--lr", type="double", default=0.1)\n'
        'p$add_argument("--epochs", type="integer", default=6)\n',
        ["--lr", "{lr}", "--epochs", "{epochs}"],
    ),
    "argparser": (
        'p <- arg_parser("x")\np <- add_argument(p, "--lr", help="rate", default=0.1)\n'
        'p <- add_argument(p, "--epochs", help="n", default=6)\n',
        ["--lr", "{lr}", "--epochs", "{epochs}"],
    ),
}


@pytest.mark.parametrize("name", R_SCRIPTS)
def test_what_a_script_in_r_takes(tmp_path: Path, name: str) -> None:
    """Arguments by number and by the libraries that read options; the file loads."""
    text, arguments = R_SCRIPTS[name]
    made = draft(tmp_path, "train.R", text + 'cat(sprintf("val_loss=%f\\n", x))\n')
    assert made.command == ["Rscript", "train.R", *arguments]
    assert (made.space, made.fixed) == ({"lr": LR}, {"epochs": 6})
    assert made.objectives[0]["metric"] == "val_loss"
    loaded(made)


def test_variables_of_a_script_in_r(tmp_path: Path) -> None:
    """Sys.getenv with a default is given by env."""
    made = draft(tmp_path, "train.r", 'lr <- as.numeric(Sys.getenv("LR", "0.1"))\n')
    assert made.command == ["env", "LR={LR}", "Rscript", "train.r"]
    assert made.space == {"LR": LR}


def notebook(*cells: tuple[str, list[str]], language: str = "python") -> str:
    return json.dumps(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "k", "language": language}},
            "cells": [
                {"cell_type": "code", "metadata": {"tags": tags}, "source": source.splitlines(True)}
                for source, tags in cells
            ],
        }
    )


def test_what_a_notebook_takes(tmp_path: Path) -> None:
    """The cell of parameters, by papermill's file and its options for places."""
    text = notebook(
        ("%matplotlib inline\n!pip list", []),
        (
            "lr: float = 0.1\nepochs = 6\nseed = 0\nout_dir = 'x'\nbetas = (0.9, 0.99)",
            ["parameters"],
        ),
        ("for e in range(epochs):\n    print(f'val_acc={e}')", []),
    )
    made = draft(tmp_path, "fit.ipynb", text)
    assert made.command == shlex.split(
        "papermill fit.ipynb {trial_dir}/fit.ipynb -p seed {seed} -p out_dir {trial_dir} "
        "-f {config} --no-progress-bar --log-output"
    )
    assert (made.space, made.fixed) == ({"lr": LR}, {"epochs": 6})
    assert made.objectives[0]["metric"] == "val_acc"
    assert made.remarks == ["Left as the script has them: betas."]
    loaded(made)


def test_a_notebook_in_r(tmp_path: Path) -> None:
    """Its cells are read as R's."""
    text = notebook(("lr <- 0.1  # rate\nepochs <- 6L", ["parameters"]), language="R")
    made = draft(tmp_path, "fit.ipynb", text)
    assert (made.space, made.fixed) == ({"lr": LR}, {"epochs": 6})


def test_a_notebook_without_parameters_says_so(tmp_path: Path) -> None:
    """In one sentence, with what to do."""
    made = draft(tmp_path, "fit.ipynb", notebook(("lr = 0.1", [])))
    assert "the tag parameters" in made.remarks[0]
    assert made.space == {}
    loaded(made)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"cells": [{"cell_type": "code"', '{"cells": 3}']
)
def test_no_notebook_is_refused(tmp_path: Path, text: str) -> None:
    """With a sentence, and no crash."""
    with pytest.raises(InputError, match="not a notebook"):
        draft(tmp_path, "fit.ipynb", text)


def test_nothing_to_vary_is_said(tmp_path: Path) -> None:
    """With what was looked for, and the seed."""
    made = draft(tmp_path, "train.sh", "make\n")
    assert any("getopts" in remark for remark in made.remarks)
    assert any("SWEEP_SEED" in remark for remark in made.remarks)
    loaded(made)
