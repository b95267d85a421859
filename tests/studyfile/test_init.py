"""``sweep init``: what is read from a script, what is guessed, and that the result runs."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.study import Objective, Study
from sweep.report import decode
from sweep.studyfile import load, loads
from sweep.studyfile.starter import flags as script_flags
from sweep.studyfile.starter.draft import join_command, make_name, write_draft
from sweep.studyfile.starter.flags import Flag, ask_help, read_help, read_source, scan
from sweep.studyfile.starter.init import draft_study, init
from sweep.studyfile.starter.metrics import find_metrics
from sweep.training.command.assembly import build
from sweep.training.command.environment import TrialValues, install_reporter
from sweep.training.output import NEWLINE, Output

REPOSITORY = Path(__file__).parents[2]

SCRIPT = """
import argparse
WIDTH = 256
p = argparse.ArgumentParser()
p.add_argument("data", help="folder")
p.add_argument("-b", "--batch-size", type=int, default=128)
p.add_argument("--lr", type=float, default=3e-4, metavar="LR")
p.add_argument("--weight_decay", type=float, default=0.0)
p.add_argument("--dropout", default=0.1, type=float)
p.add_argument("--hidden-size", type=int, default=WIDTH)
p.add_argument("--num-layers", type=int, default=3)
p.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
p.add_argument("--epochs", type=int, default=10)
p.add_argument("--seed", type=int, default=1)
p.add_argument("--out-dir", default="out")
p.add_argument("--ckpt-dir", default="out")
p.add_argument("--resume", default=None)
p.add_argument("--amp", action="store_true")
p.add_argument("--ema", action=argparse.BooleanOptionalAction)
p.add_argument("--betas", nargs=2, type=float)
p.add_argument("--tokenizer", required=True)
p.add_argument("--version", action="version", version="1")
args = p.parse_args()
for epoch in range(args.epochs):
    print(f"epoch {epoch}: train_loss={1.0:.3f} val_acc={0.5:.4f} val_loss: {1e-5}")
"""

FLAGS = [
    Flag("data", "str", required=True),
    Flag("--batch-size", "int", 128),
    Flag("--lr", "float", 3e-4),
    Flag("--weight_decay", "float", 0.0),
    Flag("--dropout", "float", 0.1),
    Flag("--hidden-size", "int", 256),
    Flag("--num-layers", "int", 3),
    Flag("--optimizer", "str", "sgd", ("sgd", "adamw")),
    Flag("--device", "str", "cpu", ("cpu", "cuda")),
    Flag("--epochs", "int", 10),
    Flag("--seed", "int", 1),
    Flag("--out-dir", "str", "out"),
    Flag("--ckpt-dir", "str", "out"),
    Flag("--resume", "str"),
    Flag("--amp", "switch"),
    Flag("--ema", "switch"),
    Flag("--betas", "list"),
    Flag("--tokenizer", "str", required=True),
]

STUDY = r"""# A study of train.py. What was guessed is marked; change it as you like, then: sweep launch
# study.yaml
# - Replace EDIT_ME in the command: the script needs data, --tokenizer.
# - Left as the script has them: --device, --amp, --ema, --betas.

name: train
# {params} stands for all of space and fixed, as --name=value. The values are also in the YAML
# file {config}.
command: python train.py {params} EDIT_ME --seed {seed} --out-dir {trial_dir} --ckpt-dir {checkpoint_dir} --resume {resume} --tokenizer EDIT_ME

# Guessed: the first of what the script prints. It also prints val_loss, train_loss. Each
# matching line of the output is one more step.
objective:
  metric: val_acc
  direction: maximize
  from: {stdout: '\bval_acc\s*[=:]?\s*([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf))'}

