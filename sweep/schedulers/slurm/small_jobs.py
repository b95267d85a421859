"""The small jobs beside a study's array: its finaliser, the one that serves the database, and those
that fetch its data and build its image before it starts."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweep.core.durations import format_time
from sweep.core.errors import CouldNotAsk
from sweep.core.files import read_object
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import ENDED, PENDING, RUNNING, ArrayJob, Beside, JobFate, Scheduler
from sweep.core.study import Study
from sweep.schedulers.slurm.ask import Asker, Run, print_aside, run_command
from sweep.schedulers.slurm.site import Site
from sweep.schedulers.slurm.text.nodes import are_well, node_states_argv
from sweep.schedulers.slurm.text.queue import QueuedTask, squeue_argv
from sweep.schedulers.slurm.text.reasons import explain_reason, is_launch_failure
from sweep.schedulers.slurm.text.scontrol import check_update, release_argv
from sweep.schedulers.slurm.text.submit import ArrayRequest

MOST_ENDS = 10  # name tokens of finalisers of one wave that are looked for
FINALISER_TIME_S = 1800
FIRST_TIME_S = 86_400
FETCH, BUILD = "fetch", "build"
_FIRST = {FETCH: ("fetching the data", "--fetch"), BUILD: ("building the image", "--image")}


class SmallJobs(Asker, Scheduler):
    """The small jobs of a study; what is asked of Slurm as in ``Asker``.

    Args:
        folder: The study's.
        study: Its ``slurm.service`` says where they run.
    """

    def __init__(
        self,
        folder: StudyFolder,
        study: Study,
        environ: Mapping[str, str],
        run: Run = run_command,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = print_aside,
    ) -> None:
        super().__init__(environ, run, sleep, say)
        self.folder = folder
        self.study = study

    @property
    def owner(self) -> str:
        """The uid of the study's user: root may look at another's study."""
        try:
            return str(self.folder.root.stat().st_uid)
        except OSError:  # it is not made yet
            return super().owner

    def ensure_service(self, cwd: Path) -> str | None:
        """Submit the job that serves the embedded database, unless it is queued or runs already.

        Returns:
            Its id; None where the database is not a job's affair.
        """
        return self._ensure_service(cwd)[0]

    def _ensure_service(self, cwd: Path) -> tuple[str | None, bool]:
        """Return that job's id, and whether it was submitted just now."""
        token = self.service_token()
        if token is None:
            return None, False
        live = self._live([token])
        if live:
            self.release(_held(live))
            return min(task.job for task in live), False
        limit_s = self._fit_s(self.study.slurm.service.time_limit_s, "the database")
        request = self._small_request(token, "database_%j.log", limit_s, "--serve", cwd)
        return self.sbatch(dataclasses.replace(request, grace_s=self.study.grace_s)), True

    def _small_request(
        self, token: str, log: str, limit_s: int | None, option: str, cwd: Path
    ) -> ArrayRequest:
        """Return a small job of the study's, of one CPU.

        Args:
            log: Name of its log, in sbatch's notation.
            option: Of ``sweep.task``: what it does.
        """
        options, service = self.study.slurm, self.study.slurm.service
        return ArrayRequest(
            token=token,
            script=str(self.folder.script),
            log_pattern=f"{str(self.folder.logs).replace('%', '%%')}/{log}",
            time_limit_s=limit_s,
            partition=service.partition or options.partition,
            account=options.account,
            qos=service.qos or options.qos,
            cpus=1,
            chdir=str(cwd),
            arguments=(option,),
            extra=service.extra,
        )

    def _ensure_first(self, what: str, cwd: Path) -> tuple[str, bool]:
        """Return the job that must end well before any task starts, and whether it was submitted
        just now.

        Args:
            what: FETCH or BUILD.
        """
        token = self.first_token(what)
        live = self._live([token])
        if live:
            self.release(_held(live))
            return min(task.job for task in live), False
        does, option = _FIRST[what]
        limit_s = self._fit_s(FIRST_TIME_S, does)
        return self.sbatch(self._small_request(token, f"{what}_%j.log", limit_s, option, cwd)), True

    def first_token(self, what: str) -> str:
        """Return the name token of the study's job that fetches its data, or builds its image."""
        return f"sweep-{what}-{hashlib.sha256(str(self.folder.root).encode()).hexdigest()[:10]}"

    @functools.cached_property
    def service_site(self) -> Site:
        """The cluster, as far as it concerns the small jobs."""
        options = self.study.slurm
        partition = options.service.partition or options.partition
        theirs = dataclasses.replace(
            options, partition=partition, qos=options.service.qos or options.qos
        )
        study = dataclasses.replace(self.study, slurm=theirs)
        return Site(self, study)

    def _fit_s(self, wanted_s: int | None, what: str, site: Site | None = None) -> int | None:
        """Return the time limit of a job: what it wants, as far as the site allows it.

        Raises:
            SchedulerError: The site allows no job there.
        """
        site = site or self.service_site
        try:
            fitted_s = site.fit_s(wanted_s)
        except CouldNotAsk:
            return wanted_s
        if wanted_s is not None and fitted_s is not None and fitted_s < wanted_s:
            self.say(
                f"the job for {what} gets {format_time(fitted_s)} and not "
                f"{format_time(wanted_s)}: Slurm allows no more there"
            )
        return fitted_s

    def service_token(self) -> str | None:
        """Return the name token of the database's job, one for each data folder, or None."""
        note = read_object(self.folder.storage) or {}
        if "embedded" not in note or self.study.storage.embedded != "job":
            return None
        return f"sweep-db-{hashlib.sha256(str(note['embedded']).encode()).hexdigest()[:10]}"

    def service_jobs(self, *, running: bool = False) -> list[str]:
        """Return the ids of the database's jobs that are queued or run, or only the latter."""
        token = self.service_token()
        live = self._live([token]) if token else []
        return sorted({task.job for task in live if not running or task.phase == RUNNING})

    def job_fate(self, job: str, node: str) -> JobFate:
        """Return what became of a job of ours on a node.

        Slurm requeues a job whose node it has lost, and its processes may live there. So what has
        left the queue is over only where its node is well: it answers, and is not drained, as it
        is where a process could not be killed. Our own earlier run is never proved to be over.
        """
        own, _ = self.job_of(self.environ)
        if job == own:
            return JobFate.UNPROVED
        if any(
            task.phase != ENDED or task.state == "COMPLETING"
            for task in self.queue(squeue_argv(jobs=[job]))
        ):
            return JobFate.LIVES
        if not node:
            return JobFate.UNPROVED
        answer = self.ask(node_states_argv(node))
        return JobFate.ENDED if are_well(answer.stdout) else JobFate.UNPROVED

    def beside(self, tokens: Sequence[str]) -> Beside:
        """Return what stands beside the waves of these name tokens, the last one's finaliser too.

        One question for all of them.
        """
        ends = [_end_token(tokens[-1], number) for number in range(MOST_ENDS)]
        service = self.service_token()
        fetch, build = self.first_token(FETCH), self.first_token(BUILD)
        asked = [one for one in (service, fetch, build) if one]
        live = self._live([*tokens, *ends, *asked])
        return Beside(
            finalisers=tuple(sorted({task.job for task in live if task.name in ends})),
            finaliser_waits=_why_stuck([task for task in live if task.name in ends]),
            service_waits=_why_waiting([task for task in live if task.name == service]),
            fetches=_what_it_does([task for task in live if task.name == fetch]),
            builds=_what_it_does([task for task in live if task.name == build]),
            held=_held(live),
        )

    def release(self, tasks: Sequence[str]) -> None:
        """Let tasks go that Slurm holds since a node could not start them."""
        if tasks:
            answer = self.ask(release_argv(",".join(tasks)))
            check_update("scontrol", answer.stdout, answer.stderr, answer.returncode)

    def _live(self, names: Sequence[str]) -> list[QueuedTask]:
        argv = squeue_argv(names=names, user=self.owner, ended=False, named=True)
        queued = self.queue(argv, named=True)
        # One that is completing has done its work, and does no more.
        return [task for task in queued if task.phase != ENDED and task.state != "COMPLETING"]

    def submit_finaliser(self, job: ArrayJob, job_id: str | None, number: int = 0) -> str:
        """Submit the small job that runs once the array has ended.

        Args:
            job_id: The array; None where it has ended, for Slurm forgets what has.
            number: How often it was submitted before; each has a name token of its own, so that
                one that has ended is not taken for this one.

        Raises:
            SchedulerError, SubmitUnclear: As ``submit``; the array itself is in.
        """
        request = self.finaliser_request(job, job_id, number)
        fitted_s = self._fit_s(request.time_limit_s, "the finaliser")
        return self.sbatch(dataclasses.replace(request, time_limit_s=fitted_s))

    def finaliser_request(self, job: ArrayJob, job_id: str | None, number: int = 0) -> ArrayRequest:
        options, service = self.study.slurm, self.study.slurm.service
        return ArrayRequest(
            token=_end_token(job.token, number),
            script=str(self.folder.script),
            log_pattern=str(self.folder.logs).replace("%", "%%") + "/finaliser_%j.log",
            time_limit_s=self._finaliser_time_s(),
            dependency=f"afterany:{job_id}" if job_id else None,
            partition=service.partition or options.partition,
            account=options.account,
            qos=service.qos or options.qos,
            cpus=1,
            chdir=str(job.cwd),
            arguments=tuple(job.after[len(self.base(job)) :]),
            mail=self.study.notify.email,
            extra=service.extra,
        )

    def _finaliser_time_s(self) -> int:
        limit_s = self.study.slurm.service.time_limit_s or FINALISER_TIME_S
        return min(limit_s, FINALISER_TIME_S)

    @staticmethod
    def base(job: ArrayJob) -> Sequence[str]:
        """Return what array and finaliser have in common: the command in the script."""
        first = list(job.argv[:4])
        pairs = zip(first, job.after, strict=False) if job.after else ((a, a) for a in first)
        return [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]


