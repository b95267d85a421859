"""The command, the configuration file and the environment that a trial starts with."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.hydra_text import Call, read_value, write_value
from sweep.core.paths import PACKAGE, StudyFolder
from sweep.core.placeholders import escape, split
from sweep.core.space import Parameter, Space
from sweep.core.study import ConfigFile, Environment, Objective, Resources, Study
from sweep.core.system.search_path import _TOOL_MARKS, search_path
from sweep.tasks.context import config_of, logged_as
from sweep.training.command.assembly import build
from sweep.training.command.environment import TrialValues, environment, install_reporter
from sweep.training.command.filling import (
    config_files,
    config_path,
    explain_missing,
    fill,
    write_config,
)
from tests.needs import require

PARAMS = {"lr": 1e-05, "opt.name": "sgd", "nesterov": True, "sizes": [512, 256], "decay": None}
VALUES = TrialValues(
    number=7,
    attempt=1,
    seed=42,
    params=PARAMS,
    config=Path("/r/t/config.yaml"),
    trial_dir=Path("/r/t/a 1"),
    checkpoint_dir=Path("/r/t/a 1/checkpoints"),
    resume=None,
    metrics=Path("/r/t/a 1/metrics.jsonl"),
    control=Path("/r/t/a 1/control.json"),
    token="t0ken",
)
RESUMED = dataclasses.replace(
    VALUES, attempt=2, resume=Path("/r/t/a 1/checkpoints/3.pt"), next_step=4
)
HOSTILE = "a b'c\"d $(id) `id` ; rm -rf ~ \n é {x} %s \\"


def make_study(command: list[str], **more: object) -> Study:
    space = Space((Parameter("lr", "float", 1e-6, 1.0), Parameter("momentum", "float", 0.0, 1.0)))
    return Study("s", tuple(command), (Objective("loss"),), space, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("element", "got"),
    [
        ("--config={config}", ["--config=/r/t/config.yaml"]),
        ("{trial_dir}", ["/r/t/a 1"]),
        ("{trial_dir}/out", ["/r/t/a 1/out"]),
        ("{checkpoint_dir}:{seed}", ["/r/t/a 1/checkpoints:42"]),
        ("{lr}", ["1e-05"]),
        ("lr={lr},name={opt.name}", ["lr=1e-05,name=sgd"]),
        ("--n={nesterov}", ["--n=True"]),
        ("{sizes}", ["[512, 256]"]),
        ("{decay}", ["None"]),
        ("{{lr}}", ["{lr}"]),
        ('{{"lr": {lr}}}', ['{"lr": 1e-05}']),
        ("plain $HOME", ["plain $HOME"]),
        ("", [""]),
        ("{resume}", []),
        ("--resume={resume}", []),
        ("file:{resume}", []),
        ("{momentum}", []),
        ("--momentum={momentum}", []),
        (
            "{params}",
            [
                "--lr=1e-05",
                "--opt.name=sgd",
                "--nesterov=True",
                "--sizes=[512, 256]",
                "--decay=None",
            ],
        ),
        (
            "{overrides}",
            ["lr=1e-05", "opt.name=sgd", "nesterov=true", "sizes=[512,256]", "decay=null"],
        ),
        (
            "{overrides:++}",
            [
                "++lr=1e-05",
                "++opt.name=sgd",
                "++nesterov=true",
                "++sizes=[512,256]",
                "++decay=null",
            ],
        ),
        (
            "{params:flags}",
            ["--lr=1e-05", "--opt.name=sgd", "--nesterov", "--sizes=[512, 256]", "--decay=None"],
        ),
        (
            "{params: }",
            [
                *("--lr", "1e-05", "--opt.name", "sgd", "--nesterov", "True"),
                *("--sizes", "[512, 256]", "--decay", "None"),
            ],
        ),
        (
            "-j={params:json}",
            [
                '-j={"lr": 1e-05, "opt.name": "sgd", "nesterov": true, "sizes": [512, 256], '
                '"decay": null}'
            ],
        ),
        ("--c={config:json}", ["--c=/r/t/config.json"]),
    ],
)
def test_an_element_is_filled(element: str, got: list[str]) -> None:
    """Each element becomes the arguments that the table says."""
    assert fill(["run", element], VALUES, ["momentum"]) == ["run", *got]


@pytest.mark.parametrize(
    ("command", "first", "later"),
    [
        (["t", "--resume", "{resume}"], ["t"], ["t", "--resume", "/r/t/a 1/checkpoints/3.pt"]),
        (["t", "{resume}", "-v"], ["t", "-v"], ["t", "/r/t/a 1/checkpoints/3.pt", "-v"]),
        (["t", "--", "{resume}"], ["t", "--"], ["t", "--", "/r/t/a 1/checkpoints/3.pt"]),
        (["t", "a=b", "{resume}"], ["t", "a=b"], ["t", "a=b", "/r/t/a 1/checkpoints/3.pt"]),
        (["t", "--a={seed}", "{resume}"], ["t", "--a=42"], None),
        (["{resume}"], [], ["/r/t/a 1/checkpoints/3.pt"]),
    ],
)
def test_an_absent_checkpoint_leaves_no_trace(
    command: list[str], first: list[str], later: list[str] | None
) -> None:
    """An option whose value is absent goes with it; other arguments stay."""
    assert fill(command, VALUES) == first
    if later is not None:
        assert fill(command, RESUMED) == later


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ("{lrr}", "command: unknown placeholder {lrr} in '{lrr}'.\nDid you mean {lr}?"),
        (
            "${oc.env:HOME}",
            "command: unknown placeholder {oc.env:HOME} in '${oc.env:HOME}'.\n"
            "Write {{ and }} for braces.",
        ),
        ("{lr", "command: '{' without its '}' in '{lr'; write {{ for a brace."),
        ("lr}", "command: '}' without its '{' in 'lr}'; write }} for a brace."),
        ("{}", "command: empty placeholder in '{}'; write {{}} for braces."),
        ("x{params}", "command: {params} must be an argument of its own."),
    ],
)
def test_a_wrong_placeholder_is_named(element: str, message: str) -> None:
    """What cannot be filled is said with the argument that holds it."""
    with pytest.raises(InputError) as caught:
        fill([element], VALUES)
    assert str(caught.value) == message


def test_braces_are_escaped() -> None:
    """Escaped text comes out as it was."""
    assert fill([escape('{"a": {}}')], VALUES) == ['{"a": {}}']


def test_hostile_values_arrive_byte_for_byte() -> None:
    """A process started with the filled command sees the value itself, once."""
    values = dataclasses.replace(VALUES, params={"text": HOSTILE})
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    argv = fill([sys.executable, "-c", show, "{text}", "--t={text}", "{params}"], values)
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == [HOSTILE, f"--t={HOSTILE}", f"--text={HOSTILE}"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.001, "0.001"),
        (1e-05, "1e-05"),
        (math.inf, "inf"),
        (False, "false"),
        (None, "null"),
        ("adamw", "adamw"),
        ("/data/a-b.c", "/data/a-b.c"),
        ("a b", "'a b'"),
        ("", "''"),
        ("null", "'null'"),
        ("True", "'True'"),
        ("1e-3", "'1e-3'"),
        ("it's", "'it\\'s'"),
        ("a\\", "'a\\\\'"),
        ("a\\b", "'a\\b'"),
        ("${a}", "'\\${a}'"),
        ("é", "'é'"),
        ("a,b", "'a,b'"),
        ([[512, 256], ["x y", None]], "[[512,256],['x y',null]]"),
        ({"a": 1, "b": {"c": "d e"}}, "{a:1,b:{c:'d e'}}"),
    ],
)
def test_values_in_hydra_grammar(value: object, text: str) -> None:
    """Values are written as Hydra 1.3 parses them (compared once with Hydra itself)."""
    assert write_value(value) == text


def test_hydra_cannot_hold_every_key() -> None:
    """A mapping's key that the grammar lacks is an error, not another key."""
    with pytest.raises(InputError, match="cannot hold the key 'a b'"):
        fill(["{overrides}"], dataclasses.replace(VALUES, params={"m": {"a b": 1}}))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", 0.1),
        ("-3", -3),
        ("1e-3", 1e-3),
        ("true", True),
        ("null", None),
        ("a/b.c", "a/b.c"),
        ("'it\\'s'", "it's"),
        ("", ""),
        ("1,2,x", Call("choice", (1, 2, "x"), is_bare=True)),
        ("[1,[2,'a b']]", [1, [2, "a b"]]),
        ("{a:1,b:[2]}", {"a": 1, "b": [2]}),
        ("range(-5.5, 5.5, step=0.5)", Call("range", (-5.5, 5.5), {"step": 0.5})),
        ("int(interval(1, 10))", Call("int", (Call("interval", (1, 10)),))),
        ("tag(log, interval(1e-5, 1e-1))", Call("tag", ("log", Call("interval", (1e-5, 0.1))))),
        ("choice('a,b', x y)", Call("choice", ("a,b", "x y"))),
    ],
)
def test_hydra_expressions_are_read(text: str, value: object) -> None:
    """Sweep expressions of Hydra's grammar read as data."""
    got = read_value(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize("text", ["interval(1, 2", "'a", "[1", "a)", "{a:1", "1,,2"])
def test_broken_hydra_expressions_are_refused(text: str) -> None:
    """What the grammar does not hold is an error."""
    with pytest.raises(ValueError):
        read_value(text)


CONFIGS: list[dict[str, object]] = [
    {},
    {"lr": 1e-05, "big": 1e22, "third": 1 / 3, "zero": 0.0, "minus": -2.5e-300},
    {"up": math.inf, "down": -math.inf},
    {"n": 3, "y": True, "off": False, "null": None, "1": "1", "model.optimizer.lr": 0.1},
    {"a b": HOSTILE, "é": "yes", "val/acc": "1e-3", "": "~", "# x": ": - ?", "x: y": "2020-01-01"},
    {"sizes": [[512, 256], [1024]], "mixed": ["auto", 0.5, None, True], "m": {"a": 1e-3, "on": {}}},
    {"control": "\x00\x07\x1b\x7f\x85\x9f\u2028\u2029\ufeff\uffff", "emoji": "\U0001f600\ud7ff"},
    {"octal": "0o17", "bin": "0b1", "sexagesimal": "1:30", "under": "1_000", "dot": ".5"},
]


@pytest.mark.parametrize("params", CONFIGS)
def test_both_yaml_versions_read_the_configuration_back(params: dict[str, object]) -> None:
    """YAML 1.1 (PyYAML) and 1.2 (ruamel) read equal values of equal types."""
    text = write_config(params)
    ruamel = pytest.importorskip("ruamel.yaml").YAML(typ="safe", pure=True)
    read = [ruamel.load(text)]
    yaml = pytest.importorskip("yaml")
    read.append(yaml.safe_load(text))
    for got in read:
        assert got == params
        assert list(map(type, got.values())) == list(map(type, params.values()))
    assert len(text.splitlines()) == max(1, len(params)) or "\u2028" in str(params)


def test_nan_is_read_back() -> None:
    """NaN has a form in YAML, and it is the one written."""
    assert write_config({"x": math.nan}) == "x: .nan\n"


BASE = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/u",
    "CUDA_VISIBLE_DEVICES": "0,1",
    "SLURM_JOB_ID": "5",
    "SWEEP_STORAGE": "postgresql://u:pw@db/x",
    "SWEEP_RESUME": "/old",
    "SWEEP_RUNS": "/r",
    "SWEEP_DATA": "/data",
    "PGPASSWORD": "pw",
    "PGHOST": "db",
    "NOTE": "see postgresql://u:pw@db/x",
    "PYTHONPATH": "/mine:",
    "VIRTUAL_ENV": "/v",
}


