"""The auditor is audited: each fault is planted in a small made-up study, and must be counted."""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.chaos import auditor
from tests.chaos.auditor import (
    KINDS,
    AttemptRow,
    Evidence,
    Facts,
    Line,
    MetricRow,
    TrialRow,
    audit,
    lineage,
    rank,
)

EPOCHS, EVERY = 6, 2
FACTS = Facts(
    name="made-up",
    trials=3,
    max_parallel=2,
    epochs=EPOCHS,
    every=EVERY,
    objectives=[{"metric": "score", "direction": "maximize", "at": "best"}],
    most_sum=(("x",), 2.5),
)


def test_shares_no_code_with_sweep() -> None:
    """It imports the standard library, and PostgreSQL's driver."""
    for module in ("auditor", "training"):
        path = Path(auditor.__file__).with_name(f"{module}.py")
        found = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
        ours = {name for name in found if name.split(".")[0] in ("sweep", "tests", "optuna")}
        assert ours == ({"sweep.report"} if module == "training" else set())


def value(trial: int, attempt: int, epoch: int) -> float:
    """Return a value of which trial, attempt and epoch can be told."""
    return trial + epoch / 10 + attempt / 1000


def attempt_lines(
    trial: int, attempt: int, at: float, epochs: range, last: str = "done", pid: int | None = None
) -> list[Line]:
    """Return what one process writes: it takes a second for each epoch."""
    pid = pid or 100 * trial + attempt
    params = {"x": float(trial)}

    def line(word: str, epoch: int, when: float, **more: Any) -> Line:
        return Line(trial, attempt, pid, word, epoch, when, when, params, **more)

    found = [line("begin", epochs.start, at)]
    for place, epoch in enumerate(epochs):
        begun = at + place
        values = {"score": value(trial, attempt, epoch)}
        found += [
            line("begun", epoch, begun + 0.1),
            line("ended", epoch, begun + 0.9, values=values),
        ]
        if (epoch + 1) % EVERY == 0:
            found.append(line("saved", epoch + 1, begun + 0.91))
    if last:
        found.append(line(last, epochs.stop, at + len(epochs) + 0.05))
    return found


def stored(lines: Sequence[Line]) -> list[MetricRow]:
    return [
        MetricRow(line.trial, line.attempt, name, line.epoch, number, line.time)
        for line in lines
        if line.word == "ended"
        for name, number in line.values.items()
    ]


def make() -> Evidence:
    """Return a study without a fault: trial 1 was killed after its fourth epoch, and went on."""
    lines = [
        *attempt_lines(0, 1, 0.0, range(6)),
        *attempt_lines(1, 1, 0.0, range(5), last=""),
        *attempt_lines(1, 2, 10.0, range(4, 6)),
        *attempt_lines(2, 1, 20.0, range(6)),
    ]
    best = [value(0, 1, 5), value(1, 2, 5), value(2, 1, 5)]
    return Evidence(
        lines=lines,
        trials=[TrialRow(number, "complete", [best[number]]) for number in range(3)],
        attempts=[
            AttemptRow(0, 1, -0.5, 7.0, "finished"),
            AttemptRow(1, 1, -0.5, 6.0, "killed"),
            AttemptRow(1, 2, 9.5, 13.0, "finished"),
            AttemptRow(2, 1, 19.5, 27.0, "finished"),
        ],
        metrics=stored(lines),
        journals=stored(lines),
        state={"word": "running"},
        collected=[
            {
                "rank": 3 - number,
                "trial": number,
                "state": "complete",
                "value": best[number],
                "params": {"x": float(number)},
            }
            for number in range(3)
        ],
        status={"counts": {"complete": 3, "failed": 0}, "best": {"trial": 2}},
        folders={(0, 1), (1, 1), (1, 2), (2, 1)},
    )


def change(found: Evidence, **changes: Any) -> Evidence:
    return dataclasses.replace(found, **changes)


def test_no_fault() -> None:
    report = audit(FACTS, make())
    assert report.is_clean, report.text()
    assert report.figures["best"] == 2
    assert report.figures["attempts"] == 4
    assert "no fault" in report.text()
    assert json.loads(json.dumps(report.to_dict()))["clean"] is True


def trial_is_missing(found: Evidence) -> Evidence:
    return change(found, trials=found.trials[:2], collected=found.collected[:2])


