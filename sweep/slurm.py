"""Slurm as a scheduler: ``slurm_text``'s argv and parsers over an injected ``run``.

Questions are batched: one squeue for all jobs, and one sacct for those that squeue no longer lists.
No answer is CouldNotAsk, never "gone".
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import pwd
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep import process, script, slurm_text
from sweep.errors import CouldNotAsk, InputError, OverLimit, SchedulerError, SubmitUnclear
from sweep.paths import StudyFolder, make_private, read_json, write_atomic
from sweep.scheduler import ENDED, PENDING, RUNNING, ArrayJob, Limits, Task, TaskState
from sweep.slurm_text import ArrayRequest
from sweep.study import Study

ASK_TIMEOUT_S = 30.0
SUBMIT_TIMEOUT_S = 60.0
TRIES = 4  # of a question; the pauses between them double from PAUSE_S
PAUSE_S = 1.0
FIND_PATIENCE_S = 8.0  # sacct lags up to about 5 s behind
SETTLE_S = 90.0  # for an answer at all, once a submission was unclear
SUBMIT_TRIES = 3  # of a submission that surely did not arrive
MOST_ENDS = 10  # name tokens of finalisers of one wave that are looked for
FINALISER_TIME_S = 1800
DEFAULT_KILL_WAIT_S = 30  # slurm.conf(5)


@dataclass(frozen=True)
class Answer:
    """What a command printed and returned; a returncode below 0 means that it was killed."""

    stdout: str
    stderr: str
    returncode: int


# Of a machine that has the programs, and no cluster.
_UNCONFIGURED = re.compile(r"configuration source|fetch_config|slurm\.conf.*No such file", re.I)

Run = Callable[[Sequence[str], Mapping[str, str], float], Answer]


def run_command(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
    """Run one of Slurm's commands.

    Raises:
        SchedulerError: There is no such command here.
    """
    # Nothing of a command that was killed may reach Slurm later: the next one settles by looking.
    die = process.die_with(os.getpid())
    try:
        done = subprocess.run(
            list(argv), env=dict(env), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=timeout_s, text=True, errors="replace", preexec_fn=die,
        )  # fmt: skip
    except FileNotFoundError:
        raise SchedulerError(
            f"{argv[0]} was not found: this machine has no Slurm.",
            "Run on a login node of the cluster, or use --executor local.",
        ) from None
    except subprocess.TimeoutExpired:
        return Answer("", f"{argv[0]}: error: timed out after {timeout_s:.0f} s", -9)
    return Answer(done.stdout, done.stderr, done.returncode)


class SlurmScheduler:
    """Arrays of a study on a cluster.

    Args:
        folder: The study's.
        study: Its resources and Slurm options.
        environ: The launching environment; it is cleaned before Slurm sees it.
        run: Runs a command; tests give their own.
        sleep: Waits between tries.
        say: Told why it takes longer.
    """

    name = "slurm"
    settle_s = FIND_PATIENCE_S  # how long the name token of a lost submission is looked for

    def __init__(
        self,
        folder: StudyFolder,
        study: Study,
        environ: Mapping[str, str],
        run: Run = run_command,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
    ) -> None:
        self.folder = folder
        self.study = study
        self.environ = environ
        self.run = run
        self.sleep = sleep
        self.say = say
        self._known_config: slurm_text.Config | None = None

    # What the site allows

    def check_site(self, *, embedded: bool) -> None:
        """Refuse what this cluster cannot run, before anything is made.

        Args:
            embedded: The database is a job here too.

        Raises:
            InputError: A limit of the site is exceeded.
            SchedulerError: Slurm knows no such partition, account or QOS; in its own words.
            CouldNotAsk: There is no answer.
        """
        limits = self.limits()
        wanted_s = self.study.resources.time_limit_s
        if wanted_s is not None and limits.time_s is not None and wanted_s > limits.time_s:
            raise InputError(
                f"resources.time is {slurm_text.format_time(wanted_s)}, and Slurm allows "
                f"{slurm_text.format_time(limits.time_s)} at most where this study would run.",
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
        job = ArrayJob("sweep-check", 1, 1, [], Path("/"), "/dev/null")
        argv = slurm_text.sbatch_argv(dataclasses.replace(self.request(job), arguments=()))
        argv = [*argv[:-1], "--test-only", "--wrap=true"]
        answer = self._ask(argv, slurm_text.clean_environment(self.environ))
        words = slurm_text.strip_words(answer.stderr)
        # It says "not available" of much that sbatch takes all the same and lets wait.
        if answer.returncode and re.search("invalid|unrecogni[sz]ed|denied", words, re.IGNORECASE):
            raise _refusal(words)

    def nodes_may_submit(self) -> bool:
        """Tell whether jobs may be submitted from the nodes of this study's partitions."""
        for partition in self._partitions():
            allowed = partition.alloc_nodes
            if allowed in ("ALL", "", "(null)"):
                continue
            hosts = set(slurm_text.expand_nodes(allowed))
            if not set(slurm_text.expand_nodes(partition.nodes)) <= hosts:
                return False
        return True

    def limits(self) -> Limits:
        """Return the tightest limits that hold for this study's submissions."""
        config, mine = self._config(), self._partitions()
        associations: list[slurm_text.Association] = []
        qos: list[slurm_text.Qos] = []
        if config.accounting:
            try:
                associations = self._associations()
                qos = self._qos(associations, mine)
            except (CouldNotAsk, SchedulerError):
                pass  # limits that cannot be read are met when sbatch refuses
        return slurm_text.find_limits(config, mine, associations, qos)

    def _config(self) -> slurm_text.Config:
        if self._known_config is None:
            answer = self._ask(slurm_text.config_argv())
            self._known_config = slurm_text.parse_config(answer.stdout)
        return self._known_config

    def _accounts(self) -> bool:
        """Tell whether this cluster keeps accounts, which say who cancelled a job."""
        return self._config().accounting

    def _partitions(self) -> list[slurm_text.Partition]:
        """Return the partitions that the study's tasks may go to."""
        found = slurm_text.parse_partitions(self._ask(slurm_text.partitions_argv()).stdout)
        wanted = (self.study.slurm.partition or "").split(",")
        return [p for p in found if p.name in wanted or (wanted == [""] and p.is_default)]

    def _associations(self) -> list[slurm_text.Association]:
        user = pwd.getpwuid(os.getuid()).pw_name
        found = slurm_text.parse_associations(
            self._ask(slurm_text.associations_argv(user)).stdout
        )
        account = self.study.slurm.account
        if account is None:
            answer = self._ask(slurm_text.default_account_argv(user))
            account = answer.stdout.strip() or None
        partitions = ("", *(self.study.slurm.partition or "").split(","))
        return [
            a for a in found if account in (None, a.account) and a.partition in partitions
        ]

    def _qos(
        self,
        associations: Sequence[slurm_text.Association],
        partitions: Sequence[slurm_text.Partition],
    ) -> list[slurm_text.Qos]:
        names = {self.study.slurm.qos} if self.study.slurm.qos else set()
        if not names:
            names = {a.default_qos for a in associations if a.default_qos}
        names |= {p.qos for p in partitions if p.qos}
        if not names:
            return []
        return slurm_text.parse_qos(self._ask(slurm_text.qos_argv(sorted(names))).stdout)

    def submit(self, job: ArrayJob) -> str:
        """Submit an array, and after it the finaliser that looks at what became of it."""
        request = self.request(dataclasses.replace(job, exclude=self._excludable(job.exclude)))
        self._write_script(job)
        before = self.service_jobs()
        service = self.ensure_service(job.cwd)
        conditions = [f"after:{service}"] if service else []
        if job.behind:
            conditions.append(f"afterany:{job.behind}")
        request = dataclasses.replace(request, dependency=",".join(conditions) or None)
        try:
            job_id = self._sbatch(request)
        except SchedulerError:
            if service and service not in before:
                self.cancel(service)
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
        there = {
            node for partition in self._partitions()
            for node in slurm_text.expand_nodes(partition.nodes)
        }  # fmt: skip
        if len(there - set(nodes)) < self.study.resources.nodes:
            self.say(f"too few nodes are left without {', '.join(nodes)}: none is excluded")
            return ()
        # The user's own come last on the command line, and would replace ours.
        return tuple(sorted({*nodes, *slurm_text.excluded_by(self.study.slurm.extra)}))

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
            arguments=tuple(job.argv[len(self._base(job)) :]),
            extra=options.extra,
        )

    def ensure_service(self, cwd: Path) -> str | None:
        """Submit the job that serves the embedded database, unless it is queued or runs already.

        Returns:
            Its id; None where the database is not a job's affair.
        """
        token = self.service_token()
        if token is None:
            return None
        live = self.service_jobs(token)
        if live:
            return live[0]
        options, service = self.study.slurm, self.study.slurm.service
        return self._sbatch(
            ArrayRequest(
                token=token,
                script=str(self.folder.script),
                log_pattern=str(self.folder.logs).replace("%", "%%") + "/database_%j.log",
                time_limit_s=service.time_limit_s,
                grace_s=self.study.grace_s,
                partition=service.partition or options.partition,
                account=options.account,
                qos=options.qos,
                cpus=1,
                chdir=str(cwd),
                arguments=("--serve",),
                extra=service.extra,
            )
        )

    def service_token(self) -> str | None:
        """Return the name token of the database's job, one for each data folder, or None."""
        note = read_json(self.folder.storage) or {}
        if "embedded" not in note or self.study.storage.embedded != "job":
            return None
        return f"sweep-db-{hashlib.sha256(note['embedded'].encode()).hexdigest()[:10]}"

    def service_jobs(self, token: str | None = None, *, running: bool = False) -> list[str]:
        """Return the ids of the database's jobs that are queued or run, or only the latter."""
        token = token or self.service_token()
        return self._live_jobs([token], running=running) if token else []

    def finalisers(self, token: str) -> list[str]:
        """Return the ids of a wave's finalisers that are queued or run."""
        return self._live_jobs([_end_token(token, number) for number in range(MOST_ENDS)])

    def _live_jobs(self, names: Sequence[str], *, running: bool = False) -> list[str]:
        answer = self._ask(slurm_text.squeue_argv(names=names, ended=False))
        queued = slurm_text.read_squeue(answer.stdout, answer.stderr, answer.returncode)
        # One that is completing has done its work, and does no more.
        live = (task for task in queued if task.phase != ENDED and task.state != "COMPLETING")
        return sorted({task.job for task in live if not running or task.phase == RUNNING})

    def service_reason(self) -> str:
        """Return why the database's job waits, in plain words; empty where it does not."""
        token = self.service_token()
        if token is None:
            return ""
        answer = self._ask(slurm_text.squeue_argv(names=[token], ended=False))
        queued = slurm_text.read_squeue(answer.stdout, answer.stderr, answer.returncode)
        waiting = [task for task in queued if task.phase == PENDING]
        if not waiting or any(task.phase == RUNNING for task in queued):
            return ""
        return str(slurm_text.explain_reason(waiting[0].reason))

    def submit_finaliser(self, job: ArrayJob, job_id: str | None, number: int = 0) -> str:
        """Submit the small job that runs once the array has ended.

        Args:
            job_id: The array; None where it has ended, for Slurm forgets what has.
            number: How often it was submitted before; each has a name token of its own, so that
                one that has ended is not taken for this one.

        Raises:
            SchedulerError, SubmitUnclear: As ``submit``; the array itself is in.
        """
        return self._sbatch(self.finaliser_request(job, job_id, number))

    def finaliser_request(
        self, job: ArrayJob, job_id: str | None, number: int = 0
    ) -> ArrayRequest:
        options, service = self.study.slurm, self.study.slurm.service
        return ArrayRequest(
            token=_end_token(job.token, number),
            script=str(self.folder.script),
            log_pattern=str(self.folder.logs).replace("%", "%%") + "/finaliser_%j.log",
            time_limit_s=self._finaliser_time_s(),
            dependency=f"afterany:{job_id}" if job_id else None,
            partition=service.partition or options.partition,
            account=options.account,
            qos=options.qos,
            cpus=1,
            chdir=str(job.cwd),
            arguments=tuple(job.after[len(self._base(job)) :]),
            extra=service.extra,
        )

    def _finaliser_time_s(self) -> int:
        limit_s = self.study.slurm.service.time_limit_s or FINALISER_TIME_S
        return min(limit_s, FINALISER_TIME_S)

    @staticmethod
    def _base(job: ArrayJob) -> Sequence[str]:
        """Return what array and finaliser have in common: the command in the script."""
        first = list(job.argv[:4])
        pairs = zip(first, job.after, strict=False) if job.after else ((a, a) for a in first)
        return [one for one, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]

    def show(self, job: ArrayJob) -> tuple[str, list[list[str]]]:
        """Return the batch script and the command lines of a submission, without making it."""
        requests = [self.request(job)]
        if job.after:
            requests.append(self.finaliser_request(job, "ARRAY"))
        return self._script(job), [slurm_text.sbatch_argv(request) for request in requests]

    def _write_script(self, job: ArrayJob) -> None:
        text = self._script(job)
        make_private(self.folder.logs)
        write_atomic(self.folder.script, text, mode=0o700)

    def _script(self, job: ArrayJob) -> str:
        exports = {
            "SWEEP_KILL_WAIT": str(self._kill_wait_s()),
            "SWEEP_LOGS": str(self.folder.logs),
            **job.env,
        }
        if job.slots > 1:
            exports["SWEEP_SLOTS"] = str(job.slots)
        return script.render(self.study, self._base(job), exports)

    def _kill_wait_s(self) -> int:
        """Return the seconds between TERM and KILL here."""
        return self._config().kill_wait_s or DEFAULT_KILL_WAIT_S

    def _sbatch(self, request: ArrayRequest) -> str:
        """Submit a request; return the job's id.

        Raises:
            OverLimit, SchedulerError: It was refused.
            SubmitUnclear: Nobody can say, for as long as Slurm does not answer.
        """
        argv = slurm_text.sbatch_argv(request)
        env = slurm_text.clean_environment(self.environ)
        for last_try in (*[False] * (SUBMIT_TRIES - 1), True):
            answer = self.run(argv, env, SUBMIT_TIMEOUT_S)
            found = slurm_text.parse_sbatch(answer.stdout, answer.stderr, answer.returncode)
            if found.kind == "submitted":
                return found.job
            if found.kind == "refused":
                raise _refusal(found.words, over_limit=found.over_limit)
            # It may have got in all the same.
            self.say(f"sbatch gave no clear answer ({found.words}); looking for the job")
            job = self._settle(request.token)
            if job is not None:
                return job
            if not last_try:
                self.say("the job did not get in; submitting it again")
        raise SchedulerError(
            f"sbatch gave no clear answer {SUBMIT_TRIES} times: {found.words}. Nothing was "
            "submitted.",
            "Try later; is slurmctld well? See: scontrol ping",
        )

    def _settle(self, token: str) -> str | None:
        """Return the job of an unclear submission; None once it surely did not get in.

        Raises:
            SubmitUnclear: Slurm does not answer.
        """
        began = time.monotonic()
        answered: float | None = None
        while True:
            try:
                jobs = self.find(token)
            except (CouldNotAsk, SchedulerError) as error:
                answered = None
                if time.monotonic() - began > SETTLE_S:
                    raise SubmitUnclear(
                        "Whether the job was submitted cannot be said: Slurm does not answer.",
                        "The next `sweep launch` settles it.",
                    ) from error
            else:
                if jobs:
                    return jobs[0]
                answered = answered or time.monotonic()
                if time.monotonic() - answered >= FIND_PATIENCE_S:
                    return None
            self.sleep(PAUSE_S)

    # Asking

    def find(self, token: str) -> list[str]:
        """Return the ids of jobs with this name token, as squeue or sacct know them."""
        answer = self._ask(slurm_text.squeue_argv(names=[token]))
        queued = slurm_text.read_squeue(answer.stdout, answer.stderr, answer.returncode)
        if queued:
            return sorted({task.job for task in queued})
        try:
            runs = self._sacct(names=[token], since="now-7days")
        except (CouldNotAsk, SchedulerError):
            return []  # squeue lists what is live; what has ended needs accounting
        return sorted({run.job for run in runs})

    def poll(self, jobs: Sequence[str]) -> dict[Task, TaskState]:
        """Return the states of the tasks of these jobs: squeue's, and sacct's of what has ended."""
        wanted = sorted(set(jobs))
        if not wanted:
            return {}
        answer = self._ask(slurm_text.squeue_argv(wanted))
        queued = slurm_text.read_squeue(answer.stdout, answer.stderr, answer.returncode)
        found = {
            place: _queued_state(task) for place, task in slurm_text.collect_tasks(queued).items()
        }
        if any(state.word == "CANCELLED" for state in found.values()) and not self._accounts():
            # Nothing here ever says by whom: then it was by hand, and whose but the user's?
            found = {
                place: dataclasses.replace(state, cancelled_by=os.getuid())
                if state.word == "CANCELLED" else state
                for place, state in found.items()
            }  # fmt: skip
        try:
            runs = self._sacct(jobs=wanted)
        except (CouldNotAsk, SchedulerError):
            return found  # sacct only says why; a task that squeue lacks is gone without it
        for place, run in slurm_text.find_latest_runs(runs).items():
            if place not in found:
                if run.phase == ENDED:
                    found[place] = _ended_state(run)
            elif found[place].state == ENDED:
                found[place] = _ended_state(run) if run.phase == ENDED else found[place]
        ended = [run for run in runs if run.phase == ENDED]
        for place, run in slurm_text.find_latest_runs(ended).items():
            if place in found and found[place].state != ENDED:
                found[place] = dataclasses.replace(found[place], before=run.state)
        return found

    def _sacct(
        self, jobs: Sequence[str] = (), names: Sequence[str] = (), since: str | None = None
    ) -> list[slurm_text.TaskRun]:
        answer = self.run(
            slurm_text.sacct_argv(jobs, names, since=since),
            slurm_text.ask_environment(self.environ),
            ASK_TIMEOUT_S,
        )
        return slurm_text.read_sacct(answer.stdout, answer.stderr, answer.returncode)

    def _ask(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Answer:
        """Ask Slurm something, again after a pause while there is no answer.

        Raises:
            CouldNotAsk: There was none.
        """
        env = slurm_text.ask_environment(self.environ) if env is None else env
        pause_s = PAUSE_S
        for attempt in range(TRIES):
            answer = self.run(argv, env, ASK_TIMEOUT_S)
            if not slurm_text.did_not_answer(answer.stderr, answer.returncode):
                return answer
            if attempt + 1 < TRIES:
                self.say(f"{argv[0]} got no answer from Slurm; again in {pause_s:.0f} s")
                self.sleep(pause_s)
                pause_s *= 2
        words = slurm_text.strip_words(answer.stderr)[:200]
        raise CouldNotAsk(
            f"{argv[0]} got no answer from Slurm ({words}).",
            "This says nothing about the jobs. Is slurmctld up? Try: scontrol ping",
        )

    # Changing

    def cancel(
        self, job: str, indices: Sequence[int] | None = None, *, pending_only: bool = False
    ) -> None:
        """Cancel an array, some of its elements, or what of it has not started."""
        argv = slurm_text.cancel_argv(job, indices, pending_only)
        answer = self._ask(argv)
        slurm_text.check_update("scancel", answer.stdout, answer.stderr, answer.returncode)

    def set_throttle(self, job: str, throttle: int) -> None:
        """Change how many elements of a live array run at once."""
        answer = self._ask(slurm_text.throttle_argv(job, throttle))
        slurm_text.check_update("scontrol", answer.stdout, answer.stderr, answer.returncode)

    def exclude(self, job: str, node: str) -> None:
        """Keep the waiting elements of an array from a node, beside those it avoids already."""
        answer = self._ask(slurm_text.excluded_argv(job))
        nodes = {*slurm_text.parse_excluded(answer.stdout), node}
        answer = self._ask(slurm_text.exclude_argv(job, nodes))
        slurm_text.check_update("scontrol", answer.stdout, answer.stderr, answer.returncode)

    def held_memory_mb(self, job: str, index: int | None) -> int | None:
        """Return the memory in MiB that a running task holds; None where Slurm does not say."""
        answer = self._ask(slurm_text.held_argv(job if index is None else f"{job}_{index}"))
        return slurm_text.parse_held(answer.stdout)

    def time_left_s(self, job: str, index: int | None) -> float | None:
        """Return the seconds until a running task's limit; None where there is none."""
        name = job if index is None else f"{job}_{index}"
        answer = self._ask(slurm_text.time_left_argv(name))
        lines = answer.stdout.split()
        return slurm_text.parse_time(lines[0]) if lines else None


def _end_token(token: str, number: int) -> str:
    """Return the name token of a wave's finaliser, the first or a later one."""
    return f"{token}-end{number or ''}"


def _refusal(words: str, *, over_limit: bool = False) -> SchedulerError:
    kind = OverLimit if over_limit else SchedulerError
    return kind(f"Slurm refused the job: {words}.", slurm_text.explain_refusal(words))


def _pattern(log_pattern: str) -> str:
    """Return a log pattern with ``{job}`` and ``{index}`` in sbatch's notation."""
    escaped = log_pattern.replace("%", "%%")
    return escaped.format(job="%A", index="%a")


def _queued_state(task: slurm_text.QueuedTask) -> TaskState:
    reason = task.reason
    if task.phase == PENDING and reason:
        explained = slurm_text.explain_reason(reason)
        reason = str(explained) if explained.is_stuck else explained.words
    return TaskState(task.phase, task.state, reason if task.phase != RUNNING else "")


def _ended_state(run: slurm_text.TaskRun) -> TaskState:
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


def is_here(environ: Mapping[str, str] = os.environ, run: Run = run_command) -> bool:
    """Tell whether this machine belongs to a cluster: sbatch is there, and it has a configuration.

    Slurm's programs may be installed without a cluster. A controller that does not answer is a
    cluster all the same.
    """
    import shutil

    if shutil.which("sbatch", path=environ.get("PATH")) is None:
        return False
    argv = ["sinfo", "-h", "-o", "%P"]
    answer = run(argv, slurm_text.ask_environment(environ), ASK_TIMEOUT_S)
    return answer.returncode == 0 or not _UNCONFIGURED.search(answer.stderr)



def check_options(study: Study, folder: Path) -> None:
    """Refuse what Slurm would misread, before anything is made.

    Raises:
        InputError: An option in ``slurm.extra`` that sweep owns, or a malformed request.
    """
    scheduler = SlurmScheduler(StudyFolder(folder), study, {})
    job = ArrayJob("check", 1, 1, ["python", "-m", "sweep.task", "x"], folder, "{job}_{index}.log")
    slurm_text.sbatch_argv(scheduler.request(job))
    slurm_text.sbatch_argv(scheduler.finaliser_request(job, "1"))

