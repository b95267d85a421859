"""A user's own sampler and pruner, in their own process, on a real database."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Constraint, Storage, Study
from sweep.search import own, propose, pruning
from sweep.search.own import Asked, OwnFailed
from sweep.storage import PostgresStorage
from tests.search.test_propose import claim, create, make

CODE = '''
import os, sys, time, numpy as np, optuna
from mine.shared import NAME

class Mine(optuna.samplers.BaseSampler):
    """Proposes by how many trials are complete; notes what it has seen."""

    def __init__(self, step=0.01, fault="", seed=None):
        self.step, self.fault, self.seed = step, fault, seed
        self.asked = 0

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, space):
        return {}

    def sample_independent(self, study, trial, name, distribution):
        print("this goes to the log, not into the answer")
        trials = study.get_trials(deepcopy=False)
        done = [t for t in trials if t.state == optuna.trial.TrialState.COMPLETE]
        if self.fault == "raises":
            raise RuntimeError("no idea")
        if self.fault == "later" and trial.number > 2:
            raise RuntimeError("too many")
        if self.fault == "exits":
            os._exit(3)
        if self.fault == "leaves":
            sys.exit("no licence")
        if self.fault == "sleeps":
            time.sleep(600)
        if self.fault == "outside":
            return 7.0
        if self.fault == "beside":
            return 0.3 if name == "step" else 4.5
        if self.fault == "rounded":
            return {"x": np.float32(0.1), "n": np.int64(3), "step": np.float32(0.3)}[name]
        self.asked += 1
        seen = {
            "number": trial.number,
            "states": [t.state.name for t in trials],
            "values": [t.values for t in done],
            "reports": [t.intermediate_values for t in done],
            "seed": self.seed,
            "asked": self.asked,
            "secrets": sorted(n for n in os.environ if n == "SWEEP_STORAGE" or "TOKEN" in n),
            "name": NAME,
            "folder": os.getcwd(),
        }
        study._storage.set_trial_system_attr(trial._trial_id, f"mine:{name}", seen)
        if name == "opt":
            return distribution.choices[-1]
        return self.step * len(done)

class Bounded(Mine):
    """Proposes how much the first trial breaks the bounds, as it is told."""

    def __init__(self, constraints_func=None):
        super().__init__()
        self.judge = constraints_func

    def sample_independent(self, study, trial, name, distribution):
        return sum(self.judge(study.trials[0])) if self.judge else 0.125

class Half(optuna.pruners.BasePruner):
    def __init__(self, fault=""):
        self.fault = fault

    def prune(self, study, trial):
        if self.fault:
            raise KeyError(self.fault)
        done = study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.COMPLETE])
        return trial.intermediate_values[trial.last_step] > 0.5 and len(done) >= 2

class Other:
    pass
'''
X = Parameter("x", "float", low=0.0, high=1.0)
SPACE = Space(
    (
        X,
        Parameter("opt", "categorical", choices=("a", ["b", 1])),
        Parameter("m", "float", low=0.0, high=1.0, when={"opt": (["b", 1],)}),
    )
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    (folder / "mine").mkdir()
    (folder / "mine/search.py").write_text(CODE)
    (folder / "mine/shared.py").write_text("NAME = 'of the workdir'\n")
    (folder / "mine/broken.py").write_text("import nothing_of_this_name\n")
    return folder


@pytest.fixture(scope="module")
def asked(workdir: Path) -> Iterator[Asked]:
    """One process for most tests; it starts again after those that end it."""
    with contextlib.closing(Asked(workdir)) as asked:
        yield asked


@pytest.fixture
def storage(database_url: str) -> Iterator[PostgresStorage]:
    storage = PostgresStorage(database_url)
    yield storage
    storage.database.close()


def sampler(name: str = "mine.search:Mine", limit_s: float = 60, **arguments: Any) -> Choice:
    return Choice(name, {"arguments": arguments, "time_limit_s": limit_s})


def study_of(space: Space = SPACE, **more: Any) -> Study:
    given = {"sampler": sampler(), "storage": Storage(url="postgresql://me@host/db"), **more}
    chosen = given.pop("sampler")
    return Study(**{**vars(make("tpe", space, trials=10, **given)), "sampler": chosen})


def run(
    storage: PostgresStorage, study: Study, asked: Asked, count: int
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return each trial's parameters and system attributes."""
    study_id, done = create(storage, study), []
    for number in range(count):
        trial_id = claim(storage, study_id, number)
        values = propose.propose(study, storage, study_id, trial_id, number, asked)
        storage.set_trial_intermediate_value(trial_id, 1, 0.5)
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [float(number)])
        done.append((values, storage.get_trial(trial_id).system_attrs))
    return done