def test_data_sets_are_named_to_training() -> None:
    """By placeholders of the command, and by variables of their own; stale ones are dropped."""
    values = dataclasses.replace(VALUES, data={"mnist": Path("/s/m n"), "val": Path("/v")})
    assert fill(["--d={data.mnist}", "{data.val}"], values) == ["--d=/s/m n", "/v"]
    found = environment(make_study(["x"]), values, {**BASE, "SWEEP_DATA_OLD": "/o"}, Path("/p"))
    named = {name: value for name, value in found.items() if name.startswith("SWEEP_DATA")}
    assert named == {"SWEEP_DATA": "/data", "SWEEP_DATA_MNIST": "/s/m n", "SWEEP_DATA_VAL": "/v"}


def test_the_environment_of_training() -> None:
    """Training keeps the user's variables, gets ours, and never sees the database's."""
    given = Environment(env={"A": "1", "HOME": None, "ABSENT": None, "PGHOST": "own"})
    study = make_study(["x"], environment=given)
    assert environment(study, RESUMED, BASE, Path("/p")) == {
        "PATH": "/usr/bin:/bin",
        "HOME": "/home/u",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "SLURM_JOB_ID": "5",
        "VIRTUAL_ENV": "/v",
        "A": "1",
        "PGHOST": "own",
        "PYTHONPATH": f"/mine{os.pathsep}/p",
        "PYTHONHASHSEED": "42",
        "PYTHONUNBUFFERED": "1",
        "SWEEP_DATA": "/data",
        "SWEEP_CONFIG": "/r/t/config.yaml",
        "SWEEP_TRIAL_DIR": "/r/t/a 1",
        "SWEEP_SEED": "42",
        "SWEEP_METRICS": "/r/t/a 1/metrics.jsonl",
        "SWEEP_CONTROL": "/r/t/a 1/control.json",
        "SWEEP_TRIAL": "7",
        "SWEEP_ATTEMPT": "2",
        "SWEEP_CHECKPOINT_DIR": "/r/t/a 1/checkpoints",
        "SWEEP_RESUME": "/r/t/a 1/checkpoints/3.pt",
        "SWEEP_NEXT_STEP": "4",
        "SWEEP_TOKEN": "t0ken",
        "WANDB_DIR": "/r/t/a 1",
        "WANDB_RUN_GROUP": "s",
        "TENSORBOARD_LOGGING_DIR": "/r/t/a 1/tensorboard",
        "COMET_OFFLINE_DIRECTORY": "/r/t/a 1/comet",
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PGPASSWORD", None, "environment.env.PGPASSWORD: what names the study's database"),
        ("SWEEP_METRICS", "/x", "environment.env.SWEEP_METRICS: names with SWEEP_ in front"),
    ],
)
def test_the_environment_cannot_be_turned_against_the_study(
    name: str, value: str | None, message: str
) -> None:
    """The database's variables cannot be passed on, and ours cannot be set."""
    with pytest.raises(InputError) as caught:
        environment(
            make_study(["x"], environment=Environment(env={name: value})), VALUES, BASE, Path("/p")
        )
    assert str(caught.value).startswith(message)


