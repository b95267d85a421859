"""Other tools' files, as people have them: each becomes the right study, or is refused by name.

The files are small ones in our own words with the constructions of public ones (``intake/*.txt``).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ruamel.yaml import YAML

from sweep.core.errors import InputError
from sweep.core.paths import AttemptFolder
from sweep.studyfile import loads
from sweep.studyfile.starter import recognised
from sweep.studyfile.starter.convert import Converted, convert
from sweep.studyfile.starter.draft import join_command, write_draft
from sweep.studyfile.starter.init import draft_study
from sweep.training.command.environment import TrialValues
from sweep.training.command.filling import fill

FOLDER = Path(__file__).parent / "intake"
# Said of every file of its tool, and in no list.
ALWAYS = (
    *("wandb.config and wandb.log:", "run_cap: is missing", "the application: replace"),
    *("the returned value: ", "objective: Hydra's own sweeper", "optim.optimizer: "),
    *("sampler: Ax has no counterpart", "hydra.mode=RUN: "),
)
FIELDS = {"objective": "objectives", "time": "time_s"}


@dataclass
class Case:
    """A file, the keys of its study that are compared, and what must be said."""

    name: str
    after: str
    text: str
    study: str = ""
    lost: list[str] = field(default_factory=list)


def read_cases(path: Path) -> list[Case]:
    cases = []
    for part in path.read_text(encoding="utf-8").split("\n=== ")[1:]:
        head, _, rest = part.partition("\n")
        after, _, rest = rest.partition("\n")
        text, _, rest = rest.partition("\n--- study\n")
        study, _, lost = rest.partition("\n--- lost\n")
        lines = [line for line in lost.split("\n") if line]
        cases.append(Case(head, after.removeprefix("after: "), text + "\n", study, lines))
    return cases


WANDB = read_cases(FOLDER / "wandb.txt")
HYDRA = read_cases(FOLDER / "hydra.txt")
OTHER_TOOLS = read_cases(FOLDER / "others.txt")
ALL = WANDB + HYDRA + OTHER_TOOLS


def compare(case: Case, converted: Converted) -> None:
    """Hold a converted study to what is written beside its file."""
    study = loads(converted.text, "study.yaml")
    yaml = YAML(typ="safe", pure=True)
    wanted = yaml.load(case.study)
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = StringIO()
    yaml.dump(yaml.load(converted.text) | wanted, text)
    expected = loads(text.getvalue(), "study.yaml")
    for key in wanted:
        name = FIELDS.get(key, key)
        assert getattr(study, name) == getattr(expected, name), key
    said = [line for line in converted.lost if not line.startswith(ALWAYS)]
    for line in case.lost:
        assert any(line in one for one in said), f"not said: {line}\n" + "\n".join(said)
    assert len(said) == len(case.lost), "\n".join(said)


@pytest.mark.parametrize("case", WANDB, ids=lambda case: case.name)
def test_wandb(case: Case, tmp_path: Path) -> None:
    """Each small sweep becomes the study that is written beside it, and no more is said."""
    path = tmp_path / "sweep.yaml"
    path.write_text(case.text)
    converted = convert(path)
    assert converted.source == "W&B"
    compare(case, converted)


@pytest.mark.parametrize("case", HYDRA, ids=lambda case: case.name)
def test_hydra(case: Case, tmp_path: Path) -> None:
    """Each small configuration becomes the study that is written beside it."""
    path = tmp_path / "sweep.yaml"
    path.write_text(case.text)
    converted = convert(path)
    assert converted.source == "Hydra"
    compare(case, converted)


def test_nested_values_arrive_as_wandb_passes_them(tmp_path: Path) -> None:
    """The argument of a group is the text of a Python dict, as W&B's agent writes it."""
    case = next(case for case in WANDB if case.name == "nested parameters")
    path = tmp_path / "sweep.yaml"
    path.write_text(case.text)
    study = loads(convert(path).text, "study.yaml")
    params = {"epochs": 5, "optimizer.lr": 0.05, "optimizer.nadam.beta": 2, "optimizer.name": "sgd"}
    values = TrialValues.within(
        AttemptFolder(tmp_path), config=path, params=params, seed=0, token="t"
    )
    # wandb.sdk.launch.sweeps.utils.create_sweep_command_args of the same values
    nested = {"lr": 0.05, "nadam": {"beta": 2}, "name": "sgd"}
    assert fill(study.command, values)[2:] == ["--epochs=5", f"--optimizer={nested}"]


