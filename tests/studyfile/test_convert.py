"""Searches of other tools as study files: each result loads, and what is lost is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.core.space import Prior
from sweep.core.study import Choice, Study
from sweep.studyfile import loads
from sweep.studyfile.starter.convert import Converted, convert

WANDB = """\
program: train.py
name: cnn sweep
project: mnist
entity: me
method: bayes
run_cap: 40
metric: {name: val/loss, goal: minimize, target: 0.1}
parameters:
  learning_rate: {distribution: log_uniform_values, min: 1e-5, max: 1e-1}
  batch_size: {values: [32, 64, 128]}
  epochs: {value: 5}
  dropout: {min: 0.1, max: 0.5}
  layers: {min: 1, max: 4}
  optimizer:
    parameters:
      name: {values: [sgd, adam]}
      momentum: {distribution: uniform, min: 0, max: 1}
early_terminate: {type: hyperband, min_iter: 3, eta: 2, strict: true}
command: ["${env}", CUDA_LAUNCH=0, "${interpreter}", -u, "${program}", "${args}", --json, "{}"]
"""

WANDB_STUDY = """\
# Made from the W&B sweep sweep.yaml.
# - early_terminate.strict: has no counterpart here.
# - entity: has no counterpart here.
# - wandb.config and wandb.log: W&B itself gave the script its values and took its metrics. Here
#   the script gets the values as the command says, or reads the file that SWEEP_CONFIG names;
#   and it reports by sweep.report.Reporter().log(step=…, …), prints what objective.from.stdout
#   finds, or is run by python -m sweep.integrations.wandb SCRIPT, which reports what wandb.log
#   was given.
# - numbers such as 1e-5 (parameters.learning_rate.min), 1e-1 (parameters.learning_rate.max):
#   texts to W&B, which reads YAML 1.1 (there it is 1.0e-5); here they are the numbers that they
#   look like.

name: cnn-sweep
command: [python, "-u", train.py, "--learning_rate={learning_rate}", "--batch_size={batch_size}", "--epochs={epochs}", "--dropout={dropout}", "--layers={layers}", "--optimizer={{'name': '{optimizer.name}', 'momentum': {optimizer.momentum}}}", "--json", "{{}}"]

objective:
  metric: val/loss
  direction: minimize
  at: last

space:
  learning_rate: {type: float, low: 1.0e-05, high: 0.1, log: true}
  batch_size: {type: categorical, choices: [32, 64, 128]}
  dropout: {type: float, low: 0.1, high: 0.5}
  layers: {type: int, low: 1, high: 4}
  optimizer.name: {type: categorical, choices: [sgd, adam]}
  optimizer.momentum: {type: float, low: 0.0, high: 1.0}

fixed:
  epochs: 5

target: 0.1
trials: 40
seed: 0
sampler: auto
pruner: {type: asha, min_resource: 3, reduction_factor: 2}
max_parallel: 4   # so many at once, at most; W&B has as many as agents
environment: {env: {CUDA_LAUNCH: "0"}}

