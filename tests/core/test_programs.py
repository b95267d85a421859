"""What a command starts in the end, whatever wraps it."""

from __future__ import annotations

import shlex

import pytest

from sweep.core.programs import LAUNCHER, OTHER, PYTHON, SHELL, interpreter, read_program
from sweep.core.wrappers import WRAPPERS

PROGRAMS = [
    ("python train.py", PYTHON, "python"),
    ("python3.11 -u -W ignore -X dev train.py -m torch.distributed.run", PYTHON, "python3.11"),
    ("python -m trainer.train --config {config}", PYTHON, "python"),
    ("python -c 'import x'", PYTHON, "python"),
    ("./train.py", PYTHON, "train.py"),
    ("uv run --with torch --extra gpu train.py", PYTHON, "python"),
    ("uv run -m my.train", PYTHON, "python"),
    ("uv run --directory d python train.py", PYTHON, "python"),
    ("env -i A=1 -u B python train.py", PYTHON, "python"),
    ("env -S 'A=1 python -u train.py' --lr 1", PYTHON, "python"),
    ("poetry -C d run nice -n 5 python train.py", PYTHON, "python"),
    ("conda run -n x --no-capture-output python train.py", PYTHON, "python"),
    ("hatch run +py=3.11 test:python train.py", PYTHON, "python"),
    ("timeout -k 5 1h stdbuf -oL python train.py", PYTHON, "python"),
    ("numactl --cpunodebind 0 -m 0 python train.py", PYTHON, "python"),
    ("xvfb-run -as '-screen 0 1x1x24' python train.py", PYTHON, "python"),
    ("taskset -c 0-3 chrt -b 0 python train.py", PYTHON, "python"),
    ("nohup setsid ionice -c2 -n7 time -f %e python train.py", PYTHON, "python"),
    ("apptainer exec --nv -B /a:/b i.sif python train.py", PYTHON, "python"),
    ("nsys profile -o out --trace cuda python train.py", PYTHON, "python"),
    ("torchrun train.py", LAUNCHER, "torchrun"),
    ("/v/bin/torchrun train.py", LAUNCHER, "torchrun"),
    ("python /v/bin/torchrun train.py", LAUNCHER, "torchrun"),
    ("python -m torch.distributed.run train.py", LAUNCHER, "torch.distributed.run"),
    ("python -um torch.distributed.launch train.py", LAUNCHER, "torch.distributed.launch"),
    ("python -mdeepspeed.launcher.runner train.py", LAUNCHER, "deepspeed.launcher.runner"),
    ("python -m accelerate.commands.launch train.py", LAUNCHER, "accelerate.commands.launch"),
    ("uv run torchrun train.py", LAUNCHER, "torchrun"),
    ("uv run -m torch.distributed.run train.py", LAUNCHER, "torch.distributed.run"),
    ("uv tool run --from torch torchrun train.py", LAUNCHER, "torchrun"),
    ("env A=1 torchrun train.py", LAUNCHER, "torchrun"),
    ("poetry run accelerate launch train.py", LAUNCHER, "accelerate"),
    ("pipenv run deepspeed train.py", LAUNCHER, "deepspeed"),
    ("pdm run tune run --nproc_per_node 2 lora", LAUNCHER, "tune"),
    ("hatch run gpu:torchrun train.py", LAUNCHER, "torchrun"),
    ("conda run -n x horovodrun -np 2 python train.py", LAUNCHER, "horovodrun"),
    ("micromamba run -n x composer -n 2 train.py", LAUNCHER, "composer"),
    ("pixi run -e gpu colossalai run --nproc_per_node 2 train.py", LAUNCHER, "colossalai"),
    ("rye run accelerate-launch train.py", LAUNCHER, "accelerate-launch"),
    ("nice -n 5 mpirun.openmpi -n 2 python train.py", LAUNCHER, "mpirun.openmpi"),
    ("time mpiexec.hydra -n 2 python train.py", LAUNCHER, "mpiexec.hydra"),
    ("numactl -N0 srun -n 2 python train.py", LAUNCHER, "srun"),
    ("stdbuf -oL ray job submit -- python train.py", LAUNCHER, "ray"),
    ("xvfb-run fabric run train.py", LAUNCHER, "fabric"),
    ("torchx run dist.ddp --script train.py", LAUNCHER, "torchx"),
    ("bash train.sh", SHELL, "bash"),
    ("bash -eo pipefail train.sh", SHELL, "bash"),
    ("sh -c 'torchrun train.py'", SHELL, "sh"),
    ("./train.sh", SHELL, "train.sh"),
    ("Rscript train.R", OTHER, "Rscript"),
    ("uv sync", OTHER, "uv"),
    ("conda list", OTHER, "conda"),
    ("make train", OTHER, "make"),
    ("time", OTHER, "time"),
    ("", OTHER, ""),
]


@pytest.mark.parametrize(("command", "kind", "name"), PROGRAMS)
def test_what_a_command_starts(command: str, kind: str, name: str) -> None:
    """The program at the end of all wrappers."""
    found = read_program(shlex.split(command))
    assert (found.kind, found.name) == (kind, name)


def test_other_words_are_wrapped_alike() -> None:
    """What is put around Python stands within what brings that Python."""
    for command, wrapped in [
        ("uv run --extra gpu train.py --x", "uv run --extra gpu python -m y python train.py --x"),
        ("uv run -m my.train", "uv run python -m y python -m my.train"),
        ("hatch run gpu:python t.py", "hatch run gpu:python -m y python t.py"),
        ("env -S 'A=1 python t.py'", "env A=1 python -m y python t.py"),
        ("nice -n 5 python t.py", "nice -n 5 python -m y python t.py"),
        ("python t.py", "python -m y python t.py"),
    ]:
        found = read_program(shlex.split(command))
        assert found.wrap(["python", "-m", "y", *found.words]) == wrapped.split()


def test_where_a_wrapped_program_is() -> None:
    """Whether it can be looked for on PATH, and its script in the working folder."""
    found = {
        command: read_program(command.split())
        for command in ("uv run python t.py", "nice python t.py", "env -C d python t.py")
    }
    assert [one.is_elsewhere for one in found.values()] == [True, False, False]
    assert [one.has_moved for one in found.values()] == [False, False, True]
    assert {one.script for one in found.values()} == {"t.py"}


@pytest.mark.parametrize("name", sorted(WRAPPERS))
def test_every_wrapper_shows_its_command(name: str) -> None:
    """One with no options of its own, and its verb where it has one."""
    wrapper = WRAPPERS[name]
    verb = wrapper.verb.split("|")[0].split()
    words = [name, *verb, *["1"] * wrapper.operands, "torchrun", "train.py"]
    found = read_program(words)
    assert (found.kind, found.words) == (LAUNCHER, ("torchrun", "train.py"))


def test_the_interpreter_of_a_command() -> None:
    """Also within what wraps it; another word where it names none."""
    for command, word in [
        ("nice -n 5 /v/bin/python3.11 -u t.py", "/v/bin/python3.11"),
        ("uv run t.py", "python"),
        ("torchrun t.py", "python"),
    ]:
        assert interpreter(command.split()) == word
    assert interpreter(["bash", "t.sh"], "") == interpreter([], "") == ""
