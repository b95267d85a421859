"""What the end of an attempt means for its trial, and writing it down.

The worker comes here when its training's process has ended, and ``reconcile`` when it finds an
attempt whose worker is gone: the same journal, the same rules, the same result.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Sequence
from pathlib import Path

from sweep import command, feasibility
from sweep import trial as words
from sweep.command import first_failure, runtime_failure
from sweep.errors import closest
from sweep.journal import Journal, checkpoints, digest
from sweep.paths import AttemptFolder, StudyFolder, read_tail
from sweep.plain import replace
from sweep.storage import adoption, studies
from sweep.storage.budgets import CUT, cut_by
from sweep.storage.closing import close_trials, prune_trials
from sweep.storage.ledger import HALTED, PAUSED, USER_FAILURES, Ledger
from sweep.storage.records import END
from sweep.study import Retry, Study
from sweep.trial import Attempt, End, summarise

_PROBE_BYTES = 65536
_TRACEBACK = "Traceback (most recent call last):"
_KILLS = (9, 15)  # SIGKILL, SIGTERM: sent by somebody else than the code itself
# Interruptions that bring a newer checkpoint each may come as often as they like.
_INTERRUPTIONS = (words.INTERRUPTED, words.TERMINATED, words.TIMEOUT, words.NODE_FAILED)


def classify(exit_code: int | None, signal: int | None, told: str, log: Sequence[str] = ()) -> End:
    """Say how a training's process ended.

    Args:
        exit_code: What it returned, or None.
        signal: What ended it, or None. An exit code of 128 + n means signal n: a shell or a
            container between the process and us reports it so.
        told: What it had been told: "", "pruned", "checkpoint" (leave, to be resumed), or one of
            the outcomes for which it was ended (stalled, too long, halted, paused).
        log: The last lines of its output.
    """
    if signal is None and exit_code is not None and 128 < exit_code <= 128 + 64:
        signal = exit_code - 128
    if told == "checkpoint":
        return End(words.INTERRUPTED, "asked to leave", exit_code, signal)
    if told == HALTED:
        return End(HALTED, "the study was stopped", exit_code, signal)
    if told == PAUSED:
        return End(PAUSED, "waits at its rung", exit_code, signal)
    if told == words.STALLED:
        return End(words.STALLED, "no report and no output for too long", exit_code, signal)
    if told in ("pruned", words.TOO_LONG):
        return End(words.FINISHED, told, exit_code, signal)
    if signal is None and exit_code is None:
        return End(words.LOST, "nobody noted how it ended")
    if signal in _KILLS:
        reason = "killed by SIGKILL; by the system when memory ran out, or by hand"
        if signal == 15:
            reason = "ended by SIGTERM that sweep did not send"
        return End(words.KILLED, reason, exit_code, signal)
    if signal is not None:
        return End(words.ERROR, f"crashed with signal {signal}{_cause(log)}", exit_code, signal)
    if exit_code:
        return End(words.ERROR, f"exit code {exit_code}{_cause(log, exit_code)}", exit_code)
    return End(words.FINISHED, "", exit_code)


def read_end(
    study: Study, folder: AttemptFolder, exit_code: int | None, signal: int | None, told: str
) -> End:
    """Say how an attempt ended: of several ranks, by the one that failed first.

    Its last lines are added to the attempt's log, where they would else stand among all others'.

    Args:
        exit_code, signal, told: As for ``classify``; of the launcher, where there is one.
    """
    import shutil

    shutil.rmtree(folder.root / command.RANKS_FOLDER, ignore_errors=True)  # all is in the log
    if not told and (why := _not_started(study, folder, exit_code)):
        return End(words.NOT_STARTED, why, exit_code)
    plain = classify(exit_code, signal, told, last_lines(folder))
    if command.choose(study) == command.PYTHON or exit_code == 0 or told:
        return plain
    log = read_tail(folder.log, 4000, 1 << 20)
    found = first_failure.find(log, command.labels(study))
    if found is None:
        return plain
    end = classify(found.exit_code, found.signal, told, found.cause)
    if found.rank is None:
        return replace(end, outcome=words.PORT_CLASH) if found.clash else end
    place = f"rank {found.rank} of {study.world}" + (f" on {found.host}" if found.host else "")
    blamed = found.rank if found.blamed is None else found.blamed
    with contextlib.suppress(OSError), folder.log.open("a", encoding="utf-8") as stream:
        stream.write(f"sweep: {place} failed first: {end.reason}\n")
        stream.write(f"sweep: the last lines of rank {blamed}:\n")
        stream.writelines(f"  {line}\n" for line in found.lines or ["(it printed nothing)"])
    outcome = words.PORT_CLASH if found.clash else end.outcome
    return replace(end, outcome=outcome, reason=f"{place}: {end.reason}")


def _not_started(study: Study, folder: AttemptFolder, exit_code: int | None) -> str | None:
    """Return why the environment did not start the command, or None where it did."""
    if study.environment.runtime in ("none", "venv"):
        return None
    return runtime_failure.explain(study.environment.runtime, exit_code, last_lines(folder, 40))


def _exception(log: Sequence[str]) -> str:
    """Return the line in which Python names the exception that ended it, or "" where none is.

    It need not be the last one: what the training had printed and not flushed comes after it.
    """
    heads = [place for place, line in enumerate(log) if line.strip() == _TRACEBACK]
    for line in log[heads[-1] + 1 :] if heads else ():
        if line.strip() and not line.startswith((" ", "\t")):
            return line.strip()
    return ""


def _cause(log: Sequence[str], exit_code: int | None = None) -> str:
    """Return the exception where Python left with its exit code, else the last line of words."""
    found = _exception(log) if exit_code == 1 else ""
    found = found or next((line.strip() for line in reversed(log) if line.strip()), "")
    return f": {found[:300]}" if found else ", and no output"


def give_up(attempts: Sequence[Attempt], retry: Retry) -> str | None:
    """Return why a trial is not tried again, or None when it is.

    Args:
        attempts: All its attempts, oldest first, the last one just ended.
    """
    last = attempts[-1]
    faults = [attempt for attempt in attempts if attempt.outcome in words.FAULTS]
    if last.outcome in words.FAULTS and len(faults) >= retry.max_attempts:
        return f"{len(faults)} attempts ended in a fault, the last: {last.reason or last.outcome}"
    barren = [
        attempt.outcome in _INTERRUPTIONS and not brought_checkpoint(attempt)
        for attempt in attempts[-2:]
    ]
    if len(barren) == 2 and all(barren):
        return (
            "interrupted twice without a new checkpoint; it needs a longer resources.time, "
            "or checkpoints"
        )
    return None


def brought_checkpoint(attempt: Attempt) -> bool:
    """Tell whether the attempt left a checkpoint of its own."""
    return attempt.checkpoint is not None and attempt.checkpoint != attempt.resumed_from


def settle(
    ledger: Ledger, token: str, trial_id: int, end: End, checkpoint: tuple[str, str | None] | None
) -> str:
    """Write an attempt's end and what follows for its trial; inside ``db.retry``.

    Returns:
        The trial's state afterwards: complete, pruned, failed, cancelled, or running when it is to
        go on.

    Raises:
        StaleAttempt: The attempt has ended otherwise.
    """
    if end.outcome in USER_FAILURES:
        ledger.fail(token, end, checkpoint)
        return words.FAILED
    if end.outcome == words.FINISHED:
        return _finish(ledger, token, trial_id, end, checkpoint)
    if end.outcome == words.STOPPED:
        ledger.finish(token, end, words.CANCELLED, checkpoint=checkpoint)
        return words.CANCELLED
    if end.outcome == words.TERMINATED:
        ledger.leave(token, end, checkpoint)  # what follows depends on who sent the signal
        return words.RUNNING
    # Whoever ends the study has either seen this attempt's end, or we see his.
    studies.lock_study(ledger.db, ledger.study_id)
    state = studies.read_state(ledger.db, ledger.study_id)
    if state.word == studies.ENDED:
        _cut(ledger, token, trial_id, end, checkpoint, state.reason)
        return words.CANCELLED if end.outcome != PAUSED else words.PRUNED
    if end.outcome == words.INTERRUPTED and state.word == studies.STOPPED:
        # A user may stop and go on as often as he likes: no interruption without a checkpoint.
        end = replace(end, outcome=HALTED, reason="the study was stopped")
    attempts = ledger.attempts(trial_id)
    path = checkpoint[0] if checkpoint else None
    attempts[-1] = replace(attempts[-1], outcome=end.outcome, reason=end.reason, checkpoint=path)
    why = give_up(attempts, ledger.study.retry)
    if why:
        ledger.finish(token, replace(end, reason=why), words.FAILED, checkpoint=checkpoint)
        return words.FAILED
    ledger.leave(token, end, checkpoint)
    return words.RUNNING


def _cut(
    ledger: Ledger,
    token: str,
    trial_id: int,
    end: End,
    checkpoint: tuple[str, str | None] | None,
    reason: str,
) -> None:
    """End an attempt that left while the study had ended: nobody takes its trial up again."""
    if end.outcome == HALTED:
        end = replace(end, reason=reason)
    ledger.leave(token, end, checkpoint)
    if end.outcome == PAUSED:
        prune_trials(ledger, [trial_id], cut_by(reason))
    else:
        close_trials(ledger.db, [trial_id], words.CANCELLED, cut_by(reason))


def _finish(
    ledger: Ledger, token: str, trial_id: int, end: End, checkpoint: tuple[str, str | None] | None
) -> str:
    study = ledger.study
    found = [
        summarise(ledger.lineage(trial_id, o.metric), o.at, o.direction) for o in study.objectives
    ]
    values = [value for value in found if value is not None]
    if len(values) < len(found):
        missing = [o for o, v in zip(study.objectives, found, strict=True) if v is None]
        if end.reason == words.TOO_LONG:
            reason = "used up its trial_time without reporting the objective"
        else:
            reason = "ended well, but never reported " + expected(missing[0].metric, study)
            reason += others_text(missing[0].metric, ledger.reported_names(trial_id))
        ledger.fail(token, End(words.NO_METRIC, reason, end.exit_code, end.signal), checkpoint)
        return words.FAILED
    broken = _violations(ledger, trial_id)
    if isinstance(broken, str) and end.reason not in ("pruned", words.TOO_LONG):
        reason = f"ended well, but never reported {expected(broken, study)}, a constraint"
        reason += others_text(broken, ledger.reported_names(trial_id))
        ledger.fail(token, End(words.NO_METRIC, reason, end.exit_code, end.signal), checkpoint)
        return words.FAILED
    if not isinstance(broken, str):
        ledger.note_violations(trial_id, broken)
    if not all(math.isfinite(value) for value in values):
        shown = ", ".join(str(value) for value in values)
        reason = f"the objective is not a finite number ({shown})"
        end = End(words.DIVERGED, reason, end.exit_code)
        ledger.finish(token, end, words.FAILED, checkpoint=checkpoint)
        state = words.FAILED
    else:
        cut_short = end.reason in ("pruned", words.TOO_LONG)
        state = words.PRUNED if cut_short else words.COMPLETE
        ledger.finish(token, end, state, values, checkpoint)
    if ledger.open_failures():
        ledger.close_failures()
    return state


def _violations(ledger: Ledger, trial_id: int) -> list[float] | str:
    """Return by how much each constraint is broken, or the metric that was not reported."""
    last: dict[str, float] = {}
    for constraint in ledger.study.constraints:
        series = ledger.lineage(trial_id, constraint.metric)
        if not series:
            return constraint.metric
        last[constraint.metric] = series[-1][1]
    return feasibility.violations(ledger.study.constraints, last)


def expected(metric: str, study: Study) -> str:
    """Return what training should have done to report a metric."""
    for objective in study.objectives:
        if objective.metric == metric and objective.pattern:
            return f"{metric}: no line of its output matches {objective.pattern!r}"
    return f"{metric}: Reporter().log(step=…, {metric}=…), or a line in $SWEEP_METRICS"


def others_text(metric: str, reported: Sequence[str]) -> str:
    """Return what was reported instead of a metric, with the name that looks most like it."""
    if not reported:
        return " (nothing was reported)"
    near = closest(metric, reported)
    return f" (reported: {', '.join(reported)}" + (f"; did you mean {near}?)" if near else ")")


def newest_of(folder: AttemptFolder) -> tuple[str, str | None] | None:
    """Return the newest checkpoint that an attempt left, with its hash; None where it left none."""
    for path in checkpoints(folder):
        try:
            return str(path), digest(path)
        except OSError:
            continue
    return None


FULL_DISK = "no space is left"  # begins the reason


def full_disk(folder: Path) -> str:
    """Return in words that the disk of a folder is full."""
    return f"{FULL_DISK} on the disk of {folder}; make room there, then launch again"


def is_full(error: OSError) -> bool:
    """Tell whether an error means a full disk or a quota that is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def has_room(folder: Path) -> bool:
    """Tell whether a small file can be written into a folder; other errors do not count."""
    probe = folder / f".room.{os.getpid()}"
    try:
        with open(probe, "wb", buffering=0) as stream:
            return stream.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES
    except OSError as error:
        return not is_full(error)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def last_lines(folder: AttemptFolder, lines: int = 20) -> list[str]:
    """Return the end of the attempt's log."""
    return read_tail(folder.log, lines)


