"""``sweep try`` and ``sweep init --try`` with real processes: what is seen; nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sweep.core.system import processes
from sweep.tasks.side_runs.trying import HOME
from tests.cli.commands import type_ctrl_c
from tests.conftest import Ran, Sweep, run_sweep, sweep_environment
from tests.processes import wait_until_gone
from tests.waiting import wait_for

pytestmark = pytest.mark.real

# No server listens there: whoever asked the database would fail.
NOWHERE = {"SWEEP_STORAGE": "postgresql://nobody@127.0.0.1:9/none"}
PYTHON = getattr(sys, "_base_executable", sys.executable)  # starts without torch and the like
STUDY: dict[str, Any] = {
    "name": "tried",
    "command": f"{PYTHON} train.py --lr {{lr}} --seed {{seed}}",
    "objective": {
        "metric": "loss",
        "direction": "minimize",
        "from": {"stdout": r"\bloss=([0-9.e-]+)"},
    },
    "space": {"lr": {"type": "float", "low": 0.25, "high": 0.5}},
    "points": [{"lr": 0.3}],
    "trials": 200,
    "seed": 3,
    "executor": "local",
}
REPORTED: dict[str, Any] = {"objective": {"metric": "loss", "direction": "minimize"}}
PRINTS = "for e in range(3): print(f'epoch {e} loss={1 / (e + 1):.2f} acc=0.5')\n"
REPORTS = (
    "from sweep.report import Reporter\nr = Reporter()\n"
    "for e in range(3): r.log(step=10 * e, loss=1.0 / (e + 1), acc=0.5)\n"
)
# Says that it runs, and trains until somebody ends it.
WAITS = "import os, sys, time\nopen(os.environ['GATE'], 'w').close()\ntime.sleep(1000)\n"


@pytest.fixture
def sweep(tmp_path: Path, runs: Path) -> Sweep:
    """Run the command line where no database answers."""
    return partial(run_sweep, runs=runs, cwd=tmp_path, env=NOWHERE)


def write(folder: Path, script: str, **settings: Any) -> Path:
    """Return a study file beside its script; JSON is YAML."""
    (folder / "train.py").write_text(script)
    path = folder / "study.yaml"
    path.write_text(json.dumps(STUDY | settings))
    return path


def read(ran: Ran) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    """Return the JSON of a try, and its lines by name."""
    data = json.loads(ran.out)
    return data, {line["name"]: line for line in data["lines"]}


def assert_nothing_is_left(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["study.yaml", "train.py"]
    assert wait_until_gone(folder) == []


def test_a_printed_metric(sweep: Sweep, tmp_path: Path) -> None:
    """The first point's command, the lines that matched, how steps are counted; nothing is left."""
    path = write(tmp_path, PRINTS)
    ran = sweep("try", path, "--json")
    assert ran.code == 0, ran.out + ran.err
    data, lines = read(ran)
    assert data["command"][:4] == [PYTHON, "train.py", "--lr", "0.3"]
    assert (data["params"], data["outcome"], data["is_limited"]) == ({"lr": 0.3}, "finished", False)
    assert data["series"] == {
        "loss": {
            "points": [[0, 1.0], [1, 0.5], [2, 0.33]],
            "lines": [f"epoch {e} loss={1 / (e + 1):.2f} acc=0.5" for e in range(3)],
        }
    }
    assert "each match counts as one more" in lines["steps"]["text"]
    assert "3 values; a trial would count 0.33" in lines["metric"]["text"]
    assert lines["resume"]["state"] == "warning"
    assert "no checkpoint was saved" in lines["resume"]["text"]
    assert_nothing_is_left(tmp_path)
    told = sweep("try", path)
    assert told.code == 0
    assert "nothing of it was kept. 1 warning. Next: sweep launch" in told.out
    assert "trains the first point for at most 60 s" in told.err


def test_the_step_that_is_printed(sweep: Sweep, tmp_path: Path) -> None:
    """With a pattern of its own a step is read, and that is said."""
    source = {"stdout": r"\bloss=([0-9.]+)", "step": r"epoch (\d+)"}
    script = "for e in (5, 9): print(f'epoch {e} loss={1 / e:.2f}')\n"
    path = write(
        tmp_path, script, objective={"metric": "loss", "direction": "minimize", "from": source}
    )
    data, lines = read(sweep("try", path, "--json"))
    assert data["series"]["loss"]["points"] == [[5, 0.2], [9, 0.11]]
    assert lines["steps"]["text"].endswith(r"read by the pattern epoch (\d+)")


