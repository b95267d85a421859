"""The studies' half of our Optuna storage, and how its statements are run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psycopg2
from optuna.exceptions import DuplicatedStudyError, StorageInternalError
from optuna.storages import BaseStorage
from optuna.storages._base import DEFAULT_STUDY_NAME_PREFIX
from optuna.study import StudyDirection
from optuna.study._frozen import FrozenStudy

from sweep.storage import studies
from sweep.storage.connection import Database

T = TypeVar("T")


class StudyStorage(BaseStorage):
    """Studies in Optuna's tables. ``PostgresStorage`` adds their trials.

    Attributes:
        database: The connection.
        patience_s: Seconds for which a database that is away is waited for; its own when None.
    """

    database: Database
    patience_s: float | None
    _directions: dict[int, list[StudyDirection]]

    def _forget(self) -> None:
        """Forget what is remembered of the database's rows."""
        self._directions = {}

    # How statements are run

    def _again(self, work: Callable[[Database], T]) -> T:
        """Run work that may be repeated, until the database answers."""
        return self._translated(
            lambda: self.database.retry(work, patience_s=self.patience_s, transaction=False)
        )

    def _rows(self, sql: str, params: Any = None) -> list[tuple[Any, ...]]:
        return self._again(lambda database: database.execute(sql, params))

    def _once(self, work: Callable[[Database], T], *, transaction: bool = False) -> T:
        """Run work that must not be repeated, on a connection that has just answered."""
        self._rows("SELECT 1")

        def run() -> T:
            if not transaction:
                return work(self.database)
            with self.database.transaction():
                return work(self.database)

        return self._translated(run)

    @staticmethod
    def _translated(run: Callable[[], T]) -> T:
        try:
            return run()
        except psycopg2.Error as error:
            raise StorageInternalError(f"The database refused a statement: {error}") from error

    # Studies

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> int:
        name = DEFAULT_STUDY_NAME_PREFIX + str(uuid.uuid4()) if study_name is None else study_name

        def create(database: Database) -> int | None:
            created = database.execute(
                "INSERT INTO studies (study_name) VALUES (%s) ON CONFLICT (study_name) DO NOTHING "
                "RETURNING study_id",
                (name,),
            )
            if not created:
                return None
            database.execute(
                "INSERT INTO study_directions (study_id, objective, direction) "
                "SELECT %s, place - 1, word::studydirection "
                "FROM unnest(%s::text[]) WITH ORDINALITY AS d(word, place)",
                (created[0][0], [direction.name for direction in directions]),
            )
            return int(created[0][0])

        study_id = self._once(create, transaction=True)
        if study_id is None:
            raise DuplicatedStudyError(f"A study named {name!r} exists already.")
        return study_id

    def delete_study(self, study_id: int) -> None:
        if not self._once(lambda db: studies.delete_study(db, study_id), transaction=True):
            raise KeyError(f"no study with id {study_id}")
        self._forget()

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._set_study_attribute("user", study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        self._set_study_attribute("system", study_id, key, value)

    def _set_study_attribute(self, kind: str, study_id: int, key: str, value: Any) -> None:
        written = self._rows(
            f"INSERT INTO study_{kind}_attributes (study_id, key, value_json) "
            "SELECT study_id, %s, %s FROM studies WHERE study_id = %s "
            "ON CONFLICT (study_id, key) DO UPDATE SET value_json = excluded.value_json "
            "RETURNING study_id",
            (key, json.dumps(value), study_id),
        )
        if not written:
            raise KeyError(f"no study with id {study_id}")

    def get_study_id_from_name(self, study_name: str) -> int:
        found = self._rows("SELECT study_id FROM studies WHERE study_name = %s", (study_name,))
        if not found:
            raise KeyError(f"no study named {study_name!r}")
        return int(found[0][0])

    def get_study_name_from_id(self, study_id: int) -> str:
        found = self._rows("SELECT study_name FROM studies WHERE study_id = %s", (study_id,))
        if not found:
            raise KeyError(f"no study with id {study_id}")
        return str(found[0][0])

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        if study_id not in self._directions:
            found = self._rows(
                "SELECT d.direction::text FROM studies JOIN study_directions d USING (study_id) "
                "WHERE study_id = %s ORDER BY d.objective",
                (study_id,),
            )
            if not found:
                raise KeyError(f"no study with id {study_id}")
            self._directions[study_id] = [StudyDirection[word] for (word,) in found]
        return list(self._directions[study_id])

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study_attributes("user", study_id)

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._study_attributes("system", study_id)

    def _study_attributes(self, kind: str, study_id: int) -> dict[str, Any]:
        found = self._rows(
            f"SELECT a.key, a.value_json FROM studies LEFT JOIN study_{kind}_attributes a "
            f"USING (study_id) WHERE study_id = %s ORDER BY a.study_{kind}_attribute_id",
            (study_id,),
        )
        if not found:
            raise KeyError(f"no study with id {study_id}")
        return {key: json.loads(value) for key, value in found if key is not None}

    def read_study_note(self, study_id: int, key: str) -> Any:
        """Return one of the study's system attributes, or None."""
        return self._again(lambda db: studies.read_attribute(db, study_id, key))

    def write_study_note(self, study_id: int, key: str, value: Any) -> Any:
        """Set one of the study's system attributes unless it is there; return what it is."""
        return self._again(lambda db: studies.write_attribute_once(db, study_id, key, value))

    def get_all_studies(self) -> list[FrozenStudy]:
        def pairs(kind: str) -> str:
            return (
                "(SELECT json_agg(json_build_array(a.key, a.value_json) ORDER BY "
                f"a.study_{kind}_attribute_id)::text FROM study_{kind}_attributes a "
                "WHERE a.study_id = s.study_id)"
            )

        def attributes(text: str | None) -> dict[str, Any]:
            return {key: json.loads(value) for key, value in json.loads(text or "[]")}

        rows = self._rows(
            "SELECT s.study_id, s.study_name, (SELECT json_agg(d.direction ORDER BY d.objective)"
            f"::text FROM study_directions d WHERE d.study_id = s.study_id), {pairs('user')}, "
            f"{pairs('system')} FROM studies s ORDER BY s.study_id"
        )
        return [
            FrozenStudy(
                study_name=name,
                direction=None,
                directions=[StudyDirection[word] for word in json.loads(directions or "[]")],
                user_attrs=attributes(user),
                system_attrs=attributes(system),
                study_id=study_id,
            )
            for study_id, name, directions, user, system in rows
        ]
