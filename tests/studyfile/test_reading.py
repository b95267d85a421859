"""Good study files: what real ones hold, and how their values are read."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import StudyFileError
from sweep.core.space import Parameter
from sweep.core.study import (
    Choice,
    Environment,
    Objective,
    Resources,
    Retry,
    Share,
    Slurm,
    Storage,
    Study,
)
from sweep.studyfile import load, loads

ROOT = Path(__file__).parents[2]
HEAD = "name: s\ncommand: train {config}\nobjective: {metric: acc, direction: maximize}\n"
STUDIES = ("digits", "mnist", "any_command", "relations", "priors", "replicates")

CONTRACT = """\
name: digits
command: python -m trainer.train --data digits --config {config}   # split like a shell would
objective:
  metric: val_accuracy
  direction: maximize        # or a list of objectives: several at once
  at: best                   # best | last of the reported steps
space:
  lr:         {type: float, low: 1e-4, high: 1e-1, log: true}
  batch_size: {type: categorical, choices: [32, 64, 128]}
  layers:     {type: int, low: 1, high: 4}
  optimizer:  {type: categorical, choices: [sgd, adamw]}
  momentum:   {type: float, low: 0.0, high: 0.99, when: {optimizer: sgd}}
fixed: {epochs: 5}
trials: 30
seed: 0
sampler: tpe                 # auto | grid | random | qmc | tpe | gp | cmaes | nsgaii
pruner: {type: asha, min_resource: 3, reduction_factor: 3}
max_parallel: 4              # K
retry: {max_attempts: 3}
resources: {time: "00:30:00", nodes: 1, gpus: 1, cpus: 4, memory: 8G}
executor: auto               # slurm where sbatch is found, else local
slurm: {partition: gpu, account: proj1, extra: ["--exclusive"]}
environment: {runtime: apptainer, image: train.sif, binds: ["/data:/data:ro"]}
storage: postgresql://me@db/sweep
"""


def read(text: str, *overrides: str) -> Study:
    """Read a study of which only a part is given."""
    lines = text.splitlines()
    if not any(line.startswith("trials:") for line in lines):
        text += "trials: 4\n"
    if not any(line.startswith("space:") for line in lines):
        text += "space: {x: {type: float, low: 0, high: 1}}\n"
    return loads(HEAD + text, "s.yaml", overrides)


def test_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example that users and documents rely on is read whole."""
    monkeypatch.chdir(tmp_path)
    study = loads(CONTRACT, "studies/digits.yaml")
    lr, batch_size, layers, optimizer, momentum = study.space
    assert lr == Parameter("lr", "float", low=0.0001, high=0.1, log=True)
    assert batch_size == Parameter("batch_size", "categorical", choices=(32, 64, 128))
    assert layers == Parameter("layers", "int", low=1, high=4)
    assert optimizer == Parameter("optimizer", "categorical", choices=("sgd", "adamw"))
    assert momentum == Parameter(
        "momentum", "float", low=0.0, high=0.99, when={"optimizer": ("sgd",)}
    )
    assert study == Study(
        name="digits",
        command=("python", "-m", "trainer.train", "--data", "digits", "--config", "{config}"),
        objectives=(Objective("val_accuracy", "maximize", "best"),),
        space=study.space,
        fixed={"epochs": 5},
        trials=30,
        seed=0,
        sampler=Choice("tpe"),
        pruner=Choice("asha", {"min_resource": 3, "reduction_factor": 3}),
        max_parallel=4,
        retry=Retry(max_attempts=3),
        resources=Resources(time_limit_s=1800, nodes=1, gpus=1, cpus=4, memory_mb=8192),
        executor="auto",
        slurm=Slurm(partition="gpu", account="proj1", extra=("--exclusive",)),
        environment=Environment("apptainer", "train.sif", binds=("/data:/data:ro",)),
        storage=Storage("postgresql://me@db/sweep"),
        workdir=str(tmp_path),
        source=str(tmp_path / "studies/digits.yaml"),
    )


