"""The ``#SBATCH`` lines of a job script as ``resources`` and ``slurm``."""

from __future__ import annotations

import math
import re
from typing import Any

from sweep.core.shell_text import split_words
from sweep.studyfile.amounts import parse_duration
from sweep.studyfile.starter.draft import Draft

_LINE = re.compile(r"^#SBATCH[ \t]+(-.*)$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|[ \t])#.*$")
# Those without a value.
_ALONE = {
    *("requeue", "no-requeue", "exclusive", "hold", "parsable", "quiet", "wait", "overcommit"),
    *("oversubscribe", "verbose", "test-only", "spread-job", "reboot", "contiguous", "ignore-pbs"),
    *("use-min-nodes", "get-user-env", "nice", "H", "k", "Q", "s", "O", "v", "W"),
}
_SHORT = {
    "-t": "time",
    "-p": "partition",
    "-A": "account",
    "-q": "qos",
    "-C": "constraint",
    "-N": "nodes",
    "-c": "cpus-per-task",
    "-a": "array",
    "-J": "job-name",
    "-o": "output",
    "-e": "error",
    "-G": "gpus",
    "-n": "ntasks",
    "-w": "nodelist",
    "-x": "exclude",
    "-d": "dependency",
    "-D": "chdir",
    "-L": "licenses",
    "-M": "clusters",
    "-i": "input",
    "-H": "hold",
    "-s": "oversubscribe",
}