def one_too_many(found: Evidence) -> Evidence:
    extra = {"rank": None, "trial": 3, "state": "pruned", "value": None, "params": {}}
    return change(
        found, trials=[*found.trials, TrialRow(3, "pruned")], collected=[*found.collected, extra]
    )


def in_state(found: Evidence, trial: int, state: str) -> Evidence:
    trials = [t if t.number != trial else TrialRow(trial, state) for t in found.trials]
    shown = [
        row if row["trial"] != trial else {**row, "state": state, "rank": None}
        for row in found.collected
    ]
    for row in shown:  # the others move up
        if row["rank"]:
            above = [r for r in shown if r["rank"] and r["value"] > row["value"]]
            row["rank"] = 1 + len(above)
    return with_status(change(found, trials=trials, collected=shown))


def with_status(found: Evidence) -> Evidence:
    """Have status tell what the database and ``collect`` do."""
    states = [trial.state for trial in found.trials]
    best = [row["trial"] for row in found.collected if row["rank"] == 1]
    counts = {state: states.count(state) for state in states}
    return change(found, status={"counts": counts, "best": {"trial": best[0]}})


def waits(found: Evidence) -> Evidence:
    return in_state(found, 2, "waiting")


def attempt_has_no_end(found: Evidence) -> Evidence:
    live = dataclasses.replace(found.attempts[3], outcome=None, ended=None)
    return change(found, attempts=[*found.attempts[:3], live])


def failed_by_a_kill(found: Evidence) -> Evidence:
    return in_state(found, 2, "failed")


def cancelled_without_a_budget(found: Evidence) -> Evidence:
    return in_state(found, 2, "cancelled")


def pruned_without_a_pruner(found: Evidence) -> Evidence:
    return in_state(found, 2, "pruned")


def complete_before_its_end(found: Evidence) -> Evidence:
    return change(
        found, lines=[line for line in found.lines if (line.trial, line.word) != (0, "done")]
    )


def two_at_once(found: Evidence) -> Evidence:
    """The second attempt begins while the first still trains."""
    lines = [line for line in found.lines if (line.trial, line.attempt) != (1, 2)]
    lines += attempt_lines(1, 2, 4.5, range(4, 6))
    return change(
        found,
        lines=sorted(lines, key=lambda line: line.monotonic),
        attempts=[*found.attempts[:2], AttemptRow(1, 2, 6.0, 13.0, "finished"), found.attempts[3]],
    )


def alive_after_the_next_claim(found: Evidence) -> Evidence:
    claimed = AttemptRow(1, 2, 2.0, 13.0, "finished")
    late = [m for m in found.metrics if (m.trial, m.attempt) != (1, 1) or m.logged < 2.0]
    return change(found, attempts=[*found.attempts[:2], claimed, found.attempts[3]], metrics=late)


def three_at_once(found: Evidence) -> Evidence:
    moved = attempt_lines(2, 1, 0.5, range(6))
    lines = [line for line in found.lines if line.trial != 2] + moved
    return change(found, lines=lines, metrics=stored(lines), journals=stored(lines))


def from_the_start(found: Evidence) -> Evidence:
    """The second attempt got no checkpoint: four epochs are trained again."""
    lines = [line for line in found.lines if (line.trial, line.attempt) != (1, 2)]
    lines += attempt_lines(1, 2, 10.0, range(6))
    return change(found, lines=lines, metrics=stored(lines), journals=stored(lines))


def skips_epochs(found: Evidence) -> Evidence:
    lines = [line for line in found.lines if (line.trial, line.attempt) != (1, 1)]
    lines += attempt_lines(1, 1, 0.0, range(2), last="")
    return change(found, lines=lines, metrics=stored(lines), journals=stored(lines))


def another_trials_checkpoint(found: Evidence) -> Evidence:
    begin = next(line for line in found.lines if (line.trial, line.attempt) == (1, 2))
    foreign = dataclasses.replace(begin, word="foreign", monotonic=10.01, time=10.01)
    return change(found, lines=[*found.lines, foreign])


def late_write(found: Evidence) -> Evidence:
    rows = [
        m if (m.trial, m.attempt, m.step) != (1, 1, 3) else dataclasses.replace(m, logged=11.0)
        for m in found.metrics
    ]
    return change(found, metrics=rows)


def growth_after_the_next_claim(found: Evidence) -> Evidence:
    return change(found, watched=[{(1, 1): 5}, {(1, 1): 6}])


def under_no_attempt(found: Evidence) -> Evidence:
    return change(found, metrics=[*found.metrics, MetricRow(2, 7, "score", 0, 1.0, 21.0)])


