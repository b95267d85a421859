"""Trackers, real ones: their own readers show what ``collect`` shows, and none is waited for."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweep import load
from sweep.control import tracker_gaps, tracker_trouble
from sweep.control.tracker_trouble import Trouble
from sweep.core import outcomes
from sweep.core.files import make_private, write_atomic
from sweep.core.paths import Runs, StudyFolder
from sweep.core.study import Objective
from sweep.core.trial import Report, replicate_seed
from sweep.storage import access, tracker_database
from sweep.storage.connection import Database
from sweep.storage.url import dsn
from sweep.tasks.tracking.feeder import feed
from sweep.tasks.tracking.outbox import Outbox, busy_s_of, wait_while_busy
from sweep.tasks.tracking.tracker import Described
from tests.cli.commands import counts, wait_for, wait_for_runners
from tests.conftest import ROOT, Sweep
from tests.needs import mlflow_server_python, require
from tests.ports import quiet_port
from tests.postgres_fixture import Server
from tests.reports import append
from tests.study_rows import make_study
from tests.toys import TRAINING, write_toy
from tests.waiting import PATIENCE_S, returns

pytestmark = pytest.mark.real

TRIALS = 3
LAUNCH_S = 600.0
STEPS = 5
Points = dict[tuple[int, str, int], float]  # by trial, metric and step


def collected(runs: Path) -> Points:
    """Return what collect's long form holds."""
    with load(runs=runs) as loaded:
        frame = loaded.metrics()
    return points((row.trial, str(row.metric), row.step, row.value) for row in frame.itertuples())


def points(rows: Iterable[tuple[int, str, int, float]]) -> Points:
    """Return (trial, metric, step, value) as points; none may come twice."""
    found: Points = {}
    for trial, metric, step, value in rows:
        assert (trial, metric, step) not in found
        found[trial, metric, step] = value
    return found


def of_tensorboard(folder: Path) -> Points:
    """Return the same, read by TensorBoard's own accumulator (its values are float32)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = []
    for events in sorted(folder.iterdir()):
        reader = EventAccumulator(str(events), size_guidance={"scalars": 0})
        reader.Reload()
        for tag in reader.Tags()["scalars"]:
            rows += [(int(events.name), tag, e.step, e.value) for e in reader.Scalars(tag)]
    return points(rows)


def of_mlflow(uri: str, name: str) -> tuple[Points, list[Any]]:
    """Return the same, read by MLflow's own client, and the runs that count."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(f"sweep/{name}")
    assert experiment is not None
    runs = [
        run
        for run in client.search_runs([experiment.experiment_id])
        if "sweep.superseded" not in run.data.tags
    ]
    rows = [
        (int(run.data.tags["sweep.trial"]), metric, point.step, point.value)
        for run in runs
        for metric in run.data.metrics
        for point in client.get_metric_history(run.info.run_id, metric)
    ]
    return points(rows), runs


@pytest.fixture
def folder(runs: Path) -> StudyFolder:
    """A study's folder, as launch makes it."""
    folder = Runs(runs).study("digits")
    make_private(folder.root)
    write_atomic(folder.study, make_study(track=("tensorboard",)).to_json())
    return folder


def report(folder: StudyFolder, attempt: int, steps: Iterable[int], name: str = "acc") -> Points:
    """Report as the training of trial 0 would, and return what it reported."""
    found = {}
    there = folder.attempt(0, attempt)
    make_private(there.root)
    folder.config(0).write_text("lr: 0.25\noptimizer: sgd\nseed: 7\n")
    for step in steps:
        value = attempt + step / 8
        append(there, step, {name: value})
        found[0, name, step] = value
    return found


