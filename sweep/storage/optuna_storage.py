"""An Optuna storage over Optuna's own tables in PostgreSQL, made for many workers.

It differs from Optuna's ``RDBStorage`` in cost, not in meaning: one connection, one statement a
write, and a history that is followed by deltas. Both may work on one database at the same time.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    check_distribution_compatibility,
    distribution_to_json,
)
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core.errors import StaleAttempt
from sweep.storage import bulk, tables
from sweep.storage.connection import Database
from sweep.storage.history import History
from sweep.storage.optuna_studies import StudyStorage
from sweep.storage.prepared import numbers
from sweep.storage.trial_rows import read_distribution, read_trials, stored_number, stored_time

# The trial that a write is for, if it may be written: open, and owned by the attempt whose token
# this storage carries. The lock keeps the attempt alive until the statement has ended.
TRIAL_SQL = """
WITH trial AS (
  SELECT t.trial_id, t.study_id, t.state FROM trials t
  WHERE t.trial_id = %(trial)s AND t.state IN ('RUNNING', 'WAITING')
)"""
OWNED_TRIAL_SQL = """
WITH attempt AS (
  SELECT a.trial_id FROM sweep_attempt a
  WHERE a.token = %(token)s AND a.outcome IS NULL AND a.trial_id = %(trial)s FOR SHARE
), trial AS (
  SELECT t.trial_id, t.study_id, t.state FROM trials t JOIN attempt USING (trial_id)
  WHERE t.state IN ('RUNNING', 'WAITING')
)"""


class PostgresStorage(StudyStorage):
    """Optuna's studies in a PostgreSQL database that ``sweep launch`` or Optuna has prepared.

    Use it as any Optuna storage: ``optuna.load_study(study_name=…, storage=PostgresStorage(url))``.
    Without a token it needs Optuna's tables alone.

    Laws:
        - A finished trial is not changed; claiming a waiting one is compare-and-set.
        - A write that fails because the database is away is tried again for ``patience_s``, where a
          repeat does no harm; the others (a new study, a new trial, a change of state) are begun
          only on a connection that has just answered.
        - With a token, a write to a trial whose attempt has ended is refused.

    Args:
        database: A PostgreSQL URL, or an open Database to share.
        patience_s: Seconds for which a database that is away is waited for; its own when None.
        token: Token of the attempt in whose name trials are written, or None for no fence.
        steps: False for complete trials of a whole study without what they reported: a sampler
            needs only their values, and reads a long history in two thirds of the time.

    Attributes:
        own: Id of the trial that runs here, or None. It is read from the database always: the
            history may know it from before a retry, when it was final.

    Raises:
        SweepError: The database has no tables, or those of another version of Optuna.
        DatabaseUnavailable: The database does not answer.
    """

    def __init__(
        self,
        database: str | Database,
        *,
        patience_s: float | None = None,
        token: str | None = None,
        steps: bool = True,
    ) -> None:
        if isinstance(database, str):
            database = Database(database)
            check = tables.check_optuna if token is None else tables.check
            database.retry(check, patience_s=patience_s)
        self.database = database
        self.patience_s = patience_s
        self.token = token
        self.steps = steps
        self.own: int | None = None
        self._forget()

    def _forget(self) -> None:
        super()._forget()
        self._histories: dict[int, History] = {}
        self._known: dict[tuple[int, str], BaseDistribution] = {}
        self._study_of: dict[int, int] = {}  # trial id → study id

    def __getstate__(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "patience_s": self.patience_s,
            "token": self.token,
            "steps": self.steps,
            "own": self.own,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    # Trials: writing

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        template = template_trial
        if template is None:
            template = create_trial(state=TrialState.RUNNING)
            template.datetime_start = datetime.now()
        params = {
            name: (
                template.distributions[name].to_internal_repr(value),
                distribution_to_json(template.distributions[name]),
            )
            for name, value in template.params.items()
        }

        def create(database: Database) -> int:
            number = bulk.lock_study(database, study_id)
            trial_id = database.execute(
                "INSERT INTO trials (number, study_id, state, datetime_start, datetime_complete) "
                "VALUES (%s, %s, %s, %s, %s) RETURNING trial_id",
                (
                    number,
                    study_id,
                    template.state.name,
                    stored_time(template.datetime_start),
                    stored_time(template.datetime_complete),
                ),
            )[0][0]
            bulk.insert_params(database, [(trial_id, params)])
            bulk.insert_attributes(database, "user", [(trial_id, template.user_attrs)])
            bulk.insert_attributes(database, "system", [(trial_id, template.system_attrs)])
            bulk.insert_values(database, trial_id, template.values or [])
            bulk.insert_steps(database, trial_id, template.intermediate_values)
            return int(trial_id)

        for name, distribution in template.distributions.items():
            self._check_compatible(study_id, name, distribution)
        trial_id = self._once(create, transaction=True)
        self._study_of[trial_id] = study_id
        return trial_id

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        self.set_trial_params(trial_id, {param_name: (param_value_internal, distribution)})

    def set_trial_params(
        self,
        trial_id: int,
        params: Mapping[str, tuple[float, BaseDistribution]],
        study_id: int | None = None,
    ) -> None:
        """Store several parameters of a trial in one statement; one that it has stays as it is.

        Args:
            params: For each name Optuna's internal value and the distribution.
            study_id: The trial's study, where the caller knows it; saves asking.

        Raises:
            As ``set_trial_param``.
        """
        if not params:
            return
        if study_id is None:
            study_id = self._study_of.get(trial_id)
        if study_id is None or any((study_id, name) not in self._known for name in params):
            self._check_open(trial_id)
            study_id = self._study_of[trial_id]
        try:
            for name, (_, distribution) in params.items():
                self._check_compatible(study_id, name, distribution)
        except ValueError:
            self._check_open(trial_id)  # a finished trial is the more important news
            raise
        self._write(
            trial_id,
            "INSERT INTO trial_params (trial_id, param_name, param_value, distribution_json) "
            "SELECT trial_id, name, value, distribution FROM trial, "
            "unnest(%(names)s::text[], %(values)s::float8[], %(distributions)s::text[]) "
            "WITH ORDINALITY AS p(name, value, distribution, place) ORDER BY place "
            "ON CONFLICT (trial_id, param_name) DO UPDATE SET param_name = excluded.param_name "
            "RETURNING trial_id",
            {
                "names": list(params),
                "values": numbers([float(value) for value, _ in params.values()]),
                "distributions": [distribution_to_json(d) for _, d in params.values()],
            },
        )

    def _check_compatible(self, study_id: int, name: str, distribution: BaseDistribution) -> None:
        known = self._known.get((study_id, name))
        if known is None:
            found = self._rows(
                "SELECT p.distribution_json FROM trials t JOIN trial_params p USING (trial_id) "
                "WHERE t.study_id = %s AND p.param_name = %s LIMIT 1",
                (study_id, name),
            )
            if not found:
                return
            known = self._known[study_id, name] = read_distribution(found[0][0])
        check_distribution_compatibility(known, distribution)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        now = stored_time(datetime.now())
        pairs = [stored_number(value) for value in values or ()]
        allowed = ["WAITING"] if state == TrialState.RUNNING else ["RUNNING", "WAITING"]
        changed = self._once(
            lambda database: database.execute(
                self._trial_sql() + ", changed AS (UPDATE trials SET state = %(state)s,"
                " datetime_start = COALESCE(%(start)s, datetime_start),"
                " datetime_complete = COALESCE(%(complete)s, datetime_complete)"
                " WHERE trial_id = (SELECT trial_id FROM trial)"
                " AND state = ANY(%(allowed)s::trialstate[])"
                " RETURNING trial_id), stored AS ("
                "INSERT INTO trial_values (trial_id, objective, value, value_type)"
                " SELECT trial_id, place - 1, value, kind::trialvaluetype FROM changed,"
                " unnest(%(values)s::float8[], %(kinds)s::text[]) WITH ORDINALITY"
                " AS v(value, kind, place) ON CONFLICT (trial_id, objective) DO UPDATE"
                " SET value = excluded.value, value_type = excluded.value_type)"
                " SELECT trial_id FROM changed",
                {
                    "trial": trial_id,
                    "token": self.token,
                    "state": state.name,
                    "start": now if state == TrialState.RUNNING else None,
                    "complete": now if state.is_finished() else None,
                    "allowed": allowed,
                    "values": [value for value, _ in pairs],
                    "kinds": [kind for _, kind in pairs],
                },
            )
        )
        if not changed:
            self._check_open(trial_id)
        return bool(changed)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        value, kind = stored_number(intermediate_value)
        self._write(
            trial_id,
            "INSERT INTO trial_intermediate_values "
            "(trial_id, step, intermediate_value, intermediate_value_type) "
            "SELECT trial_id, %(step)s::bigint, %(value)s::float8, "
            "%(kind)s::trialintermediatevaluetype FROM trial "
            "ON CONFLICT (trial_id, step) DO UPDATE SET "
            "intermediate_value = excluded.intermediate_value, "
            "intermediate_value_type = excluded.intermediate_value_type RETURNING trial_id",
            {"step": int(step), "value": value, "kind": kind},
        )

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._set_trial_attribute("user", trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._set_trial_attribute("system", trial_id, key, value)

    def _set_trial_attribute(self, kind: str, trial_id: int, key: str, value: Any) -> None:
        self._write(
            trial_id,
            f"INSERT INTO trial_{kind}_attributes (trial_id, key, value_json) "
            "SELECT trial_id, %(key)s::text, %(value)s::text FROM trial "
            "ON CONFLICT (trial_id, key) DO UPDATE "
            "SET value_json = excluded.value_json RETURNING trial_id",
            {"key": key, "value": json.dumps(value)},
        )

    def _trial_sql(self) -> str:
        return TRIAL_SQL if self.token is None else OWNED_TRIAL_SQL

    def _write(self, trial_id: int, sql: str, params: dict[str, Any]) -> None:
        """Run an idempotent write to an open trial; ``sql`` returns a row where it wrote."""
        written = self._again(
            lambda database: database.execute_prepared(
                f"{self._trial_sql()} {sql}", {**params, "trial": trial_id, "token": self.token}
            )
        )
        if not written:
            self._check_open(trial_id)

    def _check_open(self, trial_id: int) -> None:
        """Raise what keeps a trial from being written: it is unknown, final, or another's."""
        found = self._rows(
            "SELECT study_id, number, state::text FROM trials t WHERE trial_id = %s", (trial_id,)
        )
        if not found:
            raise KeyError(f"no trial with id {trial_id}")
        study_id, number, state = found[0]
        self._study_of[trial_id] = study_id
        if self.token is not None and not self._rows(
            "SELECT 1 FROM sweep_attempt WHERE token = %s AND outcome IS NULL AND trial_id = %s",
            (self.token, trial_id),
        ):
            raise StaleAttempt(f"Trial {number} belongs to another attempt by now.")
        if TrialState[state].is_finished():
            raise UpdateFinishedTrialError(
                f"Trial#{number} has already finished and can not be updated."
            )

    # Trials: reading

    def get_trial_param(self, trial_id: int, param_name: str) -> float:
        found = self._rows(
            "SELECT param_value FROM trial_params WHERE trial_id = %s AND param_name = %s",
            (trial_id, param_name),
        )
        if not found:
            raise KeyError(f"no trial with id {trial_id} that has a parameter {param_name!r}")
        return float(found[0][0])

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        found = self._rows(
            "SELECT trial_id FROM trials WHERE study_id = %s AND number = %s",
            (study_id, trial_number),
        )
        if not found:
            raise KeyError(f"no trial {trial_number} in the study with id {study_id}")
        return int(found[0][0])

    def get_trial_number_from_id(self, trial_id: int) -> int:
        found = self._rows("SELECT number FROM trials WHERE trial_id = %s", (trial_id,))
        if not found:
            raise KeyError(f"no trial with id {trial_id}")
        return int(found[0][0])

    def get_trial(self, trial_id: int) -> FrozenTrial:
        history = self._histories.get(self._study_of.get(trial_id, -1))
        finished = history.finished(trial_id) if history is not None else None
        if finished is not None and self.steps and trial_id != self.own:
            return copy.deepcopy(finished)
        found = self._again(lambda database: read_trials(database, [trial_id]))
        if not found:
            raise KeyError(f"no trial with id {trial_id}")
        return found[0]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        history = self._history(study_id)
        trials = self._again(lambda database: history.look(database, states))
        return copy.deepcopy(trials) if deepcopy else trials

    def _history(self, study_id: int) -> History:
        return self._histories.setdefault(study_id, History(study_id, self.steps))

    def follow(self, study_id: int) -> History:
        """Return the study's history, as it was a second ago at most (``History.follow``)."""
        assert self.steps, "this storage leaves out what complete trials reported"
        history = self._history(study_id)
        self._again(history.follow)
        return history

    def get_n_trials(
        self, study_id: int, state: tuple[TrialState, ...] | TrialState | None = None
    ) -> int:
        wanted = (state,) if isinstance(state, TrialState) else state
        names = [one.name for one in (TrialState if wanted is None else wanted)]
        found = self._rows(
            "SELECT (SELECT count(*) FROM trials t WHERE t.study_id = s.study_id "
            "AND t.state = ANY(%s::trialstate[])) FROM studies s WHERE s.study_id = %s",
            (names, study_id),
        )
        if not found:
            raise KeyError(f"no study with id {study_id}")
        return int(found[0][0])

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        # The base class would copy nothing: its answer must not be the history's own object.
        return copy.deepcopy(super().get_best_trial(study_id))

    def remove_session(self) -> None:
        self.database.close()
