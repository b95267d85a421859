"""A study's trials, kept in memory and followed by what is new or not yet final.

A finished trial does not change, so it is read once. What a look reads from the database: the ids
and states of trials that run or that have finished since, then the rows of those alone.

Ids grow in the order in which trials become visible, because whoever adds trials holds the study's
row. One thing escapes: a trial that was finished, made to run again and finished again between two
looks keeps its older face (only launch does that, after the user's code was corrected).
"""

from __future__ import annotations

import threading
from collections.abc import Container
from typing import Any

from sweep.storage.connection import Database
from sweep.storage.trial_rows import FINISHED, read_trials

CHANGED_SQL = """
SELECT t.trial_id, t.state::text,
  (SELECT min(w.trial_id) FROM trials w WHERE w.study_id = s.study_id AND w.state = 'WAITING')
FROM studies s LEFT JOIN trials t ON t.study_id = s.study_id AND (
  t.state = 'RUNNING'
  OR (t.state = 'WAITING' AND %(waiting)s)
  OR (t.state IN ('COMPLETE', 'PRUNED', 'FAIL')
      AND (t.trial_id >= %(from_id)s OR t.trial_id = ANY(%(running)s))))
WHERE s.study_id = %(study)s
"""


class History:
    """The trials of one study.

    The FrozenTrials that it returns are never changed afterwards: a newer state is a new object.
    """

    def __init__(self, study_id: int) -> None:
        self.study_id = study_id
        self._lock = threading.Lock()
        self._finished: dict[int, Any] = {}  # by trial id
        self._running: set[int] = set()
        self._from_id = 0  # every trial below it is in _finished, or in _running
        self._sorted: list[Any] = []  # the finished ones by number
        self._stale = False

    def look(self, database: Database, states: Container[Any] | None = None) -> list[Any]:
        """Return the study's trials as they are now, by number.

        Args:
            states: Optuna's TrialStates to return; all when None. Waiting trials are only read
                when they are asked for.

        Raises:
            KeyError: There is no such study.
            DatabaseUnavailable: The database does not answer.
        """
        from optuna.trial import TrialState

        with self._lock:
            waiting = states is None or TrialState.WAITING in states
            open_trials = self._follow(database, waiting)
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

    def _follow(self, database: Database, waiting: bool) -> list[Any]:
        rows = database.execute(
            CHANGED_SQL,
            {
                "study": self.study_id,
                "waiting": waiting,
                "from_id": self._from_id,
                "running": list(self._running),
            },
        )
        if not rows:
            raise KeyError(f"no study with id {self.study_id}")
        found = {trial_id: state for trial_id, state, _ in rows if trial_id is not None}
        wanted = [
            trial_id
            for trial_id, state in found.items()
            if state not in FINISHED or trial_id not in self._finished
        ]
        open_trials = []
        for trial in read_trials(database, wanted):
            if trial.state.is_finished():
                self._finished[trial._trial_id] = trial
                self._stale = True
            else:
                # It may have been finished at the last look, and given back since.
                self._stale |= self._finished.pop(trial._trial_id, None) is not None
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
