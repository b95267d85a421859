"""What stands around the command of a job script: variables before it, sbatch, a container."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sweep.core.shell_text import split_words
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.sbatch_text import cut, without_numbers

_CONTAINER = re.compile(
    r"^[ \t]*(?:srun\s.*?)?\b(singularity|apptainer)[ \t]+(?:exec|run)\b(.*?)"
    r"\b(?:bash|sh)[ \t]+-l?c[ \t]+[\"'](.*?)[\"']",
    re.MULTILINE | re.DOTALL,
)

_PROGRAMS = (
    r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|uv|poetry|apptainer|singularity|Rscript|"
    r"julia|mpirun|mpiexec|conda(?=\s+run)|mamba(?=\s+run)|micromamba(?=\s+run)|stdbuf|timeout|"
    r"numactl|xvfb-run|matlab|java|node|sbatch"
)
_SETTING = r"\w+=(?:\"[^\"\n]*\"|'[^'\n]*'|\$\(\(.*?\)\)|[^\s\"']*)[ \t]+"
COMMAND = re.compile(
    rf"^[ \t]*((?:time\s+|exec\s+|nohup\s+|env\s+|{_SETTING})*)"
    r"(?:\"?\$\{?SRUN\}?\"?\s+|srun\s+(?:[^|;&\n]*?\s)??)?"
    rf"(\"?(?:[\w.~${{}}/-]*/)?(?:{_PROGRAMS})(?=[\s\"])(?!\s*<<)[^\n]*|\./\S+[^\n]*)$",
    re.MULTILINE,
)


def read_command(line: str) -> tuple[str, str] | None:
    """Return the variables before a command, and the command; None for a line that is none."""
    found = COMMAND.match(line)
    return (found[1], cut(found[2])) if found else None


def run_here(command: list[str], lost: list[str]) -> list[str]:
    """Return a command without sbatch, and with the home folder in the place of "~"."""
    home = str(Path.home())
    command = [home + word[1:] if word.startswith("~/") else word for word in command]
    scripts = [i for i, word in enumerate(command) if i and not word.startswith("-")]
    if command[:1] != ["sbatch"] or not scripts:
        return command
    named = [i for i in scripts if re.search(r"\.\w+$", command[i])] or scripts
    script = command[named[0]]
    lost.append(f"sbatch: {script} runs as a part of each trial here")
    # What sbatch gives to the job's environment.
    given = [
        word.partition("=")[2].removeprefix("ALL,").split(",")
        for word in command[1 : named[0]]
        if word.startswith("--export=") and word.count("=") > 1
    ]
    words = [word for part in given for word in part]
    return [*(["env", *words] if words else []), "bash", *command[named[0] :]]


def with_variables(given: str, line: str, lost: list[str]) -> str:
    """Return a command with those variables before it that are not the same for all tasks."""
    varied = [word for word in _settings(given) if "$" in word]
    own = [word for word in varied if not word.startswith("CUDA_VISIBLE_DEVICES=")]
    if own != varied:
        lost.append("CUDA_VISIBLE_DEVICES: was left out; each trial is given its GPUs")
    return " ".join(["env", *own, line]) if own else line


def add_variables(draft: Draft, given: str, lost: list[str]) -> None:
    """Add the variables that stand before the command: ``A=1 python train.py``."""
    env: dict[str, Any] = {}
    for name, equals, value in (word.partition("=") for word in _settings(given)):
        if equals and "$" not in value:
            env[name] = value
    if env:
        draft.more["environment"] = {"env": env}


def _settings(text: str) -> list[str]:
    """Return the settings before a command, as words."""
    text = re.sub(r"\$\(\(.*?\)\)", lambda found: found[0].replace(" ", ""), text)
    try:
        return [without_numbers(word) for word in split_words(text) if "=" in word]
    except ValueError:
        return []


def leave_container(body: str, line: str, lost: list[str]) -> str:
    """Return a script without what a container runs by ``bash -c "…"``, and name that container."""
    found = _CONTAINER.search(body)
    if found is None or line.startswith(found[1]):
        return body
    inside = found[3]
    image = re.search(r"\S+\.(?:sif|simg|img)\b(?!:)|docker://\S+", found[2])
    lost.append(
        f"{found[1]}: the command runs in {image[0] if image else 'an image'}; see environment: "
        "{runtime: apptainer, image: …, binds: […]}"
        + (", and what is done there before it is left out" if "\n" in inside.strip() else "")
    )
    return body.replace(inside, "")


_TASK_ELSEWHERE = re.compile(r"\b(?:PBS_ARRAY_INDEX|PBS_ARRAYID|SGE_TASK_ID|LSB_JOBINDEX)\b")
_LINES_ELSEWHERE = re.compile(r"^#(BSUB|PBS|\$|COBALT|OAR)[ \t]+(-.*)$", re.MULTILINE)
_ARRAYS = {
    "PBS": re.compile(r"-(?:J|t)[ =]*(\d+(?:-\d+)?(?:[:%]\d+)*)"),
    "$": re.compile(r"-t[ =]*(\d+(?:-\d+(?::\d+)?)?)"),
    "BSUB": re.compile(r"-J[ =]*\"?[^\[\"]*\[([\d,:-]+)\](?:%\d+)?"),
}


def as_slurm(text: str, lost: list[str]) -> str:
    """Return a job script of PBS, SGE or LSF with its array as Slurm has it; say that its other
    lines are not read."""
    lines = _LINES_ELSEWHERE.findall(text)
    if not lines or re.search(r"^#SBATCH\b", text, re.MULTILINE):
        return text
    arrays = [
        found[1]
        for system, line in lines
        if system in _ARRAYS and (found := _ARRAYS[system].match(line))
    ]
    others = [
        line for system, line in lines if not (system in _ARRAYS and _ARRAYS[system].match(line))
    ]
    if others:
        shown = ", ".join(line.strip() for line in others[:4])
        lost.append(
            f"#{lines[0][0]} lines: are not Slurm's, and were not read ({shown}"
            + (", …" if len(others) > 4 else "")
            + "); write what a trial needs into resources and slurm"
        )
    text = _TASK_ELSEWHERE.sub("SLURM_ARRAY_TASK_ID", text)
    first, _, rest = text.partition("\n")
    return f"{first}\n#SBATCH --array={arrays[0]}\n{rest}" if arrays else text