# Guessed from names, defaults and choices of the flags: check the ranges.
space:
  batch-size: {type: categorical, choices: [64, 128, 256]}   # the script's default is 128
  lr: {type: float, low: 3.0e-05, high: 0.003, log: true}   # the script's default is 0.0003
  weight_decay: {type: float, low: 0.0, high: 0.01}   # the script's default is 0.0
  dropout: {type: float, low: 0.0, high: 0.5}   # the script's default is 0.1
  hidden-size: {type: categorical, choices: [128, 256, 512]}   # the script's default is 256
  num-layers: {type: int, low: 1, high: 6}   # the script's default is 3
  optimizer: {type: categorical, choices: [sgd, adamw]}   # the script's choices

fixed:
  epochs: 10

trials: 20
seed: 0
sampler: auto
max_parallel: 4   # so many at once, at most

# Further keys; `sweep schema` describes all of them.
# resources: {time: 30min, gpus: 1, cpus: 4, memory: 8G}   # of one trial
# slurm: {partition: gpu, account: my-project}
# environment: {runtime: venv, image: .venv}
"""  # noqa: E501


def write_study(script: Path, folder: Path) -> str:
    """Return the text of a study file for a script."""
    return write_draft(draft_study(script, folder))


def read(source: str) -> list[Flag]:
    return read_source(ast.parse(source))


def test_flags_are_read_from_the_source() -> None:
    """Types, defaults (also named ones), choices and kinds of flags come from add_argument."""
    assert read(SCRIPT) == FLAGS


def test_flags_of_click_are_read() -> None:
    """click.option decorators count like argparse's flags."""
    source = (
        "import click\n@click.command()\n@click.option('--lr', default=0.1)\n"
        "@click.option('--opt', type=click.Choice(['sgd', 'adam']), required=True)\n"
        "@click.option('--fast', is_flag=True)\n@click.option('--a/--no-a')\ndef f(lr): ...\n"
    )
    assert read(source) == [
        Flag("--lr", "float", 0.1),
        Flag("--opt", "str", None, ("sgd", "adam"), True),
        Flag("--fast", "switch"),
        Flag("--a/--no-a", "switch"),
    ]


def test_argparse_itself_agrees(tmp_path: Path) -> None:
    """What argparse prints as the help of the same script reads nearly as its source does."""
    script = tmp_path / "train.py"
    script.write_text(
        SCRIPT.replace(
            "ArgumentParser()",
            "ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)",
        )
    )
    got = {flag.option: flag for flag in read_help(ask_help(script))}
    assert list(got) == [flag.option for flag in FLAGS if not flag.is_positional]
    assert got["--optimizer"].choices == ("sgd", "adamw")
    assert got["--tokenizer"].required
    assert not got["--lr"].required
    assert {name for name, flag in got.items() if flag.type == "switch"} == {"--amp", "--ema"}


ARGPARSE_HELP = """\
usage: t.py [-h] --data DATA [--lr LR] [--layers {1,2,3}] [--amp]
            [--optimizer-name OPTIMIZER_NAME]

A text with --no-flag in it.

options:
  -h, --help            show this help message and exit
  --data DATA           where the data
                        lies
  -l LR, --lr LR        learning rate (default: 0.001)
  --layers {1,2,3}      depth
                        (default: 2)
  --amp
  --optimizer-name OPTIMIZER_NAME
                        the optimizer [default: adamw]

end --text
"""
CLICK_HELP = """\
Usage: t.py [OPTIONS]

Options:
  --lr FLOAT               Learning rate.  [default: 0.1]
  --epochs INTEGER
  --opt [sgd|adam]         [default: sgd; required]
  --amp / --no-amp
  --help                   Show this message and exit.
"""


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        (
            ARGPARSE_HELP,
            [
                Flag("--data", "", None, (), True),
                Flag("--lr", "float", 0.001),
                Flag("--layers", "int", 2, (1, 2, 3)),
                Flag("--amp", "switch"),
                Flag("--optimizer-name", "str", "adamw"),
            ],
        ),
        (
            CLICK_HELP,
            [
                Flag("--lr", "float", 0.1),
                Flag("--epochs", "int"),
                Flag("--opt", "str", "sgd; required", ("sgd", "adam")),
                Flag("--amp", "switch"),
            ],
        ),
    ],
)
def test_flags_are_read_from_help_texts(text: str, flags: list[Flag]) -> None:
    """Help of argparse and of click gives flags, values, choices and what is required."""
    assert read_help(text) == flags


