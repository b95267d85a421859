"""What starts the processes of one trial: the command itself, torchrun on each node, or srun.

argv = srun(container(torchrun(the user's command))): srun starts processes on other hosts and
stands outside, torchrun runs in the software that the environment brings.

- ``python``: one process; whatever it starts is its own affair.
- ``torchrun``: ``python -m torch.distributed.run`` with a static rendezvous, one on each node; on
  several nodes srun starts these.
- ``srun``: srun starts the ranks, which read their place from SLURM_PROCID and its like.
- with Pyxis a single process is srun's too: the container is an option of srun.
- ``auto``: python for one rank, and for a command that starts its ranks itself or is no Python;
  torchrun for several on one node, where it needs no Slurm and says which rank failed first, also
  for one where the study says ``ddp``; srun for several nodes.

torchrun stands inside of what wraps the command (``uv run``, ``conda run``, ``nice``): it is a
module of the Python that the command has.

Each line of output begins with its rank: ``[rank1]: `` under torchrun, ``1: `` under srun.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.executors import kind_of
from sweep.core.programs import INTERPRETER, LAUNCHER, read_program
from sweep.core.programs import PYTHON as IS_PYTHON
from sweep.core.study import Ddp, Study
from sweep.core.wrappers import MPI
from sweep.training.command import rank_labels, rendezvous
from sweep.training.command.outer_launchers import is_of_launcher
from sweep.training.command.rank_labels import of_first, of_first_foreign
from sweep.training.command.rendezvous import Rendezvous

AUTO, PYTHON, TORCHRUN, SRUN = "auto", "python", "torchrun", "srun"
PYXIS = "pyxis"  # the runtime that is a part of srun

# Options of srun by environment, as the batch job has them: some newer ones refuse to go with what
# the command line says (SLURM_TRES_PER_TASK with --cpus-per-task).
_OF_BATCH = (
    "SLURM_TRES_PER_TASK",
    "SLURM_CPUS_PER_TASK",
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NNODES",
    "SLURM_DISTRIBUTION",
    "SLURM_CPU_BIND",
    "SLURM_EXPORT_ENV",
    "SLURM_UNBUFFEREDIO",
)
# torchrun's own options by environment; srun says which node a process is on.
_ON_EACH_NODE = (
    "import os, runpy; os.environ['PET_NODE_RANK'] = os.environ['SLURM_NODEID']; "
    "runpy.run_module('torch.distributed.run', run_name='__main__', alter_sys=True)"
)
_PREFIX = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
RANKS_FOLDER = "ranks"  # torchrun's copies of the ranks' output, below the attempt's folder
TIMEOUT_S = 50  # silence after which ranks give up: with what follows, a trial ends in a minute


def choose(study: Study) -> str:
    """Return the launcher of a study: what ``auto`` stands for.

    Raises:
        InputError: The one that is named cannot start what the study asks for.
    """
    wanted, needs = study.launcher, study.resources
    place = kind_of(study)
    if wanted != PYTHON and not place.spans_nodes and needs.nodes > 1:
        raise InputError(
            f"resources.nodes: {needs.nodes} nodes need a cluster, and this study runs on "
            f"{place.place}.",
            "Use executor: slurm, or nodes: 1.",
        )
    if wanted == SRUN and not place.spans_nodes:
        raise InputError(
            f"launcher: srun needs Slurm, and this study runs on {place.place}.",
            "Use launcher: torchrun (or auto).",
        )
    program = read_program(study.command)
    if program.kind == LAUNCHER:
        if wanted in (TORCHRUN, SRUN):
            raise twice(wanted, program.name)
        return PYTHON
    if wanted != AUTO:
        return wanted
    if program.kind != IS_PYTHON or not expects_ranks(study):
        return PYTHON
    return SRUN if needs.nodes > 1 else TORCHRUN


def expects_ranks(study: Study) -> bool:
    """Tell whether a study's trials are meant to be ranks: several of them, or one that meets
    nobody (``ddp`` is written)."""
    return study.world > 1 or (study.launcher == AUTO and study.ddp.written)


def twice(wanted: str, starts: str) -> InputError:
    """Return the error of a launcher around a launcher, which would start the square of the ranks.

    Args:
        starts: What starts the ranks, and where it stands.
    """
    return InputError(
        f"launcher: {wanted}, and the command starts its processes itself ({starts}).",
        "Let the command be what one process runs (python train.py …), or write launcher: python.",
    )


def uses_srun(study: Study) -> bool:
    """Tell whether srun starts (and ends) the processes of a trial."""
    chosen = choose(study)
    if study.environment.runtime == PYXIS:
        return True
    return chosen == SRUN or (chosen == TORCHRUN and study.resources.nodes > 1)


def starts_ranks(study: Study) -> bool:
    """Tell whether what is started is a launcher: sweep's, or the command's own."""
    return choose(study) != PYTHON or read_program(study.command).kind == LAUNCHER


def reaches_elsewhere(study: Study) -> bool:
    """Tell whether what is started has processes that are not its children: srun's, or those of
    MPI's on other nodes."""
    name = read_program(study.command).name
    return uses_srun(study) or name == SRUN or (study.resources.nodes > 1 and _is_mpi(name))


