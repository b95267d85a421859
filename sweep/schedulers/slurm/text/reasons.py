"""Slurm's reasons for a waiting task, in plain words and with what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

_WAIT = "Nothing to do but wait."


@dataclass(frozen=True)
class Explanation:
    """Why a task waits.

    Attributes:
        words: In plain words.
        advice: What to do.
        is_stuck: It will not start unless somebody does something.
    """

    words: str
    advice: str
    is_stuck: bool = False

    def __str__(self) -> str:
        return f"{self.words}. {self.advice}"


# From squeue(1), "JOB REASON CODES", and what 22.05 printed; the first that matches counts.
_REASONS: tuple[tuple[str, str, str, bool], ...] = (
    ("None|", "not looked at by Slurm's scheduler yet", _WAIT, False),
    ("Priority", "other jobs come first", _WAIT, False),
    ("Resources", "the resources it asks for are in use", _WAIT, False),
    (
        "JobArrayTaskLimit",
        "as many as max_parallel are running",
        "Raise max_parallel and launch again to let more run.",
        False,
    ),
    ("Dependency", "waits for another job to end", _WAIT, False),
    (
        "DependencyNeverSatisfied",
        "waits for a job that can no longer end as needed",
        "Launch again.",
        True,
    ),
    (
        "BeginTime",
        "may not start before a set time; after a requeue this is about 2 minutes",
        _WAIT,
        False,
    ),
    ("JobHeldUser", "held by its user", "Let it go with: scontrol release JOB.", True),
    ("JobHeldAdmin", "held by an administrator", "Ask the site.", True),
    (
        r"launch failed requeued held|JobLaunchFailure",
        "a node could not start it, so Slurm holds it",
        "sweep lets it go when it looks next; by hand: scontrol release JOB.",
        True,
    ),
    (
        "job requeued in held state",
        "it was put back into the queue and is held",
        "Let it go with: scontrol release JOB.",
        True,
    ),
    (
        "PartitionTimeLimit|TimeLimit",
        "its time limit is longer than the partition allows",
        "Lower resources.time, or choose another slurm.partition.",
        True,
    ),
    (
        "PartitionNodeLimit",
        "it asks for more nodes than the partition allows",
        "Lower resources.nodes, or choose another slurm.partition.",
        True,
    ),
    (
        "PartitionDown|PartitionInactive",
        "the partition is closed",
        "Wait until the site opens it, or choose another slurm.partition.",
        True,
    ),
    (
        "PartitionConfig",
        "no node of the partition has, or may give, all that it asks for",
        "Lower resources, or choose another slurm.partition; see: sinfo -Nl.",
        True,
    ),
    (
        "BadConstraints",
        "no node has all that it asks for",
        "Lower resources, or compare slurm.constraint and excluded nodes with: sinfo -Nl.",
        True,
    ),
    (
        r"ReqNodeNotAvail(\(Maintenance\))?\b.*[Rr]eserved for maintenance.*",
        "nodes are reserved for maintenance before it could end",
        "Wait, or lower resources.time so that it ends before.",
        False,
    ),
    (
        r"ReqNodeNotAvail.*",
        "a node that it needs is down, drained or reserved",
        "Wait, or drop the node from slurm.extra; see: sinfo -R.",
        False,
    ),
    (
        r"Nodes required for job are DOWN.*",
        "nodes that it needs are down, drained or reserved",
        "Wait; see: sinfo -R.",
        False,
    ),
    ("NodeDown", "a node that it needs is down", "Wait; see: sinfo -R.", False),
    ("Reservation", "waits for its reservation to begin", _WAIT, False),
    (
        "ReservationDeleted|InvalidReservation",
        "its reservation does not exist any more",
        "Stop the study, correct slurm.reservation and launch again.",
        True,
    ),
    ("Licenses", "waits for a licence", _WAIT, False),
    (
        "InvalidAccount|AccountNotAllowed|InvalidQOS|QOSNotAllowed",
        "its account or QOS is not allowed here",
        "Stop the study, correct slurm.account or slurm.qos and launch again.",
        True,
    ),
    (
        r"(QOS|Assoc)MaxJobsLimit|QOSMaxJobsPer(User|Account)Limit|MaxJobsPer(User|Account)",
        "as many jobs of yours as the site allows are running",
        "Wait; a lower max_parallel would fit the limit.",
        False,
    ),
    (
        r"(QOS|Assoc)(Group|Grp|MaxGrp)\w*Jobs\w*",
        "as many jobs of your group as the site allows are running",
        _WAIT,
        False,
    ),
    (
        r"(QOS|Assoc)(Group|Grp)\w*(Minutes|RunMin|Mins|Billing)\w*",
        "your group's budget of compute time is used up or reserved",
        "Ask for more, or use another slurm.account.",
        False,
    ),
    (r"(QOS|Assoc)(Group|Grp)\w*", "your group holds as much as the site allows", _WAIT, False),
    (
        r"QOS(Max)?Wall\w*|(QOS|Assoc)MaxWallDurationPerJobLimit|QOSTimeLimit|AssociationTimeLimit",
        "its time limit is longer than the QOS or account allows",
        "Lower resources.time, or choose another slurm.qos.",
        True,
    ),
    (
        r"(QOS|Assoc)Max\w*Per(Job|Node)\w*|QOSMin\w*|(QOS|Association)ResourceLimit",
        "it asks for more (or less) than the QOS or account allows a job",
        "Change resources, or choose another slurm.qos.",
        True,
    ),
    (
        r"(QOS|Assoc)Max\w*(PerUser|PerAccount|PU|PA)\w*",
        "your jobs hold as much as the site allows a user",
        _WAIT,
        False,
    ),
    ("QOSUsageThreshold", "the QOS's budget is used up", "Choose another slurm.qos.", True),
    (
        r"AssociationJobLimit|QOSJobLimit",
        "as many jobs as the site allows are running",
        _WAIT,
        False,
    ),
    ("Cleaning", "the processes of its last run are being ended", _WAIT, False),
    ("Prolog", "its node is being made ready", _WAIT, False),
    ("BurstBuffer\\w*", "waits for its burst buffer", _WAIT, False),
    (
        "FrontEndDown|SchedDefer|Deadline|DeadLine|InactiveLimit|OutOfMemory|SystemFailure",
        "the site's scheduler puts it off",
        _WAIT,
        False,
    ),
)


def is_launch_failure(reason: str) -> bool:
    """Tell whether Slurm holds a task by itself, since a node could not start it."""
    return reason.strip("() ").replace("_", " ") == "launch failed requeued held"


def explain_reason(reason: str) -> Explanation:
    """Return why a task waits, from squeue's reason (``%r``, or ``%R`` with its brackets)."""
    word = reason.strip()
    if word.startswith("(") and word.endswith(")"):
        word = word[1:-1]
    for pattern, words, advice, is_stuck in _REASONS:
        if re.fullmatch(pattern, word):
            return Explanation(words, advice, is_stuck)
    return Explanation(f"Slurm says {word}", "See JOB REASON CODES in: man squeue.")