# Further keys; `sweep schema` describes all of them.
# resources: {time: 30min, gpus: 1, cpus: 4, memory: 8G}   # of one trial
# slurm: {partition: gpu, account: my-project}
"""  # noqa: E501


def convert_text(folder: Path, text: str) -> tuple[Converted, Study]:
    path = folder / "sweep.yaml"
    path.write_text(text)
    converted = convert(path)
    return converted, loads(converted.text, "study.yaml")


def test_a_whole_wandb_sweep(tmp_path: Path) -> None:
    """The text of a converted sweep, with what was lost on top; it loads."""
    converted, study = convert_text(tmp_path, WANDB)
    assert converted.text == WANDB_STUDY
    assert converted.source == "W&B"
    assert study.command[-1] == "{{}}"


@pytest.mark.parametrize(
    ("given", "parameter", "lost"),
    [
        ("{min: 0.0, max: 1}", ("float", 0.0, 1.0, None, False), ""),
        ("{min: -3, max: 7}", ("int", -3, 7, None, False), ""),
        ("{distribution: int_uniform, min: 1, max: 9}", ("int", 1, 9, None, False), ""),
        (
            "{distribution: log_uniform, min: -9.21034, max: 0}",
            ("float", 0.0001, 1.0, None, True),
            "parameters.x: log_uniform takes min and max as exponents of e, so W&B draws from "
            "0.0001 to 1.",
        ),
        (
            "{distribution: inv_log_uniform, min: 0, max: 9.21034}",
            ("float", 0.0001, 1.0, None, True),
            "parameters.x: inv_log_uniform takes min and max as exponents of e, so W&B draws from "
            "0.0001 to 1.",
        ),
        (
            "{distribution: inv_log_uniform_values, min: 0.01, max: 1}",
            ("float", 0.01, 1.0, None, True),
            "",
        ),
        ("{distribution: q_uniform, min: 0, max: 1, q: 0.1}", ("float", 0.0, 1.0, 0.1, False), ""),
        ("{distribution: q_uniform, min: 8, max: 64, q: 8}", ("int", 8, 64, 8, False), ""),
        (
            "{distribution: q_uniform, min: 5, max: 64, q: 8}",
            ("int", 8, 64, 8, False),
            "parameters.x: the bounds became the outermost multiples of q, 8 and 64.",
        ),
        (
            "{distribution: q_log_uniform_values, min: 16, max: 256}",
            ("int", 16, 256, None, True),
            "",
        ),
        (
            "{distribution: q_log_uniform_values, min: 0.1, max: 10.0, q: 0.1}",
            ("float", 0.1, 10.0, None, True),
            "parameters.x.q: a logarithmic range has no steps here.",
        ),
        (
            "{distribution: normal, mu: 1, sigma: 0.5}",
            ("float", 0.0, 2.0, None, False),
            "parameters.x: normal has no counterpart here; it became even over mu ± 2 sigma.",
        ),
        (
            "{distribution: q_normal, mu: 10, sigma: 2, q: 1}",
            ("int", 6, 14, None, False),
            "parameters.x: q_normal has no counterpart here; it became even over mu ± 2 sigma.",
        ),
        (
            "{distribution: log_normal, mu: 0, sigma: 1}",
            ("float", 0.1353, 7.389, None, True),
            "parameters.x: log_normal has no counterpart here; it became even over mu ± 2 sigma, "
            "on a logarithmic scale.",
        ),
    ],
)
def test_wandb_ranges(given: str, parameter: tuple[Any, ...], lost: str, tmp_path: Path) -> None:
    """Each distribution becomes the nearest range, and a difference is said."""
    text = f"method: random\nrun_cap: 9\nparameters: {{x: {given}}}"
    converted, study = convert_text(tmp_path, text)
    got = study.space.get("x")
    assert (got.type, got.low, got.high, got.step, got.log) == parameter
    about = [sentence for sentence in converted.lost if sentence.startswith("parameters.")]
    assert about == ([lost] if lost else [])


def test_constraints_of_ax_are_relations(tmp_path: Path) -> None:
    """What is none of ours is said, and the rest loads."""
    relations = ["a + 2 * b <= 1.5", "a <= c", "a <<= b"]
    ranges = {name: {"type": "range", "bounds": [0.0, 1.0]} for name in "ab"}
    experiment = {"minimize": True, "parameter_constraints": relations}
    sweeper = {"ax_config": {"max_trials": 9, "experiment": experiment, "params": ranges}}
    data = {"defaults": [{"override hydra/sweeper": "ax"}], "hydra": {"sweeper": sweeper}}
    (tmp_path / "config.yaml").write_text(json.dumps(data))
    made = convert(tmp_path / "config.yaml")
    assert loads(made.text, "study.yaml").where == ("a + 2 * b <= 1.5",)
    about = [one for one in made.lost if "parameter_constraints" in one]
    assert len(about) == 2
    assert "a <= c: there is no parameter c" in about[0]
    assert "a <<= b: " in about[1]


@pytest.mark.parametrize(
    ("given", "ends", "prior", "lost"),
    [
        (
            "{distribution: normal, mu: 1, sigma: 0.5}",
            (0.0, 2.0),
            Prior(center=1.0, spread=0.5),
            "normal has no ends; it became mu ± 2 sigma with a prior, and nothing beyond is tried.",
        ),
        (
            "{distribution: log_normal, mu: 0, sigma: 1}",
            (0.1353, 7.389),
            Prior(center=1.0, spread=2.718),
            "log_normal has no ends; it became mu ± 2 sigma, on a logarithmic scale with a prior, "
            "and nothing beyond is tried.",
        ),
        (
            "{distribution: q_normal, mu: 10, sigma: 2, q: 2}",
            (6, 14),
            Prior(center=10, spread=2.0),
            "q_normal has no ends; it became mu ± 2 sigma with a prior, and nothing beyond is "
            "tried.",
        ),
        (
            "{values: [a, b], probabilities: [0.2, 0.8]}",
            (None, None),
            Prior(weights=(0.2, 0.8)),
            "",
        ),
        (
            "{values: [a, a, b], probabilities: [0.2, 0.2, 0.6]}",
            (None, None),
            None,
            "the choice 'a' is there twice, and was dropped once.",
        ),
    ],
)
def test_wandb_beliefs_are_priors(
    given: str, ends: tuple[Any, Any], prior: Prior | None, lost: str, tmp_path: Path
) -> None:
    """Where the sampler takes them: with the method bayes."""
    converted, study = convert_text(
        tmp_path, f"method: bayes\nrun_cap: 9\nparameters: {{x: {given}}}"
    )
    got = study.space.get("x")
    assert (got.low, got.high, got.prior) == (*ends, prior)
    about = [one.partition(": ")[2] for one in converted.lost if one.startswith("parameters.x")]
    assert (about[0] if about else "") == lost


@pytest.mark.parametrize(
    ("given", "lost"),
    [
        ("{distribution: zipf, a: 1}", "parameters.x: distribution zipf has no counterpart here."),
        ("{distribution: uniform, min: 0}", "parameters.x: max is missing."),
        ("{min: a, max: 1}", "parameters.x: min and max must be numbers (got 'a')."),
        ("{values: []}", "parameters.x: there are no choices."),
        ("3", "parameters.x: is not a mapping (got 3)."),
        (
            "{values: [1, 1.0, 2]}",
            "parameters.x: the choice 1.0 is there twice, and was dropped once.",
        ),
        (
            "{values: [1, 2], probabilities: [0.1, 0.9]}",
            "parameters.x.probabilities: choices are equally likely here.",
        ),
        (
            "{distribution: q_uniform, min: 1, max: 2, q: 5}",
            "parameters.x: W&B rounds all of it to 0.",
        ),
    ],
)
def test_what_wandb_parameters_lose(given: str, lost: str, tmp_path: Path) -> None:
    """What cannot be carried over is named, and the rest loads."""
    text = f"method: random\nrun_cap: 9\nparameters: {{y: {{min: 0, max: 1}}, x: {given}}}"
    converted, study = convert_text(tmp_path, text)
    assert lost in converted.lost
    assert "y" in study.space.names()
    assert f"# - {lost[:60]}" in converted.text


@pytest.mark.parametrize(
    ("command", "got", "lost"),
    [
        ("[python, '${program}', '${args_no_hyphens}']", ["python", "p.py", "{overrides}"], ""),
        (
            "[torchrun, '${program}', '--cfg=${args_json_file}']",
            ["torchrun", "p.py", "--cfg=EDIT_ME"],
            "command: ${args_json_file} has no counterpart",
        ),
        ("['${program}', '${args_json_file}']", ["p.py", "{config:json}"], ""),
        (
            "['${program}', '--d=${envvar:DATA}']",
            ["p.py", "--d=EDIT_ME"],
            "command: ${envvar:DATA} has no counterpart here",
        ),
        ("['${program}', '${args_no_boolean_flags}']", ["p.py", "{params:flags}"], ""),
    ],
)
def test_wandb_commands(command: str, got: list[str], lost: str, tmp_path: Path) -> None:
    """The macros of a command become placeholders."""
    text = f"program: p.py\nparameters: {{x: {{min: 0, max: 1}}}}\ncommand: {command}"
    converted, study = convert_text(tmp_path, text)
    assert list(study.command) == got
    assert [line for line in converted.lost if lost and line.startswith(lost)] or not lost


def test_a_wandb_grid(tmp_path: Path) -> None:
    """A grid has as many trials as points; without a program and a metric the file says so."""
    converted, study = convert_text(
        tmp_path, "method: grid\nparameters: {a: {values: [1, 2, 3]}, b: {values: [x, null]}}"
    )
    assert (study.sampler, study.trials) == (Choice("grid"), 6)
    assert study.command == ("python", "EDIT_ME", "{params}")
    assert converted.lost[:2] == [
        "program: is missing; replace EDIT_ME in the command.",
        "metric.name: is missing; val_loss was put in its place.",
    ]


HYDRA = """\
defaults:
  - _self_
  - override hydra/sweeper: optuna
  - override hydra/sweeper/sampler: tpe
