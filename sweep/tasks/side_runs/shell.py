"""A shell in a study's environment, with a trial's values: where its trials run, or here.

What a trial would find (``$SWEEP_CONFIG``, its parameters, the seed, the reporter) is there, in a
folder of its own that is removed afterwards: nothing that is done in it touches the trial. It
begins in the study's working folder as it is now, not in the frozen code.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sweep.control import short_job
from sweep.control.open_study import Opened
from sweep.control.place import training_environ
from sweep.core import secret_arguments
from sweep.core.errors import InputError, SweepError
from sweep.core.files import make_private, read_json, write_atomic
from sweep.core.masking import hide_arguments, mask
from sweep.core.paths import Runs, StudyFolder
from sweep.core.scheduler import Scheduler
from sweep.core.secrets import clean_environment
from sweep.core.study import Choice, Study
from sweep.core.trial import trial_seed
from sweep.tasks.side_runs import rerun
from sweep.tasks.side_runs.side_run import params_of, write_values
from sweep.training import ready
from sweep.training.command import assembly, filling, launchers
from sweep.training.command.environment import TrialValues
from sweep.training.command.runtimes import WRITABLE

HOME = ".shells"  # within the runs folder
# bash as it is, without the user's own files: they may put another Python in front.
_SHELL = "if command -v bash >/dev/null 2>&1; then exec bash --noprofile --norc; fi; exec sh"
_PROMPT = "PS1"


@dataclass(frozen=True)
class ShellValues:
    """The values of a trial.

    Attributes:
        is_trial: Whether a trial of the study has them; else they are its first.
    """

    number: int
    seed: int
    params: Mapping[str, Any]
    is_trial: bool = True


def choose_values(opened: Opened, number: int | None) -> ShellValues:
    """Return the values of a trial: of the best when None, or else the study's first ones.

    Raises:
        InputError: There is no such trial, or it has no values yet.
    """
    ledger, study = opened.ledger, opened.study
    if number is None:
        best = [] if study.is_multi_objective else ledger.db.retry(lambda _: ledger.best_numbers(1))
        if not best:
            first = {**study.space.first_values(), **study.fixed}
            return ShellValues(0, trial_seed(study.seed, 0), first, is_trial=False)
        number = best[0]
    trial_id, _ = opened.find_trial(number)
    params = params_of(ledger, trial_id)
    if study.space.names() and not set(params) - set(study.fixed):
        raise InputError(
            f"Trial {number} of {study.name} has no values yet: it gets them when it is pulled.",
            "Name one that has started (sweep collect --state all), or none.",
        )
    return ShellValues(number, rerun.own_seed(ledger, number, trial_id), params)


def as_study(study: Study, line: str | None, *, write: bool, root: bool) -> Study:
    """Return the study with a shell in the place of its training.

    Args:
        line: What the shell runs; None where somebody sits before it.
        write: Whether what is changed within the container is to stay.
        root: Whether to be root within it.

    Raises:
        InputError: The study has no container of which something could stay, or be root in.
    """
    given = study.environment
    options, remap_root = given.options, given.remap_root
    if write:
        stays = given.name if given.runtime in ("enroot", "pyxis") else given.unpack
        if given.runtime not in WRITABLE or not stays:
            raise InputError(
                f"--write: nothing that is changed in an environment of runtime {given.runtime} "
                "as this study has it would stay."
                if given.runtime in WRITABLE
                else f"--write is for containers, and this study's runtime is {given.runtime}.",
                "A container's root stays that has a name (enroot, pyxis: environment.name) or is "
                "a folder (apptainer: environment.unpack).",
            )
        options = (*options, WRITABLE[given.runtime])
    if root and given.runtime in ("enroot", "pyxis"):
        remap_root = True
    elif root and given.runtime in WRITABLE:
        options = (*options, "--fakeroot")
    elif root:
        raise InputError(f"--root is for containers, and this study's runtime is {given.runtime}.")
    # The user's line is a shell's, and no placeholder in it a trial's.
    text = _SHELL if line is None else line.replace("{", "{{").replace("}", "}}")
    return dataclasses.replace(
        study,
        command=("sh", "-c", text),
        launcher="python",
        pruner=Choice("none"),
        resources=dataclasses.replace(study.resources, nodes=1),
        environment=dataclasses.replace(given, options=options, remap_root=remap_root),
        slurm=dataclasses.replace(study.slurm, slots=1),
    )


def run(
    study: Study,
    values: ShellValues,
    runs: Runs,
    schedule_for: Callable[[StudyFolder], Scheduler],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    training: Sequence[str],
    is_terminal: bool,
) -> int:
    """Run a shell where the study's trials run; return its exit code.

    Args:
        study: As ``as_study`` gives it.
        training: The study's own command, which is shown.
        is_terminal: Whether it gets this terminal.

    Raises:
        SweepError: It cannot be started.
    """
    short_job.clear_dead(runs, HOME, schedule_for, say)
    with short_job.folder_in(runs, HOME, study) as folder:
        short_job.fill(study, folder, environ)
        request = {**dataclasses.asdict(values), "training": list(training)}
        write_atomic(folder.root / "request.json", json.dumps(request) + "\n")
        argv = [
            *schedule_for(folder).interactive(folder.root.name, is_terminal=is_terminal),
            *[sys.executable, "-m", "sweep.task", str(folder.root), "--shell"],
        ]
        # Ctrl-C is for what runs in the shell.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            child = subprocess.run(argv, env=clean_environment(environ), check=False)
        except OSError as error:
            raise SweepError(f"{argv[0]}: {error.strerror}.") from error
        finally:
            signal.signal(signal.SIGINT, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def start(folder: StudyFolder) -> NoReturn:
    """Become the shell; what runs where the trials run.

    Raises:
        SweepError: The environment cannot be started.
    """
    study = Study.read(folder.study)
    request = read_json(folder.root / "request.json") or {}
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    attempt = folder.attempt(request["number"], 1)
    make_private(attempt.checkpoints)
    values = write_values(
        study,
        attempt,
        secrets.token_hex(16),
        number=request["number"],
        seed=request["seed"],
        params=request["params"],
        run="",
        config=folder.config(request["number"]),
    )
    environ = training_environ(folder, os.environ)
    ready.make_ready(study, environ, _say)
    argv, env = assembly.build(study, values, environ, folder.python_path)
    is_terminal = sys.stdin.isatty()
    if launchers.uses_srun(study):  # beside the step that we are
        argv[1:1] = ["--overlap", *["--pty"] * is_terminal]
    env[_PROMPT] = f"({study.name} {values.number}) $ "
    if is_terminal:
        _show(study, values, request)
    os.chdir(study.workdir)
    os.execvpe(argv[0], argv, env)


def _show(study: Study, values: TrialValues, request: Mapping[str, Any]) -> None:
    """Say whose values these are, and with which command they are trained."""
    whole = dataclasses.replace(study, command=tuple(request["training"]))
    names = [*study.space.names(), *study.fixed]
    command = filling.fill(whole.command, values, names, secret_arguments.stand_ins(whole))
    whose = f"trial {values.number}" if request["is_trial"] else "the first values"
    _say(f"{study.name}, {whose}, in {study.workdir}; leave with: exit")
    _say(f"its training: {shlex.join(hide_arguments(command))}")


def _say(text: str) -> None:
    print(f"sweep: {mask(text)}", file=sys.stderr, flush=True)