def _is_mpi(name: str) -> bool:
    return name in ("mpirun", "mpiexec") or bool(re.fullmatch(MPI, name))


def labels(study: Study) -> str:
    """Return how the launcher of a study with several ranks says whose a line of output is."""
    if choose(study) == SRUN:
        return rank_labels.SRUN
    return rank_labels.BOTH if uses_srun(study) else rank_labels.TORCHRUN


def meet(
    study: Study, environ: Mapping[str, str], job: str | None, index: int | None, slot: int | None
) -> Rendezvous | None:
    """Return where the ranks of this task's trial meet; None where there are none.

    See ``rendezvous.meet`` for the arguments and for what it raises.
    """
    if choose(study) == PYTHON and not _may_call_torchrun(study):
        return None
    return rendezvous.meet(study, environ, job, index, slot)


def _may_call_torchrun(study: Study) -> bool:
    """Tell whether a command that runs as it is may start ranks by torchrun."""
    kind = read_program(study.command).kind
    return kind == LAUNCHER or (kind != IS_PYTHON and expects_ranks(study))


def inside(study: Study, argv: list[str], meeting: Rendezvous | None, trial_dir: Path) -> list[str]:
    """Return the command as one node's environment runs it: torchrun around it, or nothing."""
    if choose(study) != TORCHRUN:
        return argv
    # Where torch is depends on the interpreter: the command's own, within what brings it.
    program = read_program(argv)
    first = program.words[0]
    python = first if INTERPRETER.fullmatch(os.path.basename(first)) else "python"
    nodes = study.resources.nodes
    start = ["-m", "torch.distributed.run"] if nodes == 1 else ["-c", _ON_EACH_NODE]
    host, port = (meeting.host, meeting.port) if meeting else ("127.0.0.1", 0)
    words = [
        python,
        *start,
        f"--nnodes={nodes}",
        f"--nproc-per-node={study.ranks_per_node}",
        *(["--node-rank=0"] if nodes == 1 else []),
        "--rdzv-backend=static",
        f"--master-addr={host}",
        f"--master-port={port}",
        f"--rdzv-conf=timeout={study.ddp.timeout_s or TIMEOUT_S}",
        "--max-restarts=0",
        # Both streams of all ranks here, each line with its rank.
        "--tee=3",
        f"--log-dir={trial_dir / RANKS_FOLDER}",
        # The command itself is what each rank runs, whatever program it is.
        "--no-python",
        *program.words,
    ]
    return program.wrap(words)


