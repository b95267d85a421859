"""Print what a trial's training printed, attempt after attempt."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from sweep.cli import suggest
from sweep.cli.common import get_runs, open_study, runs_option
from sweep.control.open_study import Opened
from sweep.core.errors import EXIT_DONE, EXIT_FAILED, InputError
from sweep.core.files import read_part
from sweep.core.numbers import whole
from sweep.core.terminal_text import VisibleText, visible_lines
from sweep.core.trial import Attempt
from sweep.storage.ledger import Ledger
from sweep.storage.trial_rows import FINISHED

AttemptLine = tuple[int, str | None, str]  # number, outcome, reason


@click.command(
    epilog="\b\nExamples:\n  sweep logs 7\n  sweep logs digits 7 --attempt 1\n  sweep logs 7 -f"
)
@click.argument(
    "study_and_trial",
    metavar="[STUDY] TRIAL",
    nargs=-1,
    required=True,
    shell_complete=suggest.study_and_trial,
)
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt only [default: all].")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows, into later attempts.")
@click.option("--raw", is_flag=True, help="As it was printed: colours, redraws, odd characters.")
@runs_option
def logs(
    study_and_trial: tuple[str, ...],
    attempt: int | None,
    follow: bool,
    raw: bool,
    runs: Path | None,
) -> int:
    """Print what a trial's training printed, attempt after attempt.

    Of a progress bar only its last state is shown, and nothing in the output acts on your terminal.
    """
    if len(study_and_trial) > 2:
        raise InputError(
            "There are too many words.", "Give a trial's number, and the study's name before it."
        )
    *names, number = study_and_trial
    trial = whole(number)
    if trial is None:
        raise InputError(f"TRIAL must be a trial's number (got {number!r}).", "See: sweep collect.")
    where = get_runs(runs)
    name = names[0] if names else None
    opened = open_study(where, name)
    ledger = opened.ledger
    trial_id, state = opened.find_trial(trial)

    def attempts() -> list[AttemptLine]:
        found = attempts_of(ledger, trial_id)
        return [line for line in found if attempt in (None, line[0])]

    if not attempts():
        is_ours = state == "WAITING"
        why = "has not started" if is_ours else "was never started by sweep: it has no log"
        click.echo(f"trial {trial} {why}", err=True)
        if not (follow and is_ours):
            return EXIT_FAILED
    for text in log_text(opened, trial, attempts, follow=follow, raw=raw):
        sys.stdout.write(text)
        sys.stdout.flush()
    return EXIT_DONE


def _why(attempt: Attempt) -> str:
    """Return why an attempt ended, and a line for each note on it."""
    return "".join([attempt.reason, *(f"\n--- note: {note}" for note in attempt.notes)])


def attempts_of(ledger: Ledger, trial_id: int) -> list[AttemptLine]:
    """Return a trial's attempts, oldest first: number, outcome (None while it lives), reason."""
    found = ledger.db.retry(lambda _: ledger.attempts(trial_id))
    return [(a.number, a.outcome, _why(a)) for a in found]


def log_text(
    opened: Opened,
    trial: int,
    attempts: Callable[[], list[AttemptLine]],
    *,
    follow: bool = False,
    raw: bool = False,
) -> Iterator[str]:
    """Yield what a trial's attempts have printed, each with its number before and its end behind.

    Args:
        attempts: Gives them as they are now.
        follow: Go on as the log grows, until the trial is final.
        raw: As it was printed.
    """
    shown = 0
    while True:
        for number, outcome, reason in attempts():
            if number <= shown:
                continue
            path = opened.folder.attempt(trial, number).log
            yield f"--- trial {trial}, attempt {number}\n"
            yield from _file_text(path, number, attempts, follow, raw)
            latest = {n: (o, r) for n, o, r in attempts()}
            outcome, reason = latest.get(number, (outcome, reason))
            if outcome:
                reason = "\n".join(visible_lines(reason))
                why = f": {reason}" if reason and not reason.startswith("\n") else reason
                yield f"--- attempt {number}: {outcome}{why}\n"
            shown = number
        if not follow or _is_final(opened, trial):
            return
        time.sleep(1.0)


def _file_text(
    path: Path, number: int, attempts: Callable[[], list[AttemptLine]], follow: bool, raw: bool
) -> Iterator[str]:
    offset = 0
    is_terminal = follow and sys.stdout.isatty()
    visible = VisibleText(is_terminal, shutil.get_terminal_size().columns)
    while True:
        live = follow and {n: o for n, o, _ in attempts()}.get(number) is None
        while True:
            text, offset, wrong = read_part(path, offset, 65536)
            if not text:
                break
            yield text if raw else visible.add(text)
        if wrong or not live:
            yield visible.end()
            if wrong:
                yield f"--- {path} {wrong}\n"
            return
        yield visible.pause()
        time.sleep(0.5)


def _is_final(opened: Opened, trial: int) -> bool:
    ledger = opened.ledger
    found = ledger.find_trial(trial)
    return found is not None and found[1] in FINISHED
