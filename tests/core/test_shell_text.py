"""The commands of a shell script, as they are read without running it."""

from __future__ import annotations

from sweep.core.shell_text import list_commands

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
