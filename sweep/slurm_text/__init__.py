"""Slurm as text: argv builders and parsers, without running anything.

Everything here is a pure function; ``sweep.slurm`` runs the commands. Written for Slurm 20.11 and
newer, checked on the literal output of 22.05. Commands run in ``ask_environment`` (questions) or
``clean_environment`` (sbatch), so that no variable of the user changes what is printed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.slurm_text.accounting import (
        Step,
        TaskRun,
        find_latest_runs,
        parse_sacct,
        read_sacct,
        sacct_argv,
    )
    from sweep.slurm_text.answers import did_not_answer, raise_for_answer, strip_words
    from sweep.slurm_text.control import (
        cancel_argv,
        check_update,
        exclude_argv,
        excluded_argv,
        expand_nodes,
        parse_excluded,
        release_argv,
        requeue_argv,
        throttle_argv,
    )
    from sweep.slurm_text.energy import RunEnergy, energy_argv, parse_energy
    from sweep.slurm_text.environment import ask_environment, clean_environment, is_secret
    from sweep.slurm_text.extra import check_extra, excluded_by
    from sweep.slurm_text.limits import (
        Association,
        Config,
        NodeGroup,
        Partition,
        Qos,
        associations_argv,
        config_argv,
        default_account_argv,
        find_limits,
        parse_associations,
        parse_config,
        parse_partitions,
        parse_qos,
        parse_sinfo,
        partitions_argv,
        qos_argv,
        sinfo_argv,
    )
    from sweep.slurm_text.queue import (
        QueuedTask,
        collect_tasks,
        parse_squeue,
        read_squeue,
        squeue_argv,
        time_left_argv,
    )
    from sweep.slurm_text.reasons import Explanation, explain_reason, is_launch_failure
    from sweep.slurm_text.states import STATES, classify_state, split_state
    from sweep.slurm_text.steps import (
        held_argv,
        names_memory,
        parse_held,
        step_argv,
        step_environment,
    )
    from sweep.slurm_text.submit import (
        ArrayRequest,
        SbatchAnswer,
        explain_refusal,
        parse_sbatch,
        sbatch_argv,
    )
    from sweep.slurm_text.times import compress_indices, expand_indices, format_time, parse_time

# Loaded when asked for: a task that finds nothing to pull needs none of it.
_LISTED = {
    "sweep.slurm_text.accounting": (
        "Step",
        "TaskRun",
        "find_latest_runs",
        "parse_sacct",
        "read_sacct",
        "sacct_argv",
    ),
    "sweep.slurm_text.answers": ("did_not_answer", "raise_for_answer", "strip_words"),
    "sweep.slurm_text.control": (
        "cancel_argv",
        "check_update",
        "exclude_argv",
        "excluded_argv",
        "expand_nodes",
        "parse_excluded",
        "release_argv",
        "requeue_argv",
        "throttle_argv",
    ),
    "sweep.slurm_text.energy": ("RunEnergy", "energy_argv", "parse_energy"),
    "sweep.slurm_text.environment": ("ask_environment", "clean_environment", "is_secret"),
    "sweep.slurm_text.extra": ("check_extra", "excluded_by"),
    "sweep.slurm_text.limits": (
        "Association",
        "Config",
        "NodeGroup",
        "Partition",
        "Qos",
        "associations_argv",
        "config_argv",
        "default_account_argv",
        "find_limits",
        "parse_associations",
        "parse_config",
        "parse_partitions",
        "parse_qos",
        "parse_sinfo",
        "partitions_argv",
        "qos_argv",
        "sinfo_argv",
    ),
    "sweep.slurm_text.queue": (
        "QueuedTask",
        "collect_tasks",
        "parse_squeue",
        "read_squeue",
        "squeue_argv",
        "time_left_argv",
    ),
    "sweep.slurm_text.reasons": ("Explanation", "explain_reason", "is_launch_failure"),
    "sweep.slurm_text.states": ("STATES", "classify_state", "split_state"),
    "sweep.slurm_text.steps": (
        "held_argv",
        "names_memory",
        "parse_held",
        "step_argv",
        "step_environment",
    ),
    "sweep.slurm_text.submit": (
        "ArrayRequest",
        "SbatchAnswer",
        "explain_refusal",
        "parse_sbatch",
        "sbatch_argv",
    ),
    "sweep.slurm_text.times": ("compress_indices", "expand_indices", "format_time", "parse_time"),
}
_HOMES = {name: home for home, names in _LISTED.items() for name in names}

__all__ = [
    "STATES",
    "ArrayRequest",
    "Association",
    "Config",
    "Explanation",
    "NodeGroup",
    "Partition",
    "Qos",
    "QueuedTask",
    "RunEnergy",
    "SbatchAnswer",
    "Step",
    "TaskRun",
    "ask_environment",
    "associations_argv",
    "cancel_argv",
    "check_extra",
    "check_update",
    "classify_state",
    "clean_environment",
    "collect_tasks",
    "compress_indices",
    "config_argv",
    "default_account_argv",
    "did_not_answer",
    "energy_argv",
    "exclude_argv",
    "excluded_argv",
    "excluded_by",
    "expand_indices",
    "expand_nodes",
    "explain_reason",
    "explain_refusal",
    "find_latest_runs",
    "find_limits",
    "format_time",
    "held_argv",
    "is_launch_failure",
    "is_secret",
    "names_memory",
    "parse_associations",
    "parse_config",
    "parse_energy",
    "parse_excluded",
    "parse_held",
    "parse_partitions",
    "parse_qos",
    "parse_sacct",
    "parse_sbatch",
    "parse_sinfo",
    "parse_squeue",
    "parse_time",
    "partitions_argv",
    "qos_argv",
    "raise_for_answer",
    "read_sacct",
    "read_squeue",
    "release_argv",
    "requeue_argv",
    "sacct_argv",
    "sbatch_argv",
    "sinfo_argv",
    "split_state",
    "squeue_argv",
    "step_argv",
    "step_environment",
    "strip_words",
    "throttle_argv",
    "time_left_argv",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