def value_is_lost(found: Evidence) -> Evidence:
    return change(found, metrics=[m for m in found.metrics if (m.trial, m.step) != (0, 2)])


def value_of_another(found: Evidence) -> Evidence:
    rows = [
        dataclasses.replace(m, value=value(2, 1, 2)) if (m.trial, m.step) == (0, 2) else m
        for m in found.metrics
    ]
    return change(found, metrics=rows)


def folder_without_a_row(found: Evidence) -> Evidence:
    return change(found, folders={*found.folders, (2, 2)})


def row_is_gone(found: Evidence) -> Evidence:
    return change(found, attempts=found.attempts[:3])


def other_parameters(found: Evidence) -> Evidence:
    shown = [
        {**row, "params": {"x": 0.25}} if row["trial"] == 1 else row for row in found.collected
    ]
    return change(found, collected=shown)


def with_x(found: Evidence, trial: int, x: float) -> Evidence:
    lines = [
        dataclasses.replace(line, params={"x": x}) if line.trial == trial else line
        for line in found.lines
    ]
    return change(found, lines=lines)


def excluded_parameters(found: Evidence) -> Evidence:
    return with_x(found, 2, 3.0)


def same_as_one_that_runs(found: Evidence) -> Evidence:
    """Trial 2 had the same as well, once that one had ended."""
    return with_x(with_x(found, 1, 0.0), 2, 0.0)


def of_the_wrong_attempt(found: Evidence) -> Evidence:
    """The objective is one that a later attempt has cut off."""
    wrong = value(1, 1, 5)
    trials = [found.trials[0], TrialRow(1, "complete", [wrong]), found.trials[2]]
    return change(found, trials=trials)


def collect_shows_another(found: Evidence) -> Evidence:
    return change(found, collected=[{**row, "value": 9.0} for row in found.collected])


def worst_first(found: Evidence) -> Evidence:
    return change(found, collected=[{**r, "rank": r["trial"] + 1} for r in found.collected])


def status_has_another_best(found: Evidence) -> Evidence:
    return change(found, status={**found.status, "best": {"trial": 0}})


def status_counts_otherwise(found: Evidence) -> Evidence:
    return change(found, status={**found.status, "counts": {"complete": 2}})


def process_is_left(found: Evidence) -> Evidence:
    return change(found, left=["process 17 python training.py"])


def job_is_left(found: Evidence) -> Evidence:
    return change(found, accounting=["12_0|RUNNING|1.0|Unknown", "12_1|COMPLETED|1.0|2.0"])


def command_is_refused(found: Evidence) -> Evidence:
    return change(found, refused=["sweep launch study.yaml: exit code 1"])


def stood_still(found: Evidence) -> Evidence:
    return change(found, wedged=["at epoch 7, for 45 s: stopped"])


def crash_file(found: Evidence) -> Evidence:
    return change(found, crashes=["crash-1.txt: IndexError"])


FAULTS = [
    (trial_is_missing, "wrong_number", [2]),
    (one_too_many, "wrong_number", [3]),
    (waits, "stuck", [2]),
    (attempt_has_no_end, "stuck", [2]),
    (failed_by_a_kill, "lost", [2]),
    (cancelled_without_a_budget, "lost", [2]),
    (pruned_without_a_pruner, "lost", [2]),
    (complete_before_its_end, "lost", [0]),
    (two_at_once, "double", [1]),
    (alive_after_the_next_claim, "double", [1]),
    (three_at_once, "over_parallel", []),
    (from_the_start, "repeated", [1]),
    (skips_epochs, "repeated", [1]),
    (another_trials_checkpoint, "foreign_checkpoint", [1]),
    (late_write, "stale_writes", [1]),
    (growth_after_the_next_claim, "stale_writes", [1]),
    (under_no_attempt, "stale_writes", [2]),
    (value_is_lost, "lost_values", [0]),
    (value_of_another, "foreign_values", [0]),
    (folder_without_a_row, "unknown_attempts", [2]),
    (row_is_gone, "unknown_attempts", [2]),
    (other_parameters, "wrong_parameters", [1]),
    (excluded_parameters, "invalid", [2]),
    (same_as_one_that_runs, "same_at_once", [1]),
    (of_the_wrong_attempt, "wrong_values", [1]),
    (collect_shows_another, "wrong_values", [0, 1, 2]),
    (worst_first, "wrong_rank", [0, 2]),
    (status_has_another_best, "wrong_status", [0]),
    (status_counts_otherwise, "wrong_status", []),
    (process_is_left, "left_over", []),
    (job_is_left, "left_over", []),
    (command_is_refused, "refused", []),
    (stood_still, "wedged", []),
    (crash_file, "crashes", []),
]


