"""``sweep build``: make a study's image or environment, once, before any task needs it.

One at a time under a lock; an image gets a temporary name first and is renamed when it is whole, so
that no task ever starts half of one, and a task that runs keeps the file that it has. Caches and
temporary files lie beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sweep.core.errors import InputError, SweepError
from sweep.core.executors import kind_of
from sweep.core.files import locked, make_private, read_json, read_tail, write_atomic
from sweep.core.paths import Runs
from sweep.core.secrets import clean_environment
from sweep.core.study import Study
from sweep.training.images import BuildPlan, digest_of, needs_build, plan, record_of
from sweep.training.program_log import quoted, run_logged

AUTO, HERE, JOB = "auto", "here", "job"
TAIL_LINES = 15
_LACKS_RIGHTS = "Requesting capability set"  # Apptainer, of a definition's %post section


class BuildFailed(SweepError):
    """An image could not be built; the end of the log is in the message."""


@dataclass(frozen=True)
class Image:
    """What a study starts.

    Attributes:
        path: The file or folder.
        digest: SHA-256: of a file; of a folder over its files' names, kinds and sizes.
        source: What it was built from.
        built: Whether this call built it.
        took_s: How long building took, whenever that was.
    """

    path: Path
    digest: str
    source: str
    built: bool
    took_s: float


def ensure(
    study: Study,
    runs: Runs,
    environ: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
    *,
    force: bool = False,
    where: str | None = None,
    later: bool = False,
) -> tuple[Study, Image | None]:
    """Return the study with its image built, and what was built; None where nothing is to be.

    Args:
        force: Build it anew, for a name whose content has changed in its registry.
        where: "here", "job" or "auto"; as the study says when None.
        later: What is to be built in a job is left to one that the study's tasks will wait for
            (``build_missing``); it is None here, and ``is_missing`` says so of the study.

    Raises:
        InputError: It cannot be built from what the study names.
        BuildFailed: Building failed.
    """
    if not needs_build(study):
        return study, None
    planned = plan(study, runs, environ)
    found = None if force else look(planned)
    if found is None:
        make_private(runs.images)
        where = where or study.environment.build
        if later and _may_be_later(study, planned, environ, where):
            say(f"a job of Slurm's builds {study.environment.image} before any task starts")
        elif where == JOB or (where == AUTO and _wants_job(study, planned, environ)):
            _submit(study, planned, environ, force=force, say=say)
            found = look(planned)
            if found is None:
                raise BuildFailed(
                    f"The job that builds {planned.source} ended, and {planned.target} is not "
                    "there.",
                    "Is the runs folder on storage that the nodes share?",
                )
        else:
            found = _build_locked(planned, environ, say, force=force)
    given = dataclasses.replace(study.environment, built=str(planned.target))
    return dataclasses.replace(study, environment=given), found


def look(planned: BuildPlan) -> Image | None:
    """Return the image that a plan has made already, or None."""
    record = read_json(planned.record)
    if record is None or not planned.target.exists():
        return None
    return Image(planned.target, record["digest"], record["source"], False, record["took_s"])


def is_missing(study: Study) -> bool:
    """Tell whether the image that is built for a study is not there, or not yet."""
    built = study.environment.built
    return built is not None and not (os.path.exists(built) and record_of(Path(built)).exists())


def build_missing(study: Study, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Build the image of a launched study where it is not there: what the job before its tasks
    does, or the first task that lacks an image which was removed since.

    Raises:
        InputError: The source has changed since, so that it would be another image.
        SweepError: It cannot be built.
    """
    given = study.environment
    if not given.built or not is_missing(study):
        return
    runs = Runs(Path(given.built).parent.parent)
    planned = plan(study, runs, environ)
    if str(planned.target) != given.built:
        raise InputError(
            f"environment.image: {given.built} is not there, and {given.image} has changed since.",
            "Launch again, which builds the image anew.",
        )
    make_private(runs.images)
    _build_locked(planned, environ, say, force=False)


def why_missing(study: Study, logs: Path) -> str:
    """Return in words that a study's image was not built, why, and where more is said.

    Args:
        logs: The folder that has the logs of the jobs that build.
    """
    built = study.environment.built
    words = f"environment.image: {study.environment.image} was not built to {built}"
    found = sorted(logs.glob("build_*.log"), key=lambda path: path.stat().st_mtime)
    for line in reversed(read_tail(found[-1], 2 * TAIL_LINES) if found else ()):
        before, mark, why = line.partition("sweep: ")  # what our task could not do
        if mark and not before:
            words += f": {why.rstrip('.')}"
            break
    return f"{words}; see {logs}/build_*.log and {built}.log"


def _build_locked(
    planned: BuildPlan, environ: Mapping[str, str], say: Callable[[str], None], *, force: bool
) -> Image:
    began = time.time()
    with locked(planned.lock):
        found = look(planned)
        # With force, what another has built while we waited is new as well.
        if found is not None and not (force and planned.record.stat().st_mtime < began):
            return found
        say(f"building {planned.source} (log: {planned.log})")
        for name in ("cache", "tmp"):
            make_private(planned.target.parent / name)
        place = planned.target
        if planned.moves:
            place = planned.target.with_name(f".{planned.target.name}.{secrets.token_hex(4)}.tmp")
            _remove_half_made(planned)
        else:
            planned.record.unlink(missing_ok=True)
            shutil.rmtree(planned.target, ignore_errors=True)
        try:
            _run(planned, place, environ)
            digest = digest_of(place)
            if planned.moves:
                _rename(place, planned.target)
        except BaseException:
            _remove(place)
            raise
        took_s = time.time() - began
        record = {
            "source": planned.source,
            "digest": digest,
            "built": time.time(),
            "took_s": took_s,
            "commands": [list(command) for command in planned.commands],
        }
        write_atomic(planned.record, json.dumps(record, indent=1) + "\n")
        say(f"built {planned.target} in {took_s:.1f} s")
        return Image(planned.target, digest, planned.source, True, took_s)