@pytest.mark.parametrize("name", STUDIES)
def test_the_studies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The studies that people copy are right, run without GPU and survive storing."""
    monkeypatch.chdir(ROOT)
    study = load(Path("studies", f"{name}.yaml"))
    assert study.name == name
    assert study.resources.gpu_count == 0
    assert study.workdir == str(ROOT)
    assert Study.from_json(study.to_json()) == study


def test_what_an_earlier_version_stored() -> None:
    """Studies outlive upgrades: all of one is read back, and written as it was."""
    text = Path(__file__).with_name("study_before.json").read_text(encoding="utf-8")
    study = Study.from_json(text)
    assert study.to_json() + "\n" == text
    assert study.space.get("momentum").when == {"optimizer": ("sgd", 1.5), "layers": (3,)}
    assert study.resources == Resources(3600, gpus="a100:2", cpus=8, memory_mb=32768)
    assert hash(study.slurm) == hash(dataclasses.replace(study.slurm))  # tuples, not lists
    data = json.loads(text)
    # fields that were new one day
    del data["terminator"], data["environment"]["built"], data["resume"]
    del data["objectives"][0]["step_pattern"], data["space"]["parameters"][0]["prior"]
    del data["slurm"]["service"]["qos"], data["share"], data["notify"]
    del data["datasets"], data["staging"], data["replicates"], data["resources"]["share"]
    del data["environment"]["make_binds"], data["profile"]
    assert Study.from_json(json.dumps(data)) == study


def test_a_field_of_a_later_version_is_refused() -> None:
    """What it says would be lost without a word."""
    data = json.loads(read("").to_json())
    data["slurm"]["nice"] = 5
    with pytest.raises(ValueError, match="slurm has no nice"):
        Study.from_json(json.dumps(data))


def test_thirty_parameters() -> None:
    """A large space keeps its order."""
    names = [f"group{i % 3}.value_{i}" for i in range(30)]
    lines = "".join(
        f"  {name}: {{type: float, low: 0, high: {i + 1}}}\n" for i, name in enumerate(names)
    )
    assert read(f"space:\n{lines}").space.names() == names


def test_names_of_frameworks() -> None:
    """Dotted names, Hydra's groups and metrics with slashes are names like any other."""
    study = loads(
        "name: s-1.a\ncommand: train {overrides}\n"
        "objective: {metric: val/acc_best, direction: maximize}\n"
        "space:\n"
        "  model.optimizer.lr: {type: float, low: 1e-5, high: 1e-1, log: true}\n"
        "  model/backbone: {type: categorical, choices: [resnet18, vit_b]}\n"
        "  +trainer.clip: {type: float, low: 0.1, high: 1}\n"
        "trials: 3\n",
        "s.yaml",
    )
    assert study.objective.metric == "val/acc_best"
    assert study.space.names() == ["model.optimizer.lr", "model/backbone", "+trainer.clip"]


CHOICES: list[tuple[str, tuple[Any, ...]]] = [
    ("[[512, 256], [1024, 512]]", ([512, 256], [1024, 512])),
    ("[auto, 0.5, 0.3]", ("auto", 0.5, 0.3)),
    ("[null, 0.1]", (None, 0.1)),
    ("[true, false]", (True, False)),
    ("[yes, no, on, off]", ("yes", "no", "on", "off")),
    ("[1, '1']", (1, "1")),
    ("[[1], ['1'], []]", ([1], ["1"], [])),
    ("[{a: 1}, {a: 2}]", ({"a": 1}, {"a": 2})),
    ("[2024-01-01]", ("2024-01-01",)),
    ("[0o17, 012, 0x1F, 1_000]", (15, 12, 31, 1000)),
    ("[1e-3, 1.e2, .5, 1E5]", (0.001, 100.0, 0.5, 100000.0)),
    ("[1:30:00, 12:30]", ("1:30:00", "12:30")),
    ("[!!float 1e-3, !!str 5, !!float 2]", (0.001, "5", 2.0)),
    ("[ä, 学习, '']", ("ä", "学习", "")),
    ("[adam]", ("adam",)),
]


