"""Job scripts and loops whose lists and commands bash takes apart, or puts together, by itself.

What is right was seen by running each script in bash, with a python that writes down its arguments.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.studyfile import loads
from sweep.studyfile.starter.convert import Converted, convert
from sweep.studyfile.starter.sbatch_words import expand_braces, list_words
from sweep.training.command.environment import TrialValues
from sweep.training.command.filling import fill

ID = "$SLURM_ARRAY_TASK_ID"
ARGS = 'args=("--lr 0.1 --opt sgd" "--lr 0.2 --opt adam")\n'
TWO = ["python train.py --lr 0.1 --opt sgd", "python train.py --lr 0.2 --opt adam"]
LRS = "lrs=(0.1 0.2)\n"
NAMES = ["python train.py a b", "python train.py c"]
TENS = ["python train.py 10", "python train.py 20"]
ENV = ["env LR=0.1 python train.py", "env LR=0.2 python train.py"]
LR = ["python train.py --lr 0.1", "python train.py --lr 0.2"]


def converted(folder: Path, script: str, array: str) -> Converted:
    path = folder / "job.sh"
    option = f"#SBATCH --array={array}\n" if array else ""
    path.write_text(f"#!/bin/bash\n{option}{script}\n")
    return convert(path)


def commands_of(found: Converted, folder: Path) -> list[str]:
    """Return the commands of all trials, each as one line, sorted."""
    study = loads(found.text, "study.yaml")
    points = [dict(point) for point in study.points]
    if not points:
        values = [p.choices or range(int(p.low), int(p.high) + 1) for p in study.space]
        points = [
            dict(zip(study.space.names(), row, strict=True)) for row in itertools.product(*values)
        ]
    lines = []
    for params in points:
        trial = TrialValues.within(
            AttemptFolder(folder), config=folder / "c.yaml", params=params, seed=0, token="t"
        )
        lines.append(" ".join(fill(study.command, trial)))
    return sorted(lines)


@pytest.mark.parametrize(
    ("script", "right"),
    [
        pytest.param(f"{ARGS}python train.py ${{args[{ID}]}}", TWO, id="several words"),
        pytest.param(f"{ARGS}A=${{args[{ID}]}}\npython train.py $A", TWO, id="by a variable"),
        pytest.param(f'{ARGS}eval python train.py "${{args[{ID}]}}"', TWO, id="eval"),
        pytest.param(
            'c=("python train.py --lr 0.1 --opt sgd" "python train.py --lr 0.2 --opt adam")\n'
            f'eval "${{c[{ID}]}}"',
            TWO,
            id="whole commands",
        ),
        pytest.param(f'{LRS}C="python train.py --lr ${{lrs[{ID}]}}"\necho $C\n$C', LR, id="$C"),
        pytest.param(
            f'{LRS}C=(\n  python train.py\n  --lr "${{lrs[{ID}]}}"\n)\nsrun "${{C[@]}}"',
            LR,
            id="C[@]",
        ),
        pytest.param(
            f'{LRS}srun bash -c "cd x && python train.py --lr ${{lrs[{ID}]}}"', LR, id="bash -c"
        ),
        pytest.param(
            f"{LRS}srun -n 1 --mem=1G python train.py --lr ${{lrs[{ID}]}} | tee l", LR, id="srun --"
        ),
        pytest.param(f"{LRS}cd x && python train.py --lr ${{lrs[{ID}]}} || exit 1", LR, id="&&"),
        pytest.param(
            f"{LRS}CUDA_VISIBLE_DEVICES=$(({ID} % 4)) nohup python train.py --lr ${{lrs[{ID}]}}",
            LR,
            id="a variable before it",
        ),
        pytest.param(f"{LRS}LR=${{lrs[{ID}]}} python train.py", ENV, id="env"),
        pytest.param(
            f"{LRS}lr=${{lrs[$(({ID} % ${{#lrs[@]}}))]}}\npython train.py --lr $lr",
            LR,
            id="of the count",
        ),
        pytest.param(
            f'{LRS}lr=${{lrs[$(({ID} % 2))]}}\nOUT="out/${{lr}}_x"\npython train.py $OUT',
            ["python train.py out/0.1_x", "python train.py out/0.2_x"],
            id="within a text",
        ),
        pytest.param(
            f'P=("0.1:sgd" "0.2:adam")\nIFS=\':\' read -r lr opt <<< "${{P[{ID}]}}"\n'
            "python train.py --lr $lr --opt $opt",
            TWO,
            id="read of an element",
        ),
        pytest.param(
            f'P=("0.1 sgd" "0.2 adam")\nP_OF="${{P[{ID}]}}"\nread lr opt <<< $P_OF\n'
            "python train.py --lr $lr --opt $opt",
            TWO,
            id="read of a variable",
        ),
        pytest.param(f"L=(0.{{1..2}})\npython train.py --lr ${{L[{ID}]}}", LR, id="braces"),
        pytest.param(f'S="0.1 0.2"\nL=($S)\npython train.py --lr ${{L[{ID}]}}', LR, id="of a text"),
        pytest.param(f"L=($(seq 10 10 20))\npython train.py ${{L[{ID}]}}", TENS, id="seq"),
        pytest.param(f"L=('a b' c)\npython train.py \"${{L[{ID}]}}\"", NAMES, id="in quotes"),
    ],
)
def test_tasks_run_what_bash_would(tmp_path: Path, script: str, right: list[str]) -> None:
    found = converted(tmp_path, script, "0-1")
    assert commands_of(found, tmp_path) == right
    assert "EDIT_ME" not in found.text


@pytest.mark.parametrize(
    ("script", "right"),
    [
        ('for a in "--lr 0.1 --opt sgd" "--lr 0.2 --opt adam"; do python train.py $a; done', TWO),
        ('for n in "a b" c; do python train.py "$n"; done', NAMES),
        ("for lr in 0.1 0.2; do srun --exclusive -n1 python train.py --lr $lr & done", LR),
        ('for lr in 0.1 0.2; do sbatch --mem=1G --wrap="python train.py --lr $lr"; done', LR),
        (
            "for lr in 0.1 0.2; do sbatch --export=ALL,LR=$lr job.sbatch; done",
            ["env LR=0.1 bash job.sbatch", "env LR=0.2 bash job.sbatch"],
        ),
        (
            'lrs=(0.1 0.2); opts=(sgd adam)\nfor i in "${!lrs[@]}"; do\n'
            "python train.py --lr ${lrs[$i]} --opt ${opts[i]}\ndone",
            TWO,
        ),
        ("for ((i=1; i<3; i++)); do python train.py --lr 0.$i; done", LR),
        ("for i in 1 2; do l=$((i * 10)); python train.py $l; done", TENS),
        (
            "for a in {x,y}; do for i in {08..10..2}; do\n"
            "torchrun --nproc-per-node 2 t.py $a $i; done; done",
            [f"torchrun --nproc-per-node 2 t.py {a} {i}" for a in "xy" for i in ("08", "10")],
        ),
    ],
)
def test_loops_run_what_bash_would(tmp_path: Path, script: str, right: list[str]) -> None:
    found = converted(tmp_path, script, "")
    assert commands_of(found, tmp_path) == right
    assert "EDIT_ME" not in found.text and "--array" not in found.text


def test_elements_of_unlike_numbers_of_words_are_said(tmp_path: Path) -> None:
    script = f'h=("64" "128 64")\npython train.py --hidden ${{h[{ID}]}}'
    found = converted(tmp_path, script, "0-1")
    assert "h: its elements are of unlike numbers of words" in found.text
    assert "--hidden EDIT_ME" in found.text


def test_a_list_that_only_a_run_tells_is_not_guessed(tmp_path: Path) -> None:
    for values in ("*.yaml", "$(ls)", "$UNSET"):
        found = converted(tmp_path, f"f=({values})\npython t.py --f ${{f[{ID}]}}", "0-1")
        assert "its list is not known without running the script" in " ".join(
            found.text.replace("\n#  ", "").split()
        )
        assert "--f EDIT_ME" in found.text


def test_words_are_bash_s() -> None:
    assert expand_braces("1e-{1..3}") == ["1e-1", "1e-2", "1e-3"]
    assert expand_braces("{a,b}{1..2}") == ["a1", "a2", "b1", "b2"]
    assert expand_braces("{3..1}") == ["3", "2", "1"]
    assert expand_braces("{x}") == ["{x}"]
    assert list_words("a 'b c' \"d\" {1,2} `seq 2`") == ["a", "b c", "d", "1", "2", "1", "2"]
    assert list_words("'$5' x") == ["$5", "x"]
    assert list_words('"$D/x"') is None
