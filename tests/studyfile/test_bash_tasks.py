"""Job scripts whose arguments bash puts together, judged by bash: what is run is what is tried."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from sweep.core.errors import InputError
from sweep.studyfile import loads
from sweep.studyfile.starter.bash_state import NotKnown, Ran
from sweep.studyfile.starter.bash_tasks import run_tasks
from sweep.studyfile.starter.sbatch_around import read_command
from sweep.studyfile.starter.sbatch_text import straighten
from tests.studyfile.bash_real import ask_bash
from tests.studyfile.test_sbatch_words import commands_of, converted

CASES = Path(__file__).parent / "intake" / "bash.txt"
FILES = {
    "params.txt": "--lr 0.1 --opt sgd\n--lr 0.2 --opt adam\n--lr 0.3 --opt sgd\n",
    "cmds.txt": "".join(f"python train.py --lr 0.{i} --n {5 + i // 3 * 2}\n" for i in (1, 2, 3)),
    "grid.csv": "lr,opt,seed\n0.1,sgd,1\n0.2,adam,2\n0.3,sgd,3\n",
    "names.txt": "alpha\nbeta\ngamma\n",
}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?(?![\w.])")


def read_cases() -> list[object]:
    cases = re.split(r"^=== ", CASES.read_text(), flags=re.MULTILINE)[1:]
    heads = [case.partition("\n") for case in cases]
    return [
        pytest.param(head.split(" ", 1)[0], script, id=head.split(" ", 1)[1])
        for head, _, script in heads
    ]


def tasks_of(array: str) -> list[int]:
    first, last = array.split("-")
    return list(range(int(first), int(last) + 1))


def commands_of_bash(script: str, tasks: list[int], folder: Path, stubs: Path) -> list[str]:
    """Return the commands that bash runs in the tasks, one of each, sorted."""
    lines: set[str] = set()
    for task in tasks:
        ran = ask_bash(script, task, folder, stubs, {})
        assert ran is not None, "bash does not run it"
        lines |= {" ".join(words) for words in ran}
    return sorted(lines)


def plain(lines: list[str]) -> list[str]:
    """Return lines with their numbers written in one way: 1e-4 is 0.0001."""
    return sorted(NUMBER.sub(lambda found: repr(float(found[0])), line) for line in lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the scripts read."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("array", "script"), read_cases())
def test_trials_are_what_bash_runs(array: str, script: str, folder: Path, stubs: Path) -> None:
    """Going through a script gives bash's words, and the study tries them."""
    tasks = tasks_of(array)
    right = commands_of_bash(script, tasks, folder, stubs)
    assert right
    ran = run_tasks(straighten(script), folder, tasks, {}, read_command)
    assert sorted({" ".join(one.words) for task in ran for one in task}) == right
    found = converted(folder, script, array)
    assert plain(commands_of(found, folder)) == plain(right)
    assert "EDIT_ME" not in found.text


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param(
            'A=("--lr 0.1")\nA+=("--lr 0.2 --slow")\npython t.py ${A[$SLURM_ARRAY_TASK_ID]}',
            "the script runs 2 different commands",
            id="an argument more",
        ),
        pytest.param(
            "if [ $SLURM_ARRAY_TASK_ID -gt 0 ]; then\n  exit 0\nfi\n"
            "python t.py --s $SLURM_ARRAY_TASK_ID",
            "the script runs 1 different commands",
            id="tasks that leave",
        ),
        pytest.param(
            "lr=$(echo 0.1 $SLURM_ARRAY_TASK_ID | best)\npython t.py --lr $lr",
            "$lr holds a variable",
            id="a program of its own",
        ),
        pytest.param(
            "f=(*.yaml)\npython t.py --f ${f[$SLURM_ARRAY_TASK_ID]}",
            "its list is not known without running the script",
            id="files of the cluster",
        ),
        pytest.param(
            "python t.py --s $SLURM_ARRAY_TASK_ID --n $(( (2 - 1) << 3 ))",
            "command: $(( (2 - 1) << 3 )) is not known without running it",
            id="signs of arithmetic, and blanks",
        ),
    ],
)
def test_what_cannot_be_tried_is_said(script: str, said: str, folder: Path) -> None:
    """Nothing is made up: the command is to be edited, and it is said why."""
    found = converted(folder, script, "0-1")
    assert any(said in line for line in found.lost), found.lost
    command = loads(found.text, "study.yaml").command
    assert "EDIT_ME" in " ".join(command) and not any("))" in word for word in command)


