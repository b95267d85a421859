"""Keys that say what a trial needs and where it runs: resources, Slurm, the environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

from sweep.core.secrets import is_secret
from sweep.core.study import Ddp, Environment, Resources, Service, Slurm
from sweep.studyfile.amounts import Duration, Memory
from sweep.studyfile.kinds import Gpus, PortRange, Variables
from sweep.studyfile.rules import INVALID, Boolean, Entry, Text, TextList, Whole, Word
from sweep.studyfile.sections import Key, Section
from sweep.studyfile.share_keys import ShareRule


@dataclass(frozen=True)
class PathText(Text):
    """Text in which $NAME and ${NAME} are variables of the launching shell."""

    def read(self, at: Entry) -> Any:
        value = super().read(at)
        names = set(_VARIABLE.findall(value)) if value is not INVALID else set()
        if _NGC_USER not in os.environ:
            names.discard(f"${_NGC_USER}")  # stays as it is: a user's name
        for name in sorted(one.strip("${}") for one in names):
            if name not in os.environ:
                advice = "Set it where you launch, or write the path."
                return at.report(f"names ${name}, which is not set here", advice)
            if is_secret(name, os.environ[name]):
                return at.report(f"names ${name}, which may be a secret", "Write the path.")
        return value if value is INVALID else os.path.expandvars(value)


_NGC_USER = "oauthtoken"  # of nvcr.io, with its $
_VARIABLE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})", re.ASCII)
SLURM_WORD = Text(pattern=r"[^\s\"'`$\\;|<>]+", rule="must be a word as sbatch takes it")

RESOURCES = Section(
    "resources",
    Resources,
    {
        "time": Key(
            Duration(),
            "Time limit of a task. Absent: the site's default.",
            example="00:30:00",
            aliases="time_limit walltime timeout",
            field="time_limit_s",
        ),
        "nodes": Key(Whole(1, 100_000), "Nodes of a trial."),
        "gpus": Key(
            Gpus(),
            "GPUs of a trial on each node: a number, or type:number.",
            example="a100:2",
            aliases="gpu gres num_gpus gpus_per_node",
        ),
        "shard": Key(
            Whole(1, 100_000),
            "Shares of one GPU instead of whole ones (--gres=shard:N).",
            example=16,
            aliases="shards",
        ),
        "mps": Key(Whole(1, 100_000), "Per cent of one GPU through MPS.", example=50),
        "share": Key(
            ShareRule(),
            "Several trials on each GPU: auto finds by measurement how many, a number is taken as "
            "it is. cpus and memory are then what the trials of a GPU have together.",
            example="auto",
            aliases="pack packing trials_per_gpu",
        ),
        "cpus": Key(
            Whole(1, 100_000),
            "CPU cores of a trial on each node. Absent: the site's default; locally one.",
            example=4,
            aliases="cpu cores threads cpus_per_task num_cpus",
        ),
        "memory": Key(
            Memory(),
            "Memory of a trial on each node. Absent: the site's default.",
            example="8G",
            aliases="mem ram memory_gb memory_mb",
            field="memory_mb",
        ),
    },
    {"partition": "slurm.partition", "account": "slurm.account", "qos": "slurm.qos"},
)

SERVICE = Section(
    "slurm.service",
    Service,
    {
        "partition": Key(SLURM_WORD, "Partition of the small jobs.", example="cpu"),
        "time": Key(
            Duration(60),
            "Time limit of the small jobs.",
            example="7-00:00:00",
            field="time_limit_s",
        ),
        "qos": Key(SLURM_WORD, "Quality of service of the small jobs.", example="long"),
        "extra": Key(
            TextList(), "Further options of sbatch for the small jobs.", example=["--nice=100"]
        ),
    },
)

SLURM = Section(
    "slurm",
    Slurm,
    {
        "partition": Key(SLURM_WORD, "Partition.", example="gpu", aliases="partitions queue"),
        "account": Key(SLURM_WORD, "Account that is charged.", example="proj1"),
        "qos": Key(SLURM_WORD, "Quality of service.", example="normal"),
        "constraint": Key(
            Text(pattern=r"[^\s\"'`$\\;<>]+", rule="must be a constraint"),
            "Features that the nodes must have.",
            example="a100|h100",
            aliases="constraints",
        ),
        "reservation": Key(SLURM_WORD, "Reservation to run in.", example="course"),
        "exclusive": Key(Boolean(), "Whole nodes only.", example=True),
        "setup": Key(
            TextList(),
            "Shell lines that run in each task before anything else.",
            example=["module load cuda/12.4"],
            aliases="modules prolog",
        ),
        "extra": Key(
            TextList(),
            "Further options of sbatch.",
            example=["--exclude=node17"],
            aliases="options sbatch args",
        ),
        "slots": Key(
            Whole(1, 1000),
            "Trials that one task serves side by side, on one node; it asks for so many times "
            "resources. No more than max_parallel are used.",
            example=4,
        ),
        "service": Key(
            SERVICE,
            "The small jobs that hold the embedded database and finish the study.",
            example={"partition": "cpu"},
        ),
    },
    {
        "time": "resources.time",
        "gpus": "resources.gpus",
        "gres": "resources.gpus",
        "cpus": "resources.cpus",
        "cpus_per_task": "resources.cpus",
        "nodes": "resources.nodes",
        "mem": "resources.memory",
        "memory": "resources.memory",
    },
)

DDP = Section(
    "ddp",
    Ddp,
    {
        "ranks_per_node": Key(
            Whole(1, 10_000),
            "Processes of a trial on each node. Absent: one a GPU, or one.",
            example=2,
            aliases="nproc_per_node ranks processes nproc",
        ),
        "port_range": Key(
            PortRange(),
            "First and last port at which ranks may meet; each trial gets one of its own.",
            example=[20000, 29999],
            aliases="ports port",
        ),
        "interface": Key(
            Text(
                pattern=r"[A-Za-z0-9_.:@-]+(,[A-Za-z0-9_.:@-]+)*",
                rule="must be the name of a network interface",
            ),
            "Network interface by which ranks talk. Absent: gloo and NCCL choose.",
            example="ib0",
            aliases="ifname network nic",
        ),
        "ib": Key(
            Word(("off", "on")),
            "Whether NCCL uses InfiniBand. Absent: where it finds some.",
            example="off",
            aliases="infiniband",
        ),
        "debug": Key(
            Word(("off", "info", "detail")),
            "What NCCL and torch.distributed print.",
            example="info",
        ),
        "timeout_s": Key(
            Whole(5, 86_400),
            "Seconds of silence of a rank after which the others give up. Absent: the training's "
            "own limit.",
            example=50,
            aliases="timeout",
        ),
    },
)

RUNTIMES = ("none", "venv", "conda", "modules", "apptainer", "singularity", "enroot", "pyxis")
ENVIRONMENT = Section(
    "environment",
    Environment,
    {
        "runtime": Key(
            Word(RUNTIMES, {"docker": "apptainer", "podman": "apptainer"}),
            "What brings the training's software.",
            example="apptainer",
            aliases="type kind",
        ),
        "image": Key(
            PathText(),
            "The image: a file, a folder, a registry's name (docker://ubuntu:24.04, "
            "nvcr.io#nvidia/pytorch:24.01-py3), a definition (.def) or an "
            "archive of Docker's (.tar); with venv the environment's folder or a "
            "requirements.txt, with conda its name, folder or lock file. What is no image yet is "
            "built once, by sweep build or launch.",
            example="train.sif",
            aliases="container path",
        ),
        "unpack": Key(
            Boolean(),
            "Build a folder instead of one file (apptainer): many files, but no file server that a "
            "signal of Slurm's ends too.",
            example=True,
            aliases="sandbox",
        ),
        "build": Key(
            Word(("auto", "here", "job")),
            "Where the image is built: here, on this machine, or in a job, on slurm.service's "
            "partition, before the study's tasks start; auto: in a job where the study runs on a "
            "cluster.",
            example="here",
        ),
        "binds": Key(
            TextList(
                PathText(
                    pattern=r"[^:]+(:[^:]+(:(ro|rw))?)?",
                    rule="must be source[:destination[:ro]]",
                    advice='For example "/data:/data:ro".',
                )
            ),
            "Folders that the container sees; ~ and $NAME stand for your own.",
            example=["/data:/data:ro"],
            aliases="bind mounts volumes",
        ),
        "workdir": Key(
            Text(),
            "Folder inside the container in which training starts.",
            example="/work",
            aliases="pwd cwd",
        ),
        "gpu": Key(
            Word(("auto", "nvidia", "rocm", "none"), {"cuda": "nvidia", "amd": "rocm"}),
            "GPU support of the container.",
            example="nvidia",
        ),
        "env": Key(
            Variables(),
            "Variables for training. One without a value passes that of the launching shell.",
            example={"OMP_NUM_THREADS": 4},
            aliases="variables environment",
        ),
        "setup": Key(
            TextList(),
            "Shell lines that run before training: inside the container; with modules and conda in "
            "bash on the node.",
            example=["module load cuda/12.4"],
        ),
        "options": Key(
            TextList(),
            "Further options of the container's program, one argument each.",
            example=["--cleanenv"],
            aliases="extra args",
        ),
        "make_binds": Key(
            Boolean(),
            "Make the folders of binds that are not there, where a task finds them missing; those "
            "with :ro must be there.",
            example=True,
        ),
        "remap_root": Key(Boolean(), "Be root inside (enroot, pyxis).", example=True),
        "name": Key(
            SLURM_WORD,
            "Name of the container (enroot, pyxis). With pyxis and without image: one that you "
            "have made on the nodes.",
            example="train",
        ),
    },
)
