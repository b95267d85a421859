"""What bash really runs in the tasks of a script: its programs are stubs that note their words."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.studyfile.starter.bash_state import UNKNOWN, NotKnown, Ran
from sweep.studyfile.starter.bash_tasks import run_tasks
from sweep.studyfile.starter.sbatch_around import read_command
from sweep.studyfile.starter.sbatch_text import straighten

_NOTED = """
accelerate apptainer conda deepspeed java julia mamba matlab micromamba mpiexec mpirun node numactl
poetry python python2 python3 python3.10 python3.8 Rscript sbatch singularity stdbuf timeout
torchrun uv xvfb-run
"""
_SILENT = "cp git hostname mkdir ml module mv nvidia-smi pip rm scontrol sleep touch"
_REAL = """
awk basename cat cut dirname echo env expr grep head nice nohup sed seq sort tail tr wc xargs
"""
_NOTE = '#!/bin/sh\nprintf \'%s\\0\' "$#" "${0##*/}" "$@" >>"$NOTED"\n'
_SRUN = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    */*) [ -x "$1" ] && break;;
    -*|*=*|[0-9]*) ;;
    *) command -v "$1" >/dev/null && break;;
  esac
  shift
done
exec "$@"
"""
_BASH = """#!/bin/sh
case "$1" in -c|-lc) shift; exec /bin/bash -c "$@";; esac
""" + _NOTE.partition("\n")[2]
TASK = "SLURM_ARRAY_TASK_ID"
CASES = Path(__file__).parent / "intake" / "bash_real.txt"
_CASE = re.compile(r"^=== (.*)\n((?:(?!===).*\n)*)", re.MULTILINE)
FILES = {
    name.removeprefix("file "): text.rstrip("\n").replace("\\n", "\n").replace("\\r", "\r")
    for name, text in _CASE.findall(CASES.read_text())
    if name.startswith("file ")
}


def read_cases() -> list[object]:
    """Return the scripts of ``bash_real.txt``, and whether all that they run is known."""
    return [
        pytest.param(text, not name.startswith("? "), id=name.removeprefix("? "))
        for name, text in _CASE.findall(CASES.read_text())
        if not name.startswith("file ")
    ]


def make_stubs(folder: Path) -> Path:
    """Write the stubs into a folder; return it."""
    folder.mkdir()
    texts = {
        **dict.fromkeys(_NOTED.split(), _NOTE),
        **dict.fromkeys(_SILENT.split(), "#!/bin/sh\n"),
        **dict.fromkeys(("bash", "sh"), _BASH),
        "srun": _SRUN,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    for name in _REAL.split():
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def ask_bash(
    script: str,
    task: int | None,
    folder: Path,
    stubs: Path,
    names: dict[str, str],
    before: tuple[str, ...] = (),
) -> list[tuple[str, ...]] | None:
    """Return the commands that a script runs in a task; None where it has an error of syntax, or
    does not end."""
    path, noted = folder / ".job.sh", stubs.parent / "noted"
    path.write_bytes(script.encode())
    noted.write_bytes(b"")
    number = {} if task is None else {TASK: str(task)}
    more = {"PATH": str(stubs), "NOTED": str(noted), "HOME": str(Path.home())}
    try:
        done = subprocess.run(
            [*before, "/bin/bash", str(path)],
            env={**names, **number, **more, "LC_ALL": "C.UTF-8"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=5,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    path.unlink()
    if done.returncode == 2 and b"syntax error" in done.stderr:
        return None
    words = noted.read_bytes().decode().split("\0")[:-1]
    found: list[tuple[str, ...]] = []
    while words:
        end = 2 + int(words[0])
        found.append(tuple(words[1:end]))
        words = words[end:]
    own = [_without_code(one) for one in found]
    return [one for one in own if read_command(shlex.join(one))]


def _without_code(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command without the code of ``python -c``, which is not gone through."""
    place = next((i for i, word in enumerate(words) if i and not word.startswith("-")), 0)
    if not words[0].startswith("python") or words[place - 1] != "-c":
        return words
    return (*words[:place], "", *words[place + 1 :])


def find_difference(
    script: str,
    task: int | None,
    folder: Path,
    stubs: Path,
    names: dict[str, str],
    before: tuple[str, ...] = (),
) -> str:
    """Return how what is said of a task is not what bash runs in it: "" where it is the same,
    "not known" where that is said, otherwise both."""
    right = ask_bash(script, task, folder, stubs, names, before)
    if right is None:
        return "no bash"
    tasks = [] if task is None else [task]
    try:
        (ran,) = run_tasks(straighten(script), folder, tasks, names, read_command)
    except (NotKnown, RecursionError):
        return "not known"
    home = str(Path.home())
    ran = [
        replace(one, words=tuple(re.sub("^~(?=/)", home, word) for word in one.words))
        for one in ran
    ]
    left = Counter(right)
    marked: list[Ran] = []
    for one in ran:
        if any(UNKNOWN in word for word in one.words):
            marked.append(one)
        elif left[one.words]:
            left[one.words] -= 1
        else:
            return f"task {task}: bash does not run {one.words}, but {right}"
    for one in marked:
        fits = next((row for row in left if left[row] and _fits(one, row)), None)
        if fits is None:
            return f"task {task}: bash does not run {one.words}, but {right}"
        left[fits] -= 1
    for row in left.elements():
        if not re.search(rf"(?:\$\(|`|<\()[^)`]*{re.escape(row[0])}", script):
            return f"task {task}: bash runs {row} too, beside {[one.words for one in ran]}"
    return "not known" if marked else ""


def _fits(one: Ran, row: tuple[str, ...]) -> bool:
    """Tell whether a command is one of which parts are not known."""
    pattern = re.escape(" ".join(one.words))
    pattern = re.sub(rf"(?:\\ )?{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN}(?:\\ )?", r"[\\s\\S]*", pattern)
    return re.fullmatch(pattern, " ".join(row)) is not None
