"""Why a training ended: its exit code, signal, log and reports."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

from sweep.core import outcomes
from sweep.core.files import read_tail
from sweep.core.outcomes import HALTED, PAUSED, STOPPED
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.core.trial import End
from sweep.training import memory_messages
from sweep.training.command import first_failure, foreign_failure, launchers, runtime_failure
from sweep.training.command.launchers import PYTHON, RANKS_FOLDER
from sweep.training.failure_lines import find_cause

_KILLS = (9, 15)  # SIGKILL, SIGTERM: sent by somebody else than the code itself
_PORT_TAKEN = " (its port was taken: let its launcher choose one, or leave it out of the command)"
_LAST = 20  # lines of the process that failed first, or that tell a clash of ports


def classify(exit_code: int | None, signal: int | None, told: str, log: Sequence[str] = ()) -> End:
    """Say how a training's process ended.

    Args:
        exit_code: What it returned, or None.
        signal: What ended it, or None. An exit code of 128 + n means signal n: a shell or a
            container between the process and us reports it so.
        told: What it had been told: "" (also where it has finished all the same), "pruned",
            "checkpoint" (leave, to be resumed), or one of the outcomes for which it was ended
            (time limit, stalled, too long, halted, paused, cancelled).
        log: The last lines of its output, ``memory_messages.WINDOW`` or fewer.
    """
    if signal is None and exit_code is not None and 128 < exit_code <= 128 + 64:
        signal = exit_code - 128
    if told == "checkpoint":
        return End(outcomes.INTERRUPTED, "asked to leave", exit_code, signal)
    if told == outcomes.TIMEOUT:
        return End(outcomes.TIMEOUT, "asked to leave before its time limit", exit_code, signal)
    if told == HALTED:
        return End(HALTED, "the study was stopped", exit_code, signal)
    if told == STOPPED:
        return End(STOPPED, "cancelled by `sweep stop --trial`", exit_code, signal)
    if told == PAUSED:
        return End(PAUSED, "waits at its rung", exit_code, signal)
    if told == outcomes.STALLED:
        return End(outcomes.STALLED, "no report and no output for too long", exit_code, signal)
    if told in ("pruned", outcomes.TOO_LONG):
        return End(outcomes.FINISHED, told, exit_code, signal)
    if signal is None and exit_code is None:
        return End(outcomes.LOST, "nobody noted how it ended")
    if signal in _KILLS:
        if memory_messages.says_killed(log):
            return End(outcomes.OUT_OF_MEMORY, "memory ran out", exit_code, signal)
        reason = "killed by SIGKILL; by the system when memory ran out, or by hand"
        if signal == 15:
            reason = "ended by SIGTERM that sweep did not send"
        return End(outcomes.KILLED, reason, exit_code, signal)
    failed = signal is not None or exit_code != 0
    if failed and (memory := memory_messages.explain(log, exit_code)):
        return End(outcomes.OUT_OF_MEMORY, memory, exit_code, signal)
    if signal is not None:
        return End(outcomes.ERROR, f"crashed with signal {signal}{_cause(log)}", exit_code, signal)
    if exit_code:
        return End(outcomes.ERROR, f"exit code {exit_code}{_cause(log, exit_code)}", exit_code)
    return End(outcomes.FINISHED, "", exit_code)


def read_end(
    study: Study, folder: AttemptFolder, exit_code: int | None, signal: int | None, told: str
) -> End:
    """Say how an attempt ended: of several ranks, by the one that failed first.

    Its last lines are added to the attempt's log, where they would else stand among all others'.

    Args:
        exit_code, signal, told: As for ``classify``; of the launcher, where there is one.
    """
    shutil.rmtree(folder.root / RANKS_FOLDER, ignore_errors=True)  # all is in the log
    if not told and (why := _not_started(study, folder, exit_code)):
        return End(outcomes.NOT_STARTED, why, exit_code)
    plain = classify(exit_code, signal, told, last_lines(folder, memory_messages.WINDOW))
    if exit_code == 0 or told:
        return plain
    log = read_tail(folder.log, 4000, 1 << 20)
    if launchers.choose(study) == PYTHON:
        return _of_foreign(folder, plain, log)
    found = first_failure.find(log, launchers.labels(study))
    if found is None:
        return plain
    end = classify(found.exit_code, found.signal, told, found.cause)
    if end.outcome == outcomes.KILLED and memory_messages.says_killed(log):
        end = replace(end, outcome=outcomes.OUT_OF_MEMORY, reason="memory ran out")
    if found.rank is None:
        return replace(end, outcome=outcomes.PORT_CLASH) if found.clash else end
    place = f"rank {found.rank} of {study.world}" + (f" on {found.host}" if found.host else "")
    blamed = found.rank if found.blamed is None else found.blamed
    _note_first(folder, place, end, blamed, found.lines or ["(it printed nothing)"])
    outcome = outcomes.PORT_CLASH if found.clash else end.outcome
    return replace(end, outcome=outcome, reason=f"{place}: {end.reason}")


def _of_foreign(folder: AttemptFolder, plain: End, log: Sequence[str]) -> End:
    """Say how a training ended that may have started processes itself, as its launcher tells it.

    Args:
        plain: What its own end says, which is the launcher's.
    """
    found = foreign_failure.find(log)
    if found is None:
        if plain.outcome == outcomes.ERROR and re.search(
            foreign_failure.CLASH, "\n".join(log[-_LAST:])
        ):
            return replace(plain, outcome=outcomes.PORT_CLASH, reason=plain.reason + _PORT_TAKEN)
        if plain.outcome == outcomes.ERROR and (error := foreign_failure.find_lost_peer(log)):
            reason = f"a rank is gone, and another one ended by that: {error[:300]}"
            return replace(plain, outcome=outcomes.KILLED, reason=reason)
        return plain
    end = classify(found.exit_code, found.signal, "", found.cause[-memory_messages.WINDOW :])
    if end.outcome == outcomes.KILLED and memory_messages.says_killed(log):
        end = replace(end, outcome=outcomes.OUT_OF_MEMORY, reason="memory ran out")
    if end.outcome == outcomes.ERROR and re.search(
        foreign_failure.CLASH, "\n".join(found.cause[-_LAST:])
    ):
        end = replace(end, outcome=outcomes.PORT_CLASH, reason=end.reason + _PORT_TAKEN)
    _note_first(folder, found.place, end, found.rank, found.cause if found.is_labelled else ())
    return replace(end, reason=f"{found.place}: {end.reason}")


def _note_first(
    folder: AttemptFolder, place: str, end: End, rank: int | None, lines: Sequence[str]
) -> None:
    """Write into the log which process failed first, and the last lines of a rank."""
    with contextlib.suppress(OSError), folder.log.open("a", encoding="utf-8") as stream:
        stream.write(f"sweep: {place} failed first: {end.reason}\n")
        if lines:
            stream.write(f"sweep: the last lines of rank {rank}:\n")
            stream.writelines(f"  {line}\n" for line in lines[-_LAST:])


def _not_started(study: Study, folder: AttemptFolder, exit_code: int | None) -> str | None:
    """Return why the environment did not start the command, or None where it did."""
    if study.environment.runtime in ("none", "venv"):
        return None
    return runtime_failure.explain(study.environment.runtime, exit_code, last_lines(folder, 40))


def _cause(log: Sequence[str], exit_code: int | None = None) -> str:
    found = find_cause(log, exit_code)
    return f": {found[:300]}" if found else ", and no output"


def last_lines(folder: AttemptFolder, lines: int = _LAST) -> list[str]:
    """Return the end of the attempt's log."""
    return read_tail(folder.log, lines)