def test_it_proposes_from_the_history(
    storage: PostgresStorage, asked: Asked, workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first trial on, by the trials alone, with the workdir's own modules."""
    asked.close()
    monkeypatch.setenv("SWEEP_STORAGE", "postgresql://me:secret@host/db")
    monkeypatch.setenv("HF_TOKEN", "secret")
    done = run(storage, study_of(), asked, 3)
    assert [values for values, _ in done] == [
        {"x": 0.01 * number, "opt": '["b", 1]', "m": 0.01 * number} for number in range(3)
    ]
    seen = done[2][1]["mine:x"]
    assert (seen["number"], seen["states"]) == (2, ["COMPLETE", "COMPLETE", "RUNNING"])
    assert (seen["values"], seen["reports"]) == ([[0.0], [1.0]], [{"1": 0.5}, {"1": 0.5}])
    assert (seen["secrets"], seen["name"]) == ([], "of the workdir")
    assert seen["folder"] == str(workdir) and seen["asked"] == 1  # an object of its own each time
    seeds = [notes["mine:x"]["seed"] for _, notes in done]
    assert len(set(seeds)) == 3
    assert "SWEEP_STORAGE" in os.environ


def test_what_it_is_shown_has_no_address(asked: Asked) -> None:
    shown = own._shown(study_of())
    assert shown.storage.url is None and "host" not in shown.to_json()


def test_proposals_repeat_and_keep_to_what_is_fixed(storage: PostgresStorage, asked: Asked) -> None:
    """The user's values of a trial are kept; a choice against the relations is drawn by chance."""
    study = study_of(where=("x > 0.5",))
    study_id = create(storage, study)
    given = claim(storage, study_id, 0)
    storage.set_trial_system_attr(given, "fixed_params", {"x": 0.75, "opt": "a"})
    assert propose.propose(study, storage, study_id, given, 0, asked) == {"x": 0.75, "opt": "a"}
    other = claim(storage, study_id, 1)
    assert propose.propose(study, storage, study_id, other, 1, asked)["x"] > 0.5


def first_trial() -> FrozenTrial:
    trial = create_trial(state=TrialState.RUNNING)
    trial.number = 0
    return trial


FAULTS: list[tuple[Choice, str]] = [
    (sampler(fault="raises"), r"failed: RuntimeError: no idea \(.*mine/search.py, line \d+\)"),
    (sampler(fault="outside"), "what it proposed for opt is no value: '7.0' not in"),
    (sampler(nonsense=1), "failed: TypeError: .*nonsense"),
    (sampler("mine.search:Nobody"), "mine/search.py has no Nobody"),
    (sampler("mine.search:Other"), "Other is no subclass of optuna's BaseSampler"),
    (sampler("mine.search:Half"), "Half is no subclass of optuna's BaseSampler"),
    (sampler("mine.nowhere:Mine"), "No module named 'mine.nowhere'"),
    (sampler("mine.broken:Mine"), "No module named 'nothing_of_this_name'"),
]


@pytest.mark.parametrize(("choice", "message"), FAULTS, ids=[m for _, m in FAULTS])
def test_what_fails_is_said(asked: Asked, choice: Choice, message: str) -> None:
    first = first_trial()
    with pytest.raises(OwnFailed, match=message):
        asked.propose(study_of(sampler=choice), [], first, 1, {})
    assert asked.propose(study_of(), [], first, 1, {})[0]["x"] == 0.0


def test_a_process_that_ends_or_hangs(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is said, and the next question is asked of a new one."""
    first = first_trial()
    with pytest.raises(OwnFailed, match=r"process of the sampler .*:Mine ended \(exit code 3\)"):
        asked.propose(study_of(sampler=sampler(fault="exits")), [], first, 1, {})
    assert asked.propose(study_of(), [], first, 1, {})[0]["x"] == 0.0
    with pytest.raises(OwnFailed, match="took longer than 1 s"):
        asked.propose(study_of(sampler=sampler(fault="sleeps", limit_s=1)), [], first, 1, {})
    assert asked.propose(study_of(), [], first, 1, {})[0]["x"] == 0.0


def test_what_lies_outside_is_refused(asked: Asked) -> None:
    """But for rounding; what lies off the step goes onto the nearest one."""
    step = Parameter("step", "float", low=0.0, high=1.0, step=0.25)
    study = study_of(Space((step,)), sampler=sampler(fault="beside"))
    assert asked.propose(study, [], first_trial(), 1, {})[0] == {"step": 0.25}
    with pytest.raises(OwnFailed, match=r"it proposed 7\.0 for x, which goes from 0 to 1"):
        study = study_of(Space((X,)), sampler=sampler(fault="outside"))
        asked.propose(study, [], first_trial(), 1, {})
    space = Space(
        (
            Parameter("x", "float", low=0.0, high=0.1),
            Parameter("n", "int", low=1, high=9),
            dataclasses.replace(step, step=0.1),
        )
    )
    study = study_of(space, sampler=sampler(fault="rounded"))
    params, _ = asked.propose(study, [], first_trial(), 1, {})
    assert params == {"x": 0.1, "n": 3.0, "step": 0.3}


def test_a_class_is_given_the_constraints(asked: Asked) -> None:
    """Where it takes a constraints_func and the study has some."""
    space, trial = Space((X,)), first_trial()
    study = study_of(space, sampler=sampler("mine.search:Bounded"))
    assert asked.propose(study, [], trial, 1, {})[0] == {"x": 0.125}
    bounded = dataclasses.replace(study, constraints=(Constraint("ms", max=1.0, min=0.0),))
    done = create_trial(value=1.0, params={"x": 0.5}, distributions={"x": X.distribution()})
    done.number, trial.number = 0, 1
    done.system_attrs = {"constraints": [0.5, -0.25]}
    assert asked.propose(bounded, [done], trial, 1, {})[0] == {"x": 0.25}


def test_what_a_user_has_fixed_may_lie_outside(asked: Asked) -> None:
    params, _ = asked.propose(study_of(), [], first_trial(), 1, {"x": 5.0, "opt": "a"})
    assert params == {"x": 5.0, "opt": 0.0}


def test_a_pruner_of_ones_own(storage: PostgresStorage, asked: Asked) -> None:
    half = sampler("mine.search:Half")
    study = study_of(pruner=half)
    study_id = create(storage, study)
    verdicts = []
    for number in range(4):
        trial_id = claim(storage, study_id, number)
        storage.set_trial_intermediate_value(trial_id, 1, 0.2 * number + 0.1)
        verdicts.append(pruning.should_prune(study, storage, study_id, trial_id, {1: 0.9}, asked))
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [1.0])
    assert verdicts == [False, False, False, True]
    broken = study_of(pruner=sampler("mine.search:Half", fault="odd"))
    with pytest.raises(OwnFailed, match=r"The pruner mine.search:Half failed: KeyError: 'odd'"):
        pruning.should_prune(broken, storage, study_id, trial_id, {1: 0.9}, asked)


def test_launch_tries_both(workdir: Path) -> None:
    own.check(study_of(pruner=sampler("mine.search:Half")), workdir)
    with pytest.raises(OwnFailed, match="KeyError"):
        own.check(study_of(pruner=sampler("mine.search:Half", fault="x")), workdir)
    own.check(make("tpe", SPACE), Path("/nowhere"))
    with pytest.raises(OwnFailed, match=r"ended \(exit code 1\)") as caught:
        own.check(study_of(sampler=sampler(fault="leaves")), workdir)
    assert caught.value.hint == "It printed: no licence"


def test_a_fault_with_made_up_trials_refuses_nothing(workdir: Path) -> None:
    """It may be of those alone; it is said."""
    assert "keeps asked in its object" in own.check(study_of(), workdir)
    said = own.check(study_of(sampler=sampler(fault="later")), workdir)
    assert said.startswith("With trials that are made up: ") and "RuntimeError: too many" in said
