"""Scripts that run or submit one job after the other, judged by bash itself where it can tell."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from sweep.studyfile import loads
from tests.studyfile.test_sbatch_branches import run
from tests.studyfile.test_sbatch_words import commands_of, converted

PLAIN = """echo "task $SLURM_ARRAY_TASK_ID on $(hostname)"
start=`date +%s`
python train.py --lr 0.1
python train.py --lr 0.2
python train.py --lr 0.3
"""
SEVERAL = """export A=b
python prepare.py --out data
python train.py -m small --lr=0.1 --seed 1
python train.py -m large --lr=0.2 --seed 1
python plot.py
"""
FUNCTION = """train() {
  lr=$1
  opt=${2:-adam}
  echo "training"
  python train.py --lr $lr --opt $opt
}
train 0.1
train 0.2 sgd
"""
PASSED_ON = """function go {
  python train.py --epochs 3 "$@"
}
go --lr 0.1
go --lr 0.2
"""
IN_LOOP = """one () { python train.py --lr "$1" --seed ${2}; }
for lr in 0.1 0.2; do
  for seed in 1 2 3; do
    one $lr $seed
  done
done
"""
COUNTS = """say() { shift; echo "$@"; }
fit() { python train.py --lr $1; }
say a b
fit 0.1
fit 0.2
"""
NEGATIVE = """python train.py --bias -0.5
python train.py --bias 0.25
"""
WORDS = """python train.py --name "a b" --lr 0.1
python train.py --name "c d" --lr 0.1
"""


@pytest.mark.parametrize(
    ("script", "left_out"),
    [
        pytest.param(PLAIN, [], id="plain"),
        pytest.param(SEVERAL, ["python plot.py", "python prepare.py --out data"], id="others"),
        pytest.param(FUNCTION, [], id="a function"),
        pytest.param(PASSED_ON, [], id="arguments passed on"),
        pytest.param(IN_LOOP, [], id="a function in a loop"),
        pytest.param(COUNTS, [], id="a function that counts"),
        pytest.param(NEGATIVE, [], id="negative"),
        pytest.param(WORDS, [], id="spaces"),
    ],
)
def test_trials_are_what_bash_runs(script: str, left_out: list[str], tmp_path: Path) -> None:
    """One trial for each command that trains, and what else is run is named."""
    right = [line for line in run(script, [0], tmp_path) if line not in left_out]
    found = converted(tmp_path, script, "")
    assert len(right) > 1
    assert commands_of(found, tmp_path) == right
    for line in left_out:
        assert any(line in sentence for sentence in found.lost)


def test_options_of_sbatch_are_resources(tmp_path: Path) -> None:
    """What sbatch is given for each job holds for each trial; what differs is said."""
    script = (
        'sbatch -c 4 --gres=gpu:1 --mem 20G -J a --nice=1 --wrap="python train.py --seed 1"\n'
        'sbatch -c4 --gres=gpu:1 --mem 20G -J b --nice=2 --wrap="python train.py --seed 2"\n'
    )
    found = converted(tmp_path, script, "")
    assert commands_of(found, tmp_path) == [f"python train.py --seed {seed}" for seed in (1, 2)]
    resources = loads(found.text, "study.yaml").resources
    assert (resources.cpus, resources.gpus, resources.memory_mb) == (4, 1, 20 * 1024)
    assert any("sbatch --nice: is not the same for all jobs" in line for line in found.lost)


def test_a_job_on_standard_input_is_read(tmp_path: Path) -> None:
    """Its lines are the trial: what is asked for, what is prepared, and the command."""
    script = """for lr in 0.1 0.2; do
    sbatch <<EOT
#!/bin/bash
#SBATCH --time=10:00
#SBATCH --output=logs/${lr}.out
module load cuda
python train.py --lr $lr --seed \\$SEED
EOT
done
"""
    found = converted(tmp_path, script, "")
    study = loads(found.text, "study.yaml")
    assert study.resources.time_limit_s == 600
    assert study.slurm.setup == ("module load cuda",)
    lines = commands_of(found, tmp_path)
    assert lines == [f"python train.py --lr {lr} --seed EDIT_ME" for lr in (0.1, 0.2)]


def test_the_script_that_is_submitted_says_what_it_asks_for(tmp_path: Path) -> None:
    """Its #SBATCH lines hold, but for what the command line says itself."""
    (tmp_path / "one.sh").write_text(
        "#!/bin/bash\n#SBATCH --time=60\n#SBATCH --mem=4G\npython train.py --lr $1\n"
    )
    script = """for lr in 0.1 0.2; do
  jobs='lr'_${lr}_'one'
  sbatch --job-name=${jobs} --mem=8G one.sh ${lr}
done
"""
    found = converted(tmp_path, script, "")
    study = loads(found.text, "study.yaml")
    assert (study.resources.time_limit_s, study.resources.memory_mb) == (3600, 8 * 1024)
    assert commands_of(found, tmp_path) == ["bash one.sh 0.1", "bash one.sh 0.2"]
    assert not any("holds a variable" in line for line in found.lost)


def test_an_array_for_each_job_is_said(tmp_path: Path) -> None:
    """Arrays of arrays have no counterpart; what to do is said, and no list is made up."""
    lines = "\n".join(f"sbatch --array=1-3 one.sh {lr}" for lr in (0.1, 0.2))
    found = converted(tmp_path, lines, "")
    assert commands_of(found, tmp_path) == ["bash one.sh 0.1", "bash one.sh 0.2"]
    assert any("sbatch --array=1-3: each job was an array" in line for line in found.lost)


def test_commands_of_other_options_are_not_one(tmp_path: Path) -> None:
    """What has an option more is no other value of the same command: it is left out, and named."""
    script = (
        "#SBATCH --time=60\npython train.py --lr 0.1\npython train.py --lr 0.2\n"
        "python train.py --lr 0.3 --slow\n"
    )
    found = converted(tmp_path, script, "")
    assert "--slow" in " ".join(loads(found.text, "study.yaml").command)
    named = [line for line in found.lost if "left out: " in line]
    assert len(named) == 1
    for lr in itertools.islice((0.1, 0.2), 2):
        assert f"python train.py --lr {lr}" in named[0]
