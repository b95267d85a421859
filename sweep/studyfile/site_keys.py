"""Keys that say what a trial needs and where it runs: resources, Slurm, the environment."""

from __future__ import annotations

from sweep.core.study import Ddp, Environment, Resources, Service, Slurm
from sweep.studyfile.amounts import Duration, Memory
from sweep.studyfile.kinds import Gpus, PortRange, Variables
from sweep.studyfile.rules import Flag, Text, TextList, Whole, Word
from sweep.studyfile.sections import Key, Section

SLURM_WORD = Text(pattern=r"[^\s\"'`$\\;|<>]+", rule="must be a word as sbatch takes it")

RESOURCES = Section(
    "resources",
    (
        Key(
            "time",
            Duration(),
            "Time limit of a task. Absent: the site's default.",
            None,
            "00:30:00",
            "time_limit_s",
            ("time_limit", "walltime", "timeout"),
        ),
        Key("nodes", Whole(1, 100_000), "Nodes of a trial.", 1, 1),
        Key(
            "gpus",
            Gpus(),
            "GPUs of a trial on each node: a number, or type:number.",
            0,
            "a100:2",
            aliases=("gpu", "gres", "num_gpus", "gpus_per_node"),
        ),
        Key(
            "shard",
            Whole(1, 100_000),
            "Shares of one GPU instead of whole ones (--gres=shard:N).",
            None,
            16,
            aliases=("shards",),
        ),
        Key("mps", Whole(1, 100_000), "Per cent of one GPU through MPS.", None, 50),
        Key(
            "cpus",
            Whole(1, 100_000),
            "CPU cores of a trial on each node. Absent: the site's default; locally one.",
            None,
            4,
            aliases=("cpu", "cores", "threads", "cpus_per_task", "num_cpus"),
        ),
        Key(
            "memory",
            Memory(),
            "Memory of a trial on each node. Absent: the site's default.",
            None,
            "8G",
            "memory_mb",
            ("mem", "ram", "memory_gb", "memory_mb"),
        ),
    ),
    Resources,
    {"partition": "slurm.partition", "account": "slurm.account", "qos": "slurm.qos"},
)

SERVICE = Section(
    "slurm.service",
    (
        Key("partition", SLURM_WORD, "Partition of the small jobs.", None, "cpu"),
        Key(
            "time",
            Duration(60),
            "Time limit of the small jobs.",
            None,
            "7-00:00:00",
            "time_limit_s",
        ),
        Key(
            "extra", TextList(), "Further options of sbatch for the small jobs.", (), ["--qos=long"]
        ),
    ),
    Service,
)

SLURM = Section(
    "slurm",
    (
        Key("partition", SLURM_WORD, "Partition.", None, "gpu", aliases=("partitions", "queue")),
        Key("account", SLURM_WORD, "Account that is charged.", None, "proj1"),
        Key("qos", SLURM_WORD, "Quality of service.", None, "normal"),
        Key(
            "constraint",
            Text(pattern=r"[^\s\"'`$\\;<>]+", rule="must be a constraint"),
            "Features that the nodes must have.",
            None,
            "a100|h100",
            aliases=("constraints",),
        ),
        Key("reservation", SLURM_WORD, "Reservation to run in.", None, "course"),
        Key("exclusive", Flag(), "Whole nodes only.", False, True),
        Key(
            "setup",
            TextList(),
            "Shell lines that run in each task before anything else.",
            (),
            ["module load cuda/12.4"],
            aliases=("modules", "prolog"),
        ),
        Key(
            "extra",
            TextList(),
            "Further options of sbatch.",
            (),
            ["--exclude=node17"],
            aliases=("options", "sbatch", "args"),
        ),
        Key(
            "slots",
            Whole(1, 1000),
            "Trials that one task serves side by side, on one node; it "
            "asks for so many times resources. No more than max_parallel are used.",
            1,
            4,
        ),
        Key(
            "service",
            SERVICE,
            "The small jobs that hold the embedded database and finish the study.",
            Service(),
            {"partition": "cpu"},
        ),
    ),
    Slurm,
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
    (
        Key(
            "ranks_per_node",
            Whole(1, 10_000),
            "Processes of a trial on each node. Absent: one a GPU, or one.",
            None,
            2,
            aliases=("nproc_per_node", "ranks", "processes", "nproc"),
        ),
        Key(
            "port_range",
            PortRange(),
            "First and last port at which ranks may meet; each trial gets one of its own.",
            (20000, 29999),
            [20000, 29999],
            aliases=("ports", "port"),
        ),
        Key(
            "interface",
            Text(
                pattern=r"[A-Za-z0-9_.:@-]+(,[A-Za-z0-9_.:@-]+)*",
                rule="must be the name of a network interface",
            ),
            "Network interface by which ranks talk. Absent: gloo and NCCL choose.",
            None,
            "ib0",
            aliases=("ifname", "network", "nic"),
        ),
        Key(
            "ib",
            Word(("off", "on")),
            "Whether NCCL uses InfiniBand. Absent: where it finds some.",
            None,
            "off",
            aliases=("infiniband",),
        ),
        Key(
            "debug",
            Word(("off", "info", "detail")),
            "What NCCL and torch.distributed print.",
            "off",
            "info",
        ),
        Key(
            "timeout_s",
            Whole(5, 86_400),
            "Seconds of silence of a rank after which the others "
            "give up. Absent: the training's own limit.",
            None,
            50,
            aliases=("timeout",),
        ),
    ),
    Ddp,
)

