"""``sweep check STUDY --on-node``: a short job where trials would run, and what it found.

What the job answers is judged here.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.control import short_job
from sweep.control.check import (
    facts,
    judge_node,
    judge_services,
    judge_training,
    requirements,
    sharing_gpus,
)
from sweep.control.check.lines import FAILED, OK, Line, judged
from sweep.control.check.node_task import REDUCE_S, Request, request_file
from sweep.control.check.probes import gpus_within
from sweep.control.check.quick import judge_connections, recorded_digest
from sweep.control.short_job import NO_PYTHON, Say, Went
from sweep.core.executors import kind_of
from sweep.core.files import write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.programs import interpreter
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.storage import access

TIME_LIMIT_S = 900
HOME = ".checks"  # within the runs folder


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
    went = Went()
    try:
        short_job.clear_dead(runs, HOME, schedule_for, say)
        with short_job.folder_in(runs, HOME, study) as folder:
            _prepare(study, runs, folder, environ)
            went = short_job.run(
                study,
                folder,
                schedule_for(folder),
                "--check",
                say,
                patience_s,
                time_limit_s=TIME_LIMIT_S,
                does="asks on a node",
            )
    except OSError as error:
        went.problem = (f"{error.filename or runs.root}: {error.strerror}", "")
        line = Line(
            "space",
            FAILED,
            f"{runs.root} cannot be written to: {error.strerror}",
            "Make room there, or keep runs elsewhere: --runs, SWEEP_RUNS.",
        )
        return [line, *(one for one in judge(study, went) if one.name != "space")]
    return judge(study, went)


def _prepare(study: Study, runs: Runs, folder: StudyFolder, environ: Mapping[str, str]) -> None:
    request = Request(
        url=access.choose_url(study),
        embedded=str(runs.postgres),
        elsewhere=kind_of(study).keeps_database_in_job(study),
        home=str(runs.study(study.name).root),
        recorded=recorded_digest(study, runs),
    )
    write_atomic(request_file(folder), request.to_json() + "\n", mode=0o600)
    short_job.fill(study, folder, environ)


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
    if study.resources.share is not None:
        add("mps", sharing_gpus.judge_mps)
    add("space", lambda fact: judge_node.space(fact, trials=study.trials))
    add("scratch", lambda fact: judge_node.space(fact, "scratch"))
    add("database", judge_services.database)
    add("connections", lambda fact: judge_connections(study, fact), "database")
    commands = found.get("commands") or {"not_asked": missing}
    if "not_asked" not in commands:
        lines += judge_services.slurm_commands(commands)
    else:
        why = commands["not_asked"]
        lines += [judged(name, None, judge_node.gpus, why) for name in ("scontrol", "sbatch")]
    skew_s = found.get("database", {}).get("skew_s")
    add("clock", lambda fact: judge_node.clock(fact, went.submitted_s, went.seen_s, skew_s))
    add("task signal", judge_services.task_signal, "task_signal")
    add("training signal", judge_training.training_signal, "training_signal")
    add("interface", lambda fact: judge_services.interface(fact, study.resources.nodes), "network")
    add("ports", judge_services.ports)
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


_IMPORTS_TORCH = re.compile(r"^[ \t]*(?:import|from)\s+torch\b", re.MULTILINE)


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
