"""What each of Slurm's job states means for a task."""

from __future__ import annotations

import re

from sweep.core.scheduler import ENDED, PENDING, RUNNING

# State, what it means for a task, and a word for people. From squeue(1) and sacct(1), "JOB STATE
# CODES", of 22.05 and 24.11. A task is ended only when none of its processes can be alive:
# COMPLETING ones are being killed, SUSPENDED and STOPPED ones are still there.
STATES: dict[str, tuple[str, str]] = {
    "PENDING": (PENDING, "waiting"),
    "REQUEUED": (PENDING, "requeued"),
    "REQUEUE_FED": (PENDING, "requeued"),
    "REQUEUE_HOLD": (PENDING, "requeued and held"),
    "SPECIAL_EXIT": (PENDING, "requeued and held"),
    "RESV_DEL_HOLD": (PENDING, "held, its reservation was deleted"),
    "RUNNING": (RUNNING, "running"),
    "CONFIGURING": (RUNNING, "its node is being made ready"),
    "POWER_UP_NODE": (RUNNING, "its node is being made ready"),
    "COMPLETING": (RUNNING, "ending"),
    "EXPEDITING": (RUNNING, "running"),
    "RESIZING": (RUNNING, "changing its size"),
    "SIGNALING": (RUNNING, "being signalled"),
    "STAGE_OUT": (RUNNING, "copying its results"),
    "STOPPED": (RUNNING, "stopped, holding its node"),
    "SUSPENDED": (RUNNING, "suspended"),
    "UPDATE_DB": (RUNNING, "ending"),
    "BOOT_FAIL": (ENDED, "its node did not boot"),
    "CANCELLED": (ENDED, "cancelled"),
    "COMPLETED": (ENDED, "completed"),
    "DEADLINE": (ENDED, "ended at its deadline"),
    "FAILED": (ENDED, "failed"),
    "LAUNCH_FAILED": (ENDED, "could not be started"),
    "NODE_FAIL": (ENDED, "its node failed"),
    "OUT_OF_MEMORY": (ENDED, "out of memory"),
    "PREEMPTED": (ENDED, "preempted"),
    "RECONFIG_FAIL": (ENDED, "its node could not be made ready"),
    "REVOKED": (ENDED, "started on another cluster"),
    "TIMEOUT": (ENDED, "reached its time limit"),
}


def split_state(text: str) -> tuple[str, int | None]:
    """Return the state and, for ``CANCELLED by 1000``, the uid of who cancelled.

    Suffixes that sacct adds where a column is too narrow (``CANCELLED+``) are dropped.
    """
    words = text.split()
    word = words[0].rstrip("+").upper() if words else ""
    found = re.search(r"\bby ([0-9]{1,10})\b", text)
    return word, int(found[1]) if found else None


def classify_state(text: str) -> str:
    """Return PENDING, RUNNING or ENDED for a state of squeue's.

    A state that we don't know is RUNNING: a task is ended only if Slurm says so.
    """
    return STATES.get(split_state(text)[0], (RUNNING, ""))[0]
