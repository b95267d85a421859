"""``sweep check STUDY --on-node``: a short job where trials would run, and what it found.

The job gets the study's own resources and partition; its folder is removed at the end, and it is
cancelled when we leave early.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.control.check import facts, judge_node, judge_training, requirements
from sweep.control.check.lines import FAILED, OK, Line, judged
from sweep.control.check.node_task import REDUCE_S, Request, request_file, result_file
from sweep.control.check.probes import gpus_within
from sweep.control.check.quick import judge_connections, recorded_digest
from sweep.core.errors import CouldNotAsk, SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, read_json, read_tail, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.programs import interpreter
from sweep.core.scheduler import ENDED, PENDING, Scheduler, TaskState
from sweep.core.secrets import is_secret
from sweep.core.study import Study
from sweep.schedulers import arrays
from sweep.storage import access
from sweep.training.command import environment

TIME_LIMIT_S = 900
POLL_S = 0.2
ASK_FIRST_S = 3.0
ASK_EVERY_S = 10.0
SETTLE_S = 30.0  # for the answers of a task that has ended to be seen here
END_S = 20.0  # for a job to end before its folder is removed
NO_PYTHON = "sweep's own Python does not start there"

Say = Callable[[str], None]


@dataclasses.dataclass
class Went:
    """How the check's task went.

    Attributes:
        found: Its answers so far; empty where it gave none.
        job: Its job; empty where it was not submitted.
        state: The scheduler's last word of it.
        submitted_s, seen_s: When it was submitted, and when the last answer was seen here.
        tail: The end of its log.
        problem: Why there are not all answers: the error, and what to do.
    """

    found: dict[str, Any] = dataclasses.field(default_factory=dict)
    job: str = ""
    state: TaskState | None = None
    submitted_s: float = 0.0
    seen_s: float = 0.0
    tail: str = ""
    problem: tuple[str, str] | None = None


def check(
    study: Study,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: Say,
    patience_s: float,
) -> list[Line]:
    """Ask everything on a node, and return what it found.

    Args:
        study: Whose executor is decided.
        say: Told what it waits for.
        patience_s: For the job to start.
    """
    is_new = not runs.root.exists()
    token = arrays.name_token(f"{study.name}-check")
    checks = runs.root / ".checks"
    folder = StudyFolder(checks / token)
    went = Went()
    try:
        _prepare(study, runs, folder, environ)
        went = _run(study, folder, schedule_for(folder), token, say, patience_s)
    except OSError as error:
        went.problem = (f"{error.filename or folder.root}: {error.strerror}", "")
        line = Line(
            "space",
            FAILED,
            f"{runs.root} cannot be written to: {error.strerror}",
            "Make room there, or keep runs elsewhere: --runs, SWEEP_RUNS.",
        )
        return [line, *(one for one in judge(study, went) if one.name != "space")]
    finally:
        shutil.rmtree(folder.root, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty, or not there
            checks.rmdir()
            if is_new:
                runs.root.rmdir()
    return judge(study, went)


def _prepare(study: Study, runs: Runs, folder: StudyFolder, environ: Mapping[str, str]) -> None:
    make_private(folder.logs)
    url = access.choose_url(study)
    request = Request(
        url=url,
        embedded=str(runs.postgres),
        elsewhere=kind_of(study).keeps_database_in_job(study),
        home=str(runs.study(study.name).root),
        recorded=recorded_digest(study, runs),
    )
    write_atomic(request_file(folder), request.to_json() + "\n", mode=0o600)
    write_atomic(folder.study, study.to_json() + "\n")
    environment.install_reporter(folder.python_path)
    if kind_of(study).records_environment:
        secrets = {name: value for name, value in environ.items() if is_secret(name, value)}
        kept = environment.without_database(secrets, environ)
        write_atomic(folder.secrets, json.dumps(kept) + "\n", mode=0o600)


def _run(
    study: Study, folder: StudyFolder, schedule: Scheduler, token: str, say: Say, patience_s: float
) -> Went:
    limit_s = min(study.resources.time_limit_s or TIME_LIMIT_S, TIME_LIMIT_S)
    plain = arrays.task_job(study, folder, token, "{job}", "--check")
    job = dataclasses.replace(
        plain,
        time_limit_s=limit_s,
        # Of the batch script, where the interpreter does not start: it is to end at once.
        env={**plain.env, "SWEEP_SICK_HOLD": "0"},
    )
    went = Went(submitted_s=time.time())
    over = False
    try:
        went.job = schedule.submit(job)
        say(f"the job {went.job} asks on a node; Ctrl-C cancels it")
        _wait(folder, schedule, went, say, patience_s)
        over = went.found.get("done", False) or (
            went.state is not None and went.state.state == ENDED
        )
    except SweepError as error:
        went.problem = (error.message, error.hint)
    finally:
        if not over:
            _cancel(schedule, token)
        _await_end(schedule, went.job)
    logs = sorted(folder.logs.glob("*"))
    went.tail = "\n".join(read_tail(logs[0], 12)) if logs else ""
    return went


def _wait(
    folder: StudyFolder, schedule: Scheduler, went: Went, say: Say, patience_s: float
) -> None:
    began = time.monotonic()
    ask_at = began + (0.5 if schedule.is_cheap_to_ask else ASK_FIRST_S)
    told = ""
    ended_at: float | None = None
    while True:
        found = read_json(result_file(folder))
        if found:
            went.found, went.seen_s = found, time.time()
            if found["done"]:
                return
        now = time.monotonic()
        log = "".join(path.read_text(errors="replace") for path in folder.logs.glob("*"))
        if ended_at is not None and (NO_PYTHON in log or now - ended_at > SETTLE_S):
            word = went.state.word if went.state else "gone"
            went.problem = (f"its task ended before it had asked everything ({word})", "")
            return
        if now >= ask_at:
            ask_at = now + (1.0 if schedule.is_cheap_to_ask else ASK_EVERY_S)
            try:
                went.state = schedule.poll([went.job]).get((went.job, 0))
            except CouldNotAsk as error:
                say(error.message)
                continue
            if went.state is None or went.state.state == ENDED:
                ended_at = ended_at or now
                ask_at = min(ask_at, now + 1.0)
            elif went.state.state == PENDING and not found:
                if went.state.reason != told:
                    told = went.state.reason
                    say(f"it waits: {told or 'for its turn'}")
                if now - began > patience_s:
                    raise SweepError(
                        f"the job did not start within {patience_s:.0f} s: "
                        f"{told or 'the queue is long'}",
                        "Compare resources and slurm with: sinfo; or wait longer: --patience.",
                    )
        time.sleep(POLL_S)


def _cancel(schedule: Scheduler, token: str) -> None:
    """Cancel what was submitted, also where its number never reached us."""
    with contextlib.suppress(SweepError):
        for job in schedule.find(token):
            schedule.cancel(job)


def _await_end(schedule: Scheduler, job: str) -> None:
    """Wait until nothing of the job writes into its folder any more."""
    give_up_at = time.monotonic() + END_S
    with contextlib.suppress(SweepError):
        while job and time.monotonic() < give_up_at:
            state = schedule.poll([job]).get((job, 0))
            if state is None or state.state == ENDED:
                return
            time.sleep(0.3)


def judge(study: Study, went: Went) -> list[Line]:
    """Return the lines of all that was found; what was not asked says why."""
    found, kind = went.found, kind_of(study)
    missing = went.problem[0] if went.problem else "the job did not come to it"
    lines = [_job(study, went)]

    def add(name: str, judge_one: Callable[[Mapping[str, Any]], Line], key: str = "") -> None:
        lines.append(judged(name, found.get(key or name), judge_one, missing))

    if "interpreter" not in found and NO_PYTHON in went.tail:
        node = re.search(r"the node (\S+) is", went.tail)
        lines.append(judge_node.no_interpreter(sys.executable, node[1] if node else ""))
    else:
        add("interpreter", lambda fact: judge_node.interpreter(fact, facts.glibc()))
    add("packages", requirements.judge)
    add("setup", judge_node.setup)
    add("workdir", judge_node.workdir)
    add("command", judge_node.command)
    add("runtime", judge_node.runtime)
    add("image", judge_node.image)
    add("binds", judge_node.binds)
    lines += _inside(study, found.get("inside"), missing)
    add("gpus", lambda fact: judge_node.gpus(fact, not kind.shares_this_machine))
    add("compute mode", judge_node.compute_mode, "gpus")
    add("space", lambda fact: judge_node.space(fact, trials=study.trials))
    add("scratch", lambda fact: judge_node.space(fact, "scratch"))
    add("database", judge_node.database)
    add("connections", lambda fact: judge_connections(study, fact), "database")
    commands = found.get("commands") or {"not_asked": missing}
    if "not_asked" not in commands:
        lines += judge_node.slurm_commands(commands)
    else:
        why = commands["not_asked"]
        lines += [judged(name, None, judge_node.gpus, why) for name in ("scontrol", "sbatch")]
    skew_s = found.get("database", {}).get("skew_s")
    add("clock", lambda fact: judge_node.clock(fact, went.submitted_s, went.seen_s, skew_s))
    add("task signal", judge_node.task_signal, "task_signal")
    add("training signal", judge_training.training_signal, "training_signal")
    add("interface", lambda fact: judge_node.interface(fact, study.resources.nodes), "network")
    add("ports", judge_node.ports)
    add(
        "all-reduce",
        lambda fact: judge_training.all_reduce(fact, found.get("network"), REDUCE_S),
        "all_reduce",
    )
    return lines


def _job(study: Study, went: Went) -> Line:
    if went.problem is None:
        where = "here" if kind_of(study).shares_this_machine else f"on {went.found['host']}"
        return Line("job", OK, f"{went.job} ran {where}")
    message, hint = went.problem
    tail = f"\n{went.tail}" if went.tail else ""
    return Line("job", FAILED, f"{message}{tail}", hint or "What it said stands above.")


def _inside(study: Study, fact: Mapping[str, Any] | None, missing: str) -> list[Line]:
    runs_python = bool(interpreter(study.command, ""))
    first = judged(
        "python",
        fact,
        lambda one: judge_training.environment(one, runs_python=runs_python),
        missing,
    )
    names = ["reporter", "torch", "folders"]
    gpus = gpus_within(study)
    if gpus:
        names[2:2] = ["nvidia-smi", "torch gpus", "matrix product"]
    if fact is None or "python" not in fact:
        why = missing if fact is None else "no Python runs in the environment"
        return [first, *(judged(name, None, judge_training.reporter, why) for name in names)]
    return [
        first,
        judge_training.reporter(fact["reporter"]),
        judge_training.torch(fact["torch"], why_torch(study)),
        *(judge_training.cuda(fact, gpus) if gpus else []),
        judge_training.paths(fact["paths"]),
    ]


_IMPORTS_TORCH = re.compile(r"^\s*(?:import|from)\s+torch\b", re.MULTILINE)


def why_torch(study: Study) -> str:
    """Return why a study needs torch; empty where nothing says so."""
    workdir = Path(study.workdir)
    if study.world > 1:
        return f"a trial has {study.world} processes"
    for before, element in zip(("", *study.command), study.command, strict=False):
        path = workdir / element
        if before == "-m":
            path = workdir.joinpath(*element.split(".")).with_suffix(".py")
        with contextlib.suppress(OSError, ValueError):
            if path.suffix == ".py" and _IMPORTS_TORCH.search(path.read_text(errors="replace")):
                return f"{path.name} imports it"
    return ""