@pytest.mark.parametrize(("text", "expected"), CHOICES)
def test_choices(text: str, expected: tuple[Any, ...]) -> None:
    """Choices are YAML 1.2 values of any kind, and keep their types through storing."""
    study = read(f"space: {{c: {{type: categorical, choices: {text}}}}}\n")
    for got in (study, Study.from_json(study.to_json())):
        choices = got.space.get("c").choices
        assert choices == expected
        assert [type(choice) for choice in choices] == [type(choice) for choice in expected]


def test_ranges() -> None:
    """One value, negative, stepped and merged ranges are fine."""
    study = read(
        "space:\n"
        "  one: {type: float, low: 1e-3, high: 0.001}\n"
        "  same: {type: int, low: 3, high: 3}\n"
        "  low: {type: float, low: -1, high: -0.5}\n"
        "  tenths: {type: float, low: 0, high: 0.3, step: 0.1}\n"
        "  sizes: {type: int, low: 16, high: 256, step: 16}\n"
        "  units: &u {type: int, low: 1, high: 1024, log: true}\n"
        "  more: {<<: *u, high: 64}\n"
        "  again: *u\n"
    )
    assert study.space.get("more") == Parameter("more", "int", low=1, high=64, log=True)
    assert study.space.get("again").high == 1024
    assert [p.count() for p in study.space] == [1, 1, None, 4, 16, 1024, 64, 1024]
    for parameter in study.space:
        parameter.distribution()  # Optuna accepts every one


def test_conditions() -> None:
    """Conditions take a value, a list or several parents, and parents come first."""
    study = read(
        "space:\n"
        "  nesterov: {type: categorical, choices: [true, false], when: {momentum_on: true}}\n"
        "  momentum_on: {type: categorical, choices: [true, false], when: {opt: [sgd, rms]}}\n"
        "  opt: {type: categorical, choices: [sgd, rms, adam]}\n"
        "  depth: {type: int, low: 1, high: 4}\n"
        "  skip: {type: float, low: 0, high: 1, when: {depth: [3, 4], opt: adam}}\n"
        "  shape: {type: categorical, choices: [[1, 2], [3]]}\n"
        "  extra: {type: int, low: 0, high: 1, when: {shape: [1, 2]}}\n"
        "  other: {type: int, low: 0, high: 1, when: {shape: [[1, 2], [3]]}}\n"
    )
    assert study.space.names() == [
        "opt",
        "momentum_on",
        "nesterov",
        "depth",
        "skip",
        "shape",
        "extra",
        "other",
    ]
    assert study.space.get("momentum_on").when == {"opt": ("sgd", "rms")}
    assert study.space.get("skip").when == {"depth": (3, 4), "opt": ("adam",)}
    assert study.space.get("extra").when == {"shape": ([1, 2],)}
    assert study.space.get("other").when == {"shape": ([1, 2], [3])}


COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("python train.py --config {config}", ("python", "train.py", "--config", "{config}")),
    ("'python train.py \"a b\"'", ("python", "train.py", "a b")),
    (
        "[python, train.py, --epochs, 5, --rate, 1e-3, --flag, true]",
        ("python", "train.py", "--epochs", "5", "--rate", "1e-3", "--flag", "true"),
    ),
    (
        "|\n  python train.py \\\n    --lr {x}\n    --out {trial_dir}",
        ("python", "train.py", "--lr", "{x}", "--out", "{trial_dir}"),
    ),
    (
        "bash -c 'cd src && python train.py $HOME | tee log'",
        ("bash", "-c", "cd src && python train.py $HOME | tee log"),
    ),
    ("[sh, -c, 'a; b']", ("sh", "-c", "a; b")),
    ("train --glob '$x|y' --price 5$", ("train", "--glob", "$x|y", "--price", "5$")),
    ("train --json {{a}} {params}", ("train", "--json", "{{a}}", "{params}")),
    ("python -c 'import nope'", ("python", "-c", "import nope")),
    (
        "train --resume {resume} --seed={seed} -n{x}",
        ("train", "--resume", "{resume}", "--seed={seed}", "-n{x}"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), COMMANDS)
