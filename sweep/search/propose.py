"""What a trial shall try, and whether it shall go on: Optuna's samplers and pruners on our storage.

Functions; Optuna is imported when one of them needs it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sweep.core.space import Space
from sweep.core.study import Choice, Study
from sweep.core.trial import trial_seed
from sweep.search import cost, priors, warm_start
from sweep.search.design import FIXED, fixed_design, spread_design
from sweep.search.draws import random_point
from sweep.search.rejection import draw_valid
from sweep.search.samplers import (
    GP_MOST,
    SHARE,
    STARTUP,
    build_sampler,
    choose,
    kept,
    one_thread,
    quiet,
)
from sweep.search.suggest import suggest_all
from sweep.storage import locks, proposals, same_params

if TYPE_CHECKING:
    from sweep.search.own import Asked
    from sweep.search.view import SamplerView
    from sweep.storage.optuna_storage import PostgresStorage

TRIES = 8  # draws beyond the first for a configuration that nobody has
_APART = 1000  # between the seeds of draws for another reason

# Made once for the space last seen: distributions as text, for 10,000 rows.
_texts: list[tuple[Space, dict[str, str]]] = []


@dataclass(frozen=True)
class Proposal:
    """A proposal for a trial that waits.

    Attributes:
        sampler: Which it is from.
        notes: System attributes that the user's own sampler set on the trial.
    """

    params: proposals.Stored
    sampler: str
    notes: Mapping[str, Any] = field(default_factory=dict)


def internal(study: Study, params: Mapping[str, Any]) -> dict[str, tuple[float, str]]:
    """Return stored parameters as Optuna's tables hold them, for ``bulk.insert_waiting_trials``.

    Returns:
        For each name Optuna's internal value and the distribution as JSON text.

    Raises:
        ValueError: A value is none of its parameter's.
        KeyError: The space has no such parameter.
    """
    space = study.space
    known = kept(_texts, space, lambda: {p.name: p.distribution_json() for p in space})
    return {
        name: (space.get(name).to_internal(value), known[name]) for name, value in params.items()
    }


def propose(
    study: Study,
    storage: PostgresStorage,
    study_id: int,
    trial_id: int,
    number: int,
    asked: Asked | None = None,
    *,
    is_late: bool = False,
) -> dict[str, Any]:
    """Give a trial the parameters that it lacks, and return all that it has, as Optuna stores them.

    The proposal follows from the history (with ``sampler: auto`` also from how long its trials
    took: ``cost``), the study's seed and the trial's number alone. What the user has fixed for the
    trial (``fixed_params``) is taken as it is. Safe to repeat: a value that is stored stays.

    Args:
        storage: With the attempt's token, so that the writes are refused once it has ended.
        asked: Answers for the user's own sampler; needed where the study has one.
        is_late: A proposal was to be prepared, and is not there: with ``auto`` no slot waits for a
            Gaussian process then.

    Raises:
        SweepError: The sampler cannot work here, what to install; the user's own has failed.
        StaleAttempt: The storage's attempt has ended.
        DatabaseUnavailable: The database does not answer.
    """
    study = weighed(study, storage, study_id, is_late=is_late)
    view, earlier = look(study, storage, study_id)

    def write(may_draw_again: bool) -> bool:
        with locks.held(storage.database, locks.PROPOSE, study_id):
            if may_draw_again and _is_known(study, view, study_id, trial_id):
                return False
            view.write_params(trial_id, study_id)
            return True

    _choose_until(study, view, study_id, trial_id, number, earlier, asked, write)
    return dict(storage.get_trial(trial_id).params)


def prepare(
    study: Study,
    storage: PostgresStorage,
    study_id: int,
    trial_id: int,
    number: int,
    others: Mapping[int, proposals.Stored],
    asked: Asked | None = None,
) -> Proposal:
    """Return parameters for a trial that waits, as ``propose`` would give them to it now.

    Args:
        others: What is prepared for other trials, by number: to the sampler they run.
        asked: As for ``propose``.

    Raises:
        SweepError: As ``propose``.
    """
    study = weighed(study, storage, study_id)
    view, earlier = look(study, storage, study_id)
    view.expect(others)
    found: dict[str, Any] = {}
    notes: dict[str, Any] = {}

    def take(may_draw_again: bool) -> bool:
        chosen = view.chosen_params(trial_id)
        is_prepared = any(
            chosen == {name: value for name, (value, _) in stored.items()}
            for stored in others.values()
        )
        if may_draw_again and (is_prepared or _is_known(study, view, study_id, trial_id)):
            return False
        notes.update(view.notes(trial_id))
        found.update(view.take_choice(trial_id))
        return True

    _choose_until(study, view, study_id, trial_id, number, earlier, asked, take)
    kinds = {parameter.name: parameter.distribution_json() for parameter in study.space}
    stored = {name: (value, kinds[name]) for name, (value, _) in found.items()}
    return Proposal(stored, choose(study)[0], notes)


def is_by_chance(study: Study, number: int) -> bool:
    """Tell whether a trial belongs to the start, for which no sampler is asked."""
    # Of a start of more trials launch has laid out all, unless K was raised since.
    return study.sampler.type not in FIXED and number < min(STARTUP, start_size(study))


def most_behind(study: Study) -> int:
    """Return how many results a proposal may lack when it is taken: those of all that run."""
    return study.parallel


def prepares(study: Study) -> bool:
    """Tell whether a study's proposals are prepared while others train.

    Not where few run at once: the newest result is worth the wait there. Nor what goes by
    generations (cmaes, nsgaii), which is quick anyway.
    """
    return (
        (study.sampler.is_own or choose(study)[0] in ("tpe", "gp"))
        and len(study.space) > 0
        and cost.LEAST_AT_ONCE <= study.parallel < study.trials
    )


def weighed(
    study: Study, storage: PostgresStorage, study_id: int, *, is_late: bool = False
) -> Study:
    """Return the study as its next trial is proposed: with ``auto``, what its trials take decides.

    Args:
        is_late: As for ``propose``.
    """
    if study.sampler.type != "auto" or choose(study)[0] != "gp":
        return study
    if is_late:
        return cost.weigh(study, ())  # as before anything is known
    done = storage.get_all_trials(study_id, deepcopy=False)  # of few trials: all are read
    earlier = len(warm_start.frozen(storage.database, study_id, study))
    return cost.weigh(study, cost.durations_of(done), earlier)


def look(study: Study, storage: PostgresStorage, study_id: int) -> tuple[SamplerView, list[Any]]:
    """Return the history as the study's sampler is to see it now, and the trials of an earlier
    study."""
    from sweep.search.view import SamplerView, broken_by

    earlier = warm_start.frozen(storage.database, study_id, study)
    sampler = choose(study)[0]
    view = SamplerView(
        storage,
        earlier,
        failures=True,
        marked=sampler == "gp",
        ranked=sampler == "cmaes",
        broken=broken_by(study),
        most=GP_MOST if sampler == "gp" else None,
        # Samplers with generations (cmaes, nsgaii) count a trial once, by its final value.
        replicated=study if study.is_replicated and sampler in ("tpe", "gp") else None,
    )
    return view, earlier


def _choose_until(
    study: Study,
    view: SamplerView,
    study_id: int,
    trial_id: int,
    number: int,
    earlier: Sequence[Any],
    asked: Asked | None,
    take: Callable[[bool], bool],
) -> None:
    """Choose a trial's parameters until a choice is taken.

    Args:
        take: Takes what was chosen; returns False to have it drawn again, where it is told that it
            may.
    """
    is_fixed = study.sampler.type in FIXED
    for again in range(TRIES + 1):
        choose_params(study, view, study_id, trial_id, number, again, earlier, asked)
        if take(again < TRIES and not is_fixed and bool(view.chosen_params(trial_id))):
            return
        view.forget_choice(trial_id)


def choose_params(
    study: Study,
    view: SamplerView,
    study_id: int,
    trial_id: int,
    number: int,
    again: int = 0,
    earlier: Sequence[Any] = (),
    asked: Asked | None = None,
) -> None:
    """Set a trial's parameters in a view: its place in the start, else what its sampler proposes.

    Args:
        again: How many times they have been chosen before, for another choice.
        earlier: As for ``build_sampler``.
        asked: As for ``propose``.
    """
    import optuna

    name = view.get_study_name_from_id(study_id)
    is_gp, is_fixed = choose(study)[0] == "gp", study.sampler.type in FIXED
    is_own = study.sampler.is_own
    is_start = is_by_chance(study, number)
    # What a sampler insists on it may propose again: chance has the last word. It has the first
    # in the start, where a sampler knows nothing yet.
    by_chance = not is_fixed and (is_start or again > TRIES // 2)

    def once(seed: int, row: Mapping[str, Any]) -> dict[str, Any]:
        is_whole = all(parameter.name in row for parameter in study.space)  # nothing to model
        is_drawn = by_chance or is_whole
        if study.sampler.is_own and not is_drawn:
            return _ask_own(study, asked, view, study_id, trial_id, seed, row)
        drawn = dataclasses.replace(study, sampler=Choice("random")) if is_drawn else study
        sampler = build_sampler(drawn, seed, earlier)
        with quiet(), one_thread() if choose(drawn)[0] == "gp" else nullcontext():
            trial = optuna.trial.Trial(optuna.study.Study(name, view, sampler=sampler), trial_id)
            # A design without results: the sampler has no say, the user's fixed values do.
            trial._fixed_params = {**row, **trial._fixed_params}
            return suggest_all(study.space, trial)

    def draw(seed: int, row: Mapping[str, Any]) -> None:
        draw_valid(study, view, study_id, trial_id, number, seed, once, row)

    seeds = [trial_seed(study.seed + again + k * _APART, number) for k in range(TRIES)]
    row: Mapping[str, Any] = {}
    if is_fixed:
        row = _choose_fixed(study, number)
    elif is_start and not again:
        row = spread_design(study, start_size(study))[number]
    elif not (is_start or again):
        seen = view.get_all_trials(study_id, deepcopy=False)
        if priors.is_called_for(study, seen, number):
            row = priors.believed_row(study, number)
    draw(seeds[0], row)
    # A Gaussian process models it itself, and what a user's own sampler wants is its affair.
    if is_start or not (is_fixed or is_gp or is_own):
        _lower_risk(
            study, view, study_id, trial_id, [partial(draw, seed, {}) for seed in seeds[1:]]
        )


def _ask_own(
    study: Study,
    asked: Asked | None,
    view: SamplerView,
    study_id: int,
    trial_id: int,
    seed: int,
    row: Mapping[str, Any],
) -> dict[str, Any]:
    """Set a trial's parameters in a view as the user's own sampler proposes them; return all that
    it has, as Optuna stores them. What the sampler noted with the trial is kept with them.
    """
    assert asked is not None, "a study with a sampler of its own is asked for by a task"
    trial = view.get_trial(trial_id)
    fixed = {**row, **trial.system_attrs.get("fixed_params", {}), **trial.params}
    seen = view.get_all_trials(study_id, deepcopy=False)
    params, noted = asked.propose(study, seen, trial, seed, fixed)
    stored = dict(trial.params)
    for parameter in study.space:
        if parameter.name in params and parameter.name not in trial.params:
            kind = parameter.distribution()
            view.set_trial_param(trial_id, parameter.name, params[parameter.name], kind)
            stored[parameter.name] = kind.to_external_repr(params[parameter.name])
    view.note(trial_id, noted)
    return stored


def _lower_risk(
    study: Study,
    view: SamplerView,
    study_id: int,
    trial_id: int,
    draws: Iterable[Callable[[], None]],
) -> None:
    """Draw a trial's parameters again while they probably ask for too much.

    The draw with the least risk stays. Where the user has fixed all there is nothing to choose.

    Args:
        draws: Each sets the parameters in the view, in another way.
    """
    from sweep.search import risk

    if not view.chosen_params(trial_id):
        return
    estimate = risk.Risk(study.space, [t for t in view.told(study_id) if t.number >= 0])
    if not estimate.is_known:
        return
    given = risk.numbers(view.get_trial(trial_id))
    least = estimate.of({**given, **view.chosen_params(trial_id)})
    best = view.take_choice(trial_id)
    for draw in draws:
        if least <= risk.LIMIT:
            break
        draw()
        found = estimate.of({**given, **view.chosen_params(trial_id)})
        choice = view.take_choice(trial_id)
        if found < least:
            least, best = found, choice
    view.put_choice(trial_id, best)


def _is_known(study: Study, view: SamplerView, study_id: int, trial_id: int) -> bool:
    """Tell whether a configuration that was chosen is to be drawn again.

    It is where another trial runs it at present (two that were proposed at the same moment), and,
    with ``duplicates: resample``, where one has finished it.
    """
    params = view.chosen_params(trial_id)
    if same_params.runs_elsewhere(view.database, study_id, trial_id, params):
        return True
    if study.duplicates != "resample":
        return False
    return any(
        other.number >= 0
        and other.state.is_finished()
        and other.params.keys() == params.keys()
        and all(
            other.distributions[name].to_internal_repr(other.params[name]) == value
            for name, value in params.items()
        )
        for other in view.whole(study_id)
    )


def _choose_fixed(study: Study, number: int) -> dict[str, Any]:
    """Return the design's row of one trial, completed by random values for every parameter; {}
    where the sampler learns from results.
    """
    if study.sampler.type not in FIXED:
        return {}
    everything = dataclasses.replace(
        study, space=Space(tuple(dataclasses.replace(p, when={}) for p in study.space)), points=()
    )
    rows = fixed_design(dataclasses.replace(study, trials=max(study.trials, number + 1)))
    return {**random_point(everything, number), **(rows or [])[number]}


def start_size(study: Study) -> int:
    """Return how many trials of an adaptive study are spread evenly: no sampler learns from fewer.

    The first K start together; without a K nobody knows how many do, and a tenth is taken for it;
    ``STARTUP`` at least. With an earlier study to learn from, or with a sampler of the user's own,
    only the user's points are left.
    """
    if study.warm_start or study.sampler.is_own:
        return len(study.points)
    together = study.parallel if study.max_parallel else math.ceil(study.trials / SHARE)
    return max(min(max(together, STARTUP), study.trials), len(study.points))


def laid_out(study: Study) -> int:
    """Return how many trials of an adaptive study get their parameters at launch.

    Those that start together, and the user's points. The rest of the start gets its own when it is
    pulled: a failure may have been seen by then, and its like are left out.
    """
    together = study.parallel if study.max_parallel else start_size(study)
    return min(start_size(study), max(together, len(study.points)))


def first_point(study: Study) -> dict[str, Any]:
    """Return what the first trial of a study would train with: its parameters, the fixed values.

    Where a launch would leave that to the sampler (it learns from an earlier study), by chance.

    Raises:
        InputError, SweepError: As ``fixed_design``.
    """
    whole = fixed_design(dataclasses.replace(study, trials=1))
    if whole is None:
        whole = spread_design(study, start_size(study))
    row = whole[0] if whole else random_point(study, 0)
    return {**study.space.from_optuna(row), **study.fixed}


def check_design(study: Study) -> None:
    """Refuse what a launch would refuse as it lays out the trials of a study.

    Raises:
        InputError, SweepError: As ``fixed_design``; or no value completes one of the points.
    """
    if fixed_design(study) is None:
        spread_design(study, start_size(study))


def first_rows(study: Study, count: int, start: int = 0) -> list[dict[str, Any]]:
    """Return the waiting trials ``start`` to ``start + count - 1`` as ``bulk`` takes them.

    Where the design is fixed all get their parameters here; where the sampler is adaptive the first
    ones do (``laid_out``), and the rest when they are pulled.
    """
    whole = fixed_design(dataclasses.replace(study, trials=start + count))
    if whole is None:
        whole = spread_design(study, start_size(study))[: laid_out(study)]
    return [
        {"params": internal(study, whole[number])} if number < len(whole) else {}
        for number in range(start, start + count)
    ]
