"""Check the user's further sbatch options (``slurm.extra``) for those that sweep must own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.core.errors import InputError
from sweep.core.hostlist import expand_nodes

_LOGS = "Logs lie in the study's folder; see them with sweep logs."
_WAVES = "sweep chains its arrays itself."
_ENVIRONMENT = "Use environment.env in the study file."
_NODES = "Use resources.nodes in the study file."
_GPUS = "Use resources.gpus (or resources.shard, resources.mps) in the study file."
_NOT_HERE = "Leave it out: it makes sbatch do something else than submit."

# Every long option that sweep sets or relies on, and what to use instead.
OWNED: dict[str, str] = {
    "array": "Use trials and max_parallel in the study file.",
    "job-name": "Use name in the study file.",
    "output": _LOGS,
    "error": _LOGS,
    "input": "Training reads no standard input.",
    "open-mode": _LOGS,
    "signal": "Use grace in the study file.",
    "dependency": _WAVES,
    "kill-on-invalid-dep": _WAVES,
    "requeue": "sweep decides; use retry.max_attempts in the study file.",
    "no-requeue": "sweep decides; use retry.max_attempts in the study file.",
    "parsable": "sweep sets it.",
    "wrap": "Use command in the study file.",
    "export": _ENVIRONMENT,
    "export-file": _ENVIRONMENT,
    "get-user-env": _ENVIRONMENT,
    "chdir": "Use workdir in the study file.",
    "wait": "Use sweep launch --wait.",
    "test-only": "Use sweep launch --dry-run.",
    "time": "Use resources.time in the study file.",
    "nodes": _NODES,
    "ntasks": _NODES,
    "ntasks-per-node": _NODES,
    "tasks-per-node": _NODES,
    "cpus-per-task": "Use resources.cpus in the study file.",
    "mem": "Use resources.memory in the study file.",
    "gres": _GPUS,
    "gpus": _GPUS,
    "gpus-per-node": _GPUS,
    "gpus-per-task": _GPUS,
    "gpus-per-socket": _GPUS,
    "partition": "Use slurm.partition in the study file.",
    "account": "Use slurm.account in the study file.",
    "qos": "Use slurm.qos in the study file.",
    "constraint": "Use slurm.constraint in the study file.",
    "reservation": "Use slurm.reservation in the study file.",
    "clusters": "Choose the cluster by SLURM_CONF or by the host that you launch on.",
    "help": _NOT_HERE,
    "usage": _NOT_HERE,
    "version": _NOT_HERE,
}
# The same for the small jobs (``slurm.service.extra``).
SERVICE_OWNED: dict[str, str] = {
    **OWNED,
    "time": "Use slurm.service.time in the study file.",
    "partition": "Use slurm.service.partition in the study file.",
    "qos": "Use slurm.service.qos in the study file.",
}
# sbatch's short options: their long names; those with a value are in _SHORT_WITH_VALUE.
_SHORT = {
    "a": "array",
    "A": "account",
    "b": "begin",
    "B": "extra-node-info",
    "c": "cpus-per-task",
    "C": "constraint",
    "d": "dependency",
    "D": "chdir",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "h": "help",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "m": "distribution",
    "M": "clusters",
    "n": "ntasks",
    "N": "nodes",
    "o": "output",
    "O": "overcommit",
    "p": "partition",
    "q": "qos",
    "Q": "quiet",
    "s": "oversubscribe",
    "S": "core-spec",
    "t": "time",
    "u": "usage",
    "v": "verbose",
    "V": "version",
    "w": "nodelist",
    "W": "wait",
    "x": "exclude",
}
_SHORT_WITH_VALUE = set("aAbBcCdDeFGiJLmMnNopqStwx")
# Long options that take no value, or only one behind "=".
_WITHOUT_VALUE = {
    "contiguous",
    "exclusive",
    "hold",
    "ignore-pbs",
    "nice",
    "no-kill",
    "overcommit",
    "oversubscribe",
    "propagate",
    "quiet",
    "reboot",
    "share",
    "spread-job",
    "stepmgr",
    "use-min-nodes",
    "verbose",
}


def check_extra(
    extra: Sequence[str], source: str = "slurm.extra", owned: Mapping[str, str] = OWNED
) -> list[str]:
    """Return the user's sbatch options as argv elements.

    An element ``--mail-type END`` counts as two. Abbreviations (``--arr``) count as what they may
    abbreviate, because sbatch takes them.

    Args:
        extra: The options as the user wrote them.
        source: Key of the study file that holds them, for messages.
        owned: The options that are sweep's own there, and what to use instead.

    Raises:
        InputError: an option is sweep's own (the message names it and what to use instead), or an
            element is no option.
    """
    elements = [part for element in extra for part in _split(element)]
    checked: list[str] = []
    value_of: str | None = None  # the option that takes the next element as its value
    for element in elements:
        if "\0" in element:
            raise InputError(f"{source}: an option holds a NUL character.")
        if value_of is not None and not element.startswith("-"):
            value_of = None
        elif element.startswith("--") and len(element) > 2:
            value_of = _check_long(element, source, owned)
        elif element.startswith("-") and len(element) > 1:
            value_of = _check_short(element, source, owned)
        else:
            raise InputError(
                f"{source}: {element!r} is no option of sbatch.",
                "Write each option as --name=value.",
            )
        checked.append(element)
    return checked


def excluded_by(extra: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that the user's own ``--exclude`` names, which were checked before."""
    elements = [part for element in extra for part in _split(element)]
    found: list[str] = []
    for element, following in zip(elements, [*elements[1:], ""], strict=False):
        name, equals, value = element.partition("=")
        if name.startswith("--exclud") and "--exclude".startswith(name):
            found += _nodes(value if equals else following)
        elif element.startswith("-x"):
            found += _nodes(element[2:].lstrip("=") or following)
    return tuple(found)


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return expand_nodes(text)
    except ValueError as error:
        raise InputError(f"slurm.extra: --exclude: {error}.", "Write nodes as n[1-3],n7.") from None


def _split(element: str) -> list[str]:
    """Split ``--name value`` in one element; a value behind ``=`` keeps its spaces."""
    name, space, value = element.partition(" ")
    if space and name.startswith("-") and "=" not in name:
        return [name, value.strip()] if value.strip() else [name]
    return [element]


def _check_long(element: str, source: str, owned: Mapping[str, str]) -> str | None:
    given, equals, _ = element[2:].partition("=")
    for own, advice in owned.items():
        if own == given or (own.startswith(given) and given not in _WITHOUT_VALUE):
            name = f"--{given}" if own == given else f"--{given} (--{own})"
            raise _refuse(name, advice, source)
    return None if equals or given in _WITHOUT_VALUE else given


def _check_short(element: str, source: str, owned: Mapping[str, str]) -> str | None:
    for place, letter in enumerate(element[1:], start=1):
        if letter not in _SHORT:
            raise InputError(f"{source}: sbatch has no option -{letter} (got {element!r}).")
        if advice := owned.get(_SHORT[letter]):
            raise _refuse(f"-{letter} (--{_SHORT[letter]})", advice, source)
        if letter in _SHORT_WITH_VALUE:
            return None if element[place + 1 :] else letter
    return None


def _refuse(name: str, advice: str, source: str) -> InputError:
    return InputError(f"{source}: {name} belongs to sweep and cannot be given here.", advice)