def outside(study: Study, argv: list[str], options: Sequence[str] = ()) -> list[str]:
    """Return the command as this host starts it: srun around it, or nothing.

    Args:
        options: Further options of srun.
    """
    if not uses_srun(study):
        return argv
    chosen = choose(study)
    nodes = 1 if chosen == PYTHON else study.resources.nodes
    each = study.ranks_per_node if chosen == SRUN else 1
    # Explicit, all of it: a node with hyperthreads starts two copies without -n, and what sbatch
    # was given for its own task must not decide how many ranks there are.
    cpus = max(1, _cpus_per_node(study) // each)
    label = [] if chosen == PYTHON else ["--label"]
    return [
        "srun",
        f"--nodes={nodes}",
        f"--ntasks={nodes * each}",
        f"--ntasks-per-node={each}",
        f"--cpus-per-task={cpus}",
        "--cpu-bind=cores",
        "--distribution=block:block",
        "--kill-on-bad-exit=1",
        "--mpi=none",
        "--export=ALL",
        *label,
        *options,
        *argv,
    ]


def _cpus_per_node(study: Study) -> int:
    return study.resources.cpus or study.ranks_per_node


def reader(study: Study) -> Callable[[str], str | None]:
    """Return what reads the metric's lines in the output: of several ranks the first one's count,
    for all of them may print it. Of a launcher in the command itself, where it labels lines."""
    if choose(study) == PYTHON:
        words = read_program(study.command).words
        return partial(of_first_foreign, labels=rank_labels.label_of(words))
    return partial(of_first, labels=labels(study))


def labels_lines(study: Study) -> bool:
    """Tell whether the launcher in a study's command says whose a line of output is: by its
    options, or as ``variables`` have it do so."""
    program = read_program(study.command)
    is_told = any(re.match(r"--tee\b|-t$|--tag-output$|--output$", one) for one in program.words)
    listens = program.name.startswith("torch") or program.name == "fabric"
    return is_told or listens or rank_labels.label_of(program.words) != rank_labels.PLAIN


def without_launchers(study: Study, environ: Mapping[str, str]) -> dict[str, str]:
    """Drop what the launcher of another run, around sweep, said to its processes, and for srun what
    the batch job's own shape would add to its command line."""
    drop = _OF_BATCH if uses_srun(study) else ()
    return {
        name: value
        for name, value in environ.items()
        if name not in drop and not is_of_launcher(name)
    }


def variables(study: Study, meeting: Rendezvous | None, trial_dir: Path) -> dict[str, str]:
    """Return the variables by which a study's ranks meet and talk."""
    found = network(study.ddp)
    if choose(study) == PYTHON:
        # A single process, or one that starts its ranks itself: a torchrun that is told no port
        # would take the one that all others take. So would JAX, by the host's name or the job's
        # number, and trials beside each other mix their ranks, for its port can be bound twice.
        # Of several nodes each rank works it out for itself, and not all may be given a variable.
        if meeting is not None:
            found["PET_MASTER_PORT"] = str(meeting.port)
        if meeting is not None and study.resources.nodes == 1:
            found["JAX_COORDINATOR_PORT"] = str(meeting.port)
        if any(one.pattern for one in study.objectives) and _may_call_torchrun(study):
            found |= _label_lines(trial_dir)
        return found
    threads = max(1, _cpus_per_node(study) // study.ranks_per_node)
    found |= {"OMP_NUM_THREADS": str(threads), "SWEEP_CPUS": str(threads)}
    found[_PREFIX] = "[rank${rank}]: "
    if meeting is not None:
        found |= {"MASTER_ADDR": meeting.host, "MASTER_PORT": str(meeting.port)}
        found["JAX_COORDINATOR_PORT"] = str(meeting.port)
    return found


def _label_lines(trial_dir: Path) -> dict[str, str]:
    """Return the variables by which launchers of the user's own say whose a line of output is:
    the metric is read from the first rank's lines."""
    return {
        "PET_TEE": "3",
        "PET_LOG_DIR": str(trial_dir / RANKS_FOLDER),
        _PREFIX: "[rank${rank}]: ",
        "OMPI_MCA_orte_tag_output": "1",  # Open MPI 4; that of 5 and MPICH have options alone
    }


def network(ddp: Ddp) -> dict[str, str]:
    """Return the section ``ddp`` as variables of NCCL, gloo and torch."""
    found: dict[str, str] = {}
    if ddp.interface:
        # NCCL takes a bare name for a prefix: eth1 would also be eth10.
        found |= {"GLOO_SOCKET_IFNAME": ddp.interface, "NCCL_SOCKET_IFNAME": f"={ddp.interface}"}
    if ddp.ib is not None:
        found["NCCL_IB_DISABLE"] = "0" if ddp.ib == "on" else "1"
    if ddp.debug != "off":
        found |= {
            "NCCL_DEBUG": "INFO",
            "TORCH_CPP_LOG_LEVEL": "INFO",
            "TORCH_DISTRIBUTED_DEBUG": ddp.debug.upper(),
        }
    if ddp.timeout_s is not None:
        # The first is the reference trainer's; any training may read it.
        found |= {
            "SWEEP_DDP_TIMEOUT_S": str(ddp.timeout_s),
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": str(ddp.timeout_s),
        }
    return found
