"""The example script that knows nothing of sweep."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numpy")
SCRIPT = Path(__file__).parents[2] / "studies" / "scripts" / "plain_train.py"


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *argv], capture_output=True, text=True)


def test_it_prints_one_line_an_epoch_and_learns() -> None:
    """The lines that a study's pattern reads; the last is far above chance."""
    done = run("--epochs", "12", "--lr", "0.01", "--hidden", "32", "--activation", "relu")
    found = re.findall(r"^epoch (\d+) val_acc=([0-9.]+)$", done.stdout, re.MULTILINE)
    assert [int(epoch) for epoch, _ in found] == list(range(1, 13))
    assert float(found[-1][1]) > 0.9


def test_it_repeats_itself_and_its_flags_matter() -> None:
    """The same flags print the same; another seed or activation does not."""
    first = run("--epochs", "3").stdout
    assert run("--epochs", "3").stdout == first
    assert run("--epochs", "3", "--seed", "1").stdout != first
    assert run("--epochs", "3", "--activation", "tanh").stdout != first


def test_it_knows_nothing_of_sweep() -> None:
    """Not a word of it in the code: the script is an unmodified one."""
    code = SCRIPT.read_text().split('"""', 2)[2]
    assert "sweep" not in code.lower()


def test_bad_flags_end_with_code_two() -> None:
    """As argparse does."""
    assert run("--lr", "0").returncode == 2
