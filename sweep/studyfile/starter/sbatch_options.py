"""The ``#SBATCH`` lines of a job script as ``resources`` and ``slurm``."""

from __future__ import annotations

import math
import re
from typing import Any

from sweep.studyfile.starter.draft import Draft

_OPTION = re.compile(
    r"^#SBATCH[ \t]+(--?[\w-]+)(?:[= \t]+([^\s#].*?))?[ \t]*(?:[ \t]#.*)?$", re.MULTILINE
)
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
    return _OPTION.search(text) is not None


def read_options(text: str) -> dict[str, str]:
    """Return the options of a script's ``#SBATCH`` lines by their long names."""
    options: dict[str, str] = {}
    for found in _OPTION.finditer(text):
        options[long_name(found[1])] = (found[2] or "").strip("\"'")
    return options


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