_LONG = (
    *(
        "account",
        "acctg-freq",
        "array",
        "batch",
        "bb",
        "bbf",
        "begin",
        "chdir",
        "cluster-constraint",
    ),
    *("clusters", "comment", "constraint", "container", "container-id", "contiguous", "core-spec"),
    *("cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot"),
    *("dependency", "distribution", "error", "exclude", "exclusive", "export", "export-file"),
    *("extra", "extra-node-info", "get-user-env", "gid", "gpu-bind", "gpu-freq", "gpus"),
    *("gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "help", "hint"),
    *("hold", "ignore-pbs", "input", "job-name", "kill-on-invalid-dep", "licenses", "mail-type"),
    *("mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus"),
    *("network", "nice", "no-kill", "no-requeue", "nodefile", "nodelist", "nodes", "ntasks"),
    *("ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "open-mode"),
    *("output", "overcommit", "oversubscribe", "parsable", "partition", "power", "prefer"),
    *("priority", "profile", "propagate", "qos", "quiet", "reboot", "requeue", "reservation"),
    *("segment", "signal", "sockets-per-node", "spread-job", "stepmgr", "switches", "test-only"),
    *("thread-spec", "threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task"),
    *("uid", "usage", "use-min-nodes", "verbose", "version", "wait", "wait-all-nodes", "wckey"),
    *("wrap",),
)


def long_name(option: str) -> str:
    """Return the name of an option of sbatch as its long form has it, without dashes."""
    if option in _SHORT:
        return _SHORT[option]
    name = option.lstrip("-")
    # As sbatch itself takes them: --err is --error, --part is --partition.
    longer = [one for one in _LONG if one.startswith(name)] if option.startswith("--") else []
    return longer[0] if len(longer) == 1 and len(name) > 1 else name


def is_sbatch(text: str) -> bool:
    """Tell whether a script has lines for sbatch."""
    return _LINE.search(text) is not None


def read_options(text: str) -> dict[str, str]:
    """Return the options of a script's ``#SBATCH`` lines by their long names; a line may have
    several."""
    options: dict[str, str] = {}
    for found in _LINE.finditer(text):
        line = _COMMENT.sub("", found[1]).strip()
        try:
            words = split_words(line)
        except ValueError:
            words = line.split()
        while words:
            more, place = part_options(words)
            options |= more
            words = words[place + 1 :]  # a word that is no option has no meaning to sbatch
    return options


def part_options(words: list[str]) -> tuple[dict[str, str], int]:
    """Return the options of sbatch that words begin with, and the place of what follows them."""
    options: dict[str, str] = {}
    place = 0
    while place < len(words) and words[place].startswith("-"):
        name, equals, value = words[place].partition("=")
        place += 1
        if not name.startswith("--") and len(name) > 2:
            name, value = name[:2], words[place - 1][2:].removeprefix("=")
        elif equals or _is_alone(name) or place == len(words):
            pass
        elif not re.match(r"--?[A-Za-z]", words[place]):  # -N -c 4: its value was forgotten
            value = words[place]
            place += 1
        options[long_name(name)] = value
    return options, place


def _is_alone(name: str) -> bool:
    return long_name(name) in _ALONE or name.lstrip("-") in _ALONE


def read_time(text: str) -> str | None:
    """Return a time limit of Slurm as D-HH:MM:SS; None for one that it does not take.

    Slurm takes M, M:S, H:M:S, D-H, D-H:M and D-H:M:S, with numbers of any size.
    """
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text)
    if found is None or (found[1] and found[4] and not found[3]):
        return None
    days, *parts = (int(one or 0) for one in found.groups())
    if found[1]:
        seconds = days * 86_400 + parts[0] * 3600 + parts[1] * 60 + parts[2]
    elif found[4]:
        seconds = parts[0] * 3600 + parts[1] * 60 + parts[2]
    else:
        seconds = parts[0] * 60 + parts[1]
    rest = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{seconds // 86_400}-{rest}" if seconds >= 86_400 else rest


def add_options(
    draft: Draft, options: dict[str, str], lost: list[str], *, is_ranked: bool = True
) -> None:
    """Add the options of sbatch, by their long names, as ``resources`` and ``slurm``.

    Args:
        is_ranked: Whether srun or MPI may start so many processes as there are tasks.
    """
    resources: dict[str, Any] = {}
    slurm: dict[str, Any] = {}
    extra: list[str] = []
    cpus_of_tasks = 0
    for name, value in options.items():
        if name == "array":
            width = re.search(r"%(\d+)$", value)
            draft.more["max_parallel"] = int(width[1]) if width else 4
        elif name == "time":
            if value.isdecimal() and int(value):
                resources["time"] = f"{value}min"
            elif parse_duration(value) is None and read_time(value):
                resources["time"] = read_time(value)
            elif value == "0" or value.lower() in ("unlimited", "infinite"):
                lost.append(
                    f"--time={value}: a study needs a limit of one trial; see resources.time"
                )
            else:
                resources["time"] = value
        elif name == "nodes" and value.isdecimal():
            if int(value) > 1:
                resources["nodes"] = int(value)
        elif name == "cpus-per-task" and value.isdecimal():
            resources["cpus"] = int(value)
        elif name == "mem":
            if value.rstrip("KMGTkmgtBb") == "0":
                lost.append(f"--mem={value}: all of a node's memory; see resources.memory")
            else:
                resources["memory"] = f"{value}M" if value.isdecimal() else value
        elif name in ("gres", "gpus", "gpus-per-node", "gpus-per-task"):
            parts = value.split(",") if name == "gres" else [value]
            gpus = [part for part in parts if len(parts) == 1 or part.startswith("gpu")]
            found = re.fullmatch(r"(?:gpu:)?(?:(?!gpu:)(\w[\w.-]*):)?(\d+)|gpu", ",".join(gpus))
            if found and len(parts) > 1:
                others = ",".join(part for part in parts if part not in gpus)
                lost.append(f"--gres={others}: has no counterpart here beside GPUs")
            if found:
                count = int(found[2] or 1)
                resources["gpus"] = f"{found[1]}:{count}" if found[1] else count
            else:
                lost.append(f"--{name}={value}: has no counterpart here; see resources.gpus")
        elif name in ("partition", "account", "qos", "constraint", "reservation"):
            slurm[name] = value
        elif name == "chdir":
            lost.append(
                f"--chdir={value}: trials run in a copy of the folder in which sweep launch is "
                "called; call it there"
            )
        elif name == "exclusive" and not value:
            slurm["exclusive"] = True
        elif name == "exclusive":
            lost.append(f"--exclusive={value}: has no counterpart here; see slurm.exclusive")
        elif name in ("job-name", "output", "error", "ntasks", "ntasks-per-node", "open-mode"):
            nodes = options.get("nodes", "1")
            is_one = not is_ranked and nodes.isdecimal() and value.isdecimal()
            if name.startswith("ntasks") and is_one and int(value) > 1 and int(nodes) > 0:
                # One process has the processors of all tasks.
                tasks = int(value) if name != "ntasks" else math.ceil(int(value) / int(nodes))
                each = options.get("cpus-per-task", "1")
                cpus = tasks * int(each) if each.isdecimal() else tasks
                cpus_of_tasks = max(cpus_of_tasks, cpus)
            elif name.startswith("ntasks") and value not in ("", "1"):
                lost.append(f"--{name}={value}: see the key launcher, and ddp.ranks_per_node")
        else:
            extra.append(f"--{name}={value}" if value else f"--{name}")
    if cpus_of_tasks:
        resources["cpus"] = cpus_of_tasks
        lost.append(
            f"ntasks: no srun starts so many processes; the one that there is has their processors "
            f"(cpus: {cpus_of_tasks})"
        )
    if extra:
        slurm["extra"] = extra
    if resources:
        draft.more["resources"] = resources
    if slurm:
        draft.more["slurm"] = slurm