def test_command(text: str, expected: tuple[str, ...]) -> None:
    """A command is split as a shell would; a list is taken as it is written."""
    study = loads(
        f"name: s\ncommand: {text}\nobjective: {{metric: a, direction: minimize}}\n"
        "space: {x: {type: int, low: 0, high: 1}}\ntrials: 1\n",
        "s.yaml",
    )
    assert study.command == expected


TIMES = [
    ("90s", 90),
    ("30min", 1800),
    ("30m", 1800),
    ("1h30m", 5400),
    ("1.5h", 5400),
    ("2d", 172800),
    ("1 h 30 min", 5400),
    ("00:30:00", 1800),
    ("'30:00'", 1800),
    ("90:00", 5400),
    ("1-00:00:00", 86400),
    ("1-12", 129600),
    ("1-12:30", 131400),
    ("100:00:00", 360000),
]


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_time(text: str, seconds: int) -> None:
    """Times have a unit or are written Slurm's way."""
    assert read(f"trial_time: {text}\n").trial_time_s == seconds


@pytest.mark.parametrize(
    ("text", "memory_mb"),
    [
        ("8G", 8192),
        ("512M", 512),
        ("8GiB", 8192),
        ("8gb", 8192),
        ("1.5T", 1572864),
        ("2048K", 2),
        ("8 G", 8192),
    ],
)
def test_memory(text: str, memory_mb: int) -> None:
    """Memory is counted in MiB, as Slurm does."""
    assert read(f"resources: {{memory: {text}}}\n").resources.memory_mb == memory_mb


@pytest.mark.parametrize(
    ("text", "gpus", "count"),
    [
        *(("0", 0, 0), ("2", 2, 2), ('"a100:2"', "a100:2", 2), ("a100", "a100:1", 1)),
        *(("1g.10gb", "1g.10gb:1", 1), ('"2080ti:4"', "2080ti:4", 4), ('"3090:2"', "3090:2", 2)),
        *(('"gpu:2"', 2, 2), ('"gpu:a100:2"', "a100:2", 2)),
    ],
)
def test_gpus(text: str, gpus: int | str, count: int) -> None:
    """GPUs are a number, or a number of a type."""
    resources = read(f"resources: {{gpus: {text}}}\n").resources
    assert (resources.gpus, resources.gpu_count) == (gpus, count)