def test_a_reported_metric(sweep: Sweep, tmp_path: Path) -> None:
    """The reporter's steps, and what else it reported."""
    path = write(tmp_path, REPORTS, **REPORTED)
    ran = sweep("try", path, "--json")
    assert ran.code == 0, ran.out + ran.err
    data, lines = read(ran)
    assert [step for step, _ in data["series"]["loss"]["points"]] == [0, 10, 20]
    assert lines["steps"]["text"].endswith("as training reports them")
    assert lines["also"]["text"] == "acc (3)"
    assert_nothing_is_left(tmp_path)


def test_a_constraint(sweep: Sweep, tmp_path: Path) -> None:
    """Whether the point keeps to it; what is never reported would fail each trial."""
    path = write(tmp_path, REPORTS, **REPORTED, constraints={"acc": {"max": -5}})
    ran = sweep("try", path, "--json")
    _, lines = read(ran)
    assert ran.code == 0 and lines["constraint"]["state"] == "ok"
    assert lines["constraint"]["text"].endswith(", which breaks <= -5")
    assert lines["also"]["text"] == "no other metric"
    path = write(tmp_path, REPORTS, **REPORTED, constraints={"accc": {"max": 5}})
    ran = sweep("try", path, "--json")
    _, lines = read(ran)
    assert ran.code == 1 and lines["constraint"]["state"] == "failed"
    assert lines["constraint"]["text"] == "accc: not reported; reported were loss, acc"
    assert "Did you mean acc? Report it" in lines["constraint"]["advice"]


@pytest.mark.parametrize(
    ("script", "settings", "said", "advice"),
    [
        ("print('done')\n", REPORTED, "loss: nothing was reported", "Reporter().log(step=epoch, "),
        (
            "print('loss: 0.5')\n",
            REPORTED,
            "loss: nothing was reported",
            "'loss: 0.5' names loss: objective.from: {stdout: 'loss: ([-+0-9.eE]+)'} reads it. ",
        ),
        (
            REPORTS,
            {"objective": {"metric": "losss", "direction": "minimize"}},
            "losss: not reported; reported were loss, acc",
            "Did you mean loss?",
        ),
        ("print('done')\n", {}, "no line came near", "Correct objective.from"),
        (
            "for e in range(3): print(f'epoch {e} loss: {1 / (e + 1)}')\n",
            {},
            "near it came 'epoch 2 loss: 0.3333333333333333'; 'loss: (",
            "Correct objective.from",
        ),
    ],
    ids=["never reports", "prints it", "another name", "nothing printed", "a near miss"],
)
def test_a_metric_that_does_not_come(
    script: str, settings: dict[str, Any], said: str, advice: str, sweep: Sweep, tmp_path: Path
) -> None:
    """What was reported or printed instead, and what to do; the exit code is 1."""
    path = write(tmp_path, script, **settings)
    ran = sweep("try", path, "--json")
    _, lines = read(ran)
    assert ran.code == 1
    assert lines["metric"]["state"] == "failed"
    assert said in lines["metric"]["text"]
    assert advice in lines["metric"]["advice"]
    assert_nothing_is_left(tmp_path)


def test_a_crash(sweep: Sweep, tmp_path: Path) -> None:
    """The exception, and the end of the output."""
    path = write(tmp_path, "print('begins')\nraise ValueError('no such data')\n")
    ran = sweep("try", path)
    assert ran.code == 1
    assert "A trial would fail: 1 failed" in ran.out
    assert "exit code 1: ValueError: no such data" in ran.out
    assert "loss: training failed before it came" in ran.out
    assert '  |   File "' in ran.out and "  | begins" in ran.out
    assert_nothing_is_left(tmp_path)


def test_a_package_that_is_not_there(sweep: Sweep, tmp_path: Path) -> None:
    """It is said which Python was asked, and how to name another one."""
    path = write(tmp_path, "import no_such_package\n")
    training = read(sweep("try", path, "--json"))[1]["training"]
    assert "ModuleNotFoundError: No module named 'no_such_package'" in training["text"]
    assert f"is {PYTHON}: activate the environment" in training["advice"]