@pytest.mark.parametrize(("plant", "kind", "trials"), FAULTS, ids=[f[0].__name__ for f in FAULTS])
def test_fault_is_counted(plant: Any, kind: str, trials: list[int]) -> None:
    report = audit(FACTS, plant(make()))
    assert report.count(kind) >= 1, report.text()
    assert report.trials(kind) == trials
    assert f"FAULT {kind}" in report.text()
    assert report.to_dict()["faults"][kind]["trials"] == trials


def test_every_kind_is_planted() -> None:
    assert {kind for _, kind, _ in FAULTS} == set(KINDS)


def test_what_a_budget_cancels_is_no_fault() -> None:
    """Unless the trial had come to its end before."""
    facts = dataclasses.replace(FACTS, ends_early=True)
    ended = change(make(), state={"word": "ended", "by": "target"})
    whole = in_state(ended, 2, "cancelled")
    assert audit(facts, whole).trials("lost") == [2]
    cut = [line for line in whole.lines if (line.trial, line.word) != (2, "done")]
    assert audit(facts, change(whole, lines=cut)).is_clean


def test_killed_while_it_reported_is_no_fault() -> None:
    """The last epoch of a process that was killed may be stored or not."""
    found = make()
    without = [m for m in found.metrics if (m.trial, m.attempt, m.step) != (1, 1, 4)]
    assert audit(FACTS, change(found, metrics=without)).is_clean


def test_what_a_successor_takes_over_is_no_fault() -> None:
    """It stores what its predecessor had reported and nobody had read."""
    found = change(make(), watched=[{(1, 1): 3}, {(1, 1): 5}])
    assert audit(FACTS, found).is_clean


def test_killed_at_its_first_line_counts_for_no_time() -> None:
    """It is not taken for one that lives on beside those that begin later."""
    found = make()
    begin = attempt_lines(2, 1, 19.0, range(0), last="", pid=7)
    later = attempt_lines(2, 2, 20.0, range(6))
    lines = [line for line in found.lines if line.trial != 2] + begin + later
    beside = [dataclasses.replace(line, trial=9, pid=line.pid + 1) for line in later]
    report = audit(FACTS, change(found, lines=[*lines, *beside]))
    assert report.count("over_parallel") == 0, report.text()


@pytest.mark.parametrize(("at", "expected"), [("last", 1.505), ("best", 1.5055)])
def test_lineage(at: str, expected: float) -> None:
    """A later attempt's first step cuts off what was better before."""
    lines = make().lines
    runs = [run for run in auditor.group_runs(lines) if run.trial == 1]
    series = lineage(runs, "score")
    assert [epoch for epoch, _ in series] == list(range(6))
    assert series[4][1] == value(1, 2, 4)
    assert series[3][1] == value(1, 1, 3)
    assert auditor.summarise([(0, 1.5055), (1, 1.505)], "maximize", at) == expected


def test_rank_of_several() -> None:
    """Fronts by domination; what breaks a constraint comes after them, the least broken first."""
    points = {0: (1.0, 1.0), 1: (2.0, 2.0), 2: (0.5, 2.0), 3: (9.0, 0.0), 4: (9.0, 0.0)}
    broken = {0: 0.0, 1: 0.0, 2: 0.0, 3: 2.0, 4: 1.0}
    found = rank(points, broken, ["maximize", "minimize"])
    assert found == {0: 1, 1: 1, 2: 2, 4: 3, 3: 4}
    assert rank({0: (1.0,), 1: (0.5,)}, {0: 0.0, 1: 0.0}, ["minimize"]) == {1: 1, 0: 2}


