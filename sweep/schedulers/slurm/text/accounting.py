"""sacct: how tasks ended, steps included. Its answers lag by seconds behind squeue's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sweep.core.errors import CouldNotAsk
from sweep.core.numbers import whole
from sweep.core.scheduler import ENDED
from sweep.schedulers.slurm.text.answers import raise_for_answer
from sweep.schedulers.slurm.text.notation import expand_indices
from sweep.schedulers.slurm.text.states import classify_state, split_state

# No JobName: "|" and newlines in one would split its row.
FIELDS = "JobID,JobIDRaw,State,ExitCode,DerivedExitCode,ElapsedRaw,NodeList,Submit,Start,End,Reason"
_COLUMNS = FIELDS.count(",") + 1
_JOB_ID = (
    r"(?P<job>[0-9]{1,18})(?:_(?:(?P<index>[0-9]{1,10})|\[(?P<indices>[^]]*)\]))?"
    r"(?:\.(?P<step>.+))?"
)
# Slurm's own exit signal for "out of memory" (slurm.h: SIG_OOM).
_SIG_OOM = 125


@dataclass(frozen=True)
class Step:
    """One step of a task: batch, extern, or the number of an ``srun``."""

    name: str
    state: str
    exit_code: int | None = None
    exit_signal: int | None = None

    @property
    def is_out_of_memory(self) -> bool:
        return self.state == "OUT_OF_MEMORY" or self.exit_signal == _SIG_OOM


@dataclass(frozen=True)
class TaskRun:
    """One run of a task, as accounting knows it; a requeued task has several.

    Attributes:
        job: The array's id (a plain job's own).
        indices: Array index; several in the row of what has not started; empty for a plain job.
        own_id: The id that Slurm gave this element alone.
        state: Slurm's word, such as TIMEOUT.
        phase: PENDING, RUNNING or ENDED; REQUEUED is an ended run here.
        cancelled_by: uid from "CANCELLED by 1000".
        exit_code: Of the batch script.
        exit_signal: That ended it, 0 when none; Slurm's own are 53 (no log could be made) and
            125 (out of memory).
        derived_exit_code: The highest of its steps.
        elapsed_s: Run time.
        nodes: As sacct prints them; empty when there were none.
        submitted: Submission or requeue, local time, ISO.
        started: Empty when it never did.
        ended: Empty when it has not.
        steps: In the order of sacct.
    """

    job: str
    indices: tuple[int, ...]
    own_id: str
    state: str
    phase: str
    cancelled_by: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    derived_exit_code: int | None = None
    derived_signal: int | None = None
    elapsed_s: int | None = None
    nodes: str = ""
    submitted: str = ""
    started: str = ""
    ended: str = ""
    reason: str = ""
    steps: tuple[Step, ...] = ()

    @property
    def out_of_memory_steps(self) -> tuple[str, ...]:
        """Names of the steps that ran out of memory; where each slot is a step, one of many."""
        return tuple(step.name for step in self.steps if step.is_out_of_memory)

    @property
    def is_out_of_memory(self) -> bool:
        """Whether memory ran out, in any of the three forms.

        OUT_OF_MEMORY 0:125; FAILED 1:0 with such a step; COMPLETED 0:0 with such a step, where
        the script went on.
        """
        return (
            self.state == "OUT_OF_MEMORY"
            or _SIG_OOM in (self.exit_signal, self.derived_signal)
            or bool(self.out_of_memory_steps)
        )


def sacct_argv(
    jobs: Iterable[str] = (),
    names: Iterable[str] = (),
    user: str | None = None,
    since: str | None = None,
    all_runs: bool = True,
    sacct: str = "sacct",
) -> list[str]:
    """Return the command line that asks how tasks ended.

    Args:
        jobs: Ids of arrays or plain jobs.
        names: Name tokens; then ``since`` is needed, for sacct looks back to midnight only.
        since: Earliest time of interest, as sacct takes it (ISO, or ``now-7days``).
        all_runs: Also the earlier runs of a requeued task, which say why it was requeued.
    """
    argv = [sacct, "-n", "-P", *(["-D"] if all_runs else []), "-o", FIELDS]
    if user:
        argv += ["-u", user]
    if since:
        argv += ["-S", since]
    if named := ",".join(names):
        argv.append(f"--name={named}")
    if listed := ",".join(jobs):
        argv += ["-j", listed]
    return argv


def parse_sacct(stdout: str) -> list[TaskRun]:
    """Read sacct's rows, each step with its task; lines that are no rows are passed over."""
    runs: list[TaskRun] = []
    places: dict[str, list[int]] = {}
    steps: list[tuple[str, str, Step]] = []
    for line in stdout.splitlines():
        columns = line.split("|", _COLUMNS - 1)
        found = re.fullmatch(_JOB_ID, columns[0]) if len(columns) == _COLUMNS else None
        if not found:
            continue
        name = columns[0].partition(".")[0]
        state, uid = split_state(columns[2])
        code, number = _exit_code(columns[3])
        if found["step"] is not None:
            steps.append((name, _known(columns[8]), Step(found["step"], state, code, number)))
            continue
        derived, derived_number = _exit_code(columns[4])
        indices = found["index"] or found["indices"]
        try:
            expanded = (expand_indices(indices) or ()) if indices else ()
        except ValueError as error:
            raise CouldNotAsk(f"sacct's answer cannot be read: {error}.") from None
        run = TaskRun(
            found["job"],
            expanded,
            columns[1],
            state,
            ENDED if state == "REQUEUED" else classify_state(state),
            uid,
            code,
            number,
            derived,
            derived_number,
            whole(columns[5]),
            _known(columns[6]),
            _known(columns[7]),
            _known(columns[8]),
            _known(columns[9]),
            _known(columns[10]),
        )
        places.setdefault(name, []).append(len(runs))
        runs.append(run)
    for name, started, step in steps:
        if places.get(name):
            place = _find_run(runs, places[name], started)
            runs[place] = replace(runs[place], steps=(*runs[place].steps, step))
    # Elements that were cancelled before they started are one row under the array's bare number,
    # beside those that did start: it is not element 0.
    arrays = {run.job for run in runs if run.indices}
    return [run for run in runs if run.indices or run.job not in arrays]


