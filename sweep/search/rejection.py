"""A sampler's proposal that keeps to the relations of ``where``: drawn again until it does.

Samplers know nothing of relations. What one proposes against them is drawn again with another
seed; what it insists on is shown to it as infeasible; then chance has the last word, and after many
draws a point that is known to keep to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sweep.core.study import Study
from sweep.core.trial import trial_seed
from sweep.search.design import FIXED
from sweep.search.samplers import STARTUP, choose
from sweep.search.valid import Where, any_valid_point, valid_point

if TYPE_CHECKING:
    from sweep.search.view import SamplerView

# Proposals of a sampler for one trial, and of those the first that it is not shown as infeasible.
# A Gaussian process costs most, and proposes the same again unless it is shown that.
DRAWS, SILENT = 24, 8
GP_DRAWS, GP_SILENT = 6, 1
_APART = 7919  # between the seeds of draws for this reason


def draw_valid(
    study: Study,
    view: SamplerView,
    study_id: int,
    trial_id: int,
    number: int,
    seed: int,
    draw: Callable[[int, Mapping[str, Any]], dict[str, Any]],
    row: Mapping[str, Any],
) -> None:
    """Set a trial's parameters in the view, such that they keep to the study's relations.

    What the user has fixed for the trial is taken as it is; where that alone breaks a relation, so
    does the trial.

    Args:
        draw: Sets the parameters: as the sampler proposes them with a seed, but for the stored
            values that it is given. Returns all of the trial's, as Optuna stores them.
        row: Values that a design or a prior has for the trial; {} where the sampler proposes them.
    """
    values, where = draw(seed, row), Where(study)
    if not where or where.keeps(values):
        return
    trial = view.get_trial(trial_id)
    given = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
    if where.breaches(given):
        return
    is_fixed = study.sampler.type in FIXED  # its own rows keep to them but for what the user fixed
    is_slow = study.sampler.is_own or choose(study)[0] == "gp"
    draws, silent = (GP_DRAWS, GP_SILENT) if is_slow else (DRAWS, SILENT)
    for again in range(1, 1 if row and is_fixed else draws):
        rejected = view.take_choice(trial_id)
        if again >= silent:
            view.reject(study_id, rejected, STARTUP)
        values = draw(trial_seed(seed + again * _APART, number), {})
        if where.keeps(values):
            return
    point = valid_point(study, number, given)
    if point is None and not given:
        point = any_valid_point(study, number)
    if point is not None:
        view.take_choice(trial_id)
        draw(seed, point)
