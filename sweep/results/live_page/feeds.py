"""The one thread that reads the database for all browsers, while one of them asks.

A study at which something happens is read at most once a second. One at which nothing does is read
again only once its folder says that it was launched or run again; in between no session is open, so
that an embedded server that nobody else uses may end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep.control import known_databases
from sweep.control.open_study import Opened, open_study
from sweep.core import outcomes
from sweep.core.errors import SweepError
from sweep.core.executors import kind_of
from sweep.core.masking import mask
from sweep.core.paths import Runs, runs_folder
from sweep.core.system.crash import write_crash
from sweep.results.live_page.news import News
from sweep.results.overview import NOT_OURS, StudyLine, read_overview
from sweep.results.page import current, html, source
from sweep.results.page.contents import Contents, arrange
from sweep.results.page.current import Current
from sweep.results.page.importance import importances
from sweep.results.page.source import Source
from sweep.results.status import FINISHED, IDLE
from sweep.storage import access, reruns, studies
from sweep.storage.reruns import Rerun

EVERY_S = 1.0  # between two looks at a study that runs
RENEW_S = 30.0  # a study that runs is drawn anew so often, whatever has changed
SHARE = 5.0  # of the time goes to all but the reading of everything: it is the heavier, the rarer
ASKED_S = 10.0  # who has not asked for so long has left
PATIENCE_S = 2.0  # for a database that is away: the page says so meanwhile
AWAY_S = 3.0  # between two tries then
LIST_EVERY_S = 5.0
RESTING = (FINISHED, IDLE, studies.HELD, studies.STOPPED, NOT_OURS)
GROWN = 1.1  # by which complete trials have become more when importances are computed again

AskScheduler = Callable[[Opened], Mapping[str, Any]]


class Importances:
    """Importances that are computed anew only when they may have changed: they take seconds."""

    def __init__(self) -> None:
        self._of = -1
        self._found: dict[str, float] = {}

    def __call__(self, read: Source) -> dict[str, float]:
        complete, left = read.counts[outcomes.COMPLETE], not read.is_over
        if self._of < 0 or complete < self._of or complete > self._of * (GROWN if left else 1):
            self._found, self._of = importances(read), complete
        return self._found


class StudyFeed:
    """What the page of one study shows; only the reading thread renews it.

    Attributes:
        news: For browsers.
        read: All trials, when they were read last; None before.
        problem: Why what is shown may be old, in words; "" where it is not.
        asked: When a browser asked last, monotonic; due: when it is to be read next.
        is_open: Whether a session with the database may be open.
    """

    def __init__(self, runs: Runs, name: str, ask_scheduler: AskScheduler) -> None:
        self.runs = runs
        self.name = name
        self.ask_scheduler = ask_scheduler
        self.news = News()
        self.ready = threading.Event()
        self.contents: Contents | None = None
        self.read: Source | None = None
        self.problem = ""
        self.asked = self.due = float("-inf")
        self._opened: Opened | None = None
        self._rests_at: tuple[int, ...] | None = None  # the folder's state when nothing went on
        self._drawn: tuple[Any, ...] = ()
        self._draw_after = float("-inf")
        self._renew_at = float("-inf")
        self._judge = Importances()
        self._served = html.Served(setup="null")

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def look(self, now: float) -> None:
        """Read what is new, if it is time; say what is wrong instead of raising it."""
        if self._rests_at is not None and self._rests_at == self._state_of_folder():
            self.due = now + EVERY_S
            return
        self._rests_at = None
        pause = EVERY_S
        try:
            self._renew(now)
            self.problem = ""
        except SweepError as error:
            pause = AWAY_S
            self.problem = mask(f"{error.message} {error.hint}".strip())
            self.close()
        except Exception as error:  # the page must not die of a fault of ours, nor hide it
            pause = RENEW_S
            self.problem = say_fault(self.runs, error, self.name)
            self.close()
        self.news.put("about", {"problem": self.problem})
        self.due = time.monotonic() + pause
        self.ready.set()

    def close(self) -> None:
        """End the session with the database; on a cluster, a server that was started for it too."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        opened.ledger.db.close()
        if not kind_of(opened.study).shares_this_machine:
            access.stop_if_unused(opened.folder)

    def _renew(self, now: float) -> None:
        state = self._state_of_folder()
        if self._opened is None:
            self._opened = open_study(self.runs, self.name)
        opened = self._opened
        ledger = opened.ledger
        with ledger.db.patient(PATIENCE_S):
            found = current.read(opened, self.ask_scheduler(opened))
            again = ledger.db.retry(lambda db: reruns.read_all(db, ledger.study_id))
            goes_on = (
                (found.status.counts[outcomes.RUNNING] > 0 and found.status.state != IDLE)
                or any((found.status.tasks or {}).values())
                or any(one.outcome is None for one in again)
            )
            self._take_current(found)
            self._take_all(opened, found, again, now, at_once=not goes_on)
        if not goes_on:
            self._rests_at = state
            self.close()

    def _take_current(self, found: Current) -> None:
        """Renew what happens now, with all that was read before."""
        if self.contents is None:
            return
        self.contents = self.contents.at(found)
        self.news.put("parts", html.parts(self.contents, self._served, ("now",)))
        running = found.chart()
        self.news.put("specs", {"running": running.spec if running else None})

    def _take_all(
        self, opened: Opened, found: Current, again: Sequence[Rerun], now: float, *, at_once: bool
    ) -> None:
        """Read all trials where something has happened to them; unless at once, not too often."""
        status = found.status
        happened = (
            status.state,
            status.reason,
            tuple(sorted(status.counts.items())),
            tuple(sorted((line.trial, line.attempt) for line in status.running)),
            tuple((one.k, one.claimed, one.outcome) for one in again),
        )
        if self.contents is not None and not at_once:
            is_new = happened != self._drawn or now >= self._renew_at
            if not is_new or now < self._draw_after:
                return
        began = time.monotonic()
        self.read = source.read(opened)
        folder = opened.folder.root.parent
        named = None if folder == runs_folder("runs") else str(folder)
        self.contents = arrange(self.read, named, found, self._judge)
        self.news.put("parts", html.parts(self.contents, self._served))
        self.news.put("specs", html.specs_of(self.contents), whole=True)
        self.news.put("data", {"trials": self.contents.columns})
        ended = time.monotonic()
        self._drawn = happened
        self._draw_after = ended + SHARE * (ended - began)
        self._renew_at = ended + RENEW_S

    def _state_of_folder(self) -> tuple[int, ...]:
        """Return what changes in the folders when a study is launched, stopped or run again."""
        folder = self.runs.study(self.name)
        reruns_folder = folder.rerun(1).root.parent
        return states_of((self.runs.last, folder.study, folder.root, folder.local, reruns_folder))


