"""The profile of an attempt, with ``profile: true``: from its start to the row that keeps it."""

from __future__ import annotations

from typing import Any

from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.storage import profiles
from sweep.storage.ledger import Ledger
from sweep.tasks.context import Context
from sweep.training.profiling.profile_watch import VARIABLE, ProfileWatch, find_py_spy


def variables(study: Study) -> dict[str, str]:
    """Return what training finds in its environment: that it may say where its time goes."""
    return {VARIABLE: "1"} if study.profile else {}


def begin(context: Context, folder: AttemptFolder, root: int) -> ProfileWatch | None:
    """Return what looks at a training whose first process this is; None without ``profile``."""
    if not context.study.profile:
        return None
    return ProfileWatch(root, folder, context.study, context.environ, find_py_spy(context.environ))


def keep(ledger: Ledger, token: str, watch: ProfileWatch) -> None:
    """Store what was seen; inside ``db.retry``. Its course is in the attempt's folder."""
    profiles.note(ledger.db, token, summary(watch.data()))


def summary(data: dict[str, Any]) -> dict[str, Any]:
    """Return what a row keeps of a profile."""
    return {**data["judgement"], **{name: data[name] for name in ("seen", "host", "notes")}}
