"""Slurm as a scheduler: ``slurm_text``'s argv and parsers over an injected ``run``.

Questions are batched: one squeue for all jobs, and one sacct for those that squeue no longer lists.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweep.core.errors import CouldNotAsk, SchedulerError, SubmitUnclear
from sweep.core.files import make_private, write_atomic
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import (
    ENDED,
    GRACE_TIME_VARIABLE,
    PENDING,
    RUNNING,
    ArrayJob,
    Limits,
    Task,
    TaskEnergy,
    TaskState,
)
from sweep.core.site_view import SiteView
from sweep.core.study import Study
from sweep.schedulers.slurm import batch_script
from sweep.schedulers.slurm.ask import FIND_PATIENCE_S, is_here
from sweep.schedulers.slurm.own_task import OwnTask
from sweep.schedulers.slurm.site import Site
from sweep.schedulers.slurm.small_jobs import BUILD, FETCH
from sweep.schedulers.slurm.text.accounting import TaskRun, find_latest_runs
from sweep.schedulers.slurm.text.answers import raise_for_answer
from sweep.schedulers.slurm.text.consumed_energy import RunEnergy, energy_argv, parse_energy
from sweep.schedulers.slurm.text.extra import SERVICE_OWNED, check_extra, excluded_by
from sweep.schedulers.slurm.text.free import nodes_argv, parse_nodes, parse_waiting, waiting_argv
from sweep.schedulers.slurm.text.notation import read_nodes
from sweep.schedulers.slurm.text.queue import QueuedTask, collect_tasks, squeue_argv
from sweep.schedulers.slurm.text.reasons import explain_reason
from sweep.schedulers.slurm.text.scontrol import (
    cancel_argv,
    check_update,
    exclude_argv,
    excluded_argv,
    hurry_argv,
    parse_excluded,
    throttle_argv,
)
from sweep.schedulers.slurm.text.submit import ArrayRequest, sbatch_argv, srun_argv


class SlurmScheduler(OwnTask):
    """Arrays of a study on a cluster, and the small jobs beside them."""

    name = "slurm"
    place = "Slurm"
    spans_nodes = True
    serves_slots = True
    runs_setup = True
    records_environment = True
    explains_late = True
    may_requeue = True
    others_end_tasks = True
    finalises_by_job = True
    sends_mail = True
    settle_s = FIND_PATIENCE_S

    @classmethod
    def of(
        cls, folder: StudyFolder, study: Study, environ: Mapping[str, str] = os.environ
    ) -> SlurmScheduler:
        """Return the scheduler of a study."""
        return cls(folder, study, environ)

    @classmethod
    def is_here(cls, environ: Mapping[str, str]) -> bool:
        """Tell whether this machine belongs to a cluster."""
        return is_here(environ)

    @classmethod
    def keeps_database_in_job(cls, study: Study) -> bool:
        """Tell whether a job serves the embedded database of a study."""
        return study.storage.embedded == "job"

    @functools.cached_property
    def site(self) -> Site:
        """The cluster."""
        return Site(self, self.study)

    def site_view(self) -> SiteView:
        """Return what is free in the study's partitions, and who waits there."""
        partitions = [partition.name for partition in self.site.partitions]
        said = self.ask(nodes_argv(partitions))
        raise_for_answer("sinfo", said.stdout, said.stderr, said.returncode)
        nodes = parse_nodes(said.stdout)
        said = self.ask(waiting_argv(partitions))
        raise_for_answer("squeue", said.stdout, said.stderr, said.returncode)
        waiting, running = parse_waiting(said.stdout)
        return SiteView(f"Slurm, partition {', '.join(partitions)}", nodes, waiting, running)

    @functools.cached_property
    def service_site(self) -> Site:
        """The cluster, as far as it concerns the small jobs."""
        service = self.study.slurm.service
        return super().service_site if service.partition or service.qos else self.site

    # Without an array

    def interactive(self, token: str, *, is_terminal: bool) -> Sequence[str]:
        """Return srun with what a trial asks for, and the lines of ``slurm.setup`` within it."""
        limit_s = self.study.resources.time_limit_s
        job = ArrayJob(token, 1, 1, [], self.folder.root, "", limit_s, grace_s=0)
        argv = srun_argv(replace(self.request(job), size=None), is_terminal=is_terminal)
        # Its lines are an argument: nothing of the command is evaluated.
        lines = "\n".join([*self.study.slurm.setup, 'exec "$@"'])
        return [*argv, "bash", "-c", lines, "sweep"]

    # What the site allows

    def check_options(self) -> None:
        """Refuse what Slurm would misread: it asks nothing."""
        argv = ["python", "-m", "sweep.task", "x"]
        job = ArrayJob("check", 1, 1, argv, self.folder.root.parent, "{job}_{index}.log")
        sbatch_argv(self.request(job))
        check_extra(self.study.slurm.service.extra, "slurm.service.extra", SERVICE_OWNED)
        sbatch_argv(self.finaliser_request(job, "1"))

    def check_site(self, *, embedded: bool) -> None:
        """Refuse what this cluster cannot run, before anything is made; see ``Site.check``."""
        job = ArrayJob("sweep-check", 1, 1, [], Path("/"), "/dev/null")
        self.site.check(self.request(job), embedded=embedded)

    def nodes_may_submit(self) -> bool:
        """Tell whether jobs may be submitted from the nodes of this study's partitions."""
        return self.site.nodes_may_submit()

    def preemption(self) -> dict[str, Any]:
        """Return how the study's tasks are preempted, for a check on a node."""
        return {**vars(self.site.preemption), "kill_wait_s": self.site.kill_wait_s()}

    def limits(self) -> Limits:
        """Return the tightest limits that hold for this study's submissions."""
        return self.site.limits

    # Submitting

    def submit(self, job: ArrayJob) -> str:
        """Submit an array, and after it the finaliser that looks at what became of it."""
        request = self.request(replace(job, exclude=self._excludable(job.exclude)))
        self._write_script(job)
        service, is_new = self._ensure_service(job.cwd)
        conditions = [f"after:{service}"] if service else []
        new = [service] if service and is_new else []
        first = [name for name, wanted in ((FETCH, job.fetches), (BUILD, job.builds)) if wanted]
        for name in first:
            before, is_new = self._ensure_first(name, job.cwd)
            conditions.append(f"afterok:{before}")
            new += [before] if is_new else []
        if job.behind:
            conditions.append(f"afterany:{job.behind}")
        limit_s = self._fit_s(request.time_limit_s, "each task", self.site)
        request = replace(
            request,
            dependency=",".join(conditions) or None,
            needs_dependency=bool(first),
            time_limit_s=limit_s,
        )
        try:
            job_id = self.sbatch(request)
        except SchedulerError:
            for one in new:
                self.cancel(one)
            raise
        if job.after:
            try:
                self.submit_finaliser(job, job_id)
            except (SchedulerError, SubmitUnclear) as error:
                # The array does its work all the same; status says that no finaliser exists.
                self.say(f"The finaliser was not submitted. {error.message}")
        return job_id

    def _excludable(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the nodes to exclude: none where too few would be left for a task."""
        if not nodes:
            return ()
        there = {node for partition in self.site.partitions for node in read_nodes(partition.nodes)}
        if len(there - set(nodes)) < self.study.resources.nodes:
            self.say(f"too few nodes are left without {', '.join(nodes)}: none is excluded")
            return ()
        # The user's own come last on the command line, and would replace ours.
        return tuple(sorted({*nodes, *excluded_by(self.study.slurm.extra)}))

    def request(self, job: ArrayJob) -> ArrayRequest:
        """Return an array as sbatch is to get it."""
        resources, options = self.study.resources, self.study.slurm
        return ArrayRequest(
            token=job.token,
            script=str(self.folder.script),
            log_pattern=_pattern(job.log_pattern),
            size=job.size,
            throttle=job.throttle,
            time_limit_s=job.time_limit_s,
            grace_s=job.grace_s,
            partition=options.partition,
            account=options.account,
            qos=options.qos,
            nodes=resources.nodes,
            tasks_per_node=job.slots,
            gpus=resources.so_many_gpus(resources.gpu_count * job.slots) or None,
            shard=resources.shard,
            mps=resources.mps,
            # Where a site gives one CPU by default, each process has one all the same.
            cpus=resources.cpus or (self.study.ranks_per_node if self.study.world > 1 else None),
            memory_mb=resources.memory_mb and resources.memory_mb * job.slots,
            constraint=options.constraint,
            reservation=options.reservation,
            exclusive=options.exclusive,
            exclude=job.exclude,
            chdir=str(job.cwd),
            arguments=tuple(job.argv[len(self.base(job)) :]),
            extra=options.extra,
        )

    def show(self, job: ArrayJob) -> tuple[str, list[list[str]]]:
        """Return the batch script and the command lines of a submission, without making it."""
        requests = [self.request(job)]
        if job.after:
            requests.append(self.finaliser_request(job, "ARRAY"))
        return self._script(job), [sbatch_argv(request) for request in requests]

    def _write_script(self, job: ArrayJob) -> None:
        text = self._script(job)
        make_private(self.folder.logs)
        write_atomic(self.folder.script, text, mode=0o700)

    def _script(self, job: ArrayJob) -> str:
        exports = {
            "SWEEP_KILL_WAIT": str(self.site.kill_wait_s()),
            "SWEEP_LOGS": str(self.folder.logs),
            **job.env,
        }
        if job.slots > 1:
            exports["SWEEP_SLOTS"] = str(job.slots)
        if job.share is not None:
            exports["SWEEP_PACKED"] = "1"
        has_steps = job.slots > 1 or job.share is not None
        if has_steps and (grace_time_s := self.site.preemption.grace_time_s):
            exports[GRACE_TIME_VARIABLE] = str(grace_time_s)
        return batch_script.render(self.study, self.base(job), exports)

    # Asking

    def energy(self, jobs: Sequence[str]) -> list[TaskEnergy]:
        """Return what the ended runs of these jobs' tasks used, where the site measures it."""
        answer = self.ask(energy_argv(jobs))
        raise_for_answer("sacct", answer.stdout, answer.stderr, answer.returncode)
        return _energies(parse_energy(answer.stdout))

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return the states of the tasks of these jobs: squeue's, and sacct's of what has ended."""
        return self.explain(jobs, self.queued(jobs))

    def queued(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return the states of the tasks of these jobs that squeue lists."""
        wanted = sorted(set(jobs))
        if not wanted:
            return {}
        # Of one job squeue loads that alone, of several the whole cluster's or one user's.
        owner = self.owner if len(wanted) > 1 else None
        queued = self.queue(squeue_argv(wanted, user=owner))
        found = {place: _queued_state(task) for place, task in collect_tasks(queued).items()}
        cancelled = any(state.word == "CANCELLED" for state in found.values())
        if cancelled and not self.site.keeps_accounts():
            # squeue and scontrol show job have no word on it. It is taken for the user's wish:
            # that can be undone (launch), and a trial that comes back all the time cannot.
            found = {
                place: replace(state, cancelled_by=os.getuid(), presumed=True)
                if state.word == "CANCELLED"
                else state
                for place, state in found.items()
            }
        return found

    def explain(
        self, jobs: Sequence[str], states: Mapping[Task, TaskState]
    ) -> dict[Task, TaskState]:
        """Return these states with what sacct says of what has ended, also of earlier runs."""
        found = dict(states)
        if not jobs:
            return found
        try:
            runs = self.sacct(jobs=sorted(set(jobs)))
        except (CouldNotAsk, SchedulerError):
            return found  # sacct only says why; a task that squeue lacks is gone without it
        for place, run in find_latest_runs(runs).items():
            if place not in found:
                if run.phase == ENDED:
                    found[place] = _ended_state(run)
            elif found[place].state == ENDED:
                found[place] = _ended_state(run) if run.phase == ENDED else found[place]
        ended = [run for run in runs if run.phase == ENDED]
        for place, run in find_latest_runs(ended).items():
            if place in found and found[place].state != ENDED:
                found[place] = replace(found[place], before=run.state)
        return found

    # Changing

    def cancel(
        self, job: str, indices: Sequence[int] | None = None, *, pending_only: bool = False
    ) -> None:
        """Cancel an array, some of its elements, or what of it has not started."""
        argv = cancel_argv(job, indices, pending_only)
        answer = self.ask(argv)
        check_update("scancel", answer.stdout, answer.stderr, answer.returncode)

    def hurry(self, job: str) -> None:
        """Have the tasks that run look now what their study wants of them (SIGUSR2)."""
        answer = self.ask(hurry_argv(job))
        check_update("scancel", answer.stdout, answer.stderr, answer.returncode)

    def set_throttle(self, job: str, throttle: int) -> None:
        """Change how many elements of a live array run at once."""
        answer = self.ask(throttle_argv(job, throttle))
        check_update("scontrol", answer.stdout, answer.stderr, answer.returncode)

    def exclude(self, job: str, node: str) -> None:
        """Keep the waiting elements of an array from a node, beside those it avoids already."""
        answer = self.ask(excluded_argv(job))
        nodes = {*parse_excluded(answer.stdout), node}
        answer = self.ask(exclude_argv(job, nodes))
        check_update("scontrol", answer.stdout, answer.stderr, answer.returncode)


def _energies(runs: Sequence[RunEnergy]) -> list[TaskEnergy]:
    found = []
    for run in runs:
        started_s, ended_s = _epoch_s(run.started), _epoch_s(run.ended)
        if started_s is not None and ended_s is not None:
            found.append(TaskEnergy(run.job, run.index, started_s, ended_s, run.joules))
    return found


def _pattern(log_pattern: str) -> str:
    """Return a log pattern with ``{job}`` and ``{index}`` in sbatch's notation."""
    escaped = log_pattern.replace("%", "%%")
    return escaped.format(job="%A", index="%a")


def _queued_state(task: QueuedTask) -> TaskState:
    reason = task.reason
    if task.phase == PENDING and reason:
        explained = explain_reason(reason)
        reason = str(explained) if explained.is_stuck else explained.words
    return TaskState(task.phase, task.state, reason if task.phase != RUNNING else "")


def _ended_state(run: TaskRun) -> TaskState:
    # A step that ran out of memory says why the task failed, not who cancelled it.
    failed = run.state in ("FAILED", "COMPLETED")
    word = "OUT_OF_MEMORY" if failed and run.is_out_of_memory else run.state
    return TaskState(
        ENDED,
        word,
        exit_code=run.exit_code,
        cancelled_by=run.cancelled_by,
        signal=run.exit_signal or None,
        started=bool(run.nodes),
        ended_s=_epoch_s(run.ended),
        nodes=run.nodes,
    )


def _epoch_s(text: str) -> float | None:
    """Return the epoch seconds of a local time of Slurm's."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None