hydra:
  sweeper:
    _target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper
    sampler: {_target_: optuna.samplers.TPESampler, seed: 123, n_startup_trials: 7, group: true}
    direction: maximize
    study_name: sphere
    storage: sqlite:///x.db
    n_trials: 20
    n_jobs: 3
    params:
      x: range(-5.5, 5.5, step=0.5)
      y: choice(-5, 0, 5)
      model.lr: tag(log, interval(1e-5, 1e-1))
      n: int(interval(1, 10))
      m: tag(log, int(interval(1, 100)))
      k: range(1, 7, 2)
      z: interval(0, 1)
      +extra: a,'b c',null
      size: "choice([1,2],[3,4])"
      s: shuffle(range(3))
      w: 0.5
      model.name: resnet
      g: glob(*)
x: 1
"""

HYDRA_SPACE = {
    "x": ("float", -5.5, 5.5, 0.5, False, ()),
    "y": ("categorical", None, None, None, False, (-5, 0, 5)),
    "model.lr": ("float", 1e-5, 0.1, None, True, ()),
    "n": ("int", 1, 10, None, False, ()),
    "m": ("int", 1, 100, None, True, ()),
    "k": ("int", 1, 7, 2, False, ()),
    "z": ("float", 0.0, 1.0, None, False, ()),
    "+extra": ("categorical", None, None, None, False, ("a", "b c", None)),
    "size": ("categorical", None, None, None, False, ([1, 2], [3, 4])),
    "s": ("categorical", None, None, None, False, (0, 1, 2)),
}


def test_a_whole_hydra_configuration(tmp_path: Path) -> None:
    """Every form of a sweep, the sampler, the direction and the width are carried over."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "app.py").write_text("import hydra\n@hydra.main()\ndef f(c): ...\n")
    converted, study = convert_text(tmp_path / "conf", HYDRA)
    space = {p.name: (p.type, p.low, p.high, p.step, p.log, p.choices) for p in study.space}
    assert space == HYDRA_SPACE
    assert study.fixed == {"w": 0.5, "model.name": "resnet"}
    assert study.command == (
        "python",
        str(tmp_path / "app.py"),
        "{overrides}",
        "hydra.mode=RUN",
        "hydra.run.dir={trial_dir}",
    )
    assert (study.name, study.trials, study.seed, study.max_parallel) == ("sphere", 20, 123, 3)
    assert study.objective.direction == "maximize"
    assert study.sampler.type == "tpe"
    assert study.sampler.options["startup_trials"] == 7
    assert converted.lost == [
        f"the application: {tmp_path / 'app.py'} is a guess, from its hydra.main; check the "
        "command.",
        "sampler.group: has no counterpart here.",
        "params.g: glob() has no counterpart here, and there is no folder g with options (got "
        "'glob(*)').",
        "storage: the study's rows are kept in PostgreSQL here; see the key storage.",
        "the returned value: Hydra took the objective from what the application returns. Report "
        "it: from sweep.report import Reporter; Reporter().log(objective=value).",
    ]


