"""The process in which a user's own sampler or pruner runs: asked by lines of JSON on its input.
So does one of OptunaHub's registry.

It has the history and nothing else: no address of a database, no secret of the environment. A study
in memory is made of the history for each question, and the class anew: what it knows, it knows from
the trials.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pickle
import sys
import traceback
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import optuna
from optuna.distributions import json_to_distribution
from optuna.pruners import BasePruner
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from sweep.core.attributes import CONSTRAINTS
from sweep.core.space import Parameter
from sweep.core.study import Study
from sweep.search.suggest import suggest, suggest_all

CONSTRAINTS_FUNC = "constraints_func"
_ROUNDING = 1e-6  # of a range: so far a value may lie beside it


class Refused(Exception):
    """The user's class cannot be used; said without a traceback.

    Args:
        hint: What to do.
    """

    def __init__(self, message: str, hint: str = "Correct it.") -> None:
        super().__init__(message)
        self.hint = hint


def make(
    name: str,
    base: type,
    arguments: Mapping[str, Any],
    seed: int | None,
    package: str | None = None,
    class_name: str = "",
    constrained: bool = False,
) -> Any:
    """Return an object of a class that is named package.module:Class, or of a registry's package.

    Args:
        base: What it has to be a subclass of.
        seed: Given as ``seed`` where the class takes one and the study file gives none.
        package: The folder of a registry's package, and then the class where it has several.
        constrained: Whether the study has constraints: a class that takes a ``constraints_func`` is
            given one. Optuna's own need none.

    Raises:
        Refused: There is no such class.
    """
    if package is not None:
        found = find_in_package(Path(package), base, class_name)
    else:
        module_name, _, class_name = name.partition(":")
        module = importlib.import_module(module_name)
        found = getattr(module, class_name, None)
        if found is None:
            raise Refused(f"{module.__file__} has no {class_name}")
        if not _is_one(found, base):
            raise Refused(f"{class_name} is no subclass of optuna's {base.__name__}")
    given, takes = dict(arguments), inspect.signature(found).parameters
    if seed is not None and "seed" in takes:
        given.setdefault("seed", seed)
    if constrained and CONSTRAINTS_FUNC in takes and not found.__module__.startswith("optuna."):
        given.setdefault(CONSTRAINTS_FUNC, _noted_constraints)
    return found(**given)


def _noted_constraints(trial: FrozenTrial) -> Sequence[float]:
    """Return by how much a trial breaks each bound, as sweep has noted it."""
    return tuple(trial.system_attrs.get(CONSTRAINTS) or (0.0,))


def _is_one(found: Any, base: type) -> bool:
    return inspect.isclass(found) and issubclass(found, base)


def find_in_package(folder: Path, base: type, class_name: str = "") -> Any:
    """Return the class of a registry's package.

    Args:
        class_name: The one that is meant, where it has several.

    Raises:
        Refused: It needs what is not installed; it has no such class, or several.
    """
    module = _load(folder)
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {n: one for n in names if _is_one(one := getattr(module, n, None), base)}
    if class_name:
        if class_name not in found:
            has = ", ".join(found) or f"no subclass of optuna's {base.__name__}"
            raise Refused(f"its package has no {class_name}; it has {has}")
        return found[class_name]
    if len(found) != 1:
        has = ", ".join(found) or f"no subclass of optuna's {base.__name__}"
        first = next(iter(found), "")
        hint = f"Say which one, class: {first}." if found else "Name another package."
        raise Refused(f"its package has {has}", hint)
    return next(iter(found.values()))


def _load(folder: Path) -> ModuleType:
    """Return the module of a registry's package, by the name that OptunaHub's client gives it."""
    *above, root, package, kind, name = folder.parts
    if (tree := str(Path(*above))) not in sys.path:
        sys.path.append(tree)
    try:
        return importlib.import_module(f"{root}.{package}.{kind}.{name}")
    except ImportError as error:
        wants = _requirements(folder)
        said = f" (its requirements.txt: {', '.join(wants)})" if wants else ""
        missing = (error.name or "").partition(".")[0]
        # The registry's packages take their base class from it, and do not name it.
        if missing == "optunahub" and not any(one.startswith(missing) for one in wants):
            wants.append(missing)
        install = " ".join(wants) or missing or "what it needs"
        raise Refused(
            f"{type(error).__name__}: {error}{said}",
            f"Install what it needs into the environment that sweep runs from: pip install "
            f"{install}.",
        ) from error


def _requirements(folder: Path) -> list[str]:
    try:
        lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = (line.partition("#")[0].strip() for line in lines)
    return [line for line in found if line and not line.startswith("-")]


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


def _made(question: Mapping[str, Any], base: type, study: Study) -> Any:
    name, arguments, seed = question["class"], question["arguments"], question["seed"]
    package, class_name = question["package"], question["of_package"]
    return make(name, base, arguments, seed, package, class_name, bool(study.constraints))


def propose(question: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return the parameters of a trial as Optuna's numbers, and what the sampler noted with it."""
    sampler = _made(question, BaseSampler, study)
    shown = study_of(study, question["trials"], question["kinds"], sampler=sampler)
    number = question["number"]
    before = shown._storage.get_trial(number)
    given = {*before.params, *before.system_attrs.get("fixed_params", {})}
    trial = optuna.trial.Trial(shown, number)
    stored = suggest_all(study.space, trial, _suggest)
    after = shown._storage.get_trial(number).system_attrs
    noted = {n: value for n, value in after.items() if before.system_attrs.get(n) != value}
    for name, value in trial.relative_params.items():
        if name in stored and name not in given:
            _say_what_was_passed_over(study.space.get(name), value)
    for name in stored.keys() - given:
        stored[name] = within(study.space.get(name), stored[name])
    params = {name: study.space.get(name).to_internal(value) for name, value in stored.items()}
    return {"params": params, "attributes": noted}