def _end_token(token: str, number: int) -> str:
    """Return the name token of a wave's finaliser, the first or a later one."""
    return f"{token}-end{number or ''}"


def _held(tasks: Sequence[QueuedTask]) -> tuple[str, ...]:
    """Return what Slurm holds of these though nobody asked it to, as scontrol names them."""
    return tuple(
        f"{task.job}_{index}" if task.indices else task.job
        for task in tasks
        if task.phase == PENDING and is_launch_failure(task.reason)
        for index in task.indices or (0,)
    )


def _why_waiting(tasks: Sequence[QueuedTask]) -> str:
    """Return why a job waits, in plain words; empty where it does not."""
    waiting = [task for task in tasks if task.phase == PENDING]
    if not waiting or any(task.phase == RUNNING for task in tasks):
        return ""
    return str(explain_reason(waiting[0].reason))


def _what_it_does(tasks: Sequence[QueuedTask]) -> str:
    """Return what a job does at present, in words; empty where there is none."""
    for task in tasks:
        if task.phase == PENDING:
            return f"job {task.job} waits: {explain_reason(task.reason)}"
        return f"job {task.job} runs"
    return ""


def _why_stuck(tasks: Sequence[QueuedTask]) -> str:
    """Return why a job will never start, in plain words; empty where it may.

    A finaliser waits for its array: that is nothing to be told.
    """
    for task in tasks:
        if task.phase == PENDING and explain_reason(task.reason).is_stuck:
            return str(explain_reason(task.reason))
    return ""