def test_the_older_hydra_form(tmp_path: Path) -> None:
    """search_space, several directions, and a sampler named in the defaults."""
    converted, study = convert_text(
        tmp_path,
        "defaults: [{override hydra/sweeper/sampler: nsgaii}]\n"
        "hydra: {sweeper: {direction: [minimize, maximize], n_trials: 8, search_space: {\n"
        "  x: {type: float, low: -5.5, high: 5.5, step: 0.5},\n"
        "  y: {type: categorical, choices: [-5, 0, 5]},\n"
        "  z: {type: int, low: 1, high: 100, log: true},\n"
        "  b: {type: complex}}}}",
    )
    assert [(p.name, p.type, p.step, p.log) for p in study.space] == [
        ("x", "float", 0.5, False),
        ("y", "categorical", None, False),
        ("z", "int", None, True),
    ]
    assert study.directions == ("minimize", "maximize")
    assert study.sampler.type == "nsgaii"
    assert converted.lost[:3] == [
        "the application: replace EDIT_ME in the command by your script.",
        "hydra.mode=RUN: Hydra has it from 1.2 on; take it out of the command for an older one.",
        "search_space.b: type complex has no counterpart here.",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1", "is neither a W&B sweep nor a Hydra configuration with a sweeper"),
        ("[1]", "is neither a W&B sweep"),
        ("", "is neither a W&B sweep"),
        ("a: [", "is not YAML: "),
        ("a: 1\na: 2", "is not YAML: "),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """A file that is neither format is an error that says what they look like."""
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "sweep.yaml")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        convert(tmp_path / "gone.yaml")
