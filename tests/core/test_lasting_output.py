"""Output whose reader has ended stops nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SPEAKS = """\
import sys
from sweep.core.system.lasting_output import outlive_readers

if "lasting" in sys.argv:
    outlive_readers()
print("first", flush=True)
sys.stdin.read()
for _ in range(3):
    print("x" * 100_000)
    print("more", flush=True)
open(sys.argv[1], "w").write("went on")
"""


@pytest.mark.parametrize("word", ["lasting", "plain"])
def test_a_reader_that_ends(word: str, tmp_path: Path) -> None:
    """What is said later is dropped, and the end is a good one; without it, it was none."""
    reader, writer = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", SPEAKS, str(tmp_path / "end"), word],
        stdin=subprocess.PIPE,
        stdout=writer,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        first = stream.readline()
    child.communicate(b"")
    assert first == b"first\n"
    assert (child.returncode == 0) is (word == "lasting")
    assert (tmp_path / "end").exists() is (word == "lasting")
