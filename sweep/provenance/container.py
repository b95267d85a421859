"""Which Python and packages a container holds, or modules bring, asked by a short command there.

It is asked once for an image and a launch, beside the first attempt that trains in it; the answer
lies in ``inside/<key>.json`` of the study's folder, and the attempts' records name the key. A
re-run asks anew: what is bound into a container may have changed while its image has not.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.core.errors import SweepError
from sweep.core.files import make_private, read_json, write_atomic
from sweep.core.paths import AttemptFolder, StudyFolder
from sweep.core.programs import interpreter
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.provenance.installed import MARK
from sweep.provenance.packages import NO_PYTHON
from sweep.training.command import assembly
from sweep.training.command.containers import CONTAINERS
from sweep.training.command.environment import INSTALLED, TrialValues
from sweep.training.command.launchers import PYTHON

RUNTIMES = (*CONTAINERS, "modules")
LIMIT_S = 300.0  # a large image is unpacked for it where the runtime does so
# No braces: they would be placeholders. The first of the words that is a program runs the file.
_FIND = (
    'file=$1; shift; for name; do if command -v "$name" >/dev/null 2>&1; '
    'then exec "$name" "$file"; fi; done; echo "$0"'
)
_NONE = "SWEEP-NO-PYTHON"


def key_of(study: Study, run: str, environment: Mapping[str, Any]) -> str | None:
    """Return a name for what an attempt trains in; None where its folders tell it already.

    Args:
        run: The launch that it belongs to.
        environment: The attempt's axis of that name.
    """
    given = study.environment
    if given.runtime not in RUNTIMES:
        return None
    image = environment.get("image_sha256") or given.built or given.image
    paths = [given.env.get(name) for name in ("PATH", "PYTHONPATH")]
    parts = [
        run,
        image,
        given.runtime,
        _words(study),
        given.binds,
        given.options,
        given.setup,
        paths,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def read(folder: StudyFolder, key: str | None) -> dict[str, Any]:
    """Return what was found under a key; empty where nobody could ask."""
    found = read_json(folder.inside / f"{key}.json") if key else None
    return found if isinstance(found, dict) else {}


def ask(study: Study, folder: StudyFolder, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return {"python": version, "packages": {name: version}, …} of what a study trains in, now.

    Empty where it cannot be asked. An image without Python has the version "none".

    Args:
        study: As it trains: with its code placed.
        environ: What training inherits.
    """
    try:
        look = Question.start(study, folder, environ, secrets.token_hex(8))
    except (SweepError, OSError):
        return {}
    return {} if look is None else look.wait(LIMIT_S)


class Question:
    """A question that is under way; its process ends with this one at the latest."""

    def __init__(self, child: subprocess.Popen[bytes], log: Path, token: str) -> None:
        self._child = child
        self._log = log
        self._token = token
        self._give_up_at = time.monotonic() + LIMIT_S

    @classmethod
    def start(
        cls, study: Study, folder: StudyFolder, environ: Mapping[str, str], name: str
    ) -> Question | None:
        """Ask; None of a runtime whose folders tell it, and where asking could disturb a training.

        Args:
            study, environ: As for ``ask``.
            name: Of the file that the answer goes to meanwhile.

        Raises:
            SweepError: It cannot be started.
        """
        if study.environment.runtime not in RUNTIMES or _is_for_one(study):
            return None
        make_private(folder.inside)
        token, log = secrets.token_hex(16), folder.inside / f".{name}.log"
        log.unlink(missing_ok=True)
        argv, env = assembly.build(
            _alone(study, folder), _values(folder, token), environ, folder.python_path
        )
        if study.environment.runtime == "pyxis":
            argv[1:1] = ["--overlap"]  # beside the training's own step
        return cls(processes.spawn(argv, cwd=study.workdir, env=env, stdout=log), log, token)

    def wait(self, wait_s: float) -> dict[str, Any]:
        """Return the answer once it is there, at most so many seconds later; empty without one."""
        until = time.monotonic() + wait_s
        while self.is_open() and time.monotonic() < until:
            time.sleep(0.02)
        return self.close()

    def is_open(self) -> bool:
        """Tell whether an answer may still come."""
        return self._child.poll() is None and time.monotonic() < self._give_up_at

    def close(self) -> dict[str, Any]:
        """End the question, and return the answer; empty without one."""
        if self._child.poll() is None:
            processes.end_child(self._child, self._token, grace_s=0.5)
            self._child.wait()
        try:
            said = self._log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        self._log.unlink(missing_ok=True)
        return _parse(said)