def test_the_rest_of_the_keys() -> None:
    """Every key that the contract's example leaves out is read into its field."""
    study = read(
        "points: [{x: 0.5}, {}]\ntrial_time: 2h\nstall_time: 20min\ngrace: 2min\ntasks: auto\n"
        "trials_per_task: 1\nkeep: 0\nlauncher: torchrun\ndata: /data/mnist\nworkdir: /w\n"
        "retry: {max_attempts: 5, max_user_failures: 1}\n"
        "resources: {shard: 4, time: 1h}\n"
        "slurm: {qos: q, constraint: 'a100|h100', reservation: r, exclusive: true, slots: 1,\n"
        "  setup: [module load cuda, 'export X=1'], service: {partition: cpu, time: 7-00:00:00}}\n"
        "environment: {env: {OMP_NUM_THREADS: 4, WANDB_API_KEY: , TOKENIZERS_PARALLELISM: 'false'}}"
        "\nstorage: {embedded: here}\n"
    )
    assert study.points == ({"x": 0.5}, {})
    assert (study.trial_time_s, study.stall_time_s, study.grace_s) == (7200, 1200, 120)
    assert (study.tasks, study.trials_per_task, study.keep) == (None, 1, 0)
    assert (study.launcher, study.data, study.workdir) == ("torchrun", ("/data/mnist",), "/w")
    assert study.retry == Retry(5, 1)
    assert study.resources == Resources(time_limit_s=3600, shard=4)
    assert (study.slurm.qos, study.slurm.constraint, study.slurm.slots) == ("q", "a100|h100", 1)
    assert study.slurm.setup == ("module load cuda", "export X=1")
    assert study.slurm.service.time_limit_s == 604800
    assert study.environment.env == {
        "OMP_NUM_THREADS": "4",
        "WANDB_API_KEY": None,
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert study.storage == Storage(embedded="here")
    assert Study.from_json(study.to_json()) == study


@pytest.mark.parametrize(
    ("text", "storage"),
    [
        ("{embedded: job}", Storage()),
        ("{embedded: {listen: ib0}}", Storage(listen="ib0")),
        ("{embedded: {at: here, listen: 10.1.2.3}}", Storage(embedded="here", listen="10.1.2.3")),
        ("{embedded: {listen: 'fd00::1'}}", Storage(listen="fd00::1")),
        ("{embedded: {listen: eth0.100}}", Storage(listen="eth0.100")),
    ],
)
def test_where_the_embedded_server_listens(text: str, storage: Storage) -> None:
    """An interface or an address, beside the place where it runs; the short form stays."""
    study = read(f"storage: {text}\n")
    assert study.storage == storage
    assert Study.from_json(study.to_json()) == study


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{embedded: {listen: 0.0.0.0}}", "must be one address, not all of them"),
        ("{embedded: {listen: '::'}}", "must be one address, not all of them"),
        ("{embedded: {listen: '*'}}", "must be a network interface or an address"),
        ("{embedded: {listen: 10.1.2}}", "must be a network interface or an address"),
        ("{embedded: {listen: \"lo', port = '1\"}}", "must be a network interface or an address"),
        ("{embedded: {listen: a-name-of-a-host.example.org}}", "must be a network interface"),
        ("{embedded: {place: here}}", "is not a key of storage.embedded"),
        ("{embedded: there}", "must be job or here"),
        ("{url: postgresql://h/d, embedded: {listen: lo}}", "must have url or embedded, not both"),
    ],
)
def test_where_nothing_can_listen(text: str, words: str) -> None:
    """Refused where it is read: it goes into the server's settings."""
    with pytest.raises(StudyFileError, match=re.escape(words)):
        read(f"storage: {text}\n")


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("auto", Share()),
        ("8", Share(max=8, measured=False)),
        ("{max: 16, memory: 10G, mps: off}", Share(max=16, memory_mb=10240, mps="off")),
        ("{mps: on}", Share(mps="on")),
        ("{max: 4}", Share(max=4)),
        ("{fixed: 8}", Share(max=8, measured=False)),
        (
            "{fixed: 8, memory: 10G, mps: off}",
            Share(max=8, memory_mb=10240, mps="off", measured=False),
        ),
    ],
)
def test_trials_that_share_a_gpu(text: str, share: Share) -> None:
    """Measured, or a number that is taken as it is; read back from what launch stores."""
    study = read(f"resources: {{gpus: 1, share: {text}}}\n")
    assert study.resources.share == share
    assert study.resources.most_on_gpu == share.max
    assert Study.from_json(study.to_json()) == study


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{fixed: 4, max: 8}", "resources.share: must have max or fixed, not both"),
        ("{fixed: 0}", "resources.share.fixed: must be a whole number from 1 to 48"),
        ("{fixed: auto}", "resources.share.fixed: must be a whole number"),
        ("{count: 4}", "Did you mean fixed?"),
        ("{min: 4, max: 4}", "Did you mean fixed?"),
    ],
)
def test_how_trials_share_no_gpu(text: str, words: str) -> None:
    with pytest.raises(StudyFileError, match=re.escape(words)):
        read(f"resources: {{gpus: 1, share: {text}}}\n")


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("resources: {nodes: 2}", "resources.nodes"),
        ("resources: {shard: 4}", "resources.shard"),
        ("resources: {mps: 50}", "resources.mps"),
        ("resources: {gpus: a100, cpus: 2}", None),
    ],
)
def test_slots_and_what_cannot_go_with_them(text: str, other: str | None) -> None:
    """The trials of a task with slots share one node, and no GPU."""
    text += "\nslurm: {slots: 4}\n"
    if other is None:
        assert read(text).slurm.slots == 4
        return
    with pytest.raises(StudyFileError, match=f"slurm.slots: cannot go with {other}"):
        read(text)


