"""The check's task: asks everything on the node, and writes the answers down as they come.

It runs where a trial's task would, with the same resources; what asks within the environment goes
through the same ``command.build`` as training.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.control.check import facts, inside, probes, requirements, sharing_gpus
from sweep.control.place import place_from, training_environ
from sweep.control.short_job import result_file
from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.files import make_private, read_json, read_tail, write_atomic
from sweep.core.paths import StudyFolder
from sweep.core.programs import interpreter
from sweep.core.study import Study
from sweep.core.system import processes
from sweep.core.trial import trial_seed
from sweep.schedulers.choose import scheduler_of
from sweep.training import ready
from sweep.training.command import assembly, filling, launchers
from sweep.training.command.environment import TrialValues
from sweep.training.command.launchers import PYTHON
from sweep.training.command.rendezvous import Rendezvous

FACTS_S = 180.0  # a cold image on a slow file system, and torch's import
SIGNAL_S = 10.0
REDUCE_S = 60
START_S = 120.0
NOT_FOUND = (126, 127)


@dataclass(frozen=True)
class Request:
    """What the check's task needs beside the study.

    Attributes:
        url: The database's, or None for the embedded server.
        embedded: Folder of the embedded server.
        elsewhere: Whether a job will serve that.
        home: The study's own folder (it may not exist yet).
        recorded: The image's digest at the last launch.
    """

    url: str | None
    embedded: str
    elsewhere: bool
    home: str
    recorded: str | None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))


def request_file(folder: StudyFolder) -> Path:
    return folder.root / "request.json"


def trial_values(study: Study, folder: StudyFolder) -> TrialValues:
    """Return the values of a trial that is none: its folder is the check's."""
    attempt = folder.attempt(0, 1)
    return TrialValues.within(
        attempt,
        config=filling.config_path(study, folder.config(0)),
        params={**study.space.first_values(), **study.fixed},
        seed=trial_seed(study.seed, 0),
        token=secrets.token_hex(16),
        data=study.data_paths,
    )


def run(folder: StudyFolder) -> None:
    """Ask everything; ``result.json`` holds what has been answered at any time."""
    study = Study.read(folder.study)
    request = Request(**read_json(request_file(folder)))
    schedule = scheduler_of(folder, study)
    place = place_from(os.environ, kind_of(study))
    found: dict[str, Any] = {"host": place.host, "done": False}

    def ask(name: str, probe: Callable[[], Mapping[str, Any]]) -> None:
        try:
            found[name] = probe()
        except Exception as error:  # one question that goes wrong leaves the others
            found[name] = {"not_asked": f"{type(error).__name__}: {error}"}
        write_atomic(result_file(folder), json.dumps(found) + "\n")

    values = trial_values(study, folder)
    make_private(values.checkpoint_dir)
    for path, text in filling.config_files(study, values.config, values.params).items():
        write_atomic(path, text)
    environ = training_environ(folder, os.environ)
    home = Path(request.home)
    ask("interpreter", facts.ask_interpreter)
    ask("packages", lambda: requirements.ask(study))
    ask("setup", lambda: _setup(study))
    ask("workdir", lambda: facts.ask_workdir(study.workdir))
    ask("command", lambda: _command(study, values, environ))
    ask("runtime", lambda: facts.ask_runtime(study.environment.runtime))
    ask("image", lambda: facts.ask_image(study, request.recorded))
    ask("binds", lambda: facts.ask_binds(study.environment, study.workdir))
    ask("gpus", lambda: probes.ask_gpus(study))
    if study.resources.share is not None:
        ask("mps", lambda: sharing_gpus.ask_mps(study))
    ask("space", lambda: probes.ask_space(home if home.exists() else home.parent, write=True))
    ask("scratch", probes.ask_scratch)
    ask("clock", lambda: probes.ask_clock(folder.root))
    ask("database", lambda: _database(request, study))
    ask("commands", lambda: probes.ask_commands(schedule))
    ask("task_signal", lambda: probes.ask_task_signal(schedule))
    ask("network", lambda: probes.ask_network(study, os.environ))
    ask("ports", lambda: probes.ask_ports(study))
    if study.environment.make_binds:  # as a trial's task does before it trains
        ask("made", lambda: {"made": ready.make_binds(study, environ, print)})
    inner = Inside(study, folder, values, environ)
    ask("inside", inner.ask_facts)
    ask("training_signal", inner.ask_signal)
    ask("all_reduce", inner.ask_reduce)
    found["done"] = True
    write_atomic(result_file(folder), json.dumps(found) + "\n")


