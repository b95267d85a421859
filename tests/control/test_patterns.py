"""A pattern that may read another number than it should is told at launch; nothing is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.control.check import WARNING, patterns
from sweep.core.space import Parameter, Space
from sweep.core.study import Objective, Study

BOTH = 'print(f"train_loss={a} val_loss={b}")\n'
SPACE = Space((Parameter("lr", "float", low=0.0, high=1.0),))


@pytest.mark.parametrize(
    ("script", "pattern", "said"),
    [
        (BOTH, "loss=([0-9.]+)", "matches 'train_loss' and 'val_loss', which the script prints"),
        (BOTH, ".*loss=([0-9.]+)", "'train_loss' and 'val_loss'"),
        (BOTH, "val_loss=([0-9.]+)", ""),
        (BOTH, r"\bloss=([0-9.]+)", ""),
        ('print(f"loss={a} val_loss={b}")', "loss=([0-9.]+)", ""),
        (
            'print("train loss %.3f, val loss %.3f" % x)',
            "loss ([0-9.]+)",
            "'train loss' and 'val loss'",
        ),
        ("fit(train_loss=a, val_loss=b)", "loss=([0-9.]+)", ""),
        ("", r"(\d+) acc=([0-9.]+)", "has several groups, and the first that takes part is"),
        ("", r"acc=([0-9.]+)|accuracy ([0-9.]+)", ""),
        ("", None, ""),
    ],
)
def test_what_a_pattern_may_read(
    tmp_path: Path, script: str, pattern: str | None, said: str
) -> None:
    (tmp_path / "t.py").write_text(script)
    objective = Objective("loss", pattern=pattern)
    study = Study("s", ("python", "t.py"), (objective,), SPACE, trials=4, workdir=str(tmp_path))
    lines = patterns.look(study)
    assert [line.state for line in lines] == [WARNING] * bool(said)
    assert all(said in line.text and line.advice for line in lines)


@pytest.mark.parametrize(
    ("command", "script", "is_said"),
    [
        ("accelerate launch t.py", "print(f'loss={x}')", True),
        ("accelerate launch --tee=3 t.py", "print(f'loss={x}')", False),
        ("accelerate launch t.py", "accelerator.print(f'loss={x}')", False),
        ("mpirun -n 2 python t.py", "print(f'loss={x}')", True),
        ("mpirun --tag-output -n 2 python t.py", "print(f'loss={x}')", False),
        ("mpiexec -l -n 2 python t.py", "print(f'loss={x}')", False),
        ("mpirun -n 2 python t.py", "if comm.Get_rank() == 0:\n    print(f'loss={x}')", False),
        ("torchrun --nproc-per-node 2 t.py", "print(f'loss={x}')", False),
        ("srun -n 2 python t.py", "print(f'loss={x}')", True),
        ("srun --label -n 2 python t.py", "print(f'loss={x}')", False),
        ("python t.py", "print(f'loss={x}')", False),
    ],
)
def test_lines_of_several_processes(
    tmp_path: Path, command: str, script: str, is_said: bool
) -> None:
    """What nothing tells apart is said: a step that two ranks print would count twice."""
    (tmp_path / "t.py").write_text(script)
    for pattern in ("loss=([0-9.]+)", None):
        objective = Objective("loss", pattern=pattern)
        words = tuple(command.split())
        study = Study("s", words, (objective,), SPACE, trials=4, workdir=str(tmp_path))
        said = [line.text for line in patterns.look(study) if "several processes" in line.text]
        assert bool(said) == (is_said and pattern is not None)