def read_sacct(stdout: str, stderr: str, returncode: int) -> list[TaskRun]:
    """Return sacct's answer; unknown jobs are missing from it.

    Raises:
        CouldNotAsk: accounting did not answer.
        SchedulerError: sacct refused the question.
    """
    raise_for_answer("sacct", stdout, stderr, returncode)
    return parse_sacct(stdout)


def find_latest_runs(runs: Sequence[TaskRun]) -> dict[tuple[str, int], TaskRun]:
    """Return each task's latest run by array id and index (a plain job has index 0).

    sacct can list an element both on its own and among those that have not started: its own row
    counts.
    """
    found: dict[tuple[str, int], TaskRun] = {}
    for run in sorted(runs, key=lambda run: (len(run.indices) <= 1, run.submitted, run.started)):
        for index in run.indices or (0,):
            found[run.job, index] = run
    return found


def _find_run(runs: list[TaskRun], places: list[int], started: str) -> int:
    """Return which run of a task a step belongs to: the last that began before it."""
    begun = [place for place in places if runs[place].started and runs[place].started <= started]
    # A task whose prolog ran long can start after its extern step.
    return begun[-1] if begun else places[0]


def _exit_code(text: str) -> tuple[int | None, int | None]:
    found = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", text)
    return (int(found[1]), int(found[2])) if found else (None, None)


def _known(text: str) -> str:
    return "" if text in ("Unknown", "None", "None assigned", "N/A", "(null)") else text.strip()