def drain(ledger: Ledger, token: str, folder: AttemptFolder, first_step: int = 0) -> int:
    """Store what an attempt's journal holds, all of it; inside ``db.retry``. Return how many."""
    study = ledger.study
    journal = Journal(folder, study.objectives, first_step, command.reader(study))
    reports = journal.read(final=True)
    ledger.record(token, reports)
    return len(reports)


def take_over(ledger: Ledger, token: str, folder: StudyFolder, number: int) -> None:
    """Store what earlier attempts of a trial reported before this one went on; inside ``db.retry``.

    Nearly always nothing: it was stored when they ended. See ``storage.adoption``.

    Raises:
        StaleAttempt: The attempt is over.
    """
    found = {}
    for attempt, (last, cut) in adoption.missing_before(ledger, token).items():
        reports = [
            report
            for report in Journal(folder.attempt(number, attempt)).read(final=True)
            if report.step < cut and (last is None or report.step > last)
        ]
        if reports:
            found[attempt] = reports
    if found:
        adoption.adopt(ledger, token, found)


def remove_checkpoints(ledger: Ledger, folder: StudyFolder, number: int) -> None:
    """Remove a final trial's checkpoints unless it is among the best, and those it displaced."""
    study = ledger.study
    if study.is_multi_objective:
        return  # which of a front is best is not ours to say
    # Several may have been displaced at once, by as many as run.
    best = ledger.best_numbers(study.keep + study.parallel, infeasible=True)
    gone = set(best[study.keep :])
    if number not in best[: study.keep] and not _may_go_on(ledger, number):
        gone.add(number)
    for trial in gone:
        for path in _checkpoint_folders(folder, trial):
            with contextlib.suppress(OSError):
                import shutil

                shutil.rmtree(path)


def _may_go_on(ledger: Ledger, number: int) -> bool:
    """Tell whether a final trial was cut by its study's end, or paused: it keeps what it has."""
    rows = ledger.db.execute(
        "SELECT u.value_json::json ->> 'outcome' FROM trials t JOIN trial_user_attributes u "
        "USING (trial_id) WHERE t.study_id = %s AND t.number = %s AND u.key = %s",
        (ledger.study_id, number, END),
    )
    return bool(rows) and rows[0][0] in (CUT, PAUSED)


def _checkpoint_folders(folder: StudyFolder, number: int) -> list[Path]:
    return list((folder.trial(number) / "attempts").glob("*/checkpoints"))
