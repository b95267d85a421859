"""A million reports of one attempt: settled in parts, in little memory, and others are answered."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweep.control.settle import drain
from sweep.core.paths import AttemptFolder
from sweep.core.trial import Reading, Report
from sweep.results import status
from sweep.training.attempt_files import make_folder
from sweep.training.journal import MOST_REPORTS, Journal
from tests.conftest import ROOT
from tests.control.test_reconcile import Scene
from tests.postgres_fixture import Server

pytestmark = pytest.mark.real

MOST_MB = 300
MOST_CPU_S = 60.0  # of a minute on two cores one may be the server's
MOST_LOG_BYTES = 100_000

# What a launch, a task or a finaliser does with a dead attempt; on its own, to see its memory.
SETTLE = """
import json, resource, sys
from pathlib import Path
from sweep.control.reconcile import reconcile
from sweep.core.paths import StudyFolder
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from tests.control.test_reconcile import Gone

url, root, study_id = sys.argv[1:]
db = Database(url)
ledger = Ledger(db, int(study_id), studies.read_specification(db, int(study_id)))
sys.stdin.readline()
found = reconcile(ledger, StudyFolder(Path(root)), Gone(), unseen_s=0.0, every_s=0.0)
used = resource.getrusage(resource.RUSAGE_SELF)
# Of this program alone: ru_maxrss is never less than what its parent had when it was forked.
[peak] = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(json.dumps({
    "states": [state for *_, state in found.settled],
    "cpu_s": used.ru_utime + used.ru_stime,
    "mb": int(peak.split()[1]) / 1024,
}))
"""


def line(step: int, name: str = "loss") -> str:
    return json.dumps({"step": step, "time": 1e9, "metrics": {name: 1.0 + step}}) + "\n"


@pytest.mark.parametrize("many", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_reports(tmp_path: Path, fresh_url: str, postgres_server: Server, many: int) -> None:
    scene = Scene(tmp_path / "study", fresh_url)
    number, attempt = scene.claim("mine")
    made = scene.folder.attempt(number, attempt)
    make_folder(made, "mine")
    metric = scene.ledger.study.objective.metric
    with made.metrics.open("w") as stream:
        stream.writelines(line(step, metric) for step in range(many))
    made.exit.write_text('{"exit_code": 0, "signal": null, "told": "", "time": 1.0}')
    log = postgres_server.folder / "log.txt"
    logged = log.stat().st_size
    argv = [fresh_url, str(scene.folder.root), str(scene.ledger.study_id)]
    child = subprocess.Popen(
        [sys.executable, "-c", SETTLE, *argv],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None and child.stdout is not None
    answers = [status.snapshot(scene.ledger, scene.folder, {}).counts["running"]]
    with child.stdin as begins:
        begins.write("\n")
    while child.poll() is None:
        seen = status.snapshot(scene.ledger, scene.folder, {})
        answers.append(seen.counts["running"])
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(0.2)
    assert answers[0] == 1
    found = json.loads(child.stdout.read())
    print(found, len(answers), "answers of status meanwhile")
    assert (child.returncode, found["states"]) == (0, ["complete"])
    assert found["mb"] < MOST_MB
    assert found["cpu_s"] < MOST_CPU_S
    assert log.stat().st_size - logged < MOST_LOG_BYTES
    counts = "SELECT COUNT(*), MAX(step) FROM "
    for table in ("sweep_metric", "trial_intermediate_values"):
        assert scene.ledger.db.execute(counts + table) == [(many, many - 1)]


def test_only_what_is_not_stored_is_read(tmp_path: Path, fresh_url: str) -> None:
    """The position lies beside the reports. What is before it is garbage by now, and not missed."""
    scene = Scene(tmp_path / "study", fresh_url)
    number, attempt = scene.claim("mine")
    made = scene.folder.attempt(number, attempt)
    make_folder(made, "mine")
    text = "".join(line(step, "other") for step in range(10))
    made.metrics.write_text(text)
    journal = Journal(made)
    scene.ledger.record("mine", journal.read(4), journal.reading())
    stored = sum(len(line(step, "other")) for step in range(4))
    with made.metrics.open("r+") as stream:
        stream.write("#" * (stored - 1) + "\n")
    scene.reconcile()
    assert scene.metrics(number)["other"] == [(step, 1.0 + step) for step in range(10)]
    assert scene.ledger.all_attempts()[0].notes == ()


def test_in_parts_each_of_which_stays(tmp_path: Path) -> None:
    """Whoever is killed leaves the rest to the next, who begins where the last part ended."""
    folder = AttemptFolder(tmp_path)
    folder.metrics.write_text("".join(line(step) for step in range(2 * MOST_REPORTS + 5)) + "odd")
    parts: list[int] = []
    positions: list[str] = [""]
    steps: list[int] = []

    def record(reports: Sequence[Report], reading: Reading) -> None:
        if len(parts) == 1:
            parts.append(-1)
            raise KeyboardInterrupt
        parts.append(len(reports))
        positions.append(reading.position)
        steps.extend(report.step for report in reports)

    journal = Journal(folder)
    before = journal.read(3)
    with pytest.raises(KeyboardInterrupt):
        drain(journal, record, before)
    assert drain(Journal(folder, position=positions[-1]), record) == MOST_REPORTS + 5
    assert parts == [MOST_REPORTS, -1, MOST_REPORTS, 5]
    assert steps == list(range(2 * MOST_REPORTS + 5))
    last = Journal(folder, position=positions[-1])
    assert last.read(final=True) == []
    assert [note[:40] for note in last.notes()] == ["A line of metrics.jsonl could not be rea"]


def test_what_is_odd_is_stored_where_no_report_is(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.metrics.write_text("odd\n")
    found: list[tuple[list[Report], tuple[str, ...]]] = []
    drain(Journal(folder), lambda reports, reading: found.append(([*reports], reading.notes)))
    assert found == [
        ([], ("A line of metrics.jsonl could not be read, the first: no JSON in 'odd'",))
    ]