def test_the_path_of_an_unactivated_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sweep's own interpreter comes first only where nothing is activated and sweep shares it."""
    own = tmp_path / "venv/bin/python"
    monkeypatch.setattr(sys, "executable", str(own))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert search_path({"PATH": "/a:/b"}) == f"{own.parent}:/a:/b"
    assert search_path({"PATH": f"/a:{own.parent}"}) == f"{own.parent}:/a"
    assert search_path({"PATH": "/a", "VIRTUAL_ENV": "/v"}) == "/a"
    assert search_path({"PATH": "/a", "CONDA_PREFIX": "/c"}) == "/a"
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / _TOOL_MARKS[0]).touch()
    assert search_path({"PATH": "/a"}) == "/a"
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert search_path({"PATH": "/a"}) == "/a"


def test_the_reporter_alone_is_importable_and_hides_nothing(tmp_path: Path) -> None:
    """With only the reporter on PYTHONPATH a bare interpreter imports it, and other modules of a
    whole sweep further along the path stay importable."""
    folder = install_reporter(install_reporter(tmp_path / "reporter"))
    whole = tmp_path / "site" / "sweep"
    whole.mkdir(parents=True)
    (whole / "__init__.py").touch()
    (whole / "cli.py").write_text("name = 'whole'\n")
    show = (
        "import sys; sys.path.append(sys.argv[1]); import sweep.report, sweep.cli;"
        "import sweep.integrations.base as base;"
        "print(sweep.report.__file__, sweep.cli.name, base.__file__)"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", show, str(whole.parent)],
        env={"PYTHONPATH": str(folder)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    base = folder / "sweep/integrations/base.py"
    assert out.split() == [str(folder / "sweep/report.py"), "whole", str(base)]
    shipped = {path.name for path in base.parent.glob("*.py")}
    assert shipped == {path.name for path in (PACKAGE / "integrations").glob("*.py")}
    assert sorted(path.name for path in (folder / "sweep").glob("*.py")) == [
        "__init__.py",
        "installed.py",
        "report.py",
    ]


def test_a_venv_comes_first(tmp_path: Path) -> None:
    """Runtime venv puts the named folder's programs first and says so in VIRTUAL_ENV."""
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python").touch()
    study = make_study(
        ["python", "{lr}", "{momentum}"],
        environment=Environment(runtime="venv", image="env"),
        workdir=str(tmp_path),
    )
    argv, env = build(study, VALUES, BASE | {"PYTHONHOME": "/x"}, Path("/p"))
    assert argv == ["python", "1e-05"]
    assert env["PATH"] == f"{tmp_path}/env/bin:/usr/bin:/bin"
    assert env["VIRTUAL_ENV"] == f"{tmp_path}/env"
    assert "PYTHONHOME" not in env


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"environment": Environment(runtime="apptainer")},
            "environment.image: is missing for runtime apptainer.",
        ),
        (
            {"environment": Environment(runtime="aptainer")},
            "environment.runtime: unknown (got 'aptainer').\nDid you mean apptainer?",
        ),
        (
            {"launcher": "srun", "executor": "local"},
            "launcher: srun needs Slurm, and this study runs on this machine.\n"
            "Use launcher: torchrun (or auto).",
        ),
        (
            {"resources": Resources(nodes=2), "executor": "local"},
            "resources.nodes: 2 nodes need a cluster, and this study runs on this machine.\n"
            "Use executor: slurm, or nodes: 1.",
        ),
        (
            {"environment": Environment(binds=("/data",))},
            "environment.binds: has no meaning with runtime none.\n"
            "Name the runtime that it is for, or leave it out.",
        ),
        (
            {"environment": Environment(runtime="venv", image="/nowhere")},
            "environment.image: no virtual environment at /nowhere (bin/python is missing).\n"
            "Give the folder that `python -m venv` made.",
        ),
    ],
)
def test_what_cannot_be_started_is_refused(more: dict[str, object], message: str) -> None:
    """No runtime or launcher is replaced by another one in silence."""
    with pytest.raises(InputError) as caught:
        build(make_study(["x"], **more), VALUES, BASE, Path("/p"))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sh", "-c", "true"], None),
        (["python", "-m", "nope"], None),
        (["python", "-u", "there.py"], None),
        (["./there.py"], "command: ./there.py cannot be executed (looked in {})."),
        (["./gone"], "command: ./gone does not exist (looked in {})."),
        (["no-such-program"], "command: no program named no-such-program on PATH."),
        (["python", "there.py", "--data=EDIT_ME"], "command: EDIT_ME still stands in it."),
        (["python", "gone.py", "--x"], "command: gone.py does not exist in {}."),
    ],
)
def test_what_is_missing_is_known_beforehand(
    argv: list[str], message: str | None, tmp_path: Path
) -> None:
    """A program or script that is not there is named without starting anything."""
    (tmp_path / "there.py").touch(mode=0o644)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    got = explain_missing(argv, {"PATH": path}, tmp_path)
    assert got == (message.format(tmp_path) if message else None)


