"""Trainings in containers on a real Slurm, as a user: images, signals, resumes, builds as jobs."""

from __future__ import annotations

import json
import os
import pty
import pwd
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import apptainer
from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.user import User
from tests.needs import ensure_apptainer
from tests.training.container_stubs import write_enroot, write_srun
from tests.training.test_containers import SHELL_TRAINING
from tests.waiting import text_of

pytestmark = pytest.mark.slurm

SCORE = {"metric": "score", "direction": "maximize", "at": "last"}
# Reports what it reads of its environment, and is as long as it is told.
PYTHON_TRAINING = """\
import os, pathlib, sys
from sweep.report import Reporter
assert pathlib.Path("/.singularity.d").is_dir() or os.environ["APPTAINER_CONTAINER"]
r = Reporter()
print("rank", os.environ["SLURM_PROCID"], "of", os.environ["SLURM_NTASKS"], flush=True)
r.log(step=0, score=int(os.environ["SLURM_JOB_ID"]))
"""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


@pytest.fixture
def url(fresh_url: str) -> dict[str, str]:
    return {"SWEEP_STORAGE": fresh_url}


def make_image(user: User, *programs: str) -> Path:
    """Return a SIF in the user's folder: of these programs alone, or to be run with /usr bound."""
    ensure_apptainer()
    sif = user.folder / f"image-{secrets.token_hex(3)}.sif"
    apptainer.make_sif(apptainer.make_tree(sif.with_suffix(".tree"), programs), sif)
    return sif


def attempts_of(user: User, name: str, trial: int = 0) -> list[str]:
    """Return the logs of a trial's attempts, in order."""
    folder = user.runs / name / f"trials/{trial:05d}/attempts"
    paths = sorted(folder.glob("*/log.txt"), key=lambda path: int(path.parent.name))
    return [path.read_text() for path in paths]


def shell_study(user: User, name: str, steps: int, **more: Any) -> Path:
    """Return a study whose image has no Python; a first attempt goes on until it is ended, the
    next one to its last step, or one step further than the first."""
    image = make_image(user, "sh", "mv", "sleep")
    last = "while [ $step -lt STEPS ]"
    assert last in SHELL_TRAINING
    text = SHELL_TRAINING.replace(
        last,
        f"last=$((step > {steps} ? step : {steps}))\n"
        'while [ -z "$SWEEP_RESUME" ] || [ $step -le $last ]',
    )
    user.write("train.sh", text)
    given = {"runtime": "apptainer", "image": str(image)} | more.pop("environment", {})
    return user.study(
        name,
        ["sh", "train.sh"],
        objective=SCORE,
        environment=given,
        **{"trials": 1, "max_parallel": 1, **more},
    )


def wait_steps(user: User, name: str, count: int, attempt: int = 1) -> None:
    """Wait until so many steps were reported, and those before the last one saved."""
    path = user.runs / name / f"trials/00000/attempts/{attempt}/metrics.jsonl"
    wait_for(lambda: len(text_of(path).splitlines()) >= count, 60, "some steps")


def test_images_on_nodes(user: User, url: dict[str, str]) -> None:
    """A definition, built by a job before the array, which launch does not wait for; where that
    fails the study is held with the reason, and the next launch builds. Each rank knows its place
    in a container with a cleaned environment."""
    sif = make_image(user)
    user.write("toy.def", "Bootstrap: localimage\nFrom: nowhere.sif\n")
    user.write("train.py", PYTHON_TRAINING)
    path = user.study(
        "images",
        ["/usr/bin/python3", "train.py"],
        objective=SCORE,
        trials=4,
        max_parallel=4,
        launcher="srun",
        ddp={"ranks_per_node": 2},
        resources={"cpus": 2, "memory": "200M"},
        environment={
            "runtime": "apptainer",
            "image": "toy.def",
            "binds": ["/usr"],
            "options": ["--cleanenv"],
        },
        slurm={"setup": [f"while [ ! -e {user.folder}/gate ]; do sleep 0.2; done"]},
    )
    done = user.sweep("launch", path, env=url)
    assert "a job of Slurm's builds toy.def before any task starts" in done.stderr
    notes = user.status("images")["notes"]
    assert any("the image is being built before any task starts: job " in note for note in notes)
    user.wait_pending("Dependency")
    user.write("gate", "")
    held = user.wait_state("images", "held", timeout_s=300)
    assert "environment.image: toy.def was not built" in held["reason"]
    assert "apptainer ended with code" in held["reason"] and held["counts"]["waiting"] == 4
    user.wait_empty()

    user.write("toy.def", f"Bootstrap: localimage\nFrom: {sif}\n")
    user.sweep("launch", path, "--wait", env=url)
    record = json.loads((user.runs / "images/manifest.json").read_text())["environment"]
    assert (
        record["image_sha256"]
        == json.loads((user.runs / f".images/{record['built']}.json").read_text())["digest"]
    )
    assert user.status("images")["counts"]["complete"] == 4
    for trial in range(4):
        (log,) = attempts_of(user, "images", trial)
        assert sorted(re.findall(r"rank (\d of \d)", log)) == ["0 of 2", "1 of 2"]
    (built,) = (user.runs / ".images").glob("toy-*.sif")
    assert json.loads(Path(f"{built}.json").read_text())["source"].endswith("toy.def")


