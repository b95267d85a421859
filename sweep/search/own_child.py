"""The process in which a user's own sampler or pruner runs: asked by lines of JSON on its input.

It has the history and nothing else: no address of a database, no secret of the environment. A study
in memory is made of the history for each question, and the class anew: what it knows, it knows from
the trials.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.distributions import json_to_distribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.core.study import Study
from sweep.search.suggest import suggest_all


class Refused(Exception):
    """The user's class cannot be used; said without a traceback."""


def make(name: str, base: type, arguments: Mapping[str, Any], seed: int | None) -> Any:
    """Return an object of a class that is named package.module:Class.

    Args:
        base: What it has to be a subclass of.
        seed: Given as ``seed`` where the class takes one and the study file gives none.

    Raises:
        Refused: There is no such class.
    """
    module_name, _, class_name = name.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, class_name, None)
    if found is None:
        raise Refused(f"{module.__file__} has no {class_name}")
    if not (inspect.isclass(found) and issubclass(found, base)):
        raise Refused(f"{class_name} is no subclass of optuna's {base.__name__}")
    given = dict(arguments)
    if seed is not None and "seed" in inspect.signature(found).parameters:
        given.setdefault("seed", seed)
    return found(**given)


def study_of(
    study: Study, trials: Sequence[Mapping[str, Any]], kinds: Sequence[str], **more: Any
) -> optuna.study.Study:
    """Return a study in memory with these trials, each at its number; the others wait."""
    storage = InMemoryStorage()
    directions = [optuna.study.StudyDirection[word.upper()] for word in study.directions]
    study_id = storage.create_new_study(directions, study.name)
    known = {row["number"]: row for row in trials}
    distributions = [json_to_distribution(text) for text in kinds]
    waiting = optuna.trial.create_trial(state=TrialState.WAITING)
    for number in range(max(known, default=-1) + 1):
        row = known.get(number)
        made = waiting if row is None else _trial(row, distributions)
        storage.create_new_trial(study_id, template_trial=made)
    return optuna.study.Study(study.name, storage, **more)


def _trial(row: Mapping[str, Any], distributions: Sequence[Any]) -> FrozenTrial:
    kinds = {name: distributions[place] for name, (_, place) in row["params"].items()}
    return FrozenTrial(
        number=row["number"],
        trial_id=row["number"],
        state=TrialState[row["state"]],
        value=None,
        values=row["values"],
        datetime_start=_time(row["started"]),
        datetime_complete=_time(row["ended"]),
        params={
            name: kinds[name].to_external_repr(value) for name, (value, _) in row["params"].items()
        },
        distributions=kinds,
        user_attrs=row["user_attrs"],
        system_attrs=row["system_attrs"],
        intermediate_values={int(step): value for step, value in row["reports"]},
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def propose(question: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return the parameters of a trial as Optuna's numbers, and what the sampler noted with it."""
    sampler = make(question["class"], BaseSampler, question["arguments"], question["seed"])
    shown = study_of(study, question["trials"], question["kinds"], sampler=sampler)
    number = question["number"]
    before = dict(shown._storage.get_trial(number).system_attrs)
    stored = suggest_all(study.space, optuna.trial.Trial(shown, number))
    after = shown._storage.get_trial(number).system_attrs
    noted = {name: value for name, value in after.items() if before.get(name) != value}
    params = {name: study.space.get(name).to_internal(value) for name, value in stored.items()}
    return {"params": params, "attributes": noted}


def prune(question: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return whether the pruner stops a trial."""
    pruner = make(question["class"], BasePruner, question["arguments"], question["seed"])
    shown = study_of(study, question["trials"], question["kinds"], pruner=pruner)
    trial = shown._storage.get_trial(question["number"])
    return {"prunes": bool(pruner.prune(shown, trial))}


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a question, or what went wrong."""
    try:
        study = Study.from_json(question["study"])
        return (propose if question["what"] == "propose" else prune)(question, study)
    except Refused as refusal:
        return {"error": str(refusal)}
    except Exception as error:
        traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error}"[:500]
        return {"error": f"{said} ({last.filename}, line {last.lineno})"}


def main() -> None:
    """Answer until the input ends. What the user's code prints goes to the error output."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    workdir = sys.argv[1]
    os.chdir(workdir)
    sys.path.insert(0, workdir)
    for line in sys.stdin:
        json.dump(answer(json.loads(line)), answers)
        answers.write("\n")
        answers.flush()


if __name__ == "__main__":
    main()
