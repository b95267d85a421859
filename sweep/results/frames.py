"""A study's results as pandas frames: ``sweep.load("digits").trials()``.

For notebooks and scripts; nothing here changes a study.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from types import TracebackType
from typing import Any

from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.executors import kind_of
from sweep.core.study import Study
from sweep.results import mixed_code
from sweep.results.columns import Row, columns
from sweep.results.ranking import all_wanted, check_metrics, rows
from sweep.storage import records, series
from sweep.storage.access import stop_if_unused
from sweep.storage.series import Series


class Results:
    """The results of one study, read anew at each call. Close it, or use it in a ``with``.

    Attributes:
        name: The study's name.
        study: The study as it was launched.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._db = opened.ledger.db
        self.study: Study = opened.study
        self.name: str = opened.study.name

    def __repr__(self) -> str:
        return f"<Results of {self.name}, {self.study.trials} trials>"

    def trials(self, *, states: Sequence[str] | None = None, metrics: bool = True) -> Any:
        """Return one row a trial, best first: the columns of ``sweep collect``.

        ``rank`` (1 is best; with several objectives the number of the Pareto front), ``trial``,
        ``state``, ``value`` (or ``values.<metric>``), ``params.<name>``, each metric's last, least
        and greatest value (``metrics.<name>``, ``metrics.<name>:min``, ``metrics.<name>:max``),
        ``seed``, ``attempts``, ``duration_s``, ``gpu_hours``, ``energy_j``, ``reason``,
        ``started``, ``ended``; ``code`` where the trials ran different code.

        Args:
            states: Only trials in these states ("complete", "pruned", …); all when None.
            metrics: Whether to read the metrics.

        Returns:
            A pandas DataFrame.

        Raises:
            InputError: There is no such state.
            DatabaseUnavailable: The database does not answer at present.
        """
        with _uncollected():
            return self._trials(states, metrics)

    def _trials(self, states: Sequence[str] | None, metrics: bool) -> Any:
        for state in states or ():
            if state not in outcomes.STATES:
                raise InputError(
                    f"There is no state {state!r}.", f"One of {', '.join(outcomes.STATES)}."
                )
        study_id = self._opened.ledger.study_id
        found = self._db.retry(lambda db: records.read_trials(db, study_id, self.study))
        summaries = {}
        if metrics:
            summaries = self._db.retry(lambda db: series.read_summaries(db, study_id))
        chosen = rows(
            found,
            self.study,
            states=states or outcomes.STATES,
            summaries=summaries,
            wanted=all_wanted(summaries),
            codes=mixed_code.read(self._opened.folder, self.study, found).ids,
        )
        return frame(chosen, self.study)

    def metrics(self, *names: str, trials: Sequence[int] | None = None) -> Any:
        """Return one row for each value that a trial reported (the long form).

        Columns: ``trial``, ``attempt`` (which reported it), ``step``, ``metric``, ``value``,
        ``logged`` (when). Steps that a later attempt reported again are left out.

        Args:
            names: Only these metrics; all when none is given.
            trials: Only the trials with these numbers; all when None.

        Returns:
            A pandas DataFrame, by trial, metric and step.

        Raises:
            InputError: No trial has reported a metric of that name.
            DatabaseUnavailable: The database does not answer at present.
        """
        study_id = self._opened.ledger.study_id
        found = self._db.retry(
            lambda db: series.read_series(db, study_id, numbers=trials, names=names or None)
        )
        if names and {s.metric for s in found} != set(names):
            check_metrics(names, self._db.retry(lambda db: series.read_names(db, study_id)))
        return series_frame(found)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()
        if not kind_of(self.study).shares_this_machine:
            # A job serves the data; a server left here would be in its way.
            stop_if_unused(self._opened.folder)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let Python look for no garbage meanwhile.

    Hundreds of thousands of objects come into being here and stay; each look visits them all, a
    third of the time of a large frame. None of them refers to itself, so nothing is missed.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def series_frame(found: Sequence[Series]) -> Any:
    """Return series as a long pandas DataFrame; ``metric`` is categorical."""
    import numpy
    import pandas

    lengths = [len(s.steps) for s in found]
    total = sum(lengths)

    def flat(column: str, dtype: str) -> Any:
        values = chain.from_iterable(getattr(s, column) for s in found)
        return numpy.fromiter(values, dtype, total)

    names = sorted({s.metric for s in found})
    place = {name: code for code, name in enumerate(names)}
    codes = numpy.repeat(numpy.array([place[s.metric] for s in found], "int32"), lengths)
    return pandas.DataFrame(
        {
            "trial": numpy.repeat(numpy.array([s.trial for s in found], "int64"), lengths),
            "attempt": flat("attempts", "int64"),
            "step": flat("steps", "int64"),
            "metric": pandas.Categorical.from_codes(codes, names),
            "value": flat("values", "float64"),
            "logged": pandas.to_datetime(flat("logged", "float64"), unit="s", utc=True),
        }
    )


def frame(found: Sequence[Row], study: Study) -> Any:
    """Return rows as a pandas DataFrame, one column for each parameter (``params.lr``).

    Columns that can hold whole numbers, truth values or text and have gaps use pandas' nullable
    types; choices of mixed kinds stay Python objects (a choice of null is None, a parameter that
    the trial does not have is ``pandas.NA``). With several objectives there is a column for each,
    ``values.<metric>``.
    """
    import pandas

    kinds = {"int": "Int64", "float": "float64", "bool": "boolean", "text": "string"}
    data = {}
    for column in columns(found, study):
        values = [column.read(row) for row in found]
        if column.kind == "time":
            data[column.name] = pandas.to_datetime(pandas.Series(values), utc=True)
        elif column.kind == "json":
            cells = [pandas.NA if value is column.missing else value for value in values]
            data[column.name] = pandas.Series(cells, dtype="object")
        else:
            data[column.name] = pandas.Series(values, dtype=kinds[column.kind])
    return pandas.DataFrame(data)