SAMPLERS = [
    ("auto", Choice("auto")),
    ("{type: grid}", Choice("grid")),
    (
        "{type: qmc, sequence: halton, scramble: false}",
        Choice("qmc", {"sequence": "halton", "scramble": False}),
    ),
    (
        "{type: tpe, startup_trials: 5, candidates: 48, multivariate: true}",
        Choice("tpe", {"startup_trials": 5, "candidates": 48, "multivariate": True}),
    ),
    ("{type: gp, deterministic: true}", Choice("gp", {"deterministic": True})),
    (
        "{type: cmaes, sigma0: 0.5, population: 8}",
        Choice("cmaes", {"sigma0": 0.5, "population": 8}),
    ),
    (
        "{type: nsgaii, population: 20, crossover_prob: 1}",
        Choice("nsgaii", {"population": 20, "crossover_prob": 1.0}),
    ),
]


@pytest.mark.parametrize(("text", "expected"), SAMPLERS)
def test_sampler(text: str, expected: Choice) -> None:
    """A sampler is a name, or a type with the options that were given."""
    space = "space: {x: {type: int, low: 1, high: 9}}\n"
    assert read(f"sampler: {text}\n{space}").sampler == expected


PRUNERS = [
    ("none", Choice("none")),
    (
        "{type: percentile, percentile: 25, min_resource: 3}",
        Choice("percentile", {"percentile": 25.0, "min_resource": 3}),
    ),
    ("{type: hyperband, max_resource: auto}", Choice("hyperband", {"max_resource": "auto"})),
    (
        "{type: threshold, upper: 1e3, warmup: 2}",
        Choice("threshold", {"upper": 1000.0, "warmup": 2}),
    ),
    (
        "{type: patient, patience: 3, pruner: {type: median, interval: 2}}",
        Choice("patient", {"patience": 3, "pruner": {"type": "median", "interval": 2}}),
    ),
    (
        "{type: patient, patience: 3, pruner: asha}",
        Choice("patient", {"patience": 3, "pruner": {"type": "asha"}}),
    ),
]


@pytest.mark.parametrize(("text", "expected"), PRUNERS)
def test_pruner(text: str, expected: Choice) -> None:
    """A pruner is a name, or a type with the options that were given."""
    assert read(f"pruner: {text}\n").pruner == expected


def test_steps_in_the_output() -> None:
    """Where the step is read is a pattern beside the metric's."""
    from_ = "from: {stdout: 'acc=(.*)', step: 'Epoch (.*)'}"
    study = loads(
        "name: s\ncommand: train\ntrials: 2\nspace: {}\n"
        f"objective: {{metric: acc, direction: maximize, {from_}}}\n",
        "s.yaml",
    )
    assert study.objective == Objective("acc", "maximize", "best", "acc=(.*)", "Epoch (.*)")
    assert Study.from_json(study.to_json()) == study


def test_several_objectives() -> None:
    """A list of objectives optimises all of them; one in a list is one."""
    study = loads(
        "name: s\ncommand: train\ntrials: 2\nspace: {}\nobjective:\n"
        "  - {metric: acc, direction: maximize}\n"
        "  - {metric: size, direction: minimize, at: last, from: {stdout: 'size=(\\d+)'}}\n",
        "s.yaml",
    )
    assert study.directions == ("maximize", "minimize")
    assert study.objectives[1] == Objective("size", "minimize", "last", r"size=(\d+)")
    assert Study.from_json(study.to_json()) == study
    assert len(study.space) == 0


@pytest.mark.parametrize(
    ("text", "trials"),
    [
        ("space: {a: {type: int, low: 1, high: 3}, b: {type: categorical, choices: [x, y]}}", 6),
        ("space: {a: {type: float, low: 0, high: 1, step: 0.25}}", 5),
        (
            "space: {o: {type: categorical, choices: [sgd, adam]},"
            " m: {type: int, low: 1, high: 4, when: {o: sgd}}}",
            5,
        ),
        ("space: {a: {type: int, low: 1, high: 3}}\npoints: [{a: 1}]", 4),
    ],
)
def test_grid_counts_itself(text: str, trials: int) -> None:
    """A grid without trials has as many as it has different configurations."""
    study = loads(f"{HEAD}sampler: grid\n{text}\n", "s.yaml")
    assert study.trials == trials