SCRIPT = """
import math, wandb
config = {"method": "random", "run_cap": 5}
config["metric"] = dict(name="loss", goal="minimize")
params = {"opt": {"values": ["adam", "sgd"]}}
config["parameters"] = params
params.update({"epochs": {"value": 1}})
params.update({
    "batch": {"distribution": "q_log_uniform", "q": 8, "min": math.log(32), "max": math.log(256)},
    "sizes": {"values": list(range(2, 5))},
})
sweep_id = wandb.sweep(config, project="p")
def train(): ...
wandb.agent(sweep_id, train, count=5)
"""


@pytest.mark.parametrize("name", ["train.py", "train.ipynb"])
def test_a_sweep_in_a_script(name: str, tmp_path: Path) -> None:
    """A dict that is built in steps is read from the source; nothing is run."""
    # wandb/examples: colabs/pytorch/Organizing_Hyperparameter_Sweeps_in_PyTorch_with_W&B.ipynb
    text = SCRIPT
    if name.endswith(".ipynb"):
        cells = [
            {"cell_type": "code", "source": ["%pip install wandb\n", "!ls"]},
            {"cell_type": "markdown", "source": "# a"},
            {"cell_type": "code", "source": SCRIPT.splitlines(keepends=True)},
            {"cell_type": "code", "source": "not python ("},
        ]
        text = json.dumps({"cells": cells})
    (tmp_path / name).write_text(text)
    converted = convert(tmp_path / name)
    study = loads(converted.text, "study.yaml")
    batch = study.space.get("batch")
    assert (batch.type, batch.low, batch.high, batch.step) == ("int", 32, 256, 8)
    assert study.space.get("opt").choices == ("adam", "sgd")
    assert study.space.get("sizes").choices == (2, 3, 4)
    assert (study.fixed, study.trials, study.command) == (
        {"epochs": 1},
        5,
        ("python", "EDIT_ME", "{params}"),
    )
    assert any("W&B's agent calls a function" in line for line in converted.lost)


@pytest.mark.parametrize("case", OTHER_TOOLS, ids=lambda case: case.name)
def test_other_tools(case: Case, tmp_path: Path) -> None:
    """Each small file of a further tool becomes the study that is written beside it."""
    head, _, text = case.text.partition("\n")
    path = tmp_path / head.removeprefix("file: ")
    text, *others = text.split("\nfile ")
    path.write_text(text + "\n")
    for other in others:
        name, _, below = other.partition("\n")
        (tmp_path / name).write_text(below + "\n")
    compare(case, convert(path))


def test_what_a_script_only_knows_when_it_runs_is_named(tmp_path: Path) -> None:
    """The rest of the dict is converted; it may be one of several, or be returned."""
    # LuisCarretero/similar-expressions, maxburger4real/structure-of-lottery-tickets
    (tmp_path / "s.py").write_text(
        "from x import BEST, low\n"
        "SWEEPS = {}\n"
        "SWEEPS['a'] = {'method': 'random', 'run_cap': 3, 'program': 't.py',\n"
        "  'metric': {'name': BEST, 'goal': 'maximize'},\n"
        "  'parameters': {'lr': {'min': low(), 'max': 1.0}, 'n': {'values': [1, 2]},\n"
        "                 'k': {'value': BEST}}}\n"
        "def other():\n    return {'method': 'grid', 'parameters': {'a': {'values': [1]}}}\n"
    )
    converted = convert(tmp_path / "s.py")
    study = loads(converted.text, "study.yaml")
    assert (study.space.names(), study.fixed, study.objective.metric) == (["n"], {}, "val_loss")
    said = "\n".join(converted.lost)
    for name in ("parameters.lr: min and max must be numbers", "parameters.k: not known", "BEST"):
        assert name in said
    assert "SWEEPS['a']: the first of 2 sweeps" in said