def say_fault(runs: Runs, error: Exception, what: str) -> str:
    """Leave a crash file, and return a sentence that names it."""
    path = write_crash(runs.root, error, ["serve", what])
    return f"A fault of sweep's own ({type(error).__name__}); details are in {path}."


def states_of(paths: Sequence[Path]) -> tuple[int, ...]:
    """Return when each of these was changed last, in nanoseconds; 0 of what is not there."""
    found = []
    for path in paths:
        try:
            found.append(path.stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


class ListFeed:
    """The list of all studies that the runs folder's databases hold."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.news = News()
        self.ready = threading.Event()
        self.problem = ""
        self.studies: list[StudyLine] = []
        self.asked = self.due = float("-inf")
        self.is_open = False  # the databases are closed after each look
        self._rests_at: tuple[int, ...] | None = None

    def look(self, now: float) -> None:
        """Read the list, if it is time; say what is wrong instead of raising it."""
        state = states_of((self.runs.last, self.runs.root))
        if self._rests_at == state:
            self.due = now + EVERY_S
            return
        self._rests_at = None
        try:
            lines, problems = read_overview(known_databases.known(self.runs))
            self.studies = [line for each in lines.values() for line in each]
            self.problem = mask(" ".join(problems))
            if not problems and all(line.state in RESTING for line in self.studies):
                self._rests_at = state
        except SweepError as error:
            self.problem = mask(f"{error.message} {error.hint}".strip())
        except Exception as error:  # as above
            self.problem = say_fault(self.runs, error, "--all")
        known = set(self.runs.studies())
        self.news.put("parts", html.list_parts(self.studies, known))
        self.news.put("about", {"problem": self.problem})
        self.due = time.monotonic() + LIST_EVERY_S
        self.ready.set()

    def close(self) -> None:
        """Nothing is open between two looks."""


Feed = StudyFeed | ListFeed


class PageReader(threading.Thread):
    """Renews what browsers ask for, one after the other, and rests while nobody asks."""

    def __init__(self) -> None:
        super().__init__(name="reader", daemon=True)
        self._feeds: list[Feed] = []
        self._asked = threading.Condition()
        self._is_over = False

    def ask(self, feed: Feed) -> None:
        """Have a feed renewed from now on, for as long as somebody asks."""
        with self._asked:
            feed.asked = time.monotonic()
            if feed not in self._feeds:
                self._feeds.append(feed)
            self._asked.notify()

    def run(self) -> None:
        while True:
            with self._asked:
                now = time.monotonic()
                wanted = [feed for feed in self._feeds if now - feed.asked < ASKED_S]
                left = [feed for feed in self._feeds if feed not in wanted and feed.is_open]
                due = [feed for feed in wanted if feed.due <= now]
                if self._is_over:
                    return
                if not due and not left:
                    # Nobody asks: then there is nothing to wait for but somebody who does.
                    next_s = min((feed.due - now for feed in wanted), default=None)
                    self._asked.wait(next_s)
                    continue
            for feed in left:
                feed.close()
            for feed in due:
                feed.look(now)

    def end(self) -> None:
        """End the thread, and close what is open."""
        with self._asked:
            self._is_over = True
            self._asked.notify()
        self.join()
        for feed in self._feeds:
            feed.close()
