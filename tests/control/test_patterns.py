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
