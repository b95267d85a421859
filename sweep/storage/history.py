"""A study's trials, kept in memory and followed by what is new or not yet final.

A finished trial does not change, so it is read once. What a look reads from the database: the ids
and states of trials that run or that have finished since, then the rows of those alone.

Ids grow in the order in which trials become visible, because whoever adds trials holds the study's
row. A launch may make finished trials run again (``--retry``, or where a study's end no longer
holds); it counts that in the study's attributes, and then everything is read anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container
from typing import Any

from sweep.core.attributes import RETRIES
from sweep.storage.connection import Database
from sweep.storage.trial_rows import FINISHED, read_trials

FOLLOW_EVERY_S = 1.0
FOLLOW_SHARE = 50.0  # seconds between two looks for each second that one took

# Each part is a range of our index on (study, state, trial), where ``launch`` has made it.
CHANGED_SQL = f"""
SELECT t.trial_id, t.state::text,
  (SELECT min(w.trial_id) FROM trials w WHERE w.study_id = %(study)s AND w.state = 'WAITING'),
  (SELECT r.value_json FROM study_system_attributes r WHERE r.study_id = %(study)s
    AND r.key = '{RETRIES}')
FROM studies s LEFT JOIN (
  SELECT trial_id, state FROM trials WHERE study_id = %(study)s AND state = 'RUNNING'
  UNION ALL SELECT trial_id, state FROM trials
  WHERE study_id = %(study)s AND state = 'WAITING' AND %(waiting)s
  UNION ALL SELECT trial_id, state FROM trials WHERE study_id = %(study)s
    AND state IN ('COMPLETE', 'PRUNED', 'FAIL') AND trial_id >= %(from_id)s
  UNION ALL SELECT trial_id, state FROM trials WHERE trial_id = ANY(%(running)s::int[])
    AND state IN ('COMPLETE', 'PRUNED', 'FAIL') AND trial_id < %(from_id)s
) t ON TRUE WHERE s.study_id = %(study)s
"""


class History:
    """The trials of one study.

    The FrozenTrials that it returns are never changed afterwards: a newer state is a new object.

    Args:
        steps: False for complete trials without what they reported.
    """

    def __init__(self, study_id: int, steps: bool = True) -> None:
        self.study_id = study_id
        self.steps = steps
        self._lock = threading.Lock()
        self._finished: dict[int, Any] = {}  # by trial id
        self._running: set[int] = set()
        self._from_id = 0  # every trial below it is in _finished, or in _running
        self._sorted: list[Any] = []  # the finished ones by number
        self._stale = False
        self.finished_order: list[Any] = []  # the finished ones as they were read
        self.generation = 0  # counts the times that a finished one was taken back
        self._retries: str | None = None  # how often finished trials have been made to run again
        self._due = 0.0  # when ``follow`` looks again, monotonic

    def look(self, database: Database, states: Container[Any] | None = None) -> list[Any]:
        """Return the study's trials as they are now, by number.

        Args:
            states: Optuna's TrialStates to return; all when None. Waiting and running trials are
                only read when they are asked for.

        Raises:
            KeyError: There is no such study.
            DatabaseUnavailable: The database does not answer.
        """
        from optuna.trial import TrialState

        with self._lock:
            waiting = states is None or TrialState.WAITING in states
            running = states is None or TrialState.RUNNING in states
            open_trials = self._follow(database, waiting, running)
            if self._stale:
                self._sorted = sorted(self._finished.values(), key=lambda trial: trial.number)
                self._stale = False
            trials = self._sorted
            if open_trials:
                trials = sorted([*trials, *open_trials], key=lambda trial: trial.number)
            if states is None:
                return list(trials)
            return [trial for trial in trials if trial.state in states]

    def finished(self, trial_id: int) -> Any | None:
        """Return a finished trial that has been read, or None."""
        return self._finished.get(trial_id)

    def follow(self, database: Database) -> None:
        """Read what has finished since, unless that was done a moment ago.

        At most once a second, and for at most one part in 50 of the time: many workers that judge
        many steps must not spend their time on reading what each other has finished.
        """
        began = time.monotonic()
        with self._lock:
            if began >= self._due:
                self._follow(database, waiting=False, running=False)
                now = time.monotonic()
                self._due = now + max(FOLLOW_EVERY_S, FOLLOW_SHARE * (now - began))

    def _changed(self, database: Database, waiting: bool) -> list[Any]:
        rows = database.execute(
            CHANGED_SQL,
            {
                "study": self.study_id,
                "waiting": waiting,
                "from_id": self._from_id,
                "running": [trial_id for trial_id in self._running if trial_id < self._from_id],
            },
        )
        if not rows:
            raise KeyError(f"no study with id {self.study_id}")
        return rows

    def _forget(self) -> None:
        """Read everything anew: finished trials may have run again, and finished otherwise."""
        self._finished.clear()
        self._running.clear()
        self._from_id = 0
        self.finished_order = []
        self.generation += 1
        self._stale = True

    def _follow(self, database: Database, waiting: bool, running: bool) -> list[Any]:
        rows = self._changed(database, waiting)
        if rows[0][3] != self._retries:
            if self._finished:
                self._forget()
                rows = self._changed(database, waiting)
            self._retries = rows[0][3]
        found = {trial_id: state for trial_id, state, *_ in rows if trial_id is not None}
        for trial_id, state in found.items():
            if state not in FINISHED and self._finished.pop(trial_id, None) is not None:
                # It was finished at the last look, and has been given back since.
                self._stale = True
                self.generation += 1
                self.finished_order = list(self._finished.values())
        wanted = [
            trial_id
            for trial_id, state in found.items()
            if (state in FINISHED and trial_id not in self._finished)
            or (state == "RUNNING" and running)
            or state == "WAITING"
        ]
        open_trials = []
        for trial in read_trials(database, wanted, steps=self.steps):
            if trial.state.is_finished():
                self._finished[trial._trial_id] = trial
                self.finished_order.append(trial)
                self._stale = True
            else:
                open_trials.append(trial)
        self._running = {
            trial_id
            for trial_id, state in found.items()
            if state == "RUNNING" and trial_id not in self._finished
        }
        first_waiting = rows[0][2]
        if first_waiting is not None:
            self._from_id = first_waiting
        else:
            self._from_id = max([self._from_id, *(trial_id + 1 for trial_id in found)])
        return open_trials
