"""What a cluster allows: partitions, limits, accounts; asked before anything is made."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pwd
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweep.core.durations import format_time
from sweep.core.errors import CouldNotAsk, InputError, SchedulerError
from sweep.core.scheduler import Limits
from sweep.core.secrets import clean_environment
from sweep.core.study import Study
from sweep.schedulers.slurm.ask import Asker, refusal
from sweep.schedulers.slurm.text.answers import judged, strip_words
from sweep.schedulers.slurm.text.limits import (
    Association,
    Config,
    Partition,
    Preemption,
    Qos,
    associations_argv,
    config_argv,
    find_limits,
    find_preemption,
    parse_associations,
    parse_config,
    parse_partitions,
    parse_qos,
    partitions_argv,
    qos_argv,
)
from sweep.schedulers.slurm.text.notation import read_nodes
from sweep.schedulers.slurm.text.submit import sbatch_argv

if TYPE_CHECKING:
    from sweep.schedulers.slurm.text.submit import ArrayRequest

SHORTEST_S = 60  # Slurm counts in minutes
DEFAULT_KILL_WAIT_S = 30  # slurm.conf(5)


class Site:
    """A cluster, as far as it concerns one study; it is asked each question once.

    Args:
        asker: Asks it.
        study: Its resources and Slurm options.
    """

    def __init__(self, asker: Asker, study: Study) -> None:
        self.asker = asker
        self.study = study

    def check(self, request: ArrayRequest, *, embedded: bool) -> None:
        """Refuse what this cluster cannot run, before anything is made.

        Args:
            request: An array of the study.
            embedded: The database is a job here too.

        Raises:
            InputError: A limit of the site is exceeded.
            SchedulerError: Slurm knows no such partition, account or QOS; in its own words.
            CouldNotAsk: There is no answer.
        """
        limits = self.limits
        wanted_s = self.study.resources.time_limit_s
        if wanted_s is not None and limits.time_s is not None and wanted_s > limits.time_s:
            raise InputError(
                f"resources.time is {format_time(wanted_s)}, and Slurm allows "
                f"{format_time(limits.time_s)} at most where this study would run.",
                "Lower it (trials go on from their checkpoints in the next task), or choose "
                "another slurm.partition or slurm.qos; see: sinfo -o '%P %l'.",
            )
        if embedded and (limits.running == 1 or limits.submitted in (1, 2)):
            raise InputError(
                "Slurm allows too few jobs of yours at once to run the database beside the tasks "
                f"({limits.running or limits.submitted}).",
                "Name a PostgreSQL server (storage:), keep it on this machine where that is "
                "allowed (storage: {embedded: here}), or choose another slurm.account or "
                "slurm.qos.",
            )
        argv = sbatch_argv(dataclasses.replace(request, arguments=()))
        argv = [*argv[:-1], "--test-only", "--wrap=true"]
        answer = self.asker.ask(argv, clean_environment(self.asker.environ))
        words = strip_words(judged(answer.stderr))
        # It says "not available" of much that sbatch takes all the same and lets wait.
        if answer.returncode and re.search("invalid|unrecogni[sz]ed|denied", words, re.IGNORECASE):
            raise refusal(words)

    def nodes_may_submit(self) -> bool:
        """Tell whether jobs may be submitted from the nodes of this study's partitions."""
        for partition in self.partitions:
            allowed = partition.alloc_nodes
            if allowed in ("ALL", "", "(null)"):
                continue
            hosts = set(read_nodes(allowed))
            if not set(read_nodes(partition.nodes)) <= hosts:
                return False
        return True

    @functools.cached_property
    def limits(self) -> Limits:
        """The tightest limits that hold for this study's submissions."""
        return find_limits(self.config, self.partitions, *self._accounts)

    @functools.cached_property
    def _accounts(self) -> tuple[list[Association], list[Qos]]:
        """The associations that the study is charged to, and the QOS of its jobs and partitions."""
        associations: list[Association] = []
        qos: list[Qos] = []
        if self.config.accounting:
            # Limits that cannot be read are met when sbatch refuses.
            with contextlib.suppress(CouldNotAsk, SchedulerError):
                associations = self._associations()
                qos = self._qos(associations)
        return associations, qos

    @functools.cached_property
    def preemption(self) -> Preemption:
        """How the study's tasks are preempted."""
        associations, qos = self._accounts
        names = self._own_qos(associations)
        own = [one for one in qos if one.name in names]
        return find_preemption(self.config, self.partitions, own)

    def fit_s(self, wanted_s: int | None) -> int | None:
        """Return the time limit to ask for: the wanted one, or as much as is allowed here.

        What asks for more waits for ever (PartitionTimeLimit, QOSMaxWallDurationPerJobLimit).

        Args:
            wanted_s: None for the partition's own default, which a QOS may not allow.

        Raises:
            SchedulerError: Not even a minute is allowed.
            CouldNotAsk: There is no answer.
        """
        most_s = self.limits.time_s
        if most_s is None:
            return wanted_s
        if most_s < SHORTEST_S:
            raise SchedulerError(
                f"Slurm allows no job of a minute in {self._where()}.",
                "Name another one in slurm.service.partition; see: sinfo -o '%P %l'.",
            )
        if wanted_s is not None:
            return min(wanted_s, most_s)
        defaults = [one.default_time_s or one.max_time_s for one in self.partitions]
        fits = bool(defaults) and all(time_s and time_s <= most_s for time_s in defaults)
        return None if fits else most_s

    def _where(self) -> str:
        names = ",".join(one.name for one in self.partitions)
        return f"the partition {names or self.study.slurm.partition}"

    @functools.cached_property
    def config(self) -> Config:
        """What the controller says of its configuration."""
        return parse_config(self.asker.ask(config_argv()).stdout)

    def keeps_accounts(self) -> bool:
        """Tell whether this cluster keeps accounts, which say who cancelled a job."""
        return self.config.accounting

    def kill_wait_s(self) -> int:
        """Return the seconds between TERM and KILL here."""
        return self.config.kill_wait_s or DEFAULT_KILL_WAIT_S

    @functools.cached_property
    def partitions(self) -> list[Partition]:
        """The partitions that the study's tasks may go to."""
        found = parse_partitions(self.asker.ask(partitions_argv()).stdout)
        wanted = (self.study.slurm.partition or "").split(",")
        return [p for p in found if p.name in wanted or (wanted == [""] and p.is_default)]

    def _associations(self) -> list[Association]:
        user = pwd.getpwuid(os.getuid()).pw_name
        cluster = self.config.cluster
        found = parse_associations(self.asker.ask(associations_argv(user, cluster)).stdout)
        if cluster:
            found = [one for one in found if one.cluster.lower() == cluster.lower()]
        account = self.study.slurm.account
        if account is not None:
            found = [one for one in found if one.account == account]
        elif any(one.is_default for one in found):
            found = [one for one in found if one.is_default]
        partitions = ("", *(self.study.slurm.partition or "").split(","))
        return [one for one in found if one.partition in partitions]

    def _own_qos(self, associations: Sequence[Association]) -> set[str]:
        """Return the QOS of the study's jobs: the named one, or the user's default."""
        if self.study.slurm.qos:
            return {self.study.slurm.qos}
        return {a.default_qos for a in associations if a.default_qos}

    def _qos(self, associations: Sequence[Association]) -> list[Qos]:
        names = self._own_qos(associations) | {p.qos for p in self.partitions if p.qos}
        if not names:
            return []
        return parse_qos(self.asker.ask(qos_argv(sorted(names))).stdout)
