"""What was seen of trainings, as status, report and page say it: on literal rows and records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.attributes import PROFILE
from sweep.core.files import make_private
from sweep.core.paths import StudyFolder
from sweep.results import held_back
from sweep.results.page import contents, html
from sweep.results.page.source import make
from sweep.results.status import snapshot
from sweep.storage import profiles
from sweep.tasks.profiled import summary
from tests.postgres_fixture import database_url, postgres_server, shared_database  # noqa: F401
from tests.results.test_page import attempt, record
from tests.study_rows import Row, Tried, fill, make_study

COURSE = {"s": [1.0, 2.0], "gpu_busy": [0.2, 0.4], "cpu_cores": [1.0, None], "files": [0.0, 0.0]}


def seen(cause: str, *, evidence: str = "35% of <the time>", **more: Any) -> dict[str, Any]:
    said = {"cause": cause, "evidence": [evidence], "remedy": "More loading processes."}
    return {"judgement": said, "host": "node1", "notes": [], **more}


def looked(trial: int, attempt: int | None, data: Mapping[str, Any]) -> held_back.LookedAt:
    (one,) = held_back._seen(trial, attempt, data)
    return one


def test_causes_are_counted_and_the_first_training_stands_for_each() -> None:
    found = held_back.causes(
        [
            looked(4, 1, seen("computing", evidence="of 8 CPUs 7.4 are at work")),
            looked(5, 2, seen("loader-bound", notes=["py-spy is not installed"])),
            looked(6, 1, seen("loader-bound")),
        ]
    )
    assert [(one.cause, one.count, one.total) for one in found] == [
        ("loader-bound", 2, 3),
        ("computing", 1, 3),
    ]
    assert found[0].evidence == (
        "trial 5, attempt 2: 35% of <the time>; not seen: py-spy is not installed"
    )
    assert held_back.note([], "digits") == ""


def test_the_page_has_the_evidence_and_the_course() -> None:
    trials = [record(0, "complete", (0.8,), attempt(0, 1, 0, 10))]
    profiles = [
        looked(0, None, seen("computing", over_time={"s": [1.0], "files": [0.5]})),
        looked(0, 1, seen("loader-bound", over_time=COURSE)),
    ]
    found = contents.arrange(make(make_study(trials=1), trials, [], seen=profiles))
    page = html.render(found, "")
    assert "trial 0, attempt 1" not in page and "trial 0: 35% of &lt;the time&gt;" in page
    assert "More loading processes." in page and "sweep profile of trial 0" in page
    charts = {chart.key: chart for chart in found.charts if chart.key.startswith("profile")}
    assert set(charts) == {"profile-devices", "profile-cpus"}  # of the trial's own attempt
    assert charts["profile-cpus"].spec["data"]["values"] == [
        {"s": 1.0, "what": "CPUs", "value": 1.0}
    ]
    busy = [c["value"] for c in charts["profile-devices"].spec["data"]["values"]]
    assert busy == [0.2, 0.4, 0.0, 0.0]


def test_no_profile_no_table() -> None:
    trials = [record(0, "complete", (0.8,), attempt(0, 1, 0, 10))]
    found = contents.arrange(make(make_study(trials=1), trials, []))
    assert "holds trainings back" not in html.render(found, "")


def test_what_is_stored_is_read(database_url: str, tmp_path: Path) -> None:  # noqa: F811
    """Rows of attempts and records of ``sweep profile``; what is damaged is passed over."""
    study = make_study(trials=3, profile=True)
    lives = Row("RUNNING", (), {}, [Tried(outcome=None)])
    ledger = fill(database_url, study, [lives, lives, lives])
    tokens = ledger.db.execute("SELECT token FROM sweep_attempt ORDER BY trial_id")
    kept = summary({**seen("loader-bound"), "seen": {"looks": 30}})
    for (token,) in tokens[:2]:
        ledger.db.retry(lambda db, token=token: profiles.note(db, token, kept))
    ledger.db.execute(
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) "
        f"SELECT trial_id, '{PROFILE}', '[1]' FROM trials WHERE number = 2"
    )
    folder = StudyFolder(tmp_path)
    for name, text in (("00001", json.dumps(seen("computing"))), ("00002", "{"), ("x", "{}")):
        (make_private(folder.profiles / name) / "profile.json").write_text(text)
    course = {**seen("loader-bound"), "over_time": COURSE}
    (make_private(folder.attempt(1, 1).root) / "profile.json").write_text(json.dumps(course))
    found = held_back.read(ledger, folder, best=1)
    assert [(one.label, one.judgement.cause, bool(one.over_time)) for one in found] == [
        ("sweep profile of trial 1", "computing", False),
        ("trial 0", "loader-bound", False),
        ("trial 1", "loader-bound", True),
    ]
    said = (
        "what holds trainings back: loader-bound (2 of 3 trainings, as trial 0), computing (1 of 3 "
        "trainings, as sweep profile of trial 1); sweep report digits has the evidence"
    )
    assert said in snapshot(ledger, folder, {}).notes