def test_help_is_asked_only_where_a_parser_is(tmp_path: Path) -> None:
    """A script whose flags come from elsewhere is asked; one without a parser is never started."""
    (tmp_path / "common.py").write_text(SCRIPT.split("args = p.parse_args()")[0])
    asked = tmp_path / "a.py"
    asked.write_text("from common import p\np.parse_args()\n")
    assert "--lr" in [flag.option for flag in scan(asked)]
    silent = tmp_path / "b.py"
    silent.write_text("open('started', 'w')\n")
    assert scan(silent) == []
    assert not (tmp_path / "started").exists()


def test_a_script_of_a_package_runs_as_a_module(tmp_path: Path) -> None:
    """A script that imports its own folder by name is asked, and started, with -m."""
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "config.py").write_text(
        "import argparse\nFLAGS = {'lr': 0.1}\ndef read():\n    p = argparse.ArgumentParser()\n"
        "    for name, value in FLAGS.items():\n"
        "        text = f'(default {value})'\n"
        "        p.add_argument('--' + name, type=float, default=value, help=text)\n"
        "    return p.parse_args()\n"
    )
    (package / "run.py").write_text("from pkg.config import read\nread()\n")
    assert scan(package / "run.py") == [Flag("--lr", "float", 0.1)]
    study = loads(write_study(package / "run.py", tmp_path), "study.yaml")
    assert study.command == ("python", "-m", "pkg.run", "{params}")
    elsewhere = " ".join(write_study(package / "run.py", package).replace("#", "").split())
    assert f"- Call sweep in {tmp_path}, with python -m pkg.run in the command" in elsewhere