def _suggest(trial: optuna.trial.Trial, parameter: Parameter) -> Any:
    """Have a trial choose one parameter. Raises: Refused: Optuna cannot take what was proposed."""
    try:
        return suggest(trial, parameter)
    except (TypeError, ValueError) as error:
        file = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        if file.parts[-2:] in (("optuna", "distributions.py"), ("trial", "_trial.py")):
            raise Refused(f"what it proposed for {parameter.name} is no value: {error}") from error
        raise


def within(parameter: Parameter, value: Any) -> Any:
    """Return a value that a sampler has proposed, as the parameter's own.

    A number goes onto the nearest step, and into the range where it is off by no more than rounding
    (a float of 32 bits).

    Raises:
        Refused: It lies outside of the range.
    """
    if parameter.type == "categorical":
        return value
    low, high = parameter.low, parameter.high
    assert low is not None and high is not None
    number = float(value)
    near = _ROUNDING * max(high - low, abs(high))
    if low - near <= number <= high + near:
        number = min(max(number, low), high)
        if not parameter.step:
            return int(number) if parameter.type == "int" else number
        return parameter.values()[round((number - low) / parameter.step)]
    raise Refused(
        f"it proposed {number!r} for {parameter.name}, which goes from {low:g} to {high:g}"
    )


def _say_what_was_passed_over(parameter: Parameter, value: Any) -> None:
    """Print, for the task's log, that Optuna asked sample_independent in the place of a value."""
    kind = parameter.distribution()
    with contextlib.suppress(ValueError):
        if kind._contains(kind.to_internal_repr(value)):
            return
    print(
        f"sample_relative proposed {value!r} for {parameter.name}, which it cannot take: Optuna "
        "asks sample_independent for another",
        file=sys.stderr,
        flush=True,
    )


def prune(question: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return whether the pruner stops a trial."""
    pruner = _made(question, BasePruner, study)
    shown = study_of(study, question["trials"], question["kinds"], pruner=pruner)
    trial = shown._storage.get_trial(question["number"])
    return {"prunes": bool(pruner.prune(shown, trial))}


PLAYED = 6  # trials


def remember(question: Mapping[str, Any], study: Study) -> dict[str, Any]:
    """Return the attributes of a sampler, plain values, that change from trial to trial: what it
    knows by itself, and not from the trials. Some trials are played with one object for it."""
    sampler = _made(question, BaseSampler, study)
    played = study_of(study, [], [], sampler=sampler)
    before: dict[str, bytes] = {}
    changes: Counter[str] = Counter()
    for number in range(PLAYED):
        trial = played.ask()
        suggest_all(study.space, trial)
        played.tell(trial, [float(number)] * len(study.directions))
        now = _plain(sampler)
        changes.update(n for n in now.keys() | before.keys() if now.get(n) != before.get(n))
        before = now
    # All are new after the first trial, and some are set up once by a later one.
    return {"remembers": sorted(name for name, count in changes.items() if count > 2)}


def _plain(owner: Any) -> dict[str, bytes]:
    found = {}
    for name, value in vars(owner).items():
        if isinstance(value, (bool, int, float, str, list, dict, set, tuple, deque, np.ndarray)):
            with contextlib.suppress(Exception):  # what cannot be pickled is no plain value
                found[name] = pickle.dumps(value)
    return found


ANSWERS = {"propose": propose, "prune": prune, "remember": remember}


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a question, or what went wrong."""
    try:
        study = Study.from_json(question["study"])
        return ANSWERS[question["what"]](question, study)
    except Refused as refusal:
        return {"error": str(refusal), "hint": refusal.hint}
    except ModuleNotFoundError as error:
        hint = "Correct it, or install that into the environment that sweep runs from."
        return {"error": _describe(error), "hint": hint}
    except Exception as error:
        traceback.print_exc()
        return {"error": _describe(error)}


def _describe(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error}"[:500]
    return f"{said} ({last.filename}, line {last.lineno})"


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