def test_a_sweeper_in_a_file_of_its_own(tmp_path: Path) -> None:
    """The defaults choose it by name; what the configuration itself says of it comes first."""
    # cmsolson75/DenseNet conf/experiment/optuna_cifar10.yaml and conf/hydra/sweeper/optuna_sweeper
    # .yaml, MrEleden/reco_app conf/optuna_production.yaml
    folder = tmp_path / "conf"
    (folder / "hydra/sweeper").mkdir(parents=True)
    (folder / "experiment").mkdir()
    (folder / "hydra/sweeper/mine.yaml").write_text(
        "_target_: hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper\n"
        "direction: maximize\nn_trials: 30\nparams: {lr: 'tag(log, interval(1e-4, 1e-1))'}\n"
    )
    path = folder / "experiment/search.yaml"
    path.write_text(
        "defaults: [{override /hydra/sweeper: mine}, {override /model: dense}]\n"
        "hydra: {sweeper: {n_trials: 4}, run: {dir: out}}\nmlflow: {run: x}\n"
    )
    study = loads(convert(path).text, "study.yaml")
    assert (study.trials, study.directions) == (4, ("maximize",))
    lr = study.space.get("lr")
    assert (lr.low, lr.high, lr.log) == (1e-4, 1e-1, True)


# What is not converted, by file: its text, and the name that the error says.
NAMED = {
    "comet.yaml": ("algorithm: bayes\nspec: {}\nparameters: {lr: {type: float}}", "Comet"),
    "azure.yaml": ("type: sweep\nsampling_algorithm: random\nsearch_space: {}", "Azure ML"),
    "MLproject.yaml": ("name: a\nentry_points: {main: {parameters: {lr: float}}}", "MLflow"),
    "katib.yaml": ("apiVersion: kubeflow.org/v1beta1\nkind: Experiment\nspec: {}", "Katib"),
    "dvc.yaml": ("stages: {train: {cmd: python train.py}}", "DVC"),
    "guild.yml": ("- model: m\n  operations: {train: {main: t}}", "guild"),
    "space.json": ('{"hyperparameters": [{"name": "a", "type": "uniform_float"}]}', "ConfigSpace"),
    "rllib.yaml": ("cartpole: {env: CartPole-v1, run: PPO, stop: {}}", "Ray Tune"),
    "tune.py": ("from ray import tune\nspace = {'lr': tune.loguniform(1e-4, 1e-1)}", "Ray Tune"),
    "kt.py": ("import keras_tuner as kt\n", "Keras Tuner"),
    "syne.py": ("from syne_tune.config_space import uniform\n", "Syne Tune"),
    "ax.py": ("from ax.service.ax_client import AxClient\n", "Ax"),
    "hp.py": ("from hyperopt import hp, fmin\n", "Hyperopt"),
    "openapi.yaml": ("parameters: {limit: {in: query, name: limit}}\nname: x", ""),
    "bot.yaml": ("rules: [a]\nbranch: main\ngha_enabled: yes", ""),
    "plain.py": ("x = {'method': 'random'}", ""),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_not_converted_is_named(name: str, tmp_path: Path) -> None:
    """A file of another tool is taken for no other's, and the answer says where its words are."""
    text, tool = NAMED[name]
    (tmp_path / name).write_text(text)
    message = f"is a search of {tool}, which is not converted" if tool else "neither|has no dict"
    with pytest.raises(InputError, match=message):
        convert(tmp_path / name)
    page = (Path(__file__).parents[2] / "docs/coming-from.md").read_text(encoding="utf-8")
    assert not tool or f"## {tool}" in page


# Files that search nothing: what they are, and the name that the error says.
@pytest.mark.parametrize(
    ("tuner", "priors"), [("TPE", [(0.5, 0.25), (1.0, 2.718), (8, 2.0)]), ("Random", [None] * 3)]
)
def test_normal_ranges_of_nni(tuner: str, priors: list[Any], tmp_path: Path) -> None:
    """They have no ends; what is believed of them is a prior, for samplers that take one."""
    kinds = {"x": ("normal", [0.5, 0.25]), "y": ("lognormal", [0, 1]), "z": ("qnormal", [8, 2, 1])}
    space = {name: {"_type": kind, "_value": value} for name, (kind, value) in kinds.items()}
    experiment = {"searchSpace": space, "trialCommand": "python t.py", "tuner": {"name": tuner}}
    (tmp_path / "nni.yml").write_text(json.dumps(experiment))
    made = convert(tmp_path / "nni.yml")
    study = loads(made.text, "study.yaml")
    got = [
        parameter.prior and (parameter.prior.center, parameter.prior.spread)
        for parameter in study.space
    ]
    assert got == priors
    assert [(p.type, p.low, p.high, p.log) for p in study.space] == [
        ("float", 0.0, 1.0, False),
        ("float", 0.1353, 7.389, True),
        ("int", 4, 12, False),
    ]
    word = "no ends" if tuner == "TPE" else "no counterpart"
    assert sum(word in one for one in made.lost) >= 3


EMPTY = {
    "single.yaml": (
        "hyperparameters: {lr: 0.1}\nsearcher: {name: single, metric: loss}\nentrypoint: m:T",
        "this file of Determined varies nothing",
    ),
    "seml.yaml": ("seml: {executable: a.py}\nslurm: [{experiments_per_job: 2}]", "file of seml"),
    "nni.yml": (
        "trialCommand: python t.py\nuseAnnotation: true\ntuner: {name: TPE}",
        "file of NNI varies nothing",
    ),
    "wandb.yaml": (
        "program: t.py\nmethod: bayes\nmetric: {name: a}\nparameters: {model: {lr: [0.1, 0.2]}}",
        "file of W&B varies nothing",
    ),
    "search.py": (
        "def objective(trial): return trial.suggest_float('x', low(), 1)",
        "file of Optuna varies nothing",
    ),
    "hydra.yaml": ("defaults: [{override /hydra/sweeper: mine}]", "choose the sweeper mine"),
}


@pytest.mark.parametrize("name", EMPTY)
def test_what_varies_nothing_is_refused(name: str, tmp_path: Path) -> None:
    """Its tool is named, and no study is written that would repeat one training."""
    text, message = EMPTY[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        convert(tmp_path / name)


def test_each_tool_that_is_recognised_has_its_table() -> None:
    names = {*(name for name, _ in recognised._DATA), *(name for name, _ in recognised._SOURCES)}
    page = (Path(__file__).parents[2] / recognised.PAGE).read_text(encoding="utf-8")
    sections = dict(part.split("\n", 1) for part in page.split("\n## ")[1:])
    for name in {*names, "guild", "W&B", "Hydra"}:
        head, ruler, *rows = [line for line in sections[name].splitlines() if line[:1] == "|"]
        assert head.endswith("| Here |") and ruler == "|---|---|" and len(rows) >= 2, name


def mutate(text: str, random: Random) -> str:
    """Return a text with a few faults, as editors, merges and generators make them."""
    for _ in range(random.randint(1, 4)):
        lines = text.split("\n")
        at, to = random.randrange(len(lines)), random.randrange(len(lines))
        place = random.randrange(len(text) + 1)
        words = re.findall(r"[\w.$-]+", text) or ["x"]
        old, new = random.choice(words), random.choice([*words, *ODD])
        text = random.choice(
            [
                lambda lines=lines, at=at: "\n".join(lines[:at] + lines[at + 1 :]),
                lambda lines=lines, at=at, to=to: "\n".join([*lines[:at], lines[to], *lines[at:]]),
                lambda text=text, old=old, new=new: text.replace(old, new, 1),
                lambda text=text, old=old, new=new: text.replace(old, new),
                lambda text=text, place=place: text[:place] + random.choice(MARKS) + text[place:],
                lambda text=text, place=place: text[:place] + text[place + 1 :],
                lambda text=text, place=place: text[: max(1, place)],
            ]
        )()
    return text


ODD = ["null", "[]", "{}", "-1", "0", "1e400", ".nan", ".inf", "true", '""', "9" * 30, "!!x y", "~"]
ODD += ["[1, [2]]", "{a: 1}", "*a", "&a b", "1e-320", "${x}", "???", "-", "\u00e9", "''"]
MARKS = [*"{}[]:,#&*!|>'\"%@`\t\n -?", "\x07", "\n\n\n\n", "${", "}}", ": "]


@pytest.mark.parametrize(
    "count", [100, pytest.param(2000, marks=pytest.mark.long)], ids=["short", "long"]
)
def test_a_damaged_file_is_refused_or_converted(count: int, tmp_path: Path) -> None:
    """Whatever stands in a file: a study that loads, or an error that says what is wrong."""
    random = Random(19)
    texts = [case.text for case in ALL]
    for number in range(count):
        text = mutate(random.choice(texts), random)
        kind = ("s.py", "s.sh", "s.ipynb", "sweep.yaml")[min(number % 20, 3)]
        path = tmp_path / kind
        path.write_text(f"config = {text}" if path.suffix == ".py" else text, errors="ignore")
        try:
            loads(convert(path).text, "study.yaml")
        except InputError as error:
            assert str(path) in str(error)
        except Exception:
            print(text)
            raise


def test_blank_lines_cost_nothing(tmp_path: Path) -> None:
    """Forty blank lines at the top once took for ever."""
    path = tmp_path / "sweep.yaml"
    path.write_text("\n" * 5000 + WANDB[0].text)
    assert convert(path).source == "W&B"
    assert loads("\n" * 5000 + convert(path).text, "study.yaml").trials == 9


APP = """
import hydra
@hydra.main(version_base=None, config_path="../configs", config_name="train.yaml")
def main(cfg): ...
"""


def test_the_application_of_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script whose hydra.main names the folder, and the arguments that choose the file."""
    monkeypatch.chdir(tmp_path)
    case = HYDRA[1]
    for name, text in {
        ".git/HEAD": "",
        "src/train.py": APP,
        "src/eval.py": APP.replace("train.yaml", "eval.yaml"),
        "src/broken.py": "hydra.main(",
        "configs/train.yaml": "defaults: [_self_, {optional hparams: null}]",
        "configs/eval.yaml": "defaults: [_self_]",
        "configs/hparams/sweep.yaml": case.text,
        "configs/more/sweep.yaml": "# python src/train.py -m more=sweep\n" + case.text,
        "configs/eval2.yaml": case.text,
        "configs/db/a.yaml": "",
        "configs/db/b.yaml": "",
        "configs/train2.yaml": "hydra: {sweeper: {params: {db: glob(*)}}}\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def command(name: str) -> list[str]:
        study = loads(convert(tmp_path / "configs" / name).text, "study.yaml")
        return list(study.command)

    end = ["{overrides}", "hydra.mode=RUN", "hydra.run.dir={trial_dir}"]
    # Two scripts fit: neither is taken, both are named.
    several = convert(tmp_path / "configs/hparams/sweep.yaml")
    assert any("one of src/eval.py, src/train.py" in line for line in several.lost)
    assert command("more/sweep.yaml") == ["python", "src/train.py", "+more=sweep", *end]
    (tmp_path / "src/eval.py").unlink()
    assert command("hparams/sweep.yaml") == ["python", "src/train.py", "hparams=sweep", *end]
    assert command("eval2.yaml") == ["python", "src/train.py", "--config-name=eval2", *end]
    converted = convert(tmp_path / "configs/train2.yaml")
    assert loads(converted.text, "study.yaml").space.get("db").choices == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "defaults: [override hydra/sweeper: orion]\nhydra: {sweeper: {params: {a: '1,2'}}}",
            "the sweeper orion is not converted",
        ),
        (
            "hydra: {sweeper: {_target_: hydra_plugins.hypersweeper.HyperSweeper, n_trials: 3}}",
            "the sweeper HyperSweeper is not converted",
        ),
        (
            "defaults: [override hydra/sweeper: optuna]\nhydra: {sweeper: {n_trials: 3}}",
            "its sweeper varies nothing that is known from this file",
        ),
    ],
)
def test_a_sweeper_that_is_not_converted_is_named(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "sweep.yaml")


SCRIPTS = read_cases(FOLDER / "scripts.txt")


def write_project(case: Case, folder: Path) -> Path:
    """Write a script and the further files of its project; return the script."""
    main, *others = case.text.split("\nfile ")
    (folder / "train.py").write_text(main + "\n")
    for other in others:
        name, _, text = other.partition("\n")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return folder / "train.py"


@pytest.mark.parametrize("case", SCRIPTS, ids=lambda case: case.name)
def test_a_script(case: Case, tmp_path: Path) -> None:
    """What `sweep init` makes of a script: its command, what is searched and what stays."""
    folder = tmp_path / ("json" if "named like a library" in case.name else "project")
    folder.mkdir()
    draft = draft_study(write_project(case, folder), folder)
    study = loads(write_draft(draft), "study.yaml")
    yaml = YAML(typ="safe", pure=True)
    wanted = yaml.load(case.study)
    assert join_command(study.command) == wanted["command"]
    if "space" in wanted:
        assert draft.space == wanted["space"]
        assert draft.fixed == wanted.get("fixed", {})
    if "metric" in wanted:
        assert study.objective.metric == wanted["metric"]
    is_seeded = "{seed}" in wanted["command"]
    assert any("No flag for the seed" in line for line in draft.remarks) != is_seeded
