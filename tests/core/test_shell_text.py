"""The commands of a shell script, as they are read without running it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sweep.core import placeholders
from sweep.core.shell_text import MOST_CHARACTERS, TooLong, list_commands

SCRIPT = """\
#!/bin/bash
set -e
export A=1; cd x && B=2 torchrun --n 2 \\
   train.py "a b" | tee log
if [ -z "$RANK" ]; then
  exec accelerate launch x.py
else python x.py; fi
cat <<EOF > f
mpirun no
EOF
(cd y; mpirun -n 2 x) &
f() { deepspeed x; }
echo "srun
no"
case $x in a) horovodrun z ;; esac
time srun python t.py  # torchrun
"""


def test_commands_with_their_lines() -> None:
    """What may not run is told from what does; texts, comments and here-documents are none."""
    found = [(c.words[0], c.line, c.is_certain) for c in list_commands(SCRIPT)]
    assert found == [
        ("set", 2, True),
        ("export", 3, True),
        ("cd", 3, True),
        ("torchrun", 3, True),
        ("tee", 3, True),
        ("[", 5, False),
        ("exec", 6, False),
        ("python", 7, False),
        ("cat", 8, True),
        ("cd", 11, True),
        ("mpirun", 11, True),
        ("f", 12, True),
        ("deepspeed", 12, False),
        ("horovodrun", 15, False),
        ("srun", 16, True),
    ]
    assert next(list_commands("python a \\\n  'b c'\n")).words == ("python", "a", "b c")
    assert list(list_commands("")) == []


@pytest.mark.parametrize("read", [lambda text: list(list_commands(text)), placeholders.names])
def test_a_word_of_a_megabyte_takes_no_time(read: Any) -> None:
    """The time rises with the length, not with its square: that took 3 s for 300,000 letters."""

    def cpu_s(length: int) -> float:
        text, began = "x" * length, time.process_time()
        read(f"python {text}" + "{{{lr}")
        return time.process_time() - began

    assert cpu_s(1 << 20) < 2.0


def test_a_command_is_no_longer_than_an_argument_can_be() -> None:
    """The system takes no longer one; a line of a script that is longer is no command."""
    word = "x" * (MOST_CHARACTERS - len("python "))
    assert placeholders.split(f"python {word}") == ["python", word]
    with pytest.raises(TooLong, match="131,072 characters"):
        placeholders.split(f"python {word}x")
    assert [c.words[0] for c in list_commands(f"echo a\necho {word}xxx\necho b")] == ["echo"] * 2
