"""``sweep shell``: a study's environment with a trial's values, and nothing of it in the trial."""

from __future__ import annotations

import dataclasses
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from sweep.core.errors import InputError
from sweep.core.study import Environment, Resources, Slurm
from sweep.tasks.side_runs.shell import as_study
from tests.cli.commands import collected
from tests.conftest import Sweep, sweep_environment
from tests.study_rows import make_study

# What a trial finds, in one line of shell; braces and signs of its own stay as they are.
LOOK = (
    'cat "$SWEEP_CONFIG"; echo "seed: ${SWEEP_SEED}"; echo \'{x}\'; '
    "python -c 'from sweep.report import Reporter; Reporter().log(step=0, score=5.0)'; "
    'cat "$SWEEP_METRICS"; pwd'
)


def test_the_values_of_a_trial(finished: Sweep) -> None:
    """The best one's, or a named one's; what is reported there is nowhere afterwards."""
    before = collected(finished)
    best = before[0]
    for words, row in (((), best), ((before[2]["trial"],), before[2])):
        ran = finished("shell", *words, "-c", LOOK)
        assert ran.code == 0, ran
        *config, seed, braces, reported, folder = ran.out.splitlines()
        written = YAML(typ="safe").load("\n".join(config))
        assert written == {"seed": row["seed"], **row["params"]}
        assert (seed, braces) == (f"seed: {row['seed']}", "{x}")
        assert json.loads(reported)["metrics"] == {"score": 5.0}
    runs = Path(finished.keywords["runs"])  # type: ignore[attr-defined]
    assert folder == str(finished.keywords["cwd"])  # type: ignore[attr-defined]
    assert not (runs / ".shells").exists()
    assert collected(finished) == before


def test_its_exit_code_and_what_is_refused(finished: Sweep) -> None:
    assert finished("shell", "toy", "1", "-c", "exit 7").code == 7
    for words, said in (
        (("99",), "has no trial 99"),
        (("toy", "x"), "must be a trial's number"),
        (("--write",), "--write is for containers"),
    ):
        ran = finished("shell", *words, "-c", "true")
        assert ran.code == 2 and said in ran.err, ran


def test_at_a_terminal(finished: Sweep) -> None:
    """It is interactive, says whose values it has and how that trial was trained, and leaves with
    the shell."""
    keywords = finished.keywords  # type: ignore[attr-defined]
    runs, cwd, env = keywords["runs"], keywords["cwd"], keywords["env"]
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "sweep", "shell", "1"],
        cwd=cwd,
        env=sweep_environment(runs, env),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, b"echo is$((40 + 2)) of $SWEEP_TRIAL; exit 3\n")
    said = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # nobody has the other end any more
            break
        if not more:
            break
        said += more
    os.close(ours)
    assert child.wait() == 3, said
    text = said.decode()
    assert "toy, trial 1, in " in text and "its training: python train.py --x=" in text
    assert "(toy 1) $ " in text and "is42 of 1" in text


@pytest.mark.parametrize(
    ("runtime", "more", "write", "root", "options", "remap_root"),
    [
        ("pyxis", {"name": "mine"}, True, True, ("--container-writable",), True),
        ("enroot", {"name": "mine"}, True, False, ("--rw",), False),
        ("apptainer", {"unpack": True}, True, True, ("-e", "--writable", "--fakeroot"), False),
        ("apptainer", {}, False, False, ("-e",), False),
    ],
)
def test_a_container_that_is_changed(
    runtime: str,
    more: dict[str, object],
    write: bool,
    root: bool,
    options: tuple[str, ...],
    remap_root: bool,
) -> None:
    """By the runtime's own options; of a trial's shape one process on one node is left."""
    given = ("-e",) if runtime == "apptainer" else ()
    environment = Environment(runtime, "a", options=given, **more)  # type: ignore[arg-type]
    study = dataclasses.replace(
        make_study(),
        environment=environment,
        resources=Resources(nodes=2, gpus=4),
        slurm=Slurm(slots=2),
    )
    made = as_study(study, "echo {x}", write=write, root=root)
    assert (made.environment.options, made.environment.remap_root) == (options, remap_root)
    assert (made.resources.nodes, made.resources.gpus, made.slurm.slots) == (1, 4, 1)
    assert made.command == ("sh", "-c", "echo {{x}}")


def test_what_would_not_stay_is_refused() -> None:
    for environment in (Environment("enroot", "a.sqsh"), Environment("apptainer", "a.sif")):
        study = dataclasses.replace(make_study(), environment=environment)
        with pytest.raises(InputError, match="would stay"):
            as_study(study, None, write=True, root=False)
