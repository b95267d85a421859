"""A user's own sampler or pruner (``type: "package.module:Class"``), asked in a process of its own.
So is one of OptunaHub's registry (``hub``).

It runs the study's frozen code and is given the history of the study. It has no address of the
database, none of the environment's secrets and a time limit; whatever it does, it cannot damage
what is stored. What fails is an ``OwnFailed``, which holds the study.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sweep.core.errors import SweepError
from sweep.core.secrets import is_secret
from sweep.core.study import Choice, Environment, Storage, Study
from sweep.core.system import processes
from sweep.core.terminal_text import visible_lines
from sweep.search import hub
from sweep.search.draws import place_values

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

MOST_NAMES = 5  # of what a sampler keeps, that are said
MOST_PRINTED = 64_000  # bytes of its output that are looked at
CLOSING_S = 2.0  # between the end of its output and its own
START_S = 60.0  # beyond its own limit: the interpreter, Optuna and the user's imports


class OwnFailed(SweepError):
    """The user's own sampler or pruner failed, or took too long."""


class Asked:
    """The process that answers for one folder of code; started when it is first asked.

    Args:
        workdir: The folder with the user's code: its frozen copy in a task.
        hubs: Folders with packages of OptunaHub's registry, by what they are.
        is_quiet: Show of what it prints the last line, and that where it ends by itself; else all
            goes where this process prints.
    """

    def __init__(
        self, workdir: Path, hubs: Mapping[str, Path] | None = None, *, is_quiet: bool = False
    ) -> None:
        self.workdir = workdir
        self._hubs = hubs or {}
        self._is_quiet = is_quiet
        self._child: subprocess.Popen[bytes] | None = None
        self._answers: int = -1
        self._printed: IO[bytes] | None = None  # what it prints, where that is not passed on

    def propose(
        self,
        study: Study,
        trials: Iterable[FrozenTrial],
        trial: FrozenTrial,
        seed: int,
        fixed: Mapping[str, Any],
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Return a trial's parameters as Optuna's numbers, and system attributes to be noted.

        Args:
            trials: The history, as the study's sampler is to see it.
            trial: That which gets them.
            fixed: Stored values that it has in any case.

        Raises:
            OwnFailed: The sampler failed.
        """
        rows, kinds = _rows([*(t for t in trials if t.number != trial.number), trial])
        # One that is asked for ahead waits yet; samplers know running ones.
        rows[-1]["state"] = "RUNNING"
        rows[-1]["started"] = rows[-1]["started"] or datetime.now().isoformat()
        rows[-1]["system_attrs"] = {**rows[-1]["system_attrs"], "fixed_params": dict(fixed)}
        number = trial.number
        said = self._ask("propose", "sampler", study, study.sampler, rows, kinds, number, seed)
        return said["params"], {k: v for k, v in said["attributes"].items() if k != "fixed_params"}

    def prunes(self, study: Study, trials: Iterable[FrozenTrial], trial: FrozenTrial) -> bool:
        """Tell whether the study's own pruner stops a trial at its last report.

        Raises:
            OwnFailed: The pruner failed.
        """
        rows, kinds = _rows([*(t for t in trials if t.number != trial.number), trial])
        return bool(
            self._ask("prune", "pruner", study, study.pruner, rows, kinds, trial.number, None)[
                "prunes"
            ]
        )

    def remembers(self, study: Study) -> list[str]:
        """Return the names of what the study's own sampler keeps in its object from trial to trial.

        Raises:
            OwnFailed: The sampler failed.
        """
        said = self._ask("remember", "sampler", study, study.sampler, [], [], 0, study.seed)
        return list(said["remembers"])

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        printed, self._printed = self._printed, None
        if printed is not None:
            printed.close()
        if child is None:
            return
        assert child.stdin is not None
        with contextlib.suppress(OSError):
            child.stdin.close()
        child.kill()
        child.wait()
        os.close(self._answers)

    def _ask(
        self,
        what: str,
        kind: str,
        study: Study,
        choice: Choice,
        rows: Sequence[Mapping[str, Any]],
        kinds: Sequence[str],
        number: int,
        seed: int | None,
    ) -> dict[str, Any]:
        name, limit_s = f"{kind} {choice.type}", float(choice.options["time_limit_s"])
        question = {
            "what": what,
            "class": choice.type,
            "arguments": choice.options["arguments"],
            "seed": seed,
            "study": _shown(study).to_json(),
            "trials": rows,
            "kinds": kinds,
            "number": number,
            "package": None,
            "of_package": choice.options.get("class", ""),
        }
        if choice.is_hub:
            try:
                question["package"] = str(hub.find(kind, choice, self._hubs).absolute())
            except hub.HubFailed as error:
                raise OwnFailed(error.message, error.hint) from error
        is_new = self._child is None or self._child.poll() is not None
        if is_new:
            self.close()
            self._start()
        until = time.monotonic() + limit_s + (START_S if is_new else 0.0)
        line = self._exchange(json.dumps(question).encode() + b"\n", until)
        if line is None:
            late = time.monotonic() >= until
            how, printed = ("", "") if late else self._how_it_ended()
            self.close()
            if late:
                raise OwnFailed(
                    f"The {name} took longer than {limit_s:.0f} s.",
                    "Make it quicker, or raise its time_limit.",
                )
            raise OwnFailed(
                f"The process of the {name} ended{how}.",
                f"It printed: {printed}" if printed else "What it printed says why.",
            )
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            hint = said.get("hint", "Correct it.")
            raise OwnFailed(f"The {name} failed: {said['error'].rstrip('.')}.", hint)
        return said

    def _how_it_ended(self) -> tuple[str, str]:
        """Return how a process that answers no more has ended, and what it printed last, where that
        is kept; "" for what is not known."""
        assert self._child is not None
        printed = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(CLOSING_S)
        if self._printed is not None:
            size = self._printed.seek(0, os.SEEK_END)
            self._printed.seek(max(0, size - MOST_PRINTED))
            lines = visible_lines(self._printed.read().decode("utf-8", "replace"))
            printed = next((line for line in reversed(lines) if line.strip()), "")[:500]
        code = self._child.returncode
        if code is None:
            return "", printed
        killed = -code in set(signal.Signals)
        how = f"killed by {signal.Signals(-code).name}" if killed else f"exit code {code}"
        return f" ({how})", printed

    def _start(self) -> None:
        environ = {k: v for k, v in os.environ.items() if not is_secret(k, v)}
        self._printed = tempfile.TemporaryFile() if self._is_quiet else None  # noqa: SIM115
        answers, far = os.pipe()
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(self.workdir.absolute())],
                cwd="/",
                env=environ,
                stdin=subprocess.PIPE,
                stdout=far,
                stderr=self._printed,
                preexec_fn=processes.die_with(os.getpid()),
            )
        finally:
            os.close(far)
        self._answers = answers

    def _exchange(self, question: bytes, until: float) -> bytes | None:
        """Return the line that answers a question; None where none comes in time, or at all."""
        assert self._child is not None and self._child.stdin is not None
        to, left, got = self._child.stdin.fileno(), memoryview(question), bytearray()
        os.set_blocking(to, False)
        while not got.endswith(b"\n"):
            wait_s = until - time.monotonic()
            if wait_s <= 0:
                return None
            readable, writable, _ = select.select([self._answers], [to] if left else [], [], wait_s)
            if writable:
                try:
                    left = left[os.write(to, left[:65536]) :]
                except BlockingIOError:
                    pass
                except OSError:
                    return None
            if readable:
                piece = os.read(self._answers, 65536)
                if not piece:
                    return None
                got += piece
        return bytes(got)


# Not -m: that would put the folder where it starts before all that is installed.
_CODE = "from sweep.search.own_child import main; main()"


def _shown(study: Study) -> Study:
    """Return the study without what its own code is none of the business of."""
    return dataclasses.replace(
        study, storage=Storage(), environment=Environment(), command=(), commands={}
    )


def _rows(trials: Iterable[FrozenTrial]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return trials as JSON, those with a number of the study's; and the distributions' texts."""
    from optuna.distributions import distribution_to_json

    kinds: dict[str, int] = {}
    rows = []
    for trial in trials:
        if trial.number < 0:  # of an earlier study, or a rejected proposal
            continue
        params = {}
        for name, kind in trial.distributions.items():
            place = kinds.setdefault(distribution_to_json(kind), len(kinds))
            params[name] = [kind.to_internal_repr(trial.params[name]), place]
        started, ended = trial.datetime_start, trial.datetime_complete
        rows.append(
            {
                "number": trial.number,
                "state": trial.state.name,
                "values": trial.values,
                "params": params,
                "reports": list(trial.intermediate_values.items()),
                "user_attrs": trial.user_attrs,
                "system_attrs": trial.system_attrs,
                "started": started.isoformat() if started else None,
                "ended": ended.isoformat() if ended else None,
            }
        )
    return rows, list(kinds)


def check(study: Study, workdir: Path, hubs: Mapping[str, Path] | None = None) -> str:
    """Try a study's own sampler on a study without trials, and its pruner on one with a report.

    What is of OptunaHub's registry and not pinned is not tried.

    Args:
        hubs: As for ``Asked``.

    Returns:
        What is to be known of the sampler, in a sentence; "" where there is nothing.

    Raises:
        OwnFailed: One fails there.
    """
    sampler, pruner = _can_be_tried(study.sampler), _can_be_tried(study.pruner)
    if not (sampler or pruner):
        return ""
    import optuna

    first = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    first.number = 0
    said = ""
    with contextlib.closing(Asked(workdir, hubs, is_quiet=True)) as asked:
        if sampler:
            asked.propose(study, [], first, study.seed, {})
            said = _say_what_it_keeps(study, asked)
        if pruner:
            params = place_values(study.space, lambda _: 0.5)
            kinds = {name: study.space.get(name).distribution() for name in params}
            trained = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=params,
                distributions=kinds,
                intermediate_values={1: 0.5},
            )
            trained.number = 0
            asked.prunes(study, [], trained)
    return said


def _say_what_it_keeps(study: Study, asked: Asked) -> str:
    """Return what a sampler keeps in its object, in a sentence; "" where that is nothing.

    A fault of it with trials that are made up is said, and refuses nothing.
    """
    try:
        kept = asked.remembers(study)
    except OwnFailed as error:
        return f"With trials that are made up: {error.message}"
    if not kept:
        return ""
    return (
        f"The sampler {study.sampler.type} keeps {', '.join(kept[:MOST_NAMES])} in its object from "
        "one trial to the next, and its object is made anew for each: what it does not read from "
        "the trials it will not know, and may search no better than by chance."
    )


def _can_be_tried(choice: Choice) -> bool:
    return choice.is_own and not (choice.is_hub and "pinned" not in choice.options)