OVERRIDES: list[tuple[tuple[str, ...], str, Any]] = [
    (("trials=50",), "trials", 50),
    (("trials=5", "trials=6"), "trials", 6),
    (("name=other",), "name", "other"),
    (("command=[a, 'b c']",), "command", ("a", "b c")),
    (("resources.time=1h",), "resources", Resources(time_limit_s=3600)),
    (("slurm.service.partition=cpu", "slurm.qos=x"), "slurm.service.partition", "cpu"),
    (("objective.at=last",), "objective.at", "last"),
    (("fixed.model.width=3",), "fixed", {"model.width": 3}),
    (("pruner={type: median}",), "pruner", Choice("median")),
    (("space.x.high=0.5",), "space.parameters.0.high", 0.5),
    (("space.m.lr={type: int, low: 1, high: 2}",), "space.parameters.1.name", "m.lr"),
    (
        ("space.m.lr.type=int", "space.m.lr.low=1", "space.m.lr.high=2"),
        "space.parameters.1",
        Parameter("m.lr", "int", low=1, high=2),
    ),
    (("environment.env.A=x=y",), "environment.env", {"A": "x=y"}),
]


@pytest.mark.parametrize(("overrides", "path", "expected"), OVERRIDES)
def test_override(overrides: tuple[str, ...], path: str, expected: Any) -> None:
    """--set puts a YAML value anywhere: names with dots, sections that are not there."""
    value: Any = read("", *overrides)
    for name in path.split("."):
        value = value[int(name)] if name.isdecimal() else getattr(value, name)
    assert value == expected


def test_byte_order_mark_and_line_ends() -> None:
    """Files from Windows are read as any other."""
    text = "\ufeff" + (HEAD + "trials: 3\nspace: {}\n").replace("\n", "\r\n")
    assert loads(text, "s.yaml").trials == 3


def test_workdir_is_seen_from_where_sweep_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training starts in the folder of the call, or in one seen from there."""
    monkeypatch.chdir(tmp_path)
    assert read("").workdir == str(tmp_path)
    assert read("workdir: a/b\n").workdir == str(tmp_path / "a/b")


def test_a_study_may_say_where_its_data_lie() -> None:
    """SWEEP_DATA is the reference trainer's, and a user's to set; all else of sweep's is not."""
    study = read("environment:\n  env: {SWEEP_DATA: /data/mnist}\n")
    assert study.environment.env == {"SWEEP_DATA": "/data/mnist"}


def test_a_working_folder_of_each_attempts_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """workdir: trial lies over the folder where sweep is called; ./trial is a folder."""
    monkeypatch.chdir(tmp_path)
    study = read("workdir: trial\n")
    assert (study.own_workdir, study.workdir) == (True, str(tmp_path))
    study = read("workdir: ./trial\n")
    assert (study.own_workdir, study.workdir) == (False, str(tmp_path / "trial"))


def test_variables_in_paths_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the launching shell; one that is not set, or may be a secret, is named."""
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("DATA_ROOT", "/data")
    monkeypatch.setenv("MY_TOKEN", "t")
    monkeypatch.delenv("NOWHERE", raising=False)
    text = 'environment: {runtime: apptainer, image: "IMAGE", binds: ["BIND"]}\n'
    paths = {"IMAGE": "/i/${USER}/a.sif", "BIND": "$DATA_ROOT/${USER}x:/d:ro"}
    for name, path in paths.items():
        text = text.replace(name, path)
    given = read(text).environment
    assert (given.image, given.binds) == ("/i/ada/a.sif", ("/data/adax:/d:ro",))
    monkeypatch.setenv("HOME", "/home/ada")
    home = read('environment: {runtime: apptainer, image: $HOME/a.sif, binds: ["$HOME/d:/d"]}\n')
    assert (home.environment.image, home.environment.binds) == (
        "/home/ada/a.sif",
        ("/home/ada/d:/d",),
    )
    for name, rule in {"NOWHERE": "is not set here", "MY_TOKEN": "may be a secret"}.items():
        with pytest.raises(StudyFileError, match=rf"names \${name}, which {rule}"):
            read(text.replace("$DATA_ROOT", f"${name}"))