RUNTIMES = ("none", "venv", "conda", "modules", "apptainer", "singularity", "enroot", "pyxis")
ENVIRONMENT = Section(
    "environment",
    (
        Key(
            "runtime",
            Word(RUNTIMES, {"docker": "apptainer", "podman": "apptainer"}),
            "What brings the training's software.",
            "none",
            "apptainer",
            aliases=("type", "kind"),
        ),
        Key(
            "image",
            Text(),
            "The image: a file, a folder, a registry's name (docker://...), a "
            "definition (.def) or an archive of Docker's (.tar); with venv the environment's "
            "folder or a requirements.txt, with conda its name, folder or lock file. What is no "
            "image yet is built once, by sweep build or launch.",
            None,
            "train.sif",
            aliases=("container", "path"),
        ),
        Key(
            "unpack",
            Flag(),
            "Build a folder instead of one file (apptainer): many files, but no "
            "file server that a signal of Slurm's ends too.",
            False,
            True,
            aliases=("sandbox",),
        ),
        Key(
            "build",
            Word(("here", "job")),
            "Where the image is built: on this machine, or in a job, on slurm.service's partition.",
            "here",
            "job",
        ),
        Key(
            "binds",
            TextList(
                Text(
                    pattern=r"[^:]+(:[^:]+(:(ro|rw))?)?",
                    rule="must be source[:destination[:ro]]",
                    advice='For example "/data:/data:ro".',
                )
            ),
            "Folders that the container sees.",
            (),
            ["/data:/data:ro"],
            aliases=("bind", "mounts", "volumes"),
        ),
        Key(
            "workdir",
            Text(),
            "Folder inside the container in which training starts.",
            None,
            "/work",
            aliases=("pwd", "cwd"),
        ),
        Key(
            "gpu",
            Word(("auto", "nvidia", "rocm", "none"), {"cuda": "nvidia", "amd": "rocm"}),
            "GPU support of the container.",
            "auto",
            "nvidia",
        ),
        Key(
            "env",
            Variables(),
            "Variables for training. One without a value passes that of the launching shell.",
            {},
            {"OMP_NUM_THREADS": 4},
            aliases=("variables", "environment"),
        ),
        Key(
            "setup",
            TextList(),
            "Shell lines that run before training: inside the container; "
            "with modules and conda in bash on the node.",
            (),
            ["module load cuda/12.4"],
        ),
        Key(
            "options",
            TextList(),
            "Further options of the container's program, one argument each.",
            (),
            ["--cleanenv"],
            aliases=("extra", "args"),
        ),
        Key("remap_root", Flag(), "Be root inside (enroot, pyxis).", False, True),
        Key("name", SLURM_WORD, "Name of the container (enroot, pyxis).", None, "train"),
    ),
    Environment,
)