@pytest.mark.parametrize(
    ("executor", "kind"),
    [
        ("slurm", "sandbox"),
        ("local", "sandbox"),
        pytest.param("local", "sif", marks=pytest.mark.long),
    ],
)
def test_a_user_trains_in_an_image(
    executor: str, kind: str, user: User, url: dict[str, str]
) -> None:
    """Whole studies of somebody who isn't root, in a sandbox directory and in a SIF."""
    programs = ("sh", "mv", "sleep")
    image = user.folder / "sandbox"
    if kind == "sif":
        image = make_image(user, *programs)
    else:
        ensure_apptainer()
        apptainer.make_tree(image, programs)
    user.write("train.sh", SHELL_TRAINING.replace("STEPS", "3"))
    path = user.study(
        "boxed",
        ["sh", "train.sh"],
        objective=SCORE,
        trials=3,
        max_parallel=2,
        executor=executor,
        environment={"runtime": "apptainer", "image": str(image)},
    )
    done = user.sweep("launch", path, "--wait", env=url)
    assert user.status("boxed")["counts"]["complete"] == 3, done.stdout + done.stderr
    for trial in range(3):
        (log,) = attempts_of(user, "boxed", trial)
        assert "starts at step 0" in log
    manifest = json.loads((user.runs / "boxed/manifest.json").read_text())
    assert len(manifest["environment"]["image_sha256"]) == 64


@pytest.mark.parametrize("how", ["preempted", pytest.param("time limit", marks=pytest.mark.long)])
def test_a_sif_survives_an_interruption(how: str, user: User, url: dict[str, str]) -> None:
    """What ends the task leaves a checkpoint; the next attempt goes on from it.

    A preemption signals the SIF's file server too, so the training may lose its image there and
    then; before a time limit sweep alone is warned, and training saves and leaves.
    """
    limit = {"resources": {"time": "00:02:00", "cpus": 1, "memory": "200M"}}
    more: dict[str, Any] = {"slurm": {"partition": "preempt"}} if how == "preempted" else limit
    path = shell_study(user, "torn", 20, **more)
    user.sweep("launch", path, env=url)
    wait_steps(user, "torn", 6)
    if how == "preempted":
        user.cluster.run(
            ["sbatch", "-p", "high", "-N4", "--exclusive", "--wrap", "sleep 1"],
            user=user.cluster.user,
            check=True,
            cwd=user.folder,
        )
    status = user.wait_state("torn", "finished", timeout_s=420)
    assert status["counts"]["complete"] == 1, user.explain()
    first, second, *_ = attempts_of(user, "torn")
    assert "starts at step 0" in first
    assert int(second.split("starts at step ")[1].split()[0]) >= 5
    if how == "time limit":
        assert "leaves after step" in first
    assert user.trials("torn")[0]["value"] >= 20


def test_a_cancelled_array_is_taken_up_again(user: User, url: dict[str, str]) -> None:
    """A plain scancel signals everything, the SIF's file server too; launch resumes the trial."""
    path = shell_study(user, "cancelled", 20)
    user.sweep("launch", path, env=url)
    wait_steps(user, "cancelled", 6)
    job = next(row[0].partition("_")[0] for row in user.queue() if "_" in row[0])
    user.cluster.run(["scancel", job], user=user.cluster.user, check=True)
    user.wait_state("cancelled", "stopped", timeout_s=180)
    user.sweep("launch", path, env=url)
    status = user.wait_state("cancelled", "finished", timeout_s=180)
    assert status["counts"]["complete"] == 1
    second = attempts_of(user, "cancelled")[-1]
    assert int(second.split("starts at step ")[1].split()[0]) >= 5


# What Pyxis does with the environment: the image's variables win, unless they are named.
SHOW = """\
import json, os
from sweep.report import Reporter
r = Reporter()
rank = int(os.environ["SLURM_PROCID"])
print(json.dumps([rank, os.environ["ODD"], os.environ["OF_IMAGE"], os.getcwd()]), flush=True)
r.log(step=0, score=1.0)
"""
HOSTILE = "a,b 'c' \"d\" $(touch pwned) `id` ü"


@pytest.fixture
def pyxis(user: User, url: dict[str, str]) -> dict[str, str]:
    """Variables with which srun has Pyxis (a stand-in), and enroot is on PATH."""
    srun = shutil.which("srun", path=user.cluster.env()["PATH"])
    assert srun is not None
    stubs = user.make(user.folder / "stubs")
    log, roots = user.folder / "stub.log", user.make(user.folder / "roots")
    write_enroot(stubs, log)
    write_srun(stubs, log, roots, srun)
    return {**url, "PATH": f"{stubs}:{user.env()['PATH']}", "ENROOT_DATA_PATH": str(roots)}


