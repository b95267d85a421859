"""``sweep check --on-node`` on this machine, and what ``sweep launch`` looks at by itself."""

from __future__ import annotations

import json
import secrets
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sweep.control.check import facts, probes, quick
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Environment
from sweep.studyfile import loads
from tests.conftest import Sweep
from tests.postgres_fixture import Server

# The interpreter beneath the tests' own: without torch, whose import takes seconds.
STUDY: dict[str, Any] = {
    "name": "checked",
    "command": [getattr(sys, "_base_executable", sys.executable), "train.py", "{x}"],
    "objective": {
        "metric": "value",
        "direction": "maximize",
        "from": {"stdout": "value=([0-9.e-]+)"},
    },
    "space": {"x": {"type": "float", "low": 0.0, "high": 1.0}},
    "sampler": "random",
    "trials": 4,
    "max_parallel": 2,
    "executor": "local",
}


def write(folder: Path, **settings: Any) -> Path:
    """Return a study file; JSON is YAML."""
    (folder / "train.py").write_text("import sys\nprint('value=' + sys.argv[1])\n")
    path = folder / "study.yaml"
    path.write_text(json.dumps(STUDY | settings))
    return path


def test_on_this_machine(sweep: Sweep, tmp_path: Path, runs: Path, fresh_url: str) -> None:
    """A local study is asked by a local task: a table, nothing failed, and nothing left."""
    path = write(tmp_path)
    ran = sweep("check", path, "--on-node", env={"SWEEP_STORAGE": fresh_url})
    assert ran.code == 0, ran.out + ran.err
    lines = {line[:17].strip(): line for line in ran.out.splitlines()}
    for name in (
        "job",
        "interpreter",
        "command",
        "python",
        "reporter",
        "folders",
        "space",
        "database",
        "connections",
        "clock",
        "training signal",
    ):
        assert lines[name][17:].split()[0] == "ok", lines[name]
    for name in ("gpus", "sbatch", "task signal", "all-reduce"):
        assert "not asked" in lines[name], lines[name]
    assert "checked: " in ran.out.splitlines()[-1]
    assert not runs.exists()


def test_a_broken_venv_and_a_wrong_interface(sweep: Sweep, tmp_path: Path, fresh_url: str) -> None:
    """An environment that does not start, a network that is not there: each on its own line."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    (venv / "python").write_text("#!/bin/sh\necho 'GLIBC_2.99 not found' >&2\nexit 1\n")
    (venv / "python").chmod(0o755)
    path = write(
        tmp_path,
        command="python train.py {x}",
        environment={"runtime": "venv", "image": "venv"},
        ddp={"ranks_per_node": 2, "interface": "nope0"},
    )
    ran = sweep("check", path, "--on-node", "--json", env={"SWEEP_STORAGE": fresh_url})
    assert ran.code == 1
    found = json.loads(ran.out)
    lines = {line["name"]: line for line in found["lines"]}
    assert found["ok"] is False
    assert lines["python"]["state"] == "failed" and "GLIBC_2.99" in lines["python"]["text"]
    assert lines["image"]["state"] == "ok"
    assert lines["torch"] == {
        "name": "torch",
        "state": "not asked",
        "advice": "",
        "text": "no Python runs in the environment",
    }
    for name in ("interface", "all-reduce"):
        assert lines[name]["state"] == "failed"
        assert "nope0" in lines[name]["text"] and "ddp.interface" in lines[name]["advice"]


def test_launch_looks_and_can_be_told_not_to(
    sweep: Sweep, tmp_path: Path, runs: Path, empty_url: str, postgres_server: Server
) -> None:
    """More trials at once than the role has connections: refused, and nothing is made."""
    role, database = f"few{secrets.token_hex(4)}", empty_url.rpartition("/")[2]
    postgres_server.sql(f"CREATE ROLE {role} LOGIN PASSWORD 'few' CONNECTION LIMIT 4")
    postgres_server.sql(f"ALTER DATABASE {database} OWNER TO {role}")
    url = f"postgresql://{role}:few@127.0.0.1:{postgres_server.port}/{database}"
    path, env = write(tmp_path, command=["/bin/echo", "value={x}"]), {"SWEEP_STORAGE": url}
    ran = sweep("launch", path, env=env)
    assert ran.code == 1 and not runs.exists()
    assert "5 needed for 2 trials at once, 4 free (your role may have 4" in ran.err
    assert "--no-check" in ran.err
    ran = sweep("launch", path, "--no-check", "--wait", env=env)
    assert ran.code == 0 and "4 complete" in ran.err + ran.out


@pytest.mark.parametrize(
    ("settings", "needed"),
    [({"max_parallel": 3}, 6), ({"max_parallel": 4, "tasks": 1}, 4), ({"tasks": 2}, 5)],
)
def test_as_many_connections_as_workers(settings: dict[str, int], needed: int) -> None:
    """K, or fewer where there are fewer tasks."""
    study = loads(json.dumps(STUDY | {"max_parallel": 4} | settings), "study.yaml")
    fact = {"max_connections": 50, "reserved": 3, "used": 0, "role_limit": -1, "database_limit": -1}
    assert quick.judge_connections(study, fact).text.startswith(f"{needed} needed")


def test_the_look_of_launch_is_quick(tmp_path: Path, fresh_url: str) -> None:
    """It takes a small part of a second, the digest of an image included."""
    (tmp_path / "train.sif").write_bytes(b"x" * (40 << 20))
    settings = {
        "environment": {"runtime": "apptainer", "image": "train.sif"},
        "workdir": str(tmp_path),
    }
    study = loads(json.dumps(STUDY | settings), str(tmp_path / "study.yaml"))
    began = time.process_time()  # not the clock: other tests run beside
    lines = {line.name: line for line in quick.look(study, Runs(tmp_path / "runs"), fresh_url, {})}
    assert time.process_time() - began < 1.0
    assert {name: line.state for name, line in lines.items()} == {
        "seed": "warning",
        "image": "ok",
        "binds": "not asked",
        "space": "ok",
        "database": "ok",
        "connections": "ok",
    }
    assert "sha256" in lines["image"].text


def test_the_recorded_digest_is_of_the_same_image(tmp_path: Path) -> None:
    """A study file that names another image does not compare with the old one's digest."""
    runs = Runs(tmp_path)
    folder: StudyFolder = runs.study("checked")
    folder.root.mkdir()
    record = {"environment": {"image": "a.sif", "image_sha256": "12"}}
    folder.provenance.write_text(json.dumps(record))
    for image, expected in (("a.sif", "12"), ("b.sif", None)):
        settings = {"environment": {"runtime": "apptainer", "image": image}}
        study = loads(json.dumps(STUDY | settings), "study.yaml")
        assert quick.recorded_digest(study, runs) == expected


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        (["true", "export A=1", 'test "$A" = 1'], [0, 0, 0]),
        (["if true; then", "false; fi", "true"], [1, 0]),
        (["no_such_program", "true"], [127, 0]),
        (["exit 3", "true"], [3]),
        (["echo '", '\' "$(id -u)"; (exit 4)'], [4]),
        (["if unclosed"], [2]),
    ],
)
def test_setup_lines_run_as_the_batch_script_runs_them(lines: list[str], codes: list[int]) -> None:
    """One after another in one shell; lines that belong together count as one."""
    assert [one["code"] for one in facts.ask_setup(lines)["lines"]] == codes


