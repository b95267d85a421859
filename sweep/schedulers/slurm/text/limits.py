"""What a site allows: scontrol show config and partition, sacctmgr's limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sweep.core.errors import CouldNotAsk
from sweep.core.numbers import whole
from sweep.core.scheduler import Limits
from sweep.schedulers.slurm.text.notation import parse_time

_ASSOCIATION_FIELDS = (
    "account,user,partition,maxjobs,maxsubmit,grpjobs,grpsubmit,maxwall,qos,defaultqos,"
    "defaultaccount,cluster"
)
_QOS_FIELDS = (
    "name,maxjobspu,maxsubmitpu,maxjobspa,maxsubmitpa,grpjobs,grpsubmit,maxwall,gracetime,"
    "preemptmode"
)


@dataclass(frozen=True)
class Config:
    """What sweep needs of slurm.conf; None where it is not printed."""

    cluster: str = ""
    version: str = ""
    max_array_size: int | None = None
    max_job_count: int | None = None
    kill_wait_s: int | None = None
    accounting: bool = False
    preempts_by: str = ""  # "partition", "qos", or "" where nothing preempts
    preempt_mode: str = ""
    preempt_signals: bool = False  # the signal of sbatch's --signal comes at once


@dataclass(frozen=True)
class Partition:
    """A partition; times in seconds, None for no limit."""

    name: str
    nodes: str = ""
    max_time_s: int | None = None
    is_default: bool = False
    alloc_nodes: str = "ALL"
    qos: str = ""
    default_time_s: int | None = None
    preempt_mode: str = ""
    grace_time_s: int = 0


@dataclass(frozen=True)
class Association:
    """A user's limits under one account; None where there is none.

    Attributes:
        is_default: Whether jobs that name no account are charged to this one.
        cluster: Where it holds; several clusters can share an accounting database.
    """

    account: str
    user: str
    partition: str = ""
    max_jobs: int | None = None
    max_submit: int | None = None
    group_jobs: int | None = None
    group_submit: int | None = None
    max_time_s: int | None = None
    qos: tuple[str, ...] = ()
    default_qos: str = ""
    is_default: bool = False
    cluster: str = ""


@dataclass(frozen=True)
class Qos:
    """A QOS's limits; None where there is none."""

    name: str
    max_jobs_per_user: int | None = None
    max_submit_per_user: int | None = None
    max_jobs_per_account: int | None = None
    max_submit_per_account: int | None = None
    group_jobs: int | None = None
    group_submit: int | None = None
    max_time_s: int | None = None
    grace_time_s: int = 0
    preempt_mode: str = ""

    @property
    def max_jobs(self) -> int | None:
        return _least(self.max_jobs_per_user, self.max_jobs_per_account, self.group_jobs)

    @property
    def max_submit(self) -> int | None:
        return _least(self.max_submit_per_user, self.max_submit_per_account, self.group_submit)


@dataclass(frozen=True)
class Preemption:
    """How a study's tasks are preempted.

    Attributes:
        mode: REQUEUE, CANCEL, SUSPEND; empty where they are not.
        grace_time_s: Between its beginning and the end of a task.
        signals: Whether sweep's task hears of its beginning; else of its end only.
    """

    mode: str = ""
    grace_time_s: int = 0
    signals: bool = False


def find_preemption(
    config: Config, partitions: Sequence[Partition] = (), qos: Sequence[Qos] = ()
) -> Preemption:
    """Return how tasks of these partitions, or of these QOS, are preempted; the harshest counts."""
    by: Sequence[Partition] | Sequence[Qos] = ()
    if config.preempts_by:
        by = qos if config.preempts_by == "qos" else partitions
    found = [
        Preemption(mode, one.grace_time_s, config.preempt_signals)
        for one in by
        if (mode := _preempt_mode(one.preempt_mode or config.preempt_mode))
    ]
    return min(found, key=lambda one: one.grace_time_s, default=Preemption())


def _preempt_mode(text: str) -> str:
    """Return the word that counts of ``GANG,SUSPEND``, ``requeue`` or ``OFF``; empty for none."""
    words = [word.strip().upper() for word in text.split(",")]
    return next((word for word in words if word in ("REQUEUE", "CANCEL", "SUSPEND")), "")


def config_argv(scontrol: str = "scontrol") -> list[str]:
    """Return the command line that prints slurm.conf as the controller sees it."""
    return [scontrol, "show", "config"]


def partitions_argv(name: str | None = None, scontrol: str = "scontrol") -> list[str]:
    """Return the command line that prints one partition or all, a line each."""
    return [scontrol, "show", "partition", *([name] if name else []), "-o"]


def associations_argv(user: str, cluster: str = "", sacctmgr: str = "sacctmgr") -> list[str]:
    """Return the command line that prints a user's limits on a cluster, an account a line.

    That of the user rather than of the associations: it knows the default account as well.
    """
    where = ["where", f"name={user}", *([f"cluster={cluster}"] if cluster else []), "withassoc"]
    return [sacctmgr, "-nP", "show", "user", *where, f"format={_ASSOCIATION_FIELDS}"]


