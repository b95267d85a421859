"""Read a study, and write its page and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sweep.control.open_study import Opened
from sweep.core.errors import InputError, SweepError
from sweep.core.files import make_private
from sweep.core.paths import StudyFolder, runs_folder
from sweep.core.sharing import share
from sweep.results.page import current, html, pictures, source
from sweep.results.page.contents import Contents, arrange


def contents(opened: Opened, scheduler: Mapping[str, Any] | None = None) -> Contents:
    """Return what a study's report shows.

    Args:
        scheduler: What it says of the study's tasks, as ``status.snapshot`` takes it.

    Raises:
        DatabaseUnavailable: The database does not answer at present.
    """
    runs = opened.folder.root.parent
    named = None if runs == runs_folder("runs") else str(runs)
    return arrange(source.read(opened), named, current.read(opened, scheduler))


def report(
    opened: Opened,
    output: Path | None = None,
    figures: Path | None = None,
    formats: tuple[str, ...] = pictures.FORMATS,
    scheduler: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write the page, and pictures where a folder for them is given; return the files.

    Args:
        scheduler: As ``contents`` takes it.

    Raises:
        InputError: The drawing library is missing, or a place cannot be written to.
        DatabaseUnavailable: The database does not answer at present.
    """
    html.drawing()  # before anything else is done
    found = contents(opened, scheduler)
    target = output or opened.folder.report
    if output is None:
        _make_results_folder(opened.folder)
    html.write(found, target, html.cache_folder(), chosen=output is not None)
    if output is None:
        share(opened.study, opened.folder, target)
    return [target, *(pictures.draw(found.charts, figures, formats) if figures else [])]


def _make_results_folder(folder: StudyFolder) -> None:
    """Make the folder of a study's results, within the study's folder alone: one that has been
    removed or renamed meanwhile is not brought back, without a mark, by the page of its end.

    Raises:
        InputError: The study's folder is gone.
    """
    if not folder.root.is_dir():
        raise InputError(
            f"The study's folder {folder.root} is gone.",
            "Name a file for the page: sweep report -o page.html.",
        )
    make_private(folder.report.parent)


def at_the_end(opened: Opened, say: Callable[[str], None]) -> None:
    """Write the page of a study whose last trial has ended; never fail because of it."""
    try:
        for path in report(opened):
            say(f"report: {path}")
    except SweepError as error:
        say(f"no report was made: {error.message} {error.hint}".rstrip())
    except Exception as error:  # a fault of a page must not look like one of the study
        say(f"no report was made ({type(error).__name__}: {error}); sweep report tries again")