def test_a_script_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing script, another language, a failing or a hanging --help: each has its message."""
    with pytest.raises(InputError, match=r"gone\.py cannot be read: No such file"):
        scan(tmp_path / "gone.py")
    script = tmp_path / "a.py"
    script.write_text("print 'two'\n")
    with pytest.raises(InputError, match="is not a Python script"):
        scan(script)
    script.write_text("import nope_argparse\n")
    with pytest.raises(InputError, match="--help ended with code 1: ModuleNotFoundError"):
        scan(script)
    script.write_text("import time  # parse_args\ntime.sleep(60)\n")
    monkeypatch.setattr(script_flags, "HELP_TIMEOUT_S", 0.3)
    with pytest.raises(InputError, match=r"did not end within 0\.3 s"):
        scan(script)


def test_the_study_of_a_script(tmp_path: Path) -> None:
    """The whole file, as it is written for a usual training; it loads."""
    (tmp_path / "train.py").write_text(SCRIPT)
    text = write_study(tmp_path / "train.py", tmp_path)
    assert text == STUDY
    study = loads(text, "study.yaml")
    assert study.space.names() == [
        "batch-size",
        "lr",
        "weight_decay",
        "dropout",
        "hidden-size",
        "num-layers",
        "optimizer",
    ]


@pytest.mark.parametrize(
    ("source", "metric", "direction", "line", "value"),
    [
        ('print(f"val_acc={a:.3f}")', "val_acc", "maximize", "val_acc=0.912", 0.912),
        ('print("Val loss:", loss)', "val_loss", "minimize", "Val loss: 1e-05", 1e-05),
        ('print("loss", l, "acc", a)', "acc", "maximize", "loss 0.5 acc 0.25", 0.25),
        ('print("test_f1: %.3f" % f)', "test_f1", "maximize", "test_f1: 0.500", 0.5),
        (
            'print("\\nTest set: Average loss: {:.4f}, Accuracy: {}/{}\\n".format(l, c, n))',
            "accuracy",
            "maximize",
            "Test set: Average loss: 0.0312, Accuracy: 9891/10000",
            9891.0,
        ),
        (
            'log.info(f"epoch {e} | train loss {t} | val ppl = {p}")',
            "val_ppl",
            "minimize",
            "epoch 3 | train loss 2.1 | val ppl = 21.5",
            21.5,
        ),
    ],
)
def test_metrics_are_found_in_what_is_printed(
    source: str, metric: str, direction: str, line: str, value: float
) -> None:
    """The likeliest objective comes first; its pattern reads the line that the script prints."""
    found = find_metrics(ast.parse(source), source)[0]
    assert (found.name, found.direction) == (metric, direction)
    assert found.pattern
    output = Output([Objective("m", "minimize", pattern=found.pattern)])
    assert [read for _, _, read in output.take(line, NEWLINE)] == [value]


def test_a_test_metric_is_only_taken_with_a_warning(tmp_path: Path) -> None:
    """Where nothing held out for the search is printed, the file says what that means."""
    script = tmp_path / "train.py"
    script.write_text("print(f'test_acc={1}')\n")
    assert "should not choose by the test set" in write_study(script, tmp_path)
    script.write_text("print(f'test_acc={1} best_val_acc={2}')\n")
    assert "test set" not in write_study(script, tmp_path)


@pytest.mark.parametrize("choices", ["['true', 'false']", "[True, False]", "[0, 1]", "['x']"])
def test_yes_or_no_is_not_varied(choices: str, tmp_path: Path) -> None:
    """Switches in the shape of choices are left as the script has them."""
    script = tmp_path / "train.py"
    script.write_text(f"p.add_argument('--nesterov', choices={choices})\n")
    assert loads(write_study(script, tmp_path), "study.yaml").space.names() == []


def test_reported_metrics_need_no_pattern() -> None:
    """What goes through the Reporter is taken by its name."""
    source = (
        "from sweep.report import Reporter\nr = Reporter()\n"
        "r.log(step=1, train_loss=1.0, metrics={'val/acc': 0.5})\nprint(f'val_loss={1}')\n"
    )
    found = find_metrics(ast.parse(source), source)
    assert [(metric.name, metric.pattern) for metric in found] == [
        ("val/acc", None),
        ("train_loss", None),
    ]


def test_a_script_that_shows_nothing_still_gives_a_study(tmp_path: Path) -> None:
    """Without flags and metrics the file says what to add, and does not launch as it is."""
    script = tmp_path / "it's mine.py"
    script.write_text("x = 1\n")
    study = loads(write_study(script, tmp_path), "study.yaml")
    assert study.command == ("python", "it's mine.py", "EDIT_ME")
    assert (study.name, len(study.space)) == ("it-s-mine", 0)
    assert study.objective.metric == "val_loss"


def run_starter(folder: Path, *arguments: str, **variables: str) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **variables}
    return subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def starter(folder: Path) -> Study:
    written = init(folder)
    assert [path.name for path in written.files] == ["study.yaml", "train.py"]
    return load(folder / "study.yaml")


def test_an_empty_folder_gets_an_example_that_loads_and_learns(tmp_path: Path) -> None:
    """The example's study names flags that its training has; good values beat bad ones."""
    study = starter(tmp_path / "new")
    flags = {flag.name for flag in scan(tmp_path / "new/train.py")}
    assert {*study.space.names(), *study.fixed} <= flags
    good = run_starter(tmp_path / "new", "--lr=0.05", "--hidden=8").splitlines()
    bad = run_starter(tmp_path / "new", "--lr=0.001", "--hidden=2").splitlines()
    losses = [float(lines[-1].partition("val_loss=")[2]) for lines in (good, bad)]
    assert len(good) == study.fixed["epochs"]
    assert losses[0] < 0.05 < losses[1]