def qos_argv(names: Iterable[str] = (), sacctmgr: str = "sacctmgr") -> list[str]:
    """Return the command line that prints the limits of some QOS, or of all."""
    listed = ",".join(names)
    where = ["where", f"name={listed}"] if listed else []
    return [sacctmgr, "-nP", "show", "qos", *where, f"format={_QOS_FIELDS}"]


def parse_config(stdout: str) -> Config:
    """Read ``scontrol show config``; what is not printed is None."""
    values = dict(re.findall(r"^(\S+?)\s*= ?(.*?)\s*$", stdout, re.MULTILINE))
    return Config(
        values.get("ClusterName", ""),
        values.get("SLURM_VERSION", ""),
        _number(values.get("MaxArraySize", "")),
        _number(values.get("MaxJobCount", "")),
        _number(values.get("KillWait", "")),
        values.get("AccountingStorageType", "").endswith("slurmdbd"),
        _preempts_by(values.get("PreemptType", "")),
        values.get("PreemptMode", ""),
        # PreemptParameters=send_user_signal; in SlurmctldParameters before 23.11.
        "send_user_signal"
        in values.get("PreemptParameters", "") + values.get("SlurmctldParameters", ""),
    )


def _preempts_by(plugin: str) -> str:
    if plugin.endswith("qos"):
        return "qos"
    return "partition" if plugin.endswith("partition_prio") else ""


def parse_partitions(stdout: str) -> list[Partition]:
    """Read ``scontrol show partition``, with or without ``-o``."""
    partitions = []
    for block in re.split(r"(?=^PartitionName=)", stdout, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"(\w+)=(\S*)", block))
        partitions.append(
            Partition(
                values["PartitionName"],
                values.get("Nodes", "").replace("(null)", ""),
                _time(values.get("MaxTime", "")),
                values.get("Default") == "YES",
                values.get("AllocNodes", "ALL"),
                values.get("QoS", "").replace("N/A", ""),
                _time(values.get("DefaultTime", "")),
                values.get("PreemptMode", ""),
                _number(values.get("GraceTime", "")) or 0,
            )
        )
    return partitions


def parse_associations(stdout: str) -> list[Association]:
    """Read what ``associations_argv`` printed."""
    found = []
    for row in _rows(stdout, _ASSOCIATION_FIELDS.count(",") + 1):
        if not row[0]:
            continue  # a user without an account
        jobs, submit, group_jobs, group_submit = map(_number, row[3:7])
        found.append(
            Association(
                *(row[0], row[1], row[2]),
                *(jobs, submit, group_jobs, group_submit),
                _time(row[7]),
                _list(row[8]),
                row[9],
                row[0] == row[10],
                row[11],
            )
        )
    return found


def parse_qos(stdout: str) -> list[Qos]:
    """Read what ``qos_argv`` printed."""
    found = []
    for row in _rows(stdout, _QOS_FIELDS.count(",") + 1):
        user_jobs, user_submit, jobs, submit, group_jobs, group_submit = map(_number, row[1:7])
        limits = (user_jobs, user_submit, jobs, submit, group_jobs, group_submit)
        mode = "" if row[9].lower() == "cluster" else row[9]
        found.append(Qos(row[0], *limits, _time(row[7]), _time(row[8]) or 0, mode))
    return found


def find_limits(
    config: Config,
    partitions: Sequence[Partition] = (),
    associations: Sequence[Association] = (),
    qos: Sequence[Qos] = (),
) -> Limits:
    """Return the tightest of the limits that hold for one submission.

    Args:
        config: The site's.
        partitions: Those that the job may go to; a time limit is the longest of theirs.
        associations: The user's under the account that is charged.
        qos: The job's QOS and its partition's.
    """
    submits = [association.max_submit for association in associations]
    submits += [association.group_submit for association in associations]
    submits += [one.max_submit for one in qos]
    running = [association.max_jobs for association in associations]
    running += [association.group_jobs for association in associations]
    running += [one.max_jobs for one in qos]
    times = [association.max_time_s for association in associations]
    times += [one.max_time_s for one in qos]
    longest = [partition.max_time_s for partition in partitions]
    known = [time_s for time_s in longest if time_s is not None]
    if known and len(known) == len(longest):
        times.append(max(known))
    return Limits(
        config.max_array_size,
        _least(config.max_job_count, *submits),
        _least(*times),
        _least(*running),
    )


def _rows(stdout: str, columns: int) -> list[list[str]]:
    rows = (line.split("|") for line in stdout.splitlines())
    return [[cell.strip() for cell in row] for row in rows if len(row) == columns]


def _number(text: str) -> int | None:
    """Return the leading number of ``60 sec``, ``8+`` or ``1001``; None for none."""
    found = re.match(r"[0-9]+", text.strip())
    return whole(found[0]) if found else None


def _time(text: str) -> int | None:
    try:
        return parse_time(text)
    except ValueError as error:
        raise CouldNotAsk(f"Slurm's limits cannot be read: {error}.") from None


def _list(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part and part not in ("ALL", "N/A"))


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