@pytest.mark.parametrize("launcher", ["python", "srun"])
def test_a_study_in_pyxis(launcher: str, user: User, pyxis: dict[str, str]) -> None:
    """Imported once; the root made once a node; named variables win; ranks see their places."""
    user.write("train.py", SHOW)
    ranks = 2 if launcher == "srun" else 1
    path = user.study(
        "pyx",
        ["/usr/bin/python3", "train.py"],
        objective=SCORE,
        trials=4,
        max_parallel=4,
        launcher=launcher,
        slurm={"extra": ["--nodelist=n1"]},
        environment={
            "runtime": "pyxis",
            "image": "docker://toy:1",
            "name": f"r{os.getpid()}",
            "env": {"ODD": HOSTILE, "OF_IMAGE": "ours"},
        },
        **(
            {"ddp": {"ranks_per_node": 2}, "resources": {"cpus": 2, "memory": "200M"}}
            if ranks == 2
            else {}
        ),
    )
    done = user.sweep("launch", path, "--wait", env=pyxis)
    assert user.status("pyx")["counts"]["complete"] == 4, done.stderr
    (installed,) = (user.runs / "pyx/inside").glob("[0-9a-f]*.json")
    assert json.loads(installed.read_text())["python"].startswith("3.")
    noted = [json.loads(line) for line in (user.folder / "stub.log").read_text().splitlines()]
    assert [entry["what"] for entry in noted].count("import") == 1
    assert [entry["what"] for entry in noted].count("root") == 1
    lines = [line for log in attempts_of(user, "pyx") for line in log.splitlines() if "[" in line]
    seen = sorted(json.loads(line[line.index("[") :]) for line in lines)
    assert seen == [[rank, HOSTILE, "ours", str(user.folder)] for rank in range(ranks)]
    # A shell in it is a step beside the one that starts it.
    line = "echo is: $OF_IMAGE $SWEEP_TRIAL $SLURM_JOB_CPUS_PER_NODE"
    shell = user.sweep("shell", "pyx", "0", "-c", line, env=pyxis)
    assert re.search(r"is: ours 0 \d+\n", shell.stdout), shell.stderr


def test_an_srun_without_pyxis(user: User, url: dict[str, str]) -> None:
    """The study is held, and the reason names what the cluster lacks."""
    image = user.write("image.sqsh", '{"env": {}}')
    path = user.study(
        "lacks",
        ["/usr/bin/true"],
        objective=SCORE,
        trials=4,
        max_parallel=2,
        environment={"runtime": "pyxis", "image": str(image)},
    )
    user.sweep("launch", path, env=url)
    status = user.wait_state("lacks", "held")
    assert (
        "has no Pyxis" in json.dumps(status)
        or "has no Pyxis" in user.logs("lacks")
        or any("has no Pyxis" in str(trial) for trial in user.trials("lacks"))
    )


def test_a_shell_on_a_node(user: User, url: dict[str, str]) -> None:
    """With what a trial asks for, after the lines of slurm.setup, and with a trial's values."""
    user.write("train.py", "from sweep.report import Reporter\nReporter().log(step=0, score=1.0)\n")
    path = user.study(
        "shelled",
        ["python", "train.py"],
        objective=SCORE,
        trials=1,
        resources={"cpus": 2, "memory": "200M"},
        slurm={"setup": ["export OF_SETUP=yes"]},
    )
    user.sweep("launch", path, "--wait", env=url)
    line = "echo $SLURM_JOB_CPUS_PER_NODE $OF_SETUP $SWEEP_TRIAL $SLURMD_NODENAME; exit 0"
    said = user.sweep("shell", "shelled", "0", "-c", line, env=url).stdout.split()
    assert said[:3] == ["2", "yes", "0"] and len(said) == 4
    assert at_a_terminal(user, "shelled", url) in user.cluster.nodes


def at_a_terminal(user: User, name: str, env: dict[str, str]) -> str:
    """Return the node of an interactive shell, which srun gives a terminal; leave it with 3."""
    ours, theirs = pty.openpty()
    account = pwd.getpwnam(user.cluster.user)
    child = subprocess.Popen(
        [str(user.bin / "sweep"), "shell", name, "0"],
        env={**user.cluster.env(account.pw_name), **user.env(env)},
        cwd=user.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
    )
    os.close(theirs)
    said = ""
    try:
        # Its prompt first: srun drops what was typed before it had the terminal.
        said = read_until(ours, said, f"({name} 0) $ ")
        os.write(
            ours, b"test -t 0 && echo is$((40 + 2)) of $SWEEP_TRIAL on $SLURMD_NODENAME.; exit 3\n"
        )
        said = read_until(ours, said, None)
    finally:
        os.close(ours)
        code = child.wait()
    found = re.search(r"is42 of 0 on (\w+)\.", said)
    assert (code, bool(found)) == (3, True), said
    assert found is not None
    return found[1]


def read_until(terminal: int, said: str, wanted: str | None) -> str:
    """Return all that a terminal has shown once it has shown this, or its other end is closed."""
    while wanted is None or wanted not in said:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # nobody has the other end any more
            more = b""
        if not more:
            assert wanted is None, said
            break
        said += more.decode(errors="replace")
    return said
