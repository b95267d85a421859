"""Whether a command starts its ranks itself, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.study import Ddp, Resources, Study
from sweep.training.command import own_ranks
from sweep.training.command.launchers import choose
from sweep.training.command.own_ranks import find_launcher
from tests.training.test_command import make_study

FILES = {
    "two.sh": "#!/bin/bash\nexec torchrun --nproc-per-node 2 ranks.py\n",
    "deep.sh": "cd .\nbash -e two.sh\n",
    "sourced.sh": ". ./two.sh\n",
    "python.sh": "PYTHON=python3\n$PYTHON -m torch.distributed.launch x.py\n",
    "perhaps.sh": 'if [ -z "$RANK" ]; then\n  torchrun x.py\nelse\n  python x.py\nfi\n',
    "plain.sh": "python x.py --launcher torchrun\n",
    "loop.sh": "bash loop.sh\n",
    "run": "#!/usr/bin/env bash\nmpirun -n 2 ./a.out\n",
    "binary": "\x7fELF torchrun\n",
}


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_launchers_in_scripts(workdir: Path) -> None:
    """Also where a script calls another; with the line, and whether it runs in any case."""
    for command, name, place, certain in [
        ("bash two.sh", "torchrun", "two.sh line 2", True),
        ("nice bash two.sh", "torchrun", "two.sh line 2", True),
        ("bash deep.sh", "torchrun", "two.sh line 2", True),
        ("sh sourced.sh", "torchrun", "./two.sh line 2", True),
        ("bash python.sh", "torch.distributed.launch", "python.sh line 2", True),
        ("bash perhaps.sh", "torchrun", "perhaps.sh line 2", False),
        ("./run", "mpirun", "./run line 2", True),
        ("torchrun x.py", "torchrun", "", True),
    ]:
        found = find_launcher(command.split(), workdir)
        assert found is not None
        assert (found.name, found.place, found.is_certain) == (name, place, certain)
    found = find_launcher(["bash", "-c", "cd x; torchrun x.py"], workdir)
    assert found is not None and found.text == "torchrun, line 1"
    for command in ("bash plain.sh", "bash loop.sh", "./binary", "bash gone.sh", "python x.py"):
        assert find_launcher(command.split(), workdir) is None


def make(command: str, workdir: Path, **more: object) -> Study:
    given = {"executor": "local", "ddp": Ddp(ranks_per_node=2), **more}
    return make_study(command.split(), workdir=str(workdir), **given)


def test_what_is_no_python_runs_as_it_is(workdir: Path) -> None:
    """With launcher: auto and several ranks; and launch says so, with what else there is."""
    for command in ("bash two.sh", "bash plain.sh", "Rscript x.R", "make train", "uv run mytask"):
        assert choose(make(command, workdir)) == "python"
        assert choose(make(command, workdir, launcher="torchrun")) == "torchrun"
    two = own_ranks.notes(make("bash two.sh", workdir))
    assert two == [
        "bash two.sh runs once, as it is: it starts its 2 processes itself (torchrun, two.sh line "
        "2)."
    ]
    (plain,) = own_ranks.notes(make("bash plain.sh", workdir))
    assert plain.startswith("bash plain.sh is no Python program") and "launcher: torchrun" in plain
    nodes = Resources(nodes=2, gpus=2)
    (wide,) = own_ranks.notes(make("make", workdir, resources=nodes, ddp=Ddp(), executor="slurm"))
    assert "on the first of its 2 nodes" in wide and "4 processes" in wide
    for command in ("python x.py", "uv run x.py"):
        assert choose(make(command, workdir)) == "torchrun"
        assert own_ranks.notes(make(command, workdir)) == []
    assert own_ranks.notes(make("bash two.sh", workdir, ddp=Ddp())) == []


def test_a_script_that_spawns_is_said(workdir: Path) -> None:
    """Each of sweep's ranks would start as many again, where it does not look."""
    (workdir / "sp.py").write_text("import x\nmp.spawn(work, nprocs=2)\n")
    (workdir / "t.py").write_text("spawn(1)\n")
    (said,) = own_ranks.notes(make("uv run sp.py", workdir))
    assert said.startswith(
        "sp.py starts processes itself (mp.spawn, line 2), and torchrun starts 2"
    )
    assert own_ranks.notes(make("python sp.py", workdir, launcher="python")) == []
    assert own_ranks.notes(make("python sp.py", workdir, ddp=Ddp())) == []
    for command in ("python t.py", "python gone.py", "python -m sp"):
        assert own_ranks.notes(make(command, workdir)) == []


def test_a_script_with_data_parallel_is_said(workdir: Path) -> None:
    """It uses all GPUs in one process; each of several would use all of them."""
    (workdir / "dp.py").write_text("import torch\nmodel = torch.nn.DataParallel(model)\n")
    (workdir / "ddp.py").write_text("model = DistributedDataParallel(model)\n")
    (said,) = own_ranks.notes(make("python dp.py", workdir))
    assert said == (
        "dp.py uses all GPUs in one process (DataParallel, line 2), and torchrun starts 2 of it. "
        "Unless it does so only where it is alone, write launcher: python."
    )
    assert own_ranks.notes(make("python dp.py", workdir, launcher="python")) == []
    assert own_ranks.notes(make("python ddp.py", workdir)) == []


def test_two_launchers_are_refused(workdir: Path) -> None:
    """In a script as in the command itself; where it may not be called, it is said."""
    study = make("bash two.sh", workdir, launcher="torchrun")
    with pytest.raises(InputError, match=r"starts its processes itself \(torchrun, two.sh line 2"):
        own_ranks.check(study)
    perhaps = make("bash perhaps.sh", workdir, launcher="torchrun")
    own_ranks.check(perhaps)
    (said,) = own_ranks.notes(perhaps)
    assert "may start processes itself (torchrun, perhaps.sh line 2)" in said
    own_ranks.check(make("bash plain.sh", workdir, launcher="torchrun"))
    own_ranks.check(make("bash two.sh", workdir, launcher="python"))
