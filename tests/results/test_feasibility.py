"""Where no trial keeps to the constraints, all that names a winner says so, in one sentence."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sweep.control.open_study import Opened
from sweep.core.errors import InputError
from sweep.core.paths import StudyFolder
from sweep.core.study import Constraint, Objective
from sweep.core.trial import TrialRecord
from sweep.results import figures, plots, terminal
from sweep.results.feasibility import none_feasible, none_feasible_of, read_none_feasible
from sweep.results.ranking import rows
from sweep.results.status import snapshot
from sweep.tasks.side_runs import confirm, rerun
from tests.postgres_fixture import database_url, postgres_server, shared_database  # noqa: F401
from tests.study_rows import Row, fill, make_study

BOUNDS = (Constraint("ms", max=50.0), Constraint("mem", max=8.0, min=1.0))
STUDY = make_study(constraints=BOUNDS)
SENTENCE = (
    "No trial keeps to the constraints (ms <= 50, mem <= 8 and >= 1): all 2 complete trials break "
    "them, trial 1 the least."
)


def test_the_sentence():
    """It counts, names the bounds and the least broken; where one is feasible there is none."""
    assert none_feasible(STUDY, {0: 3.0, 1: 2.0}) == SENTENCE
    assert none_feasible(STUDY, {4: 3.0}) == (
        "No trial keeps to the constraints (ms <= 50, mem <= 8 and >= 1): trial 4, the only "
        "complete one, breaks them."
    )
    assert none_feasible(STUDY, {0: 3.0, 1: 0.0}) == ""
    assert none_feasible(STUDY, {}) == ""
    assert none_feasible(make_study(), {0: 3.0}) == ""


def test_only_complete_trials_count():
    """A pruned one and one without a finite value are no results."""
    found = [
        TrialRecord(0, 0, "complete", (0.5,), violation=3.0),
        TrialRecord(1, 1, "complete", (0.4,), violation=2.0),
        TrialRecord(2, 2, "pruned", (0.6,)),
        TrialRecord(3, 3, "complete", (float("inf"),), violation=0.0),
    ]
    assert none_feasible_of(STUDY, found) == SENTENCE


@pytest.mark.parametrize("several", [False, True])
def test_status_and_side_runs_say_it(database_url, tmp_path, several):  # noqa: F811
    """The same words in status (also as JSON and as a line), rerun-best and confirm."""
    study = STUDY
    if several:
        both = (Objective("acc", "maximize"), Objective("loss"))
        study = dataclasses.replace(STUDY, objectives=both)
    values = [0.5, 0.5] if several else [0.5]
    ledger = fill(
        database_url,
        study,
        [Row(values=values, broken=[3.0, -1]), Row(values=values, broken=[2.0])],
    )
    assert read_none_feasible(ledger) == SENTENCE
    status = snapshot(ledger, StudyFolder(tmp_path), {})
    assert (status.best, status.infeasible) == (None, SENTENCE)
    assert status.to_dict()["notes"] == [SENTENCE]
    assert SENTENCE.rstrip(".") in terminal.line(status)
    if several:
        return
    opened = Opened(StudyFolder(tmp_path), study, ledger)
    for choose in (
        lambda: rerun.choose_trial(opened, None),
        lambda: rerun.choose_trials(opened, None, 3),
        lambda: confirm.choose(opened, 3),
    ):
        with pytest.raises(InputError) as raised:
            choose()
        assert raised.value.message == SENTENCE
    assert rerun.choose_trial(opened, 1)[0] == 1


def test_status_names_the_feasible_best(database_url, tmp_path):  # noqa: F811
    """One that keeps to them is enough, however many are better."""
    ledger = fill(
        database_url, STUDY, [Row(values=[0.9], broken=[3.0]), Row(values=[0.5], broken=[-1.0])]
    )
    status = snapshot(ledger, StudyFolder(tmp_path), {})
    assert (status.best or {})["trial"] == 1
    assert (status.infeasible, status.notes) == ("", ())


def records(broken: list[float], values: int = 1) -> list[TrialRecord]:
    """Return complete trials, the better the higher their number."""
    return [
        TrialRecord(
            n,
            n,
            "complete",
            (n / 10,) * values,
            violation=amount,
            metrics={"acc": [(0, 0.0), (1, n)]},
        )
        for n, amount in enumerate(broken)
    ]


def test_the_table_marks_what_breaks_them():
    """A column says which; the first rank is bold only where it may win."""
    found = rows(records([3.0, 0.0]), STUDY)
    table = terminal.trials_table(found, STUDY, width=120)
    column = next(c for c in table.columns if str(c.header) == "feasible")
    assert [str(cell) for cell in column.cells] == ["yes", "no"]
    assert [row.style for row in table.rows] == ["bold", "dim"]
    found = rows(records([3.0, 2.0]), STUDY)
    table = terminal.trials_table(found, STUDY, width=120)
    assert [row.style for row in table.rows] == ["dim", "dim"]


def drawn(monkeypatch: Any, plot: Any, *args: Any) -> Any:
    """Return the axes of what a picture would hold."""
    pytest.importorskip("matplotlib")
    kept: list[Any] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: bool(kept.append(figure)) or True)
    assert plot(*args, Path("unused.png"))
    return kept[0].axes[0]


def texts(axes: Any) -> list[str]:
    lines = [text.get_text() for text in axes.texts] + axes.get_legend_handles_labels()[1]
    return [axes.get_title(loc="left"), *lines]


def test_pictures_crown_no_infeasible_trial(monkeypatch):
    """The star, the coloured curves and the front are of trials that keep to the constraints."""
    found = records([0.0, 0.0, 3.0])
    history = texts(drawn(monkeypatch, plots.plot_history, found, STUDY))
    assert "trial 1: 0.1" in history
    assert {"breaks the constraints (1)", "complete (2)", "best so far"} <= set(history)
    curves = texts(drawn(monkeypatch, plots.plot_curves, found, STUDY))
    assert [
        text for text in curves if "trial" in text and ":" in text and "digits" not in text
    ] == ["1. trial 1: 0.1", "2. trial 0: 0"]
    both = make_study(
        objectives=(Objective("a", "maximize"), Objective("b", "maximize")), constraints=BOUNDS
    )
    front = texts(drawn(monkeypatch, plots.plot_front, records([0.0, 0.0, 3.0], 2), both))
    assert "front (1): no other trial is better in everything" in front
    assert "1" in front and "2" not in front


def test_pictures_without_a_feasible_trial(monkeypatch):
    """They are drawn, say it, and have neither star nor front."""
    found = records([1.0, 2.0, 3.0])
    history = texts(drawn(monkeypatch, plots.plot_history, found, STUDY))
    assert history[0] == "digits: no trial keeps to the constraints"
    assert "best so far" not in history and not any("trial 2" in text for text in history)
    curves = texts(drawn(monkeypatch, plots.plot_curves, found, STUDY))
    assert "no trial keeps to the constraints" in curves
    both = make_study(
        objectives=(Objective("a", "maximize"), Objective("b", "maximize")), constraints=BOUNDS
    )
    front = texts(drawn(monkeypatch, plots.plot_front, records([1.0, 2.0], 2), both))
    assert "no trial keeps to the constraints" in front
    assert not any(text.startswith("front") for text in front)


def test_the_best_is_on_the_picture():
    """Many better ones that break a constraint do not push it off the axis."""
    pytest.importorskip("matplotlib")
    _, axes = figures.new_figure()
    low, _ = figures.set_limits([0.1, *([0.9] * 30), 0.95], Objective("a", "maximize"), axes, 0.1)
    assert low < 0.1