def test_a_program_in_a_folder_that_is_closed_to_us_is_named() -> None:
    """As an ordinary user, for whom the system's refusal is no fault of sweep's."""
    require("root")
    with tempfile.TemporaryDirectory() as top:
        Path(top).chmod(0o755)
        closed = Path(top, "closed")
        closed.mkdir(mode=0o700)
        Path(closed, "python").touch(mode=0o755)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setuid(pwd.getpwnam("nobody").pw_uid)
                said = explain_missing([f"{closed}/python", "train.py"], {}, Path(top))
                os.write(writer, str(said).encode())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as stream:
            said = stream.read()
        os.waitpid(child, 0)
    assert said == f"command: {closed}/python may not be reached by you (looked in {top})."


def test_a_false_value_is_no_flag() -> None:
    """{params:flags} leaves out what is false; the other forms write it."""
    values = dataclasses.replace(VALUES, params={"amp": False, "n": 0})
    assert fill(["t", "{params:flags}"], values) == ["t", "--n=0"]
    assert fill(["t", "{overrides:+}"], values) == ["t", "+amp=false", "+n=0"]


def test_the_configuration_is_written_as_json_where_a_command_names_it() -> None:
    """{config:json} is a file beside {config}; without it there is none."""
    plain = config_files(make_study(["t", "{config}"]), VALUES.config, PARAMS)
    assert list(plain) == [VALUES.config]
    for study in (
        make_study(["t", "-c={config:json}"]),
        make_study(["t"], commands={"evaluate": ("e", "{config:json}")}),
    ):
        files = config_files(study, VALUES.config, PARAMS)
        assert json.loads(files[Path("/r/t/config.json")]) == PARAMS
        assert files[VALUES.config] == write_config(PARAMS)


