"""What tasks set and run by their number: case and if, judged by bash itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sweep.studyfile import loads
from tests.studyfile.test_sbatch_words import commands_of, converted

CASE = """case $SLURM_ARRAY_TASK_ID in
    0) lr=0.1; opt=sgd ;;
    1)
        lr=0.2
        opt="adam"
        ;;
    2|3) lr=0.3 opt=adam ;;
esac
python train.py --lr $lr --opt "$opt"
"""
ELIF = """lr=0.5
if [ "$SLURM_ARRAY_TASK_ID" -eq 0 ]; then
  lr=0.1
elif [[ $SLURM_ARRAY_TASK_ID == 1 ]]; then
  lr=0.2
fi
python train.py --lr $lr
"""
ELSE = """ID=$((SLURM_ARRAY_TASK_ID % 2))
if (( ID == 0 )); then
  export MODEL=small
  WIDTH=10
else
  export MODEL=large
  WIDTH=20
fi
python train.py $MODEL $WIDTH --seed $((SLURM_ARRAY_TASK_ID / 2))
"""
RUNS = """case "${SLURM_ARRAY_TASK_ID}" in
1) python train.py --lr 0.1 --width 10 ;;
2) python train.py --lr 0.2 --width 10 ;;
*) echo "no such task"; exit 1 ;;
esac
"""
DEFAULT = """case $SLURM_ARRAY_TASK_ID in
  1) data=a;;
  [2-3]) data=b;;
  *) data=c;;
esac
OUT=runs/$data
python train.py --data $data --out ${OUT}
"""
TOGETHER = """LRS=(0.1 0.2 0.3)
if [ $SLURM_ARRAY_TASK_ID -lt 2 ]; then FLAG=--slow; else FLAG=--fast; fi
python train.py $FLAG --lr ${LRS[$SLURM_ARRAY_TASK_ID]}
"""
ARGS = """case $SLURM_ARRAY_TASK_ID in
  0) ARGS="--lr 0.1 --opt sgd" ;;
  1) ARGS="--lr 0.2 --opt adam" ;;
esac
python train.py $ARGS
"""
EARLIER = """size=10
if [ $SLURM_ARRAY_TASK_ID -ge 1 ] && [ $SLURM_ARRAY_TASK_ID -le 2 ]; then size=20; fi
python train.py --size=$size --seed=$SLURM_ARRAY_TASK_ID
"""


def run(script: str, tasks: list[int], folder: Path) -> list[str]:
    """Return what bash runs in each task, sorted."""
    text = f'python() {{ echo "RUN python $*"; }}\n{script}'
    lines = []
    for task in tasks:
        done = subprocess.run(
            ["bash", "-c", text],
            env={"SLURM_ARRAY_TASK_ID": str(task), "PATH": "/usr/bin:/bin"},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        lines += [line[4:] for line in done.stdout.splitlines() if line.startswith("RUN ")]
    return sorted(set(lines))


@pytest.mark.parametrize(
    ("script", "tasks"),
    [
        pytest.param(CASE, "0-3", id="case"),
        pytest.param(ELIF, "0-2", id="elif"),
        pytest.param(ELSE, "0-5", id="else"),
        pytest.param(RUNS, "1-4", id="commands"),
        pytest.param(DEFAULT, "1-5", id="default"),
        pytest.param(DEFAULT, "2-5:3", id="some tasks"),
        pytest.param(TOGETHER, "0-2", id="with a list"),
        pytest.param(ARGS, "0-1", id="several words"),
        pytest.param(EARLIER, "0-3", id="earlier"),
    ],
)
def test_tasks_run_what_bash_runs(script: str, tasks: str, tmp_path: Path) -> None:
    """The trials are the commands that bash runs for the tasks of the array."""
    first, _, rest = tasks.partition("-")
    last, _, step = rest.partition(":")
    right = run(script, list(range(int(first), int(last) + 1, int(step or 1))), tmp_path)
    found = converted(tmp_path, script, tasks)
    assert commands_of(found, tmp_path) == right
    assert "EDIT_ME" not in found.text


def test_without_an_array_its_branches_are_the_tasks(tmp_path: Path) -> None:
    """Whoever submits it with --array on the command line has the tasks in the script."""
    found = converted(tmp_path, "#SBATCH --time=10\n" + ARGS, "")
    assert commands_of(found, tmp_path) == run(ARGS, [0, 1], tmp_path)
    assert any("--array: is not in the script; tasks 0 to 1" in line for line in found.lost)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            "if [ -f done ]; then lr=0.1; else lr=0.2; fi\npython train.py --lr $lr --s "
            "$SLURM_ARRAY_TASK_ID",
            id="a file",
        ),
        pytest.param(
            "case $SLURM_ARRAY_TASK_ID in\n0) lr=$(best) ;;\n1) lr=0.2 ;;\nesac\n"
            "python train.py --lr $lr --s $SLURM_ARRAY_TASK_ID",
            id="a value of a command",
        ),
        pytest.param(
            "case $SLURM_ARRAY_TASK_ID in\n0) for lr in 1 2; do echo $lr; done ;;\n1) lr=2 ;;\n"
            "esac\npython train.py --lr $lr --s $SLURM_ARRAY_TASK_ID",
            id="a loop within",
        ),
    ],
)
def test_what_only_a_run_would_tell_is_to_be_edited(script: str, tmp_path: Path) -> None:
    """No value is made up for a name that a branch sets in a way that is not known."""
    found = converted(tmp_path, script, "0-1")
    command = " ".join(loads(found.text, "study.yaml").command)
    assert command == "python train.py --lr EDIT_ME --s {s}"
    assert any("$lr holds a variable" in line for line in found.lost)