def test_the_example_runs_as_a_trial(tmp_path: Path) -> None:
    """Built as a worker builds it, the example's command reports every epoch."""
    study = dataclasses.replace(starter(tmp_path), workdir=str(tmp_path))
    values = TrialValues(
        number=0,
        attempt=1,
        seed=5,
        params={"lr": 0.05, "momentum": 0.5, "hidden": 4, **study.fixed},
        config=tmp_path / "config.yaml",
        trial_dir=tmp_path,
        checkpoint_dir=tmp_path,
        resume=None,
        metrics=tmp_path / "metrics.jsonl",
        control=tmp_path / "control.json",
        token="t",
    )
    base = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    argv, env = build(study, values, base, install_reporter(tmp_path / "python"))
    subprocess.run(argv, env=env, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    steps = [decode(line)[0] for line in values.metrics.read_text().splitlines()]
    assert steps == list(range(study.fixed["epochs"]))


def test_the_example_resumes_exactly(tmp_path: Path) -> None:
    """Half of a training and the rest from its checkpoint report what a whole one reports."""
    starter(tmp_path)
    whole = run_starter(tmp_path, "--epochs=6", "--momentum=0.5").splitlines()
    files = {"SWEEP_METRICS": str(tmp_path / "m"), "SWEEP_CHECKPOINT_DIR": str(tmp_path)}
    run_starter(tmp_path, "--epochs=3", "--momentum=0.5", **files)
    files["SWEEP_RESUME"] = str(tmp_path / "last.json")
    rest = run_starter(tmp_path, "--epochs=6", "--momentum=0.5", **files).splitlines()
    assert rest == whole[3:]
    lines = [json.loads(line) for line in (tmp_path / "m").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4, 5]
    assert all(math.isfinite(line["metrics"]["val_loss"]) for line in lines)


def test_the_example_leaves_when_asked(tmp_path: Path) -> None:
    """A control file that says so ends the training after its step."""
    starter(tmp_path)
    (tmp_path / "c").write_text('{"stop": "pruned"}')
    files = {"SWEEP_METRICS": str(tmp_path / "m"), "SWEEP_CONTROL": str(tmp_path / "c")}
    out = run_starter(tmp_path, **files)
    assert len(out.splitlines()) == 1


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    """A study file in the way is an error; with force it alone is replaced."""
    (tmp_path / "study.yaml").write_text("mine")
    with pytest.raises(InputError) as caught:
        init(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}/study.yaml exists.\nReplace it with --force, or choose another folder."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.yaml"]
    (tmp_path / "train.py").write_text(SCRIPT)
    written = init(tmp_path, force=True)
    assert written.files == [tmp_path / "study.yaml"]
    assert (tmp_path / "train.py").read_text() == SCRIPT
    assert "--out-dir" in (tmp_path / "study.yaml").read_text()


def test_a_failed_init_leaves_nothing(tmp_path: Path) -> None:
    """Where the script cannot be used, no file is made."""
    with pytest.raises(InputError):
        init(tmp_path / "new", script=tmp_path / "gone.py")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my run!", "my-run"),
        ("../x", "x"),
        ("", "study"),
        ("été", "ete"),
        ("中", "study"),
        ("a" * 200, "a" * 100),
    ],
)
def test_names_are_made_safe(text: str, name: str) -> None:
    """Any text gives a name that a folder and a job can have."""
    assert make_name(text) == name


def test_commands_split_back() -> None:
    """A command written on one line splits into the same arguments."""
    command = ["python", "a b.py", "{params}", "--x={lr}", "it's", "", "é", "$(id)"]
    line = join_command(command)
    assert shlex.split(line) == command
    assert re.search(r"\{params\} --x=\{lr\}", line)