def test_the_limit(sweep: Sweep, tmp_path: Path) -> None:
    """A training that takes longer is ended, and judged by what came until then.

    A shell's: also on a busy machine it has printed before the limit.
    """
    script = "echo loss=0.5\nwhile :; do sleep 0.1; done\n"
    path = write(tmp_path, script, command="/bin/sh train.py")
    ran = sweep("try", path, "--time", "5", "--json")
    assert ran.code == 0, ran.out + ran.err
    data, lines = read(ran)
    assert data["is_limited"] and data["took_s"] >= 1
    assert "the limit of a try is 5 s from its start" in lines["training"]["text"]
    assert data["series"]["loss"]["points"] == [[0, 0.5]]
    assert_nothing_is_left(tmp_path)


def test_the_limit_comes_before_the_metric(sweep: Sweep, tmp_path: Path) -> None:
    path = write(tmp_path, "import time\nwhile True: time.sleep(0.1)\n", **REPORTED)
    ran = sweep("try", path, "--time", "5", "--json")
    assert ran.code == 1
    line = read(ran)[1]["metric"]
    assert "nothing was reported within 5 s" in line["text"]
    assert "look longer: --time 25" in line["advice"]


SAVES = """
import os, sys
folder = sys.argv[sys.argv.index("--save") + 1]
for epoch in range(2):
    print(f"loss={1 / (epoch + 1)}")
    with open(os.path.join(folder, f"epoch{epoch}.pt"), "wb") as file:
        file.write(b"x" * 2000)
"""


def test_a_checkpoint(sweep: Sweep, tmp_path: Path) -> None:
    """The newest one, and the command with which a trial would go on from it."""
    command = f"{PYTHON} train.py --save {{checkpoint_dir}} --resume {{resume}}"
    path = write(tmp_path, SAVES, command=command)
    ran = sweep("try", path, "--json")
    assert ran.code == 0, ran.out + ran.err
    data, lines = read(ran)
    assert "--resume" not in data["command"]
    assert (data["saved"]["path"], data["saved"]["bytes"]) == ("checkpoints/epoch1.pt", 2000)
    assert data["saved"]["command"][-2] == "--resume"
    assert data["saved"]["command"][-1].endswith("/checkpoints/epoch1.pt")
    assert lines["resume"]["state"] == "ok"
    assert_nothing_is_left(tmp_path)


@pytest.mark.parametrize(
    ("command", "said", "advice"),
    [
        ("--save {checkpoint_dir}", "nothing in the command takes it", "Pass {resume}"),
        ("--save {trial_dir}", "but one beside it, epoch1.pt", "Pass {checkpoint_dir}"),
    ],
)
def test_a_checkpoint_that_no_resume_would_find(
    command: str, said: str, advice: str, sweep: Sweep, tmp_path: Path
) -> None:
    path = write(tmp_path, SAVES, command=f"{PYTHON} train.py {command}")
    line = read(sweep("try", path, "--json"))[1]["resume"]
    assert line["state"] == "warning"
    assert said in line["text"] and advice in line["advice"]


def test_files_beside_the_code(sweep: Sweep, tmp_path: Path) -> None:
    """The user's own files stay: it trains from a copy, and says what it wrote there."""
    path = write(tmp_path, PRINTS + "open('train.py', 'a').write('#')\nopen('best.pt', 'w')\n")
    before = (tmp_path / "train.py").read_text()
    line = read(sweep("try", path, "--json"))[1]["files"]
    assert line["state"] == "warning" and "best.pt" in line["text"]
    assert (tmp_path / "train.py").read_text() == before
    assert_nothing_is_left(tmp_path)


def test_a_secret_in_the_command_is_not_shown(sweep: Sweep, tmp_path: Path) -> None:
    command = [PYTHON, "train.py", "--api-token", "hush-9817"]
    path = write(tmp_path, "print('loss=1')\nraise SystemExit(1)\n", command=command)
    for words in ((), ("--json",)):
        ran = sweep("try", path, *words)
        assert "hush-9817" not in ran.out + ran.err and "--api-token" in ran.out
    assert read(ran)[0]["outcome"] == "error"