def test_the_configuration_as_frameworks_want_it() -> None:
    """Without the seed, with mappings in mappings, as JSON: what LightningCLI and others take."""
    params = {
        "model.width": 64,
        "lr": 1e-05,
        "model.act.name": "on",
        "opt": {"class_path": "SGD", "init_args": {"nesterov": True}},
        "opt.init_args.lr": 0.1,
        "empty": {},
    }
    nested = {
        "model": {"width": 64, "act": {"name": "on"}},
        "lr": 1e-05,
        "opt": {"class_path": "SGD", "init_args": {"nesterov": True, "lr": 0.1}},
        "empty": {},
    }
    yaml = pytest.importorskip("yaml")
    study = make_study(["t", "{config}"], config=ConfigFile(nested=True))
    (text,) = config_files(study, config_path(study, VALUES.config), params).values()
    assert yaml.safe_load(text) == nested and list(yaml.safe_load(text)) == list(nested)
    assert 'model:\n  width: 64\n  act:\n    name: "on"\n' in text
    assert config_files(study, VALUES.config, {}) == {VALUES.config: "{}\n"}
    study = make_study(["t", "{config}"], config=ConfigFile(nested=True, format="json"))
    path = config_path(study, VALUES.config)
    files = config_files(study, path, params)
    assert list(files) == [Path("/r/t/config.json")] and json.loads(files[path]) == nested
    assert params["opt"] == {"class_path": "SGD", "init_args": {"nesterov": True}}  # untouched
    with pytest.raises(InputError, match=r"model.act.name lies within a value"):
        config_files(study, path, {"model.act": "relu", "model.act.name": 1})
    assert config_of(make_study(["t"]), VALUES)["seed"] == 42
    assert "seed" not in config_of(make_study(["t"], config=ConfigFile(seed=False)), VALUES)