def test_tensorboard_follows_the_lineage(folder: StudyFolder) -> None:
    """By the worker's own end: what an attempt reported beyond its checkpoint is replaced."""
    pytest.importorskip("tensorboard", reason="tensorboard (extra: tensorboard)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    outbox = Outbox(make_study(track=("tensorboard",)), folder, os.environ)
    expected = report(folder, 1, range(STEPS))
    # A metric is cut where it is reported again: one later than acc, one not at all.
    expected |= report(folder, 1, range(STEPS), "rare") | report(folder, 1, range(STEPS), "once")
    outbox.begin(0, 1, 0, "node1")
    outbox.end(0, 1, "killed")
    expected |= report(folder, 2, range(3, STEPS + 2)) | report(folder, 2, [STEPS - 1], "rare")
    outbox.begin(0, 2, 0, "node2")
    outbox.end(0, 2, "complete")
    assert outbox.close(120.0) == []
    assert of_tensorboard(folder.tensorboard) == pytest.approx(expected)
    reader = EventAccumulator(str(folder.tensorboard / "00000"))
    reader.Reload()
    shown = b"".join(event.tensor_proto.string_val[0] for event in reader.Tensors("sweep"))
    assert b"| optimizer | sgd |" in shown and b"| host | node2 |" in shown


def test_tensorboards_page_of_parameters(folder: StudyFolder) -> None:
    """The HParams page, as its own back end answers: values, the objective, how a trial ended; of a
    resumed trial the last end."""
    pytest.importorskip("tensorboard", reason="tensorboard (extra: tensorboard)")
    from sweep.tasks.tracking.tensorboard import TensorboardTracker

    tracker = TensorboardTracker(make_study(), folder)
    params = {"lr": 0.25, "optimizer": "sgd", "nesterov": True, "widths": [1, 2]}
    ends = {(0, 1): "failed", (1, 1): "killed", (1, 2): "complete"}
    for (trial, number), state in ends.items():
        described = Described("digits", trial, number, params)
        tracker.begin(described)
        if number > 1:
            tracker.cut(described, 1)
        tracker.log(described, [Report(1, 1.0, {"acc": trial + number / 4})])
        tracker.end(described, state)
    groups = of_hparams(folder.tensorboard)
    assert [group.name for group in groups] == ["00000", "00001"]
    found = groups[1]
    assert found.hparams["lr"].number_value == 0.25
    assert found.hparams["nesterov"].bool_value is True
    assert found.hparams["optimizer"].string_value == "sgd"
    assert found.hparams["widths"].string_value == "[1, 2]"
    assert [(value.name.tag, value.value) for value in found.metric_values] == [("acc", 1.5)]
    # 1 is SUCCESS, 2 is FAILURE.
    assert [[session.status for session in group.sessions] for group in groups] == [[2], [1]]


def of_hparams(folder: Path) -> list[Any]:
    """Return the session groups that TensorBoard's HParams page shows."""
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.context import RequestContext
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.hparams import api_pb2, backend_context, list_session_groups

    events = EventMultiplexer().AddRunsFromDirectory(str(folder))
    events.Reload()
    provider = MultiplexerDataProvider(events, str(folder))
    context = backend_context.Context(TBContext(data_provider=provider))
    request = api_pb2.ListSessionGroupsRequest(
        slice_size=100,
        allowed_statuses=list(api_pb2.Status.values()),
        col_params=[api_pb2.ColParams(metric=api_pb2.MetricName(tag="acc"))],
        aggregation_type=api_pb2.AGGREGATION_AVG,
    )
    handler = list_session_groups.Handler(RequestContext(), context, "", request)
    return sorted(handler.run().session_groups, key=lambda group: str(group.name))


@pytest.fixture
def mlflow_database(
    folder: StudyFolder, empty_url: str, postgres_server: Server, runs: Path
) -> Iterator[str]:
    """MLflow's database beside the study's, as launch makes it."""
    require("mlflow")
    access.remember(folder, empty_url, Runs(runs))
    with closing(Database(empty_url)) as db:
        tracker_database.make(db)
        url = tracker_database.url_beside(db)
    yield url
    postgres_server.sql(f"DROP DATABASE {dsn(url)['dbname']} WITH (FORCE)")


@pytest.fixture(params=["database", pytest.param("server", marks=pytest.mark.long)])
def mlflow_uri(request: pytest.FixtureRequest) -> str:
    """Where MLflow keeps runs: in the database beside the study's, or behind a server."""
    return str(
        request.getfixturevalue("server" if request.param == "server" else "mlflow_database")
    )


def test_mlflow_follows_the_lineage(
    mlflow_uri: str, folder: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the worker's own end: metrics, parameters, status, system and files of a resumed trial."""
    if mlflow_uri.startswith("http"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
    outbox = Outbox(make_study(track=("mlflow",)), folder, os.environ)
    expected = report(folder, 1, range(STEPS))
    # A metric is cut where it is reported again: one later than acc, one not at all.
    expected |= report(folder, 1, range(STEPS), "rare") | report(folder, 1, range(STEPS), "once")
    outbox.begin(0, 1, 0, "node1")
    outbox.end(0, 1, "killed")
    expected |= report(folder, 2, range(3, STEPS + 2)) | report(folder, 2, [STEPS - 1], "rare")
    outbox.begin(0, 2, 0, "node2")
    outbox.end(0, 2, "complete")
    late = outbox.close(240.0)
    assert late == [], (folder.tracking / "mlflow.log").read_text()
    found, [run] = of_mlflow(mlflow_uri, "digits")
    assert found == pytest.approx(expected)
    assert run.data.params == {"lr": "0.25", "optimizer": "sgd", "seed": "7"}
    assert (run.info.status, run.data.tags["sweep.state"]) == ("FINISHED", "complete")
    assert (run.data.tags["sweep.host"], run.data.tags["sweep.attempt"]) == ("node2", "2")


def test_mlflow_keeps_the_runs_of_all_seeds(folder: StudyFolder, mlflow_database: str) -> None:
    """Of a trial with replicates: what an earlier training has given counts, as in its mean; what
    was interrupted within one does not. Where a retry begins anew, nothing of before counts."""
    from sweep.tasks.tracking.mlflow import MlflowTracker

    tracker = MlflowTracker(make_study(), folder)

    def train(attempt: int, replicate: int, state: str) -> list[str]:
        """Return the attempts whose runs count now."""
        described = Described(
            "digits", 0, attempt, {}, {"attempt": str(attempt)}, replicate=replicate
        )
        tracker.begin(described)
        tracker.log(described, [Report(attempt, 1.0, {"acc": 0.5})])
        tracker.end(described, state)
        return sorted(
            run.data.tags["sweep.attempt"] for run in of_mlflow(mlflow_database, "digits")[1]
        )

    assert train(1, 1, "killed") == ["1"]
    assert train(2, 1, outcomes.REPLICATED) == ["2"]
    assert train(3, 2, "killed") == ["2", "3"]
    assert train(4, 2, "failed") == ["2", "4"]
    assert train(5, 1, outcomes.REPLICATED) == ["5"]  # taken back
    assert train(6, 2, "complete") == ["5", "6"]


@pytest.mark.parametrize("replicate", [1, 2])
def test_a_tracker_is_told_the_seed_that_was_trained_with(
    folder: StudyFolder, replicate: int
) -> None:
    """Also where the configuration does not hold it: that of this training, not the trial's."""
    report(folder, 1, range(2))
    folder.config(0).write_text("lr: 0.25\n")
    study = make_study()
    begin = {"event": "begin", "trial": 0, "attempt": 1, "first_step": 0, "host": "node1"}
    begin |= {"replicate": replicate}
    end = {"event": "end", "trial": 0, "attempt": 1, "state": outcomes.REPLICATED}
    messages = iter([[begin], [end], None])
    tracker, said = Keeping(0), list[str]()
    feed(study, folder, tracker, lambda _: next(messages, None), said.append)
    assert not said
    assert tracker.params == {"lr": 0.25, "seed": replicate_seed(study.seed, 0, replicate)}


def test_a_tracker_that_hangs_is_not_waited_for(folder: StudyFolder) -> None:
    """A process that reads nothing costs the worker no time; what it lacks is told at the end."""
    outbox = Outbox(make_study(track=("tensorboard",)), folder, os.environ)
    outbox.begin(0, 1, 0, "node1")
    [process] = outbox._processes.values()
    process.send_signal(signal.SIGSTOP)

    def fill() -> str:
        for _ in range(2000):  # more than a pipe takes
            outbox.end(0, 1, "complete")
        return "was not waited for"

    assert returns(fill) == "was not waited for"
    assert outbox.close(0.2) == ["tensorboard"]
    assert process.poll() is not None


def test_a_tracker_that_computes_is_waited_for() -> None:
    """On a busy node its package's import alone takes longer than a hanging one is given."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        looks: list[float] = []

        def computes(pid: int) -> float:
            looks.append(float(len(looks)))
            if len(looks) == 6:  # until then it was waited for
                process.stdin.close()  # type: ignore[union-attr]
            return looks[-1]

        late = time.monotonic() + PATIENCE_S
        assert not wait_while_busy(process, 0.0, late, lambda pid: 1.0, 0.01)  # it hangs
        assert not wait_while_busy(process, 0.0, 0.0, computes, 0.01)  # too long
        assert wait_while_busy(process, 0.0, late, computes, 0.01)


def test_what_a_process_and_its_children_use() -> None:
    """W&B's client does its work in a process of its own."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        wait_for(lambda: busy_s_of(process.pid) > 0.3, "its child to compute")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert busy_s_of(process.pid) == 0.0


def test_a_tracker_whose_package_is_missing_says_so(folder: StudyFolder) -> None:
    """The worker goes on; the tracker's log says what to install."""
    hidden = folder.root / "hidden"
    hidden.mkdir()
    (hidden / "mlflow.py").write_text("raise ImportError('no mlflow here')\n")
    environ = {**os.environ, "PYTHONPATH": f"{hidden}{os.pathsep}{ROOT}"}
    outbox = Outbox(make_study(track=("mlflow",)), folder, environ)
    report(folder, 1, range(2))
    outbox.begin(0, 1, 0, "node1")
    assert outbox.close(120.0) == []
    outbox.end(0, 1, "complete")  # to a process that is gone, if it is started again
    outbox.close(120.0)
    assert "pip install 'sweep-hpo[mlflow]'" in (folder.tracking / "mlflow.log").read_text()
    [note] = tracker_trouble.notes(folder)
    assert note.startswith("tracker mlflow does not get everything: mlflow gets nothing: no mlflow")


class Refusing:
    """A tracker that is down for its first calls."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.got: list[int] = []
        self.state = self.hindered = ""
        self.params: Mapping[str, Any] = {}

    def begin(self, described: Described) -> None:
        self.params = described.params
        if self.refusals > 0:
            self.refusals -= 1
            raise OSError("connection refused")

    def cut(self, described: Described, first: int) -> None:
        pass

    def log(self, described: Described, reports: Sequence[Report]) -> None:
        self.begin(described)
        self.got += [report.step for report in reports]

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        raise AssertionError("a first attempt has no earlier ones")

    def end(self, described: Described, state: str) -> None:
        self.state = state

    def close(self) -> None:
        pass

    def trouble(self) -> str:
        return self.hindered


def test_a_tracker_that_comes_back_gets_everything(folder: StudyFolder) -> None:
    """What was refused is tried again, in order, and nothing twice."""
    report(folder, 1, range(STEPS))
    begin = {"event": "begin", "trial": 0, "attempt": 1, "first_step": 0, "host": "node1"}
    begin["earlier"] = []
    end = {"event": "end", "trial": 0, "attempt": 1, "state": "complete"}
    said: list[str] = []
    trouble = Trouble(folder, "mlflow")
    seen: list[list[str]] = []

    def say(text: str) -> None:
        said.append(text)
        trouble.note(text)
        seen.append(tracker_trouble.notes(folder))

    messages = iter([[begin], [], [end], None])
    tracker = Refusing(2)
    feed(make_study(), folder, tracker, lambda _: next(messages, None), say, trouble.is_over)
    assert ["connection refused" in " ".join(notes) for notes in seen] == [True, True]
    assert tracker_trouble.notes(folder) == []
    assert tracker.got == list(range(STEPS))
    assert tracker.state == "complete"
    assert [text for text in said if "connection refused" in text] == said != []


def test_what_a_tracker_keeps_for_later_is_said(folder: StudyFolder) -> None:
    """It takes everything, and yet status says what hinders it, until nothing does."""
    report(folder, 1, range(STEPS))
    begin = {"event": "begin", "trial": 0, "attempt": 1, "first_step": 0, "host": "node1"}
    end = {"event": "end", "trial": 0, "attempt": 1, "state": "complete"}
    trouble = Trouble(folder, "wandb")
    tracker, seen = Refusing(0), list[list[str]]()

    def messages(_: float) -> list[Mapping[str, Any]] | None:
        seen.append(tracker_trouble.notes(folder))
        tracker.hindered = "its server is away" if len(seen) == 1 else ""
        return [[begin], [end], None][len(seen) - 1]

    feed(make_study(), folder, tracker, messages, trouble.note, trouble.is_over)
    assert ["its server is away" in " ".join(notes) for notes in seen] == [False, True, False]
    assert "wandb sync" in seen[1][0]
    assert (tracker.got, tracker.state) == (list(range(STEPS)), "complete")


def test_what_is_refused_is_given_up_once_the_worker_has_gone(folder: StudyFolder) -> None:
    """The task waits for it at its end."""
    report(folder, 1, range(STEPS))
    begin = {"event": "begin", "trial": 0, "attempt": 1, "first_step": 0, "host": "node1"}
    messages = iter([[begin], None])
    said: list[str] = []
    tracker = Refusing(10**9)
    left = feed(
        make_study(), folder, tracker, lambda _: next(messages, None), said.append, give_up_s=0.0
    )
    assert left == 1
    assert said and tracker.got == []


def test_a_csv_file_follows_the_lineage(folder: StudyFolder) -> None:
    """By the worker's own end: a row for each report, and what counts of the earlier attempt."""
    study = make_study(track=("csv",))
    write_atomic(folder.study, study.to_json())
    outbox = Outbox(study, folder, os.environ)
    first = report(folder, 1, range(5)) | report(folder, 1, range(5), "rare,\n")
    outbox.begin(0, 1, 0, "node1")
    outbox.end(0, 1, "killed")
    assert outbox.close(60.0) == []
    assert of_csv(folder) == first
    again = report(folder, 2, range(3, 7)) | report(folder, 2, [4], "late")
    outbox.begin(0, 2, 0, "node2")
    outbox.end(0, 2, "complete")
    assert outbox.close(60.0) == [], (folder.tracking / "csv.log").read_text()
    assert of_csv(folder) == first | again
    assert "lr: 0.25" in (folder.csv / "00000/hparams.yaml").read_text()


def of_csv(folder: StudyFolder, trials: int = 1) -> Points:
    rows = []
    for trial in range(trials):
        with (folder.csv / f"{trial:05d}/metrics.csv").open(newline="") as stream:
            rows += [(trial, row) for row in csv.DictReader(stream)]
    return points(
        (trial, name, int(row["step"]), float(value))
        for trial, row in rows
        for name, value in row.items()
        if name != "step" and value
    )


class Keeping(Refusing):
    """A tracker that keeps what it gets of earlier attempts."""

    restored: dict[int, float] = {}

    def restore(self, described: Described, reports: Sequence[Report]) -> None:
        self.restored |= {report.step: report.metrics["acc"] for report in reports}


def test_printed_steps_of_all_attempts_count_on(folder: StudyFolder) -> None:
    """A third attempt: what the second printed stands where that one went on, not at 0."""
    objective = Objective("acc", pattern="acc=([0-9.]+)")
    study = make_study(command=("t", "{resume}"), objectives=(objective,))
    begins = (0, 2, 4)
    for number, first in enumerate(begins, 1):
        there = folder.attempt(0, number)
        make_private(there.root)
        there.log.write_text(f"acc={first}\nacc={first + 1}\n")
    folder.config(0).write_text("lr: 0.25\n")
    begin = {"event": "begin", "trial": 0, "attempt": 3, "first_step": 4, "host": "node1"}
    begin["earlier"] = list(begins[:2])
    end = {"event": "end", "trial": 0, "attempt": 3, "state": "complete"}
    messages = iter([[begin], [end], None])
    tracker, said = Keeping(0), list[str]()
    feed(study, folder, tracker, lambda _: next(messages, None), said.append)
    assert not said
    assert tracker.got == [4, 5]
    assert tracker.restored == {step: float(step) for step in range(4)}


RESUMING = """
import os, pathlib, signal, sys, time
from sweep.report import Reporter
r = Reporter()
start = int(pathlib.Path(r.resume).read_text()) if r.resume else 0
for step in range(start, 6):
    r.log(step=step, acc=step / 7 + r.attempt, loss=1.0 / (step + 1))
    if step == 2:
        pathlib.Path(os.environ["SWEEP_CHECKPOINT_DIR"], "step").write_text("2")
    if step == 3 and r.attempt == 1:
        time.sleep(2.5)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def write_resuming(folder: Path, track: str) -> Path:
    """Write a study of one trial that is killed at step 3 and goes on from step 2."""
    text = RESUMING.replace("r.attempt", "int(os.environ['SWEEP_ATTEMPT'])")
    (folder / "train.py").write_text(text)
    path = folder / "study.yaml"
    path.write_text(
        f"name: resuming\ncommand: {sys.executable} train.py\n"
        "objective: {metric: acc, direction: maximize}\n"
        "space: {x: {type: float, low: 0, high: 1}}\n"
        f"trials: 1\nsampler: random\ntrack: {track}\nexecutor: local\n"
    )
    return path


@pytest.mark.long
def test_tensorboard_shows_what_collect_shows(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """Every reported value of every trial, and the parameters as text."""
    pytest.importorskip("tensorboard", reason="tensorboard (extra: tensorboard)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    study = write_toy(tmp_path, trials=TRIALS, fixed="{steps: 4}", track="tensorboard")
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    root = runs / "toy"
    wait_for_no_feeder(root)
    expected = collected(runs)
    assert len({trial for trial, _, _ in expected}) == TRIALS
    assert of_tensorboard(root / "tensorboard") == pytest.approx(expected)
    reader = EventAccumulator(str(root / "tensorboard" / "00000"))
    reader.Reload()
    [shown] = reader.Tensors("sweep")
    assert b"seed" in shown.tensor_proto.string_val[0]


def test_csv_files_of_a_killed_study_show_what_collect_shows(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """A training is killed and goes on, the study is stopped and launched again: the files' numbers
    are those of ``collect``, none of them twice."""
    gate = tmp_path / "gate"
    training = TRAINING.replace(
        "    if reporter.checkpoint_dir:",
        """\
    if step == 2 and os.environ["SWEEP_TRIAL"] == "1" and os.environ["SWEEP_ATTEMPT"] == "2":
        os.kill(os.getpid(), 9)  # beyond its checkpoint of step 1
    if reporter.checkpoint_dir:""",
    )
    study = write_toy(
        tmp_path, trials=2, training=training, fixed=f"{{steps: 4, gate: '{gate}'}}", track="[csv]"
    )
    assert sweep("launch", study).code == 0
    wait_for(lambda: len(collected(runs)) == 8, "both trials' first two steps", LAUNCH_S)
    assert sweep("stop").code == 0
    wait_for(lambda: "running" not in counts(sweep), "both trainings to leave", LAUNCH_S)
    gate.touch()
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    root = runs / "toy"
    wait_for_no_feeder(root)
    there = Runs(runs).study("toy")
    told = tracker_gaps.read_told(there)
    assert sorted(told) == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    wait_for_runners(root)  # the finaliser sends what was missed
    expected = collected(runs)
    assert len(expected) == 2 * 4 * 2
    assert of_csv(there, trials=2) == expected
    assert "tracker csv" not in sweep("status").out


@pytest.mark.long
def test_tensorboard_follows_a_resumed_trial(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """What a killed attempt reported beyond its checkpoint is replaced by its successor."""
    pytest.importorskip("tensorboard", reason="tensorboard (extra: tensorboard)")
    study = write_resuming(tmp_path, "[tensorboard]")
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    root = runs / "resuming"
    wait_for_no_feeder(root)
    expected = collected(runs)
    assert sorted(step for _, metric, step in expected if metric == "acc") == list(range(6))
    assert of_tensorboard(root / "tensorboard") == pytest.approx(expected)


def wait_for_no_feeder(root: Path, patience_s: float = PATIENCE_S) -> None:
    """Wait until the processes that feed a study's trackers are gone."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        lines = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True)
        if not any(
            "sweep.tasks.tracking" in line and str(root) in line
            for line in lines.stdout.splitlines()
        ):
            return
        time.sleep(0.2)
    pytest.fail("a tracker's process lives on")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A real MLflow server with a database of its own."""
    require("mlflow")
    require("mlflow_server")
    with serve_mlflow(tmp_path, quiet_port()) as address:
        yield address


@contextmanager
def serve_mlflow(tmp_path: Path, port: int) -> Iterator[str]:
    """Run a real MLflow server; yields its address."""
    address = f"http://127.0.0.1:{port}"
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            [
                mlflow_server_python(),
                "-m",
                "mlflow",
                "server",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--workers",
                "1",
                "--backend-store-uri",
                f"sqlite:///{tmp_path / 'mlflow.db'}",
                "--artifacts-destination",
                str(tmp_path / "artifacts"),
            ],
            cwd=tmp_path,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 240
        while True:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).read()
                break
            except OSError:
                assert time.monotonic() < deadline and process.poll() is None, (
                    tmp_path / "server.log"
                ).read_text()[-2000:]
                time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait(PATIENCE_S)


@pytest.mark.long
def test_mlflow_server_shows_what_collect_shows(
    server: str, sweep: Sweep, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a real server: metrics, parameters, status, system, files; a resumed trial too."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    study = write_resuming(tmp_path, "mlflow")
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    wait_for_no_feeder(runs / "resuming")
    check_mlflow(server, runs)


@pytest.mark.long
def test_mlflows_database_shows_what_collect_shows(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """Without a server: the same, in a database beside the study's, on the embedded server."""
    require("mlflow")
    study = write_resuming(tmp_path, "mlflow")
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    root = runs / "resuming"
    wait_for_no_feeder(root)
    check_mlflow(sweep("mlflow", "--url").out.strip(), runs)
    assert (root / "mlruns").is_dir()  # the files of its runs


@pytest.mark.long
def test_both_trackers_show_what_the_command_prints(
    sweep: Sweep, runs: Path, tmp_path: Path
) -> None:
    """One study, two trackers; MLflow's and TensorBoard's readers against ``sweep collect``, its
    table of trials and its long form."""
    require("mlflow")
    root = runs / "toy"
    training = TRAINING.replace(
        "    if reporter.checkpoint_dir:",
        """\
    if step == 2 and os.environ["SWEEP_TRIAL"] == "1" and os.environ["SWEEP_ATTEMPT"] == "1":
        os.kill(os.getpid(), 9)  # beyond its checkpoint of step 1
    if reporter.checkpoint_dir:""",
    )
    gate = tmp_path / "gate"
    study = write_toy(
        tmp_path,
        trials=TRIALS,
        training=training,
        fixed=f"{{steps: 4, gate: '{gate}'}}",
        track="[mlflow, tensorboard]",
    )
    assert sweep("launch", study).code == 0
    uri = sweep("mlflow", "--url").out.strip()
    # MLflow's client takes seconds to load, and is waited for 20 s at the end.
    wait_for(lambda: begun(uri) == 2, "both first trials' runs", LAUNCH_S)
    gate.touch()
    assert sweep("launch", study, "--wait", timeout_s=LAUNCH_S).code == 0
    wait_for_no_feeder(root)
    long_rows = csv.DictReader(io.StringIO(sweep("collect", "--long", "--format", "csv").out))
    expected = points(
        (int(row["trial"]), row["metric"], int(row["step"]), float(row["value"]))
        for row in long_rows
    )
    assert len(expected) == TRIALS * 4 * 2
    rows = json.loads(sweep("collect", "--format", "json", "--no-plots").out)
    assert sorted(row["attempts"] for row in rows) == [1, 1, 2]
    found, tracked = of_mlflow(uri, "toy")
    assert found == expected
    assert of_tensorboard(root / "tensorboard") == pytest.approx(expected)
    assert len(tracked) == TRIALS
    by_trial = {int(run.data.tags["sweep.trial"]): run for run in tracked}
    for row in rows:
        run = by_trial[row["trial"]]
        assert run.data.metrics["score"] == row["value"]  # at: last
        assert {name: run.data.params[name] for name in row["params"]} == {
            name: str(value) for name, value in row["params"].items()
        }
        assert (run.info.status, run.data.tags["sweep.state"]) == ("FINISHED", "complete")


def begun(uri: str) -> int:
    """Return for how many trials MLflow has a run."""
    from mlflow.tracking import MlflowClient

    with tracker_database.alone(uri):  # the first of us makes the tables
        client = MlflowClient(uri)
        experiment = client.get_experiment_by_name("sweep/toy")
    if experiment is None:
        return 0
    runs = client.search_runs([experiment.experiment_id])
    return len({run.data.tags.get("sweep.trial") for run in runs} - {None})


def check_mlflow(uri: str, runs: Path) -> None:
    """Compare what MLflow's client reads with what collect reads."""
    from mlflow.tracking import MlflowClient

    expected = collected(runs)
    found, [run] = of_mlflow(uri, "resuming")
    assert found == pytest.approx(expected)
    assert run.info.status == "FINISHED" and run.data.tags["sweep.state"] == "complete"
    with load(runs=runs) as loaded:
        [row] = loaded.trials().to_dict("records")
    assert float(run.data.params["x"]) == row["params.x"]
    assert int(run.data.params["seed"]) == row["seed"]
    assert run.data.tags["sweep.host"] and run.data.tags["sweep.cpu"]
    files = {entry.path for entry in MlflowClient(uri).list_artifacts(run.info.run_id)}
    assert files == {"config.yaml", "log.txt"}


@pytest.mark.long
@pytest.mark.parametrize("track", ["mlflow", "tensorboard"])
def test_a_tracker_that_is_down_hurts_nobody(
    track: str, sweep: Sweep, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server, no package, no room: the study comes to the same end, at once."""
    with socket.socket() as silent:  # takes connections, and never answers
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        study = write_toy(tmp_path, trials=TRIALS, fixed="{steps: 2}", track=track)
        root = runs / "toy"
        root.mkdir(mode=0o700, parents=True)
        (root / "tensorboard").write_text("a file where events would go")
        ran = sweep("launch", study, "--wait", timeout_s=LAUNCH_S)
    assert ran.code == 0
    wait_for_no_feeder(root)
    with load(runs=runs) as loaded:
        assert list(loaded.trials().state) == ["complete"] * TRIALS
    assert (root / "tracking" / f"{track}.log").read_text() != ""
    assert f"tracker {track} does not get everything" in sweep("status").out
