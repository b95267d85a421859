"""``sweep add``: trials at points of the user's; N grows by one each."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sweep.control.add_points import add, check_point, check_relations, parse_point
from sweep.control.open_study import Opened
from sweep.core.errors import InputError
from sweep.core.paths import Runs
from sweep.core.space import Parameter, Space
from sweep.schedulers.local.scheduler import LocalScheduler
from tests.cli.commands import collected, counts, gated, steps_of, wait_for, wait_for_runners
from tests.conftest import Sweep
from tests.study_rows import Row, fill, make_study
from tests.toys import write_toy

SPACE = Space(
    (
        Parameter("lr", "float", low=0.001, high=1.0, log=True),
        Parameter("layers", "int", low=1, high=9, step=2),
        Parameter("opt", "categorical", choices=("sgd", "adamw", "a,b")),
        Parameter("momentum", "float", low=0.0, high=0.99, when={"opt": ("sgd",)}),
        Parameter("size", "categorical", choices=(32, "32", None, True)),
    )
)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("lr=0.01", {"lr": 0.01}),
        ("lr=1e-2, layers=3", {"lr": 0.01, "layers": 3}),
        ("opt=a,b,lr=0.5", {"opt": "a,b", "lr": 0.5}),
        ("opt=sgd,momentum=0.5", {"opt": "sgd", "momentum": 0.5}),
        ("size=32", {"size": 32}),
        ('size="32"', {"size": "32"}),
        ("size=null", {"size": None}),
        ("size=true", {"size": True}),
    ],
)
def test_points_are_read(text: str, point: dict[str, object]) -> None:
    """As the cells of a CSV file are: a choice is told apart by its JSON."""
    found = parse_point(text, SPACE)
    assert found == point
    assert [type(value) for value in found.values()] == [type(v) for v in point.values()]
    check_point(found, SPACE)


def test_a_point_keeps_to_the_relations() -> None:
    """As far as it tells: what it leaves out is drawn so that it does."""
    study = dataclasses.replace(
        make_study(),
        space=SPACE,
        fixed={"batch": 4},
        where=("batch * layers <= 20", "size != 32 or lr < 0.1"),
    )
    for kept in ({"layers": 5}, {"lr": 0.5}, {"size": 32, "lr": 0.01}, {"size": "32", "lr": 0.5}):
        check_relations(kept, study)
    for broken, clause in (({"layers": 7}, "batch"), ({"size": 32, "lr": 0.5}, "size")):
        with pytest.raises(InputError, match=f"breaks {clause} "):
            check_relations(broken, study)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lr",
        "lr=",
        "lr=2",
        "lr=nan",
        "lr=inf",
        "lr=0x1",
        "layers=2",
        "layers=3.5",
        "layers=²",
        "opt=adam",
        "lrr=0.1",
        "lr=0.1,lr=0.2",
        "opt=adamw,momentum=0.5",
        "size=64",
        "=1",
    ],
)
def test_what_the_space_does_not_hold(text: str) -> None:
    """Each is refused with the values that there are."""
    with pytest.raises(InputError):
        check_point(parse_point(text, SPACE), SPACE)


def test_nothing_is_added_where_the_study_cannot_be_written(
    database_url: str, tmp_path: Path
) -> None:
    """The file and the database would say different numbers of trials."""
    study = make_study(SPACE, trials=2)
    ledger = fill(database_url, study, [Row("WAITING", attempts=()) for _ in range(2)])
    folder = Runs(tmp_path).study(study.name)
    (folder.study / "in the way").mkdir(parents=True)
    opened = Opened(folder, study, ledger)
    with pytest.raises(OSError, match=r"study\.json"):
        add(opened, Runs(tmp_path), LocalScheduler(folder.local), [{"lr": 0.5}])
    assert ledger.count_states() == {"WAITING": 2}
    ledger.db.close()


def test_n_grows_and_stays(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """Added to a study that has ended; launched with its file again, nothing is lost or doubled."""
    path = write_toy(tmp_path, trials=2)
    assert sweep("launch", path, "--wait").code == 0
    wait_for_runners(runs / "toy")
    (tmp_path / "more.csv").write_text("x,kind,note\n0.75,a,hello\n,b,\n")
    ran = sweep("add", "--point", "x=0.25,kind=b", "--points", "more.csv")
    assert ran.code == 0, ran.err
    assert "added trials 2, 3, 4; it has 5 trials now" in ran.out
    assert f"sweep launch {path} goes on" in ran.out
    assert counts(sweep) == {"complete": 2, "waiting": 3}
    assert sweep("launch", path, "--wait").code == 0
    found = {row["trial"]: row["params"] for row in collected(sweep)}
    assert found[2] == {"x": 0.25, "kind": "b"}
    assert found[3] == {"x": 0.75, "kind": "a"}
    assert found[4]["kind"] == "b" and 0 <= found[4]["x"] <= 1
    before = {n: found[n] for n in range(5)}
    ran = sweep("launch", path, "--set", "trials=4", "--wait")
    assert ran.code == 0 and "study toy: 2 trials added" in ran.out
    found = {row["trial"]: row["params"] for row in collected(sweep)}
    assert sorted(found) == list(range(7)) and {n: found[n] for n in range(5)} == before
    for words, said in (
        (["--point", "x=2"], "x=2.0 is no value that x can take"),
        (["--point", "y=1"], "'y' is not a parameter of the space"),
        ([], "No point was given"),
        (["--points", "none.csv"], "cannot be read"),
    ):
        ran = sweep("add", *words)
        assert ran.code == 2 and said in ran.err, (words, ran)
    assert counts(sweep) == {"complete": 7}


def test_tasks_at_work_take_it(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """No launch is needed while they live."""
    path = write_toy(tmp_path, trials=2, command=gated(tmp_path))
    assert sweep("launch", path).code == 0
    wait_for(lambda: min(steps_of(runs, "toy", 0), steps_of(runs, "toy", 1)) >= 2, "two steps")
    ran = sweep("add", "--point", "x=0.125")
    assert ran.code == 0 and "its tasks take them" in ran.out
    (tmp_path / "gate").touch()
    wait_for(lambda: counts(sweep) == {"complete": 3}, "the tasks to take it")
    assert any(row["params"]["x"] == 0.125 for row in collected(sweep))