class Once:
    """What a task asks: each thing once, and not what another task asks just now.

    Args:
        say: Told where nothing came of it.
    """

    def __init__(self, folder: StudyFolder, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._key = ""
        self._look: Question | None = None
        self._asked: set[str] = set()

    def begin(self, key: str | None, study: Study, environ: Mapping[str, str]) -> None:
        """Ask for what has this key, unless that is known; the training runs meanwhile."""
        if not key or key in self._asked or (self._folder.inside / f"{key}.json").exists():
            return
        self._asked.add(key)
        if self._look is not None:
            self.end(0.0)
        make_private(self._folder.inside)
        if not self._claim(key):
            return
        try:
            self._look = Question.start(study, self._folder, environ, key)
        except (SweepError, OSError) as error:
            self._say(f"what is installed there could not be asked: {error}")
        if self._look is None:
            self._release(key)
        self._key = key

    def end(self, wait_s: float) -> None:
        """Keep the answer, if it is there or comes in so many seconds."""
        if self._look is None or (wait_s <= 0.0 and self._look.is_open()):
            return
        found = self._look.wait(wait_s)
        self._look = None
        with contextlib.suppress(OSError):  # a full disk
            if found:
                write_atomic(self._folder.inside / f"{self._key}.json", json.dumps(found) + "\n")
            else:
                self._say("what is installed there could not be asked: no answer")
        self._release(self._key)

    def _claim(self, key: str) -> bool:
        path = self._folder.inside / f".{key}.asked"
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > LIMIT_S:
                path.unlink()  # of a task that was killed
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except OSError:
            return False
        return True

    def _release(self, key: str) -> None:
        (self._folder.inside / f".{key}.asked").unlink(missing_ok=True)


def _parse(said: str) -> dict[str, Any]:
    for line in said.splitlines():
        _, mark, rest = line.partition(MARK)  # a launcher may write something before it
        if mark:
            with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
                found: dict[str, Any] = json.loads(rest)
                packages = json.dumps(dict(found["packages"]), sort_keys=True)
                return found | {"packages_sha256": hashlib.sha256(packages.encode()).hexdigest()}
        if line.endswith(_NONE):
            return {"python": NO_PYTHON, "packages": {}}
    return {}


def _words(study: Study) -> tuple[str, ...]:
    """Return the names of the Python that is asked: the command's own, or those to look for."""
    own = interpreter(study.command, "")
    return (own,) if own else ("python", "python3")


def _is_for_one(study: Study) -> bool:
    """Tell whether an image is started in a way that only one process can have: a writable overlay
    is locked, and the training's start would fail."""
    return any(
        option.startswith(("--overlay", "-o")) or option in ("--writable", "-w")
        for option in study.environment.options
        if study.environment.runtime in ("apptainer", "singularity")
    )


def _alone(study: Study, folder: StudyFolder) -> Study:
    """Return a study whose command asks, as one process without a GPU."""
    file = str(folder.python_path / "sweep" / INSTALLED)
    words = _words(study)
    find = ("sh", "-c", _FIND, _NONE, file, *words)
    given = dataclasses.replace(study.environment, gpu="none", workdir=None)
    return dataclasses.replace(
        study,
        command=(*words, file) if words == study.command[:1] else find,  # an image may lack a shell
        launcher=PYTHON,
        environment=given,
        resources=dataclasses.replace(study.resources, nodes=1, gpus=0, cpus=1),
    )


def _values(folder: StudyFolder, token: str) -> TrialValues:
    place = AttemptFolder(folder.inside)
    return TrialValues.within(
        place, config=place.root / "config.yaml", params={}, seed=0, token=token
    )