def test_reads_a_real_database(fresh_url: str, tmp_path: Path) -> None:
    """The same study in real tables and files: no fault; a row changed by hand is found."""
    found = make()
    write(fresh_url, found)
    ledger, study = tmp_path / "ledger", tmp_path / "runs"
    ledger.mkdir()
    for line in found.lines:
        with open(ledger / f"{line.trial:05d}.jsonl", "a") as stream:
            stream.write(json.dumps(dataclasses.asdict(line)) + "\n")
    for trial, attempt in found.folders:
        folder = study / f"trials/{trial:05d}/attempts/{attempt}"
        folder.mkdir(parents=True)
        with open(folder / "metrics.jsonl", "w") as stream:
            for row in found.journals:
                if (row.trial, row.attempt) == (trial, attempt):
                    metrics = {row.name: row.value}
                    one = {"step": row.step, "time": row.logged, "metrics": metrics}
                    stream.write(json.dumps(one) + "\n")

    def look() -> auditor.Report:
        evidence = dataclasses.replace(
            auditor.read_database(fresh_url, FACTS.name),
            lines=auditor.read_ledger(ledger),
            folders=auditor.read_folders(study),
            journals=auditor.read_journals(study),
            collected=found.collected,
        )
        return audit(FACTS, evidence)

    assert look().is_clean, look().text()
    assert auditor.count_open(fresh_url, FACTS.name) == (3, 0)
    assert auditor.read_succeeded(fresh_url, FACTS.name) == {(1, 1): 5}
    ask(fresh_url, "UPDATE sweep_metric SET value = 7 WHERE step = 2 AND attempt = 2")
    ask(fresh_url, "UPDATE trials SET state = 'RUNNING' WHERE number = 0")
    assert look().trials("stuck") == [0]
    assert auditor.count_open(fresh_url, FACTS.name) == (3, 1)


def ask(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with psycopg2.connect(url.replace("+psycopg2", "")) as connection:
        cursor = connection.cursor()
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []


def write(url: str, found: Evidence) -> None:
    """Write a made-up study into Optuna's tables and sweep's."""
    insert = "INSERT INTO studies (study_name) VALUES (%s) RETURNING study_id"
    study = ask(url, insert, FACTS.name)[0][0]
    ids = {}
    for row in found.trials:
        ids[row.number] = ask(
            url,
            "INSERT INTO trials (number, study_id, state) VALUES (%s, %s, %s) RETURNING trial_id",
            row.number,
            study,
            row.state.upper(),
        )[0][0]
        ask(
            url,
            "INSERT INTO trial_values (trial_id, objective, value, value_type) "
            "VALUES (%s, 0, %s, 'FINITE')",
            ids[row.number],
            row.values[0],
        )
    for attempt in found.attempts:
        ask(
            url,
            "INSERT INTO sweep_attempt (trial_id, number, token, host, claimed, ended, outcome) "
            "VALUES (%s, %s, %s, 'here', to_timestamp(%s), to_timestamp(%s), %s)",
            ids[attempt.trial],
            attempt.number,
            f"{attempt.trial}/{attempt.number}",
            attempt.claimed,
            attempt.ended,
            attempt.outcome,
        )
    for metric in found.metrics:
        ask(
            url,
            "INSERT INTO sweep_metric (trial_id, attempt, name, step, value, logged) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            ids[metric.trial],
            metric.attempt,
            metric.name,
            metric.step,
            metric.value,
            metric.logged,
        )


def test_one_whose_attempt_had_ended_when_it_began_counts_for_no_time() -> None:
    """Nor is it taken for one that lives on."""
    found = make()
    late = attempt_lines(8, 1, 5.0, range(3), last="")
    ended = AttemptRow(8, 1, 4.0, 5.0, "lost")
    changed = change(found, lines=[*found.lines, *late], attempts=[*found.attempts, ended])
    beside = [line for trial in (6, 7) for line in attempt_lines(trial, 1, 30.0, range(3))]
    report = audit(FACTS, change(changed, lines=[*changed.lines, *beside]))
    assert report.count("over_parallel") == 0, report.text()


@pytest.mark.parametrize(("late_s", "faults"), [(5.0, 0), (20.0, 1)])
def test_one_that_ends_soon_after_its_attempt_makes_room(late_s: float, faults: int) -> None:
    """Slurm took its task for gone: others run until it hears of that, which takes seconds."""
    found = make()
    orphan = attempt_lines(8, 1, 10.0, range(int(late_s) + 1), last="left")
    beside = [
        line for trial in (6, 7) for line in attempt_lines(trial, 1, 11.0 + late_s / 2, range(9))
    ]
    ended = AttemptRow(8, 1, 9.5, 11.0, "lost")
    alone = [line for line in found.lines if line.trial == 0]
    changed = change(found, lines=[*alone, *orphan, *beside], attempts=[*found.attempts, ended])
    assert audit(FACTS, changed).count("over_parallel") == faults