def test_an_image_that_is_not_built(sweep: Sweep, tmp_path: Path) -> None:
    """It is named, and not built."""
    (tmp_path / "requirements.txt").write_text("six\n")
    environment = {"runtime": "venv", "image": "requirements.txt"}
    path = write(tmp_path, PRINTS, environment=environment)
    ran = sweep("try", path)
    assert ran.code == 1
    assert "requirements.txt is not built yet, and a try builds nothing" in ran.err
    assert f"sweep build {path}" in ran.err
    assert not (tmp_path / "runs").exists()


def test_ctrl_c(tmp_path: Path, runs: Path) -> None:
    """The training ends with the command, and nothing stays."""
    (tmp_path / "project").mkdir()
    path = write(tmp_path / "project", WAITS)
    gate = tmp_path / "gate"
    environ = sweep_environment(runs, {**NOWHERE, "GATE": str(gate)})
    code, text = type_ctrl_c(["try", str(path)], path.parent, environ, lambda _: gate.exists())
    assert code == 130, text
    assert not runs.exists()
    assert wait_until_gone(tmp_path) == []
    assert_nothing_is_left(path.parent)


@pytest.mark.long  # test_ctrl_c has the same end in every form
def test_a_terminated_command(tmp_path: Path, runs: Path) -> None:
    """Ended by SIGTERM (of timeout, say), it leaves nothing either."""
    path = write(tmp_path, WAITS)
    gate = tmp_path.parent / f"{tmp_path.name}-gate"
    environ = sweep_environment(runs, {**NOWHERE, "GATE": str(gate)})
    command = [sys.executable, "-m", "sweep", "try", str(path)]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE) as child:
        wait_for(gate.exists, "the training to run")
        os.kill(child.pid, signal.SIGTERM)
        child.communicate()
    assert child.returncode == 130
    assert_nothing_is_left(tmp_path)


def test_a_killed_command(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """What a SIGKILL has left, the next try removes: its training, its job and its folder."""
    path = write(tmp_path, WAITS)
    gate = tmp_path.parent / f"{tmp_path.name}-gate"
    environ = sweep_environment(runs, {**NOWHERE, "GATE": str(gate)})
    command = [sys.executable, "-m", "sweep", "try", str(path)]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as child:
        wait_for(gate.exists, "the training to run")
        child.kill()
    left = list((runs / HOME).iterdir())
    assert len(left) == 1
    write(tmp_path, PRINTS)
    assert sweep("try", path).code == 0
    assert not left[0].exists() and not (runs / HOME).exists()
    assert_nothing_is_left(tmp_path)


def test_a_try_under_way_stays(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """Another command's folder is left alone while its process lives, or may live elsewhere."""
    alive = runs / HOME / "alive"
    elsewhere = runs / HOME / "elsewhere"
    for folder, boot in ((alive, processes.boot_id()), (elsewhere, "another")):
        folder.mkdir(parents=True)
        owner = {"boot": boot, "pid": os.getpid(), "start": processes.start_time(os.getpid())}
        (folder / "owner.json").write_text(json.dumps(owner))
    assert sweep("try", write(tmp_path, PRINTS)).code == 0
    assert sorted((runs / HOME).iterdir()) == [alive, elsewhere]
    os.utime(elsewhere, (1, 1))
    assert sweep("try", tmp_path / "study.yaml").code == 0
    assert list((runs / HOME).iterdir()) == [alive]


def test_init_and_try(sweep: Sweep, tmp_path: Path) -> None:
    """A script, its study file and what its first minute shows, by one command."""
    (tmp_path / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--seed', type=int, default=0)\n"
        "lr = p.parse_args().lr\nprint(f'val_loss={lr}')\n"
    )
    ran = sweep("init", "train.py", "--try")
    assert ran.code == 0, ran.out + ran.err
    assert "wrote study.yaml" in ran.out
    assert "val_loss: 1 value; a trial would count 0." in ran.out
    assert_nothing_is_left(tmp_path)


def test_init_and_try_of_what_is_not_complete(sweep: Sweep, tmp_path: Path) -> None:
    """The study file stays, and what is missing in it is named."""
    (tmp_path / "train.py").write_text("print('val_loss=1')\n")
    ran = sweep("init", "train.py", "--try")
    assert ran.code == 2
    assert "EDIT_ME still stands in it" in ran.err
    assert_nothing_is_left(tmp_path)