def test_loggers_are_pointed_at_the_trial() -> None:
    """Where nobody has set their variables; no address among them, and no id where nobody asks."""
    values = dataclasses.replace(VALUES, run="s-0a1b2c-00007")
    given = Environment(env={"WANDB_RUN_GROUP": "mine"})
    study = make_study(["x"], environment=given)
    env = environment(study, values, BASE | {"WANDB_DIR": "/w"}, Path("/p"))
    wandb = {name: value for name, value in env.items() if name.startswith("WANDB")}
    assert wandb == {
        "WANDB_RUN_ID": "s-0a1b2c-00007",
        "WANDB_RESUME": "allow",
        "WANDB_DIR": "/w",
        "WANDB_RUN_GROUP": "mine",
    }
    assert env["TENSORBOARD_LOGGING_DIR"] == "/r/t/a 1/tensorboard"
    assert not any(name.startswith("MLFLOW") or name == "MPLCONFIGDIR" for name in env)
    env = environment(study, VALUES, BASE, Path("/p"))
    assert env["WANDB_DIR"] == "/r/t/a 1" and "WANDB_RUN_ID" not in env


def test_a_run_has_an_id_that_no_other_has(tmp_path: Path) -> None:
    """Of the study (its name may be used again), the trial, and what is no attempt of it."""
    study, folder = make_study(["x"]), StudyFolder(tmp_path)
    assert logged_as(study, folder, 7) == "s-00007"
    folder.identity.write_text(json.dumps({"study": "0a1b2c3d4e"}))
    assert logged_as(study, folder, 7) == "s-0a1b2c-00007"
    assert logged_as(study, folder, 7, "rerun-3") == "s-0a1b2c-00007-rerun-3"


def test_a_placeholder_with_a_space_stays_whole() -> None:
    """{params: } is one argument in a command that is written as a text."""
    assert split("python 't x.py' {params: } --a={b}") == [
        "python",
        "t x.py",
        "{params: }",
        "--a={b}",
    ]
    with pytest.raises(InputError, match="must be an argument of its own"):
        fill(["t", "x{params:flags}"], VALUES)
    with pytest.raises(InputError, match=r"unknown placeholder \{params:flag\}"):
        fill(["t", "{params:flag}"], VALUES)
