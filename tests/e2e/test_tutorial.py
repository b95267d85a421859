"""docs/tutorial-laptop.md: its commands, as they are written, print what it says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Sweep
from tests.tutorial import Block, check, read_blocks

pytestmark = pytest.mark.real


def test_what_the_page_may_leave_open() -> None:
    """Ellipses stand for something, and all else has to be there."""
    block = Block("x\n", "a … c\n…\nlast  1\n")
    for printed in ("a b c\nlast 1\n", "a  c\nany\n\nlast   1\n"):
        check(block, printed)
    for printed in ("a b\nlast 1\n", "a b c\nlast 2\n", "a b c\n", "x\na b c\nlast 1\n"):
        with pytest.raises(AssertionError):
            check(block, printed)


def test_the_tutorial_for_a_laptop(sweep: Sweep, tmp_path: Path, monkeypatch: Any) -> None:
    """Line by line; what is no command of sweep's is run by a shell."""
    pytest.importorskip("vl_convert", reason="vl-convert-python (extra: report)")
    home = tmp_path / "home"
    (home / ".venvs/sweep/bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    here, commands = tmp_path, 0
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT)}
    for block in read_blocks("tutorial-laptop.md"):
        printed = ""
        for line in block.commands.splitlines():
            word, *rest = shlex.split(line)
            if word == "sweep":
                # In runs/ beside the study, as without the tests' variable.
                ran = sweep(*rest, cwd=here, env={"SWEEP_RUNS": None, "COLUMNS": "100"})
                assert ran.code == 0, (line, ran)
                printed, commands = printed + ran.out, commands + 1
            elif word == "cd":
                here = here / rest[0]
            else:
                done = subprocess.run(
                    ["bash", "-c", line], cwd=here, env=env, capture_output=True, text=True
                )
                assert done.returncode == 0, (line, done.stderr)
                printed += done.stdout
        check(block, printed)
    assert commands == 8
