"""What a task makes sure of before it trains: its image, the folders of binds, a named root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.files import locked
from sweep.core.study import Study
from sweep.core.system.own_folder import own_folder
from sweep.training.build import build_missing
from sweep.training.command import enroot, pyxis
from sweep.training.command.containers import image_of, split_bind

_ROOT_READY: set[tuple[str, str]] = set()  # named roots that this process has seen on this node


def make_ready(study: Study, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """See in a task that its image is there, and on this node the named root and, where the study
    wants them made, the folders of binds.

    An image that was removed since the launch is built again, by the first task that lacks it.

    Raises:
        InputError: The source has changed since, so that it would be another image.
        SweepError: It cannot be built, or the root or a folder cannot be made.
    """
    given = study.environment
    build_missing(study, environ, say)
    make_binds(study, environ, say)
    if given.name and given.runtime in ("enroot", "pyxis") and not given.is_prepared:
        _prepare_root(study, environ, say)


def make_binds(study: Study, environ: Mapping[str, str], say: Callable[[str], None]) -> list[str]:
    """Make the folders of binds that are not there, on each of the trial's nodes; return them.

    Of one that is read-only training could use nothing if it were made: there it must be.

    Raises:
        SweepError: One cannot be made.
    """
    if not study.environment.make_binds:
        return []
    wanted = [split_bind(study, bind) for bind in study.environment.binds]
    missing = [
        source for source, _, read_only in wanted if not (read_only or os.path.lexists(source))
    ]
    for source in missing:
        try:
            os.makedirs(source, exist_ok=True)
        except OSError as error:
            raise SweepError(
                f"environment.make_binds: {source} cannot be made: {error.strerror}.",
                "Name a folder in environment.binds where you may write.",
            ) from error
        say(f"made the folder {source}, which environment.binds names")
    if study.resources.nodes > 1 and kind_of(study).spans_nodes and wanted:
        sources = [source for source, _, read_only in wanted if not read_only]
        each = [f"--nodes={study.resources.nodes}", "--ntasks-per-node=1", "--overlap"]
        code, said = _ask(["srun", *each, "mkdir", "-p", "--", *sources], environ)
        if code:
            raise SweepError(
                f"environment.make_binds: not on each node: {said.strip()[-400:]}",
                "Name a folder in environment.binds where you may write on all of them.",
            )
    return missing


def _prepare_root(study: Study, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Make the root that ``environment.name`` names, once on this node.

    Tasks that start at once from one name break each other, and leave a root that breaks all later
    ones; so one makes it, under a lock of this node, and what was half made is removed.
    """
    given = study.environment
    name, image = str(given.name), image_of(study)
    if (name, image) in _ROOT_READY:
        return
    env = {**environ, **enroot.places(environ)}
    folder = own_folder("roots")
    making = folder / f"{name}.making"  # stays where making it was killed
    with locked(folder / f"{name}.lock"):
        if given.runtime == "pyxis":
            roots, is_there = [f"pyxis_{name}"], False  # the step says whether it is
            if job := environ.get("SLURM_JOB_ID"):  # where it has container_scope=job
                roots.append(f"pyxis_{job}_{name}")
            make = [
                "srun",
                f"--nodes={study.resources.nodes}",
                "--ntasks-per-node=1",
                "--overlap",
                f"--container-image={pyxis.image(study)}",
                f"--container-name={name}:no_exec",
                "true",
            ]
        else:
            roots, is_there = [name], name in _ask(["enroot", "list"], env)[1].split()
            make = ["enroot", "create", "--name", name, image]
        if making.exists():
            say(f"removing the root {roots[0]}, which was half made")
            _remove_roots(roots, env)
            is_there = False
        if not is_there:
            making.touch()
            code, said = _ask(make, env)
            if code:
                say(f"the root {roots[0]} could not be made; once more without what is left of it")
                _remove_roots(roots, env)
                code, said = _ask(make, env)
            if code:
                raise SweepError(
                    f"The root {name!r} could not be made from {image}: {said.strip()[-400:]}",
                    f"Remove what is left of it on this node: enroot remove --force {roots[-1]}.",
                )
            making.unlink()
    _ROOT_READY.add((name, image))


def _remove_roots(roots: Sequence[str], env: Mapping[str, str]) -> None:
    for root in roots:
        _ask(["enroot", "remove", "--force", root], env)


def _ask(argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except OSError as error:
        return 127, f"{argv[0]}: {error.strerror}"
    return done.returncode, done.stdout
