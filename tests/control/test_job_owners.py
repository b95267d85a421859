"""Who is asked what became of the job that served the database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweep.control.job_owners import fate_asker
from sweep.core import executors
from sweep.core.errors import CouldNotAsk, SweepError
from sweep.core.paths import Runs
from sweep.core.scheduler import JobFate
from sweep.storage.embedded.folder import Starter
from tests.study_rows import make_study


class Fated:
    """A scheduler that is only asked about one job."""

    def __init__(self, name: str, fate: JobFate | None) -> None:
        self.name, self.fate = name, fate

    def of(self, *_: Any) -> Fated:
        return self

    def is_named(self, executor: str) -> bool:
        return executor in ("", self.name)

    def job_fate(self, job: str, node: str) -> JobFate:
        assert (job, node) == ("7", "n7")
        if self.fate is None:
            raise CouldNotAsk("squeue is not here.")
        return self.fate


def test_the_scheduler_that_ran_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that moved has another one since, to which that job says nothing."""
    here: Any = Fated("here", JobFate.UNPROVED)
    monkeypatch.setitem(executors._kinds, "there", Fated("there", JobFate.LIVES))
    monkeypatch.setitem(executors._kinds, "mute", Fated("mute", None))
    ask = fate_asker(Runs(tmp_path).study("digits"), make_study(), here)
    assert ask(Starter("7", "n7", "there")) is JobFate.LIVES
    assert ask(Starter("7", "n7", "here")) is JobFate.UNPROVED
    assert ask(Starter("7", "n7")) is JobFate.UNPROVED  # a record of an earlier version
    with pytest.raises(SweepError, match=r"job 7, which served .* n7, .* squeue is not") as caught:
        ask(Starter("7", "n7", "mute"))
    assert "where mute answers" in caught.value.hint