def test_binds_are_asked_by_their_sources(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    fact = facts.ask_binds(Environment(binds=(f"{tmp_path}/here:/data:ro", "/nowhere")))
    assert [(one["exists"], one["read_only"]) for one in fact["binds"]] == [
        (True, True),
        (False, False),
    ]
    given = Environment(binds=("here:/data", "gone:/x", "no:/y:ro"), make_binds=True)
    fact = facts.ask_binds(given, str(tmp_path))
    assert [one["exists"] for one in fact["binds"]] == [True, False, False]
    assert [one["is_made"] for one in fact["binds"]] == [True, True, False]


def test_an_unreachable_database_is_told_by_its_words() -> None:
    """The message and the advice are those that launch would give; no password is shown."""
    fact = probes.ask_database("postgresql://me:secret@127.0.0.1:1/x", 2.0)
    assert "refused" in fact["error"] and "secret" not in json.dumps(fact)


SMI = """#!/bin/sh
echo "NVIDIA A100, 40960 MiB, Default, 550.54"
echo "NVIDIA A100, 40960 MiB, Exclusive_Process, 550.54"
"""


def test_gpus_are_asked_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines as it prints them; without it the fact says so, and a study without GPUs asks not.

    The GPUs themselves are asked on a machine that has some.
    """
    study = loads(json.dumps(STUDY | {"resources": {"gpus": 2}}), "study.yaml")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "No such file" in probes.ask_gpus(study)["error"]
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    fact = probes.ask_gpus(study)
    assert [gpu["mode"] for gpu in fact["gpus"]] == ["Default", "Exclusive_Process"]
    assert fact["gpus"][0]["memory"] == "40960 MiB" and fact["wanted"] == 2
    assert "not_asked" in probes.ask_gpus(loads(json.dumps(STUDY), "study.yaml"))


@pytest.mark.parametrize(
    ("runtime", "image", "is_name"),
    [
        ("apptainer", "images/train.sif", False),
        ("apptainer", "docker://a/b:1", True),
        ("pyxis", "nvcr.io#nvidia/pytorch:24.01-py3", True),
        ("pyxis", "./a.sqsh", False),
        ("enroot", "a.sqsh", False),
        ("conda", "myenv", True),
        ("conda", "/opt/env", False),
    ],
)
def test_a_missing_file_is_no_name_in_a_registry(runtime: str, image: str, is_name: bool) -> None:
    """What looks like a path is one, and is missed where it is not there."""
    settings = {"environment": {"runtime": runtime, "image": image}}
    study = loads(json.dumps(STUDY | settings), "study.yaml")
    assert facts.ask_image(study, None)["is_name"] is is_name


def test_the_embedded_server_is_asked_for_its_programs(tmp_path: Path) -> None:
    """It starts at launch only; what is known by then is its version and its connections."""
    fact = probes.ask_embedded(tmp_path / ".postgres", elsewhere=True)
    assert fact["version"] >= 13
    study = loads(json.dumps(STUDY | {"trials": 900, "max_parallel": 900}), "study.yaml")
    assert quick.judge_connections(study, fact).state == "failed"
    assert not (tmp_path / ".postgres").exists()