@pytest.mark.parametrize(
    ("script", "metric", "direction"),
    [
        ("lightning", "val_loss", "minimize"),
        ("transformers", "eval_loss", "minimize"),
        ("keras", "val_loss", "minimize"),
        ("xgboost", "valid-rmse", "minimize"),
        ("lightgbm", "valid_0-l2", "minimize"),
        ("accelerate", "val_loss", "minimize"),
        ("fsdp", "val_loss", "minimize"),
        ("flax", "val_loss", "minimize"),
        ("sklearn", "val_accuracy", "maximize"),
    ],
)
def test_what_an_integration_reports_is_the_objective(
    script: str, metric: str, direction: str
) -> None:
    """Nothing is read from the output: the framework names what the script does not print."""
    path = REPOSITORY / f"studies/frameworks/train_{script}.py"
    draft = draft_study(path, path.parent)
    assert draft.objectives == [{"metric": metric, "direction": direction}]
    # torchrun's variables are needed by the only one that meets others by them.
    assert ("ddp" in draft.more) == (script == "fsdp")


@pytest.mark.parametrize(
    ("source", "metrics"),
    [
        (
            "from sweep.integrations.xgboost import SweepCallback\n"
            "m = XGBClassifier(objective='multi:softprob')\nm.fit(x, y, eval_set=[(a, b)])",
            ["validation_0-mlogloss"],
        ),
        (
            "from sweep.integrations.lightgbm import SweepCallback\n"
            "lgb.train({'metric': 'auc'}, d, valid_sets=[v], valid_names=['dev'])",
            ["dev-auc"],
        ),
        (
            "from sweep.integrations.transformers import SweepCallback\n"
            "TrainingArguments('out', metric_for_best_model='accuracy')",
            ["eval_accuracy", "eval_loss"],
        ),
        (
            "from sweep.integrations.lightning import SweepCallback\n"
            "def f(self):\n    self.log_dict({'val_f1': 1, 'val_loss': 2})",
            ["val_f1", "val_loss"],
        ),
        ("from sweep.integrations.keras import SweepCallback\nmodel.fit(x)", ["loss"]),
    ],
)
def test_metrics_of_integrations(source: str, metrics: list[str]) -> None:
    found = find_metrics(ast.parse(source), source)
    assert [metric.name for metric in found] == metrics
    assert all(metric.pattern is None for metric in found)


@pytest.mark.parametrize("line", ["{'eval_loss': 0.73, 'epoch': 1}", "{'eval_loss': '0.73'}"])
def test_the_dicts_of_a_trainer_are_read(line: str) -> None:
    """Transformers writes its numbers as texts since version 5."""
    source = "from transformers import Trainer\nTrainer(model).train()\n"
    metric = find_metrics(ast.parse(source), source)[0]
    output = Output([Objective(metric.name, pattern=metric.pattern)])
    assert output.take(line, NEWLINE) == [("eval_loss", 0, 0.73)]


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("from mpi4py import MPI", ["mpirun", "-n", "2", "python"]),
        ("    import mpi4py", ["mpirun", "-n", "2", "python"]),
        (
            'jax.distributed.initialize(cluster_detection_method="mpi4py")',
            ["mpirun", "-n", "2", "python"],
        ),
        ("jax.distributed.initialize()", ["python"]),
        ("# import mpi4py if you like", ["python"]),
    ],
)
def test_scripts_for_mpi_are_started_by_mpirun(
    tmp_path: Path, line: str, command: list[str]
) -> None:
    """Two ranks, with a CPU each; alone they would be ranks of nothing."""
    source = f"if True:\n    pass\n    {line.strip()}\n" if line[0] == " " else f"{line}\n"
    (tmp_path / "t.py").write_text(SCRIPT + source)
    draft = draft_study(tmp_path / "t.py", tmp_path)
    assert draft.command[: len(command)] == command
    assert draft.more.get("resources") == ({"cpus": 2} if len(command) > 1 else None)
    loads(write_draft(draft), "study.yaml")