def test_names_of_files_stay_as_they_are_written(folder: Path) -> None:
    """1e-3 within the name of a file is no number: configs/lr0.001.yaml is another file."""
    script = "L=(1e-3 1e-4)\npython t.py --config c/lr${L[$SLURM_ARRAY_TASK_ID]}.yaml"
    lines = commands_of(converted(folder, script, "0-1"), folder)
    bare = script.replace(".yaml", "").replace("--config ", "--config-name=")
    lines += commands_of(converted(folder, bare, "0-1"), folder)
    names = ["lr1e-3", "lr1e-4"]
    assert lines == [
        *(f"python t.py --config c/{name}.yaml" for name in names),
        *(f"python t.py --config-name=c/{name}" for name in names),
    ]


def test_numbers_in_the_name_of_a_run_make_no_parameter(folder: Path) -> None:
    """What a run is called may be written otherwise: the grid stays one of numbers."""
    script = "for lr in 1e-3 1e-4; do python t.py --lr $lr --out runs/lr${lr} --id=lr_$lr; done"
    study = loads(converted(folder, script, "").text, "study.yaml")
    assert [(one.name, one.choices) for one in study.space] == [("lr", (0.001, 0.0001))]


def test_variables_before_a_command_are_kept(folder: Path) -> None:
    """Those that differ by task are a part of the command."""
    script = "L=(1 2)\nA=b LR=${L[$SLURM_ARRAY_TASK_ID]} python t.py"
    (first,), (second,) = run_tasks(straighten(script), folder, [0, 1], {}, read_command)
    assert (first, second) == (
        Ran(1, "A=b LR=1 ", ("python", "t.py")),
        Ran(1, "A=b LR=2 ", ("python", "t.py")),
    )


@pytest.mark.parametrize(
    "script",
    ["while true; do :; done", "for i in {1..9000}; do for j in {1..9000}; do :; done; done"],
)
def test_no_script_goes_on_for_ever(script: str, folder: Path) -> None:
    """What takes too many steps is not gone through."""
    with pytest.raises(NotKnown):
        run_tasks(straighten(script), folder, [], {}, read_command)


@pytest.mark.parametrize("count", [200])
def test_a_damaged_script_is_refused_or_converted(count: int, folder: Path) -> None:
    """Signs that are gone, doubled or moved end in no crash."""
    scripts = [case.values[1] for case in read_cases()]  # type: ignore[attr-defined]
    random = Random(7)
    for _ in range(count):
        signs = list(random.choice(scripts))
        for _ in range(random.randint(1, 6)):
            place = random.randrange(len(signs))
            if random.random() < 0.5:
                del signs[place]
            else:
                signs.insert(place, random.choice("${}()[]\"'`\\|&;<>#=*?!\n 0a"))
        try:
            converted(folder, "".join(signs), "0-2")
        except InputError:
            continue


def test_an_empty_group_behind_a_test_does_nothing(folder: Path) -> None:
    """What is left of a group whose commands stand in a comment."""
    script = "[ 1 -eq 1 ] && {\n# echo\n}\npython t.py --s $SLURM_ARRAY_TASK_ID"
    lines = commands_of(converted(folder, script, "0-1"), folder)
    assert lines == ["python t.py --s 0", "python t.py --s 1"]