def _setup(study: Study) -> dict[str, Any]:
    if not kind_of(study).runs_setup:
        return {"not_asked": "slurm.setup is for Slurm alone"}
    return facts.ask_setup(study.slurm.setup)


def _command(study: Study, values: TrialValues, environ: Mapping[str, str]) -> dict[str, Any]:
    try:
        missing = assembly.find_missing(study, values, environ, Path(study.workdir))
    except SweepError as error:
        return {"error": error.message, "hint": error.hint}
    return {"error": missing or "", "program": study.command[0]}


def _database(request: Request, study: Study) -> dict[str, Any]:
    if request.url:
        return probes.ask_database(request.url)
    return probes.ask_embedded(
        Path(request.embedded), elsewhere=request.elsewhere, listen=study.storage.listen
    )


@dataclass(frozen=True)
class ProbeResult:
    """How a process within the environment ended.

    Attributes:
        code: Its exit code (below 0: the signal); None where it was ended for its time.
        said: All that it printed.
        facts: What it printed behind the mark, or None.
    """

    code: int | None
    said: str
    facts: dict[str, Any] | None

    def tail(self, lines: int = 12) -> str:
        spoken = [line for line in self.said.splitlines() if line.strip()]
        return "\n".join(spoken[-lines:])


class Inside:
    """Asks within the training's environment, by ``inside.py`` started as training would be."""

    def __init__(
        self, study: Study, folder: StudyFolder, values: TrialValues, environ: Mapping[str, str]
    ) -> None:
        self.study = study
        self.folder = folder
        self.values = values
        self.environ = environ
        self.script = values.trial_dir / "inside.py"
        self.wanted = values.trial_dir / "wanted.json"
        self.python = ""  # the word that starts it; empty until one did
        self.why_not = ""
        self.alone = dataclasses.replace(study, launcher=PYTHON)
        self.has_torch = False

    def ask_facts(self) -> dict[str, Any]:
        """Return what the environment holds; ``error`` where it does not start."""
        shutil.copyfile(inside.__file__, self.script)
        own = [
            (str(self.values.trial_dir), True, "the trial's folder"),
            (str(self.values.checkpoint_dir), True, "its checkpoints"),
        ]
        seen = facts.destinations(self.study.environment)
        write_atomic(
            self.wanted,
            json.dumps(
                {
                    "paths": [*own, *seen],
                    "gpus": probes.gpus_within(self.study),
                    "timeout_s": REDUCE_S,
                }
            ),
        )
        last: dict[str, Any] = {}
        for word in self._words():
            ended = self._run("facts", self.alone, None, FACTS_S, word)
            if isinstance(ended, dict):
                last = ended
                if not ended.pop("absent", False):
                    break
                continue
            if ended.facts is not None:
                self.python = word
                self.has_torch = "error" not in ended.facts["torch"]
                return ended.facts
            last = {"error": _how(ended, FACTS_S), "tail": ended.tail()}
            if not _is_absent(ended, word):
                break
            last = {"none": True, "tail": ended.tail(2) or f"exit code {ended.code}"}
        self.why_not = "no Python runs in the environment"
        return last

    def ask_signal(self) -> dict[str, Any]:
        """Send SIGTERM to a process within, and return whether it came."""
        if not self.python:
            return {"not_asked": self.why_not}
        log = self.values.trial_dir / "signal.log"
        argv, env = self._build(self.alone, "signal", None, self.python)
        child = processes.spawn(argv, cwd=self.study.workdir, env=env, stdout=log)
        try:
            began = time.monotonic()
            while inside.READY not in _read(log):
                if child.poll() is not None or time.monotonic() - began > START_S:
                    return {"error": "it did not start: " + " / ".join(read_tail(log, 3))}
                time.sleep(0.05)
            began = time.monotonic()
            os.killpg(child.pid, signal.SIGTERM)
            while time.monotonic() - began < SIGNAL_S:
                found = _facts(_read(log))
                if found is not None:
                    return {**found, "after_s": round(time.monotonic() - began, 2)}
                time.sleep(0.05)
            return {"error": f"nothing came within {SIGNAL_S:.0f} s"}
        finally:
            processes.end_child(child, self.values.token, grace_s=0.5)
            child.wait()

    def ask_reduce(self) -> dict[str, Any]:
        """Sum over all ranks of a trial, started by the study's own launcher."""
        if self.study.world == 1:
            return {"not_asked": "a trial is one process"}
        try:
            launcher = launchers.choose(self.study)
        except SweepError as error:
            return {"error": error.message}
        if launcher == PYTHON:
            return {"not_asked": "the command starts its ranks itself"}
        place = place_from(os.environ, kind_of(self.study))
        study = dataclasses.replace(self.study, launcher=launcher)
        try:
            meeting = launchers.meet(study, self.environ, place.job, place.index, place.slot)
        except SweepError as error:
            return {"error": error.message}
        try:
            if not self.python:
                return {"not_asked": self.why_not}
            if not self.has_torch:
                return {"not_asked": "torch cannot be imported in the environment"}
            ended = self._run("reduce", study, meeting, REDUCE_S + START_S, self.python)
        finally:
            if meeting is not None:
                meeting.close()
        if isinstance(ended, dict):
            return ended
        if ended.facts is not None and ended.code == 0:
            return ended.facts
        hangs = ended.code is None or "imed out" in ended.said or "timeout" in ended.said.lower()
        how = _how(ended, REDUCE_S + START_S)
        return {"error": how, "hangs": hangs, "tail": ended.tail()}

    def _words(self) -> list[str]:
        return list(dict.fromkeys([interpreter(self.study.command), "python", "python3"]))

    def _command(self, mode: str, word: str) -> tuple[str, ...]:
        escaped = (
            str(path).replace("{", "{{").replace("}", "}}") for path in (self.script, self.wanted)
        )
        script, wanted = escaped
        return (word, script, mode, wanted)

    def _build(
        self, study: Study, mode: str, meeting: Rendezvous | None, word: str
    ) -> tuple[list[str], dict[str, str]]:
        ours = dataclasses.replace(study, command=self._command(mode, word))
        return assembly.build(ours, self.values, self.environ, self.folder.python_path, meeting)

    def _run(
        self, mode: str, study: Study, meeting: Rendezvous | None, limit_s: float, word: str
    ) -> ProbeResult | dict[str, Any]:
        """Run a mode to its end; a dictionary says why it did not start."""
        log = self.values.trial_dir / f"{mode}-{os.path.basename(word)}.log"
        try:
            argv, env = self._build(study, mode, meeting, word)
            child = processes.spawn(argv, cwd=self.study.workdir, env=env, stdout=log)
        except processes.NotStarted as error:
            absent = error.exit_code_of_shell == 127
            found = {"none": True, "tail": error.message} if absent else {"error": error.message}
            return {**found, "hint": error.hint, "absent": absent}
        except SweepError as error:
            return {"error": error.message, "hint": error.hint}
        code: int | None = None
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            processes.end_child(child, self.values.token, grace_s=2.0)
            child.wait()
        said = _read(log)
        return ProbeResult(code, said, _facts(said))


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _facts(said: str) -> dict[str, Any] | None:
    """Return what stands behind the mark; a launcher may put its rank before it."""
    for line in said.splitlines():
        _, mark, text = line.partition(inside.MARK)
        if mark:
            try:
                return dict(json.loads(text))
            except ValueError:
                continue  # half a line so far
    return None


def _is_absent(ended: ProbeResult, word: str) -> bool:
    """Tell whether a program was not found; the containers' own errors have codes of their own."""
    words = f"executable file not found|{re.escape(word)}: (command )?not found"
    return ended.code in NOT_FOUND or bool(ended.code and re.search(words, ended.said))


def _how(ended: ProbeResult, limit_s: float) -> str:
    if ended.code is None:
        return f"it did not end within {limit_s:.0f} s"
    if ended.code < 0:
        return f"it was killed by {signal.Signals(-ended.code).name}"
    return f"exit code {ended.code}"
