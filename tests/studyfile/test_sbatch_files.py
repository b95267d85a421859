"""Job arrays whose tasks take a line of a file become the points that the lines say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError
from sweep.studyfile import loads
from sweep.studyfile.starter.convert import Converted, convert

ID = "${SLURM_ARRAY_TASK_ID}"
FILES = {
    "values.txt": "1e-3 32 adam\n1e-4 64 sgd\n1e-2 32 adam\n",
    "values.csv": "lr,bs,opt\n0.001,32,adam\n0.0001,64,sgd\n0.01,32,adam\n",
    "values.tsv": "0.001\t32\tadam\n0.0001\t64\tsgd\n0.01\t32\tadam\n",
    "flags.txt": "--lr 0.001 --bs=32 --opt adam\n--lr 0.0001 --bs=64 --opt sgd\n"
    "--lr 0.01 --bs=32 --opt adam\n\n",
    "commands.txt": "python train.py --lr 0.001 --bs 32 --opt adam\n"
    "python train.py --lr 0.0001 --bs 64 --opt sgd\npython train.py --lr 0.01 --bs 32 --opt adam\n",
    "config.txt": "ArrayTaskID lr bs opt\n1 0.001 32 adam\n2 0.0001 64 sgd\n3 0.01 32 adam\n",
    "ragged.txt": "--lr 0.001\n--lr 0.1 --bs 32\n--lr 0.2\n",
    "gap.txt": "1 0.001\n3 0.01\n",
}
POINTS = [
    {"lr": 0.001, "bs": 32, "opt": "adam"},
    {"lr": 0.0001, "bs": 64, "opt": "sgd"},
    {"lr": 0.01, "bs": 32, "opt": "adam"},
]
TRAIN = "python train.py --lr $lr --bs $bs --opt $opt"


def converted(folder: Path, script: str, array: str = "1-3") -> Converted:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    path = folder / "job.sh"
    option = f"#SBATCH --array={array}\n" if array else ""
    path.write_text(f"#!/bin/bash\n#SBATCH --time=10\n{option}{script}\n")
    return convert(path)


def points_of(found: Converted) -> list[dict[str, Any]]:
    return [dict(point) for point in loads(found.text, "study.yaml").points]


@pytest.mark.parametrize(
    "script",
    [
        f'read -r lr bs opt <<< $(sed -n "{ID}p" values.txt)\n{TRAIN}',
        f'IFS=, read -r lr bs opt < <(awk "NR==$(({ID}+1))" values.csv)\n{TRAIN}',
        f"line=$(sed '{ID}q;d' values.tsv)\n"
        f"IFS=$'\\t' read -r lr bs opt <<< \"${{line}}\"\n{TRAIN}",
        f"bs=$(sed -n {ID}p values.tsv | cut -f2)\n"
        f"lr=$(sed -n {ID}p values.tsv | cut -f1)\n"
        f"opt=`head -n {ID} values.tsv | tail -n 1 | cut -f 3`\n{TRAIN}",
        f"config=$SLURM_SUBMIT_DIR/config.txt\n"
        f"lr=$(awk -v ArrayTaskID={ID} '$1==ArrayTaskID {{print $2}}' $config)\n"
        f"bs=$(awk -v ArrayTaskID={ID} '$1==ArrayTaskID {{print $3}}' $config)\n"
        f"opt=$(awk -v ArrayTaskID={ID} '$1==ArrayTaskID {{print$4}}' $config)\n{TRAIN}",
        f"LINE=$(tail -n +2 values.csv | sed -n {ID}p)\nlr=$(echo $LINE | cut -d, -f1)\n"
        f"bs=$(echo \"$LINE\" | cut -d ',' -f2)\n"
        f"opt=$(echo $LINE | awk -F, '{{print $3}}')\n{TRAIN}",
        f"read lr bs opt <<< $(tail -n +2 values.csv | sed -n {ID}p | tr ',' ' ')\n{TRAIN}",
        f"set -- $(sed -n {ID}p values.txt)\npython train.py --lr $1 --bs $2 --opt ${{3}}",
        f'ARGS=$(sed -n "{ID}p" flags.txt)\nsrun python train.py $ARGS',
        f"CMD=$(cat commands.txt | head -n {ID} | tail -1)\neval $CMD",
        f"F=flags.txt\nE=`cat $F | head -{ID} | tail -n1`\n"
        'command="python train.py $E"\neval $command',
    ],
)
def test_each_task_s_line_is_a_point(tmp_path: Path, script: str) -> None:
    found = converted(tmp_path, script)
    assert points_of(found) == POINTS
    assert "EDIT_ME" not in found.text and "the lines of a file" not in found.text
    assert 'resources: {time: "10min"}' in found.text


def test_where_the_tasks_are_not_told_all_lines_are_taken(tmp_path: Path) -> None:
    found = converted(tmp_path, f"ARGS=$(sed -n {ID}p flags.txt)\npython train.py $ARGS", array="")
    assert points_of(found) == POINTS
    assert "--array: is not in the script; tasks 1 to 3 were taken" in found.text


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"lr=$(sed -n {ID}p gone.txt)\npython train.py --lr $lr", "gone.txt: each task reads a"),
        (f"A=$(sed -n {ID}p ragged.txt)\npython train.py $A", "A: its lines have unlike numbers"),
        (f"lr=$(ls *.txt | sed -n {ID}p)\npython train.py --lr $lr", "is not known without"),
        (f"lr=$(sed -n {ID}p values.txt | python mend.py)\npython t.py --lr $lr", "is not known"),
        (
            f"A=$(sed -n {ID}p flags.txt | tr a-z A-Z)\npython train.py $A",
            "tr a-z A-Z: is not known",
        ),
        (
            f"L=$(sed -n {ID}p values.txt)\nlr=$(echo 1 $L | cut -d' ' -f1)\npython t.py --lr $lr",
            "is not known",
        ),
        (
            f"lr=$(awk -v i={ID} '$1==i {{print $2}}' gap.txt)\npython train.py --lr $lr",
            "do not go up one by one",
        ),
    ],
)
def test_what_is_not_read_is_said(tmp_path: Path, script: str, said: str) -> None:
    text = " ".join(converted(tmp_path, script).text.replace("\n#  ", "").split())
    assert said in text and "write points: file.csv" in text


def test_a_line_in_quotes_is_one_value(tmp_path: Path) -> None:
    found = converted(tmp_path, f'A=$(sed -n {ID}p values.txt)\npython train.py --all "$A"')
    (only,) = loads(found.text, "study.yaml").space.parameters
    assert list(only.choices) == FILES["values.txt"].splitlines()


@pytest.mark.parametrize(
    ("option", "becomes"),
    [
        ("time=90", 'resources: {time: "90min"}'),
        ("time=UNLIMITED", "--time=UNLIMITED: a study needs a limit"),
        ("mem=4000", 'resources: {memory: "4000M"}'),
        ("mem=0", "--mem=0: all of a node's memory"),
        ("gres=gpu:a100:2,tmp:10G", 'resources: {gpus: "a100:2"}'),
        ("gres=gpu:a100:2,tmp:10G", "--gres=tmp:10G: has no counterpart"),
        ("exclusive", "slurm: {exclusive: true}"),
        ("exclusive=user", "--exclusive=user: has no counterpart"),
    ],
)
def test_options_as_slurm_reads_them(tmp_path: Path, option: str, becomes: str) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"#!/bin/bash\n#SBATCH --array=1-3\n#SBATCH --{option}\npython t.py {ID}\n")
    found = convert(path)
    loads(found.text, "study.yaml")
    assert becomes in found.text


@pytest.mark.parametrize(
    "script",
    [
        f'T=$(sed -n {ID}p values.txt)\npython train.py --api-key "$T"',
        f"read -r lr bs opt <<< $(sed -n {ID}p values.txt)\n"
        "python train.py --lr $lr --bs $bs --hf-token $opt",
    ],
)
def test_secrets_of_a_file_are_not_made_values(tmp_path: Path, script: str) -> None:
    with pytest.raises(InputError, match="is varied, and is a secret by its name"):
        converted(tmp_path, script)


def test_numbers_of_a_secret_name_are_values(tmp_path: Path) -> None:
    found = converted(tmp_path, f"K=$(sed -n {ID}p values.tsv | cut -f2)\npython t.py --key $K")
    (only,) = loads(found.text, "study.yaml").space.parameters
    assert list(only.choices) == [32, 64]