def _run(planned: BuildPlan, place: Path, environ: Mapping[str, str]) -> None:
    env = {**environ, **planned.env}
    with planned.log.open("w", encoding="utf-8") as log:
        for command in planned.commands:
            argv = [element.replace("{target}", str(place)) for element in command]
            log.write(f"$ {' '.join(argv)}\n")
            log.flush()
            try:
                code = run_logged(argv, planned.cwd, env, log)
            except OSError as error:
                raise BuildFailed(
                    f"{planned.source} cannot be built: {argv[0]}: {error.strerror}.",
                    "Load or install it; slurm.setup counts in jobs only (environment.build: job).",
                ) from error
            if code or not place.exists():
                lines = read_tail(planned.log, TAIL_LINES)
                said = quoted(lines)
                hint = f"All it said is in {planned.log}."
                if any(_LACKS_RIGHTS in line for line in lines):
                    hint = (
                        "Root lacks rights on this machine, as in most containers. Add a line "
                        "root:100000:65536 to /etc/subuid and /etc/subgid, and it is built with "
                        f"--fakeroot; or build elsewhere. {hint}"
                    )
                raise BuildFailed(
                    f"{planned.source} could not be built: {argv[0]} ended with code {code}.\n"
                    f"{said}",
                    hint,
                )


def _rename(place: Path, target: Path) -> None:
    """Put what was built in its place; what is there goes on for those who have it open."""
    if target.is_dir():
        old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
        os.rename(target, old)
        os.rename(place, target)
        _remove(old)
    else:
        os.replace(place, target)


def _remove_half_made(planned: BuildPlan) -> None:
    """Remove what killed builds have left; we hold the lock, so nobody is at it."""
    for path in planned.target.parent.glob(f".{planned.target.name}.*.tmp"):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        # An unpacked image has folders that not even their owner may write.
        for folder, names, _ in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    if not os.path.islink(os.path.join(folder, name)):
                        os.chmod(os.path.join(folder, name), 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _wants_job(study: Study, planned: BuildPlan, environ: Mapping[str, str]) -> bool:
    """Tell whether ``auto`` means a job: on a cluster's login node, unless building is one already.

    There a build may be too much for the machine, or be refused.
    """
    place = kind_of(study)
    is_job_already = bool(place.hosts_of(environ)) or planned.commands[0][0] == "srun"
    has_srun = shutil.which("srun", path=environ.get("PATH")) is not None
    return not place.shares_this_machine and not is_job_already and has_srun


def _may_be_later(study: Study, planned: BuildPlan, environ: Mapping[str, str], where: str) -> bool:
    """Tell whether a job that the tasks wait for is to build: on a cluster, where a job is to."""
    place = kind_of(study)
    if place.shares_this_machine or place.hosts_of(environ):
        return False
    is_step = planned.commands[0][0] == "srun"  # Pyxis' own import
    return where == JOB or (where == AUTO and (is_step or _wants_job(study, planned, environ)))


def build_planned(path: Path, *, force: bool) -> None:
    """Build what a plan in a file says, unless it is there; what the job does.

    Raises:
        BuildFailed: Building failed.
    """
    planned = BuildPlan.from_json(path.read_text(encoding="utf-8"))
    _build_locked(planned, os.environ, lambda text: print(text, flush=True), force=force)


def _submit(
    study: Study,
    planned: BuildPlan,
    environ: Mapping[str, str],
    *,
    force: bool,
    say: Callable[[str], None],
) -> None:
    """Build in a job, and wait for it: by a plan in a file, which is then all that it knows of the
    study."""
    options = study.slurm
    file = planned.target.with_name(f".{planned.target.name}.{secrets.token_hex(4)}.plan")
    named = {
        "partition": options.service.partition or options.partition,
        "account": options.account,
        "qos": options.qos,
    }
    argv = [
        "srun",
        "--job-name=sweep-build",
        "--nodes=1",
        "--ntasks=1",
        *(f"--{name}={value}" for name, value in named.items() if value),
        *options.service.extra,
        # Its lines are arguments: nothing of the command is evaluated.
        *["bash", "-c", "\n".join([*options.setup, 'exec "$@"']), "sweep"],
        *[sys.executable, "-m", "sweep.task", str(planned.target.parent)],
        *["--build", str(file), *["force"] * force],
    ]
    say(f"building {study.environment.image} in a job of Slurm's")
    write_atomic(file, planned.to_json())
    try:
        done = subprocess.run(
            argv,
            env=clean_environment(environ),
            stdin=subprocess.DEVNULL,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except OSError as error:
        raise BuildFailed(
            f"environment.build: job needs srun ({error.strerror}).",
            "Write build: here, or launch where Slurm is.",
        ) from error
    finally:
        file.unlink(missing_ok=True)
    if done.returncode:
        said = quoted(done.stdout.splitlines()[-TAIL_LINES:])
        raise BuildFailed(
            f"The job that builds {study.environment.image} failed.\n{said}",
            "Where only this machine has a network, build it here: environment.build: here, or "
            f"sweep build {study.source} --where here.",
        )
