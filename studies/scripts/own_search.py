"""A sampler of one's own: near the best so far, nearer and nearer; any class of Optuna's interface.

What it knows it reads from the trials that it is given: another task, or the same one after a
crash, goes on from there.
"""

import numpy as np
import optuna


class Nearer(optuna.samplers.BaseSampler):
    """Draws around the best trial, and by chance while there is none.

    Args:
        width: Of the draws at first, as a part of each range; it falls with the square root of the
            number of complete trials.
        seed: Of this proposal; sweep gives it.
    """

    def __init__(self, width=0.5, seed=None):
        self._width = width
        self._rng = np.random.default_rng(seed)
        self._chance = optuna.samplers.RandomSampler(seed=seed)

    def infer_relative_search_space(self, study, trial):
        return {}

    def sample_relative(self, study, trial, search_space):
        return {}

    def sample_independent(self, study, trial, param_name, param_distribution):
        complete = (optuna.trial.TrialState.COMPLETE,)
        done = study.get_trials(deepcopy=False, states=complete)
        drawn = self._chance.sample_independent(study, trial, param_name, param_distribution)
        if len(done) < 4 or isinstance(
            param_distribution, optuna.distributions.CategoricalDistribution
        ):
            return drawn
        pick = max if study.direction == optuna.study.StudyDirection.MAXIMIZE else min
        best = pick(done, key=lambda one: one.value).params[param_name]
        share = min(1.0, self._width / np.sqrt(len(done)))
        if not param_distribution.log:
            value = best + share * (drawn - best)
        else:
            value = best * (drawn / best) ** share
        if param_distribution.step:
            steps = round((value - param_distribution.low) / param_distribution.step)
            return param_distribution.low + steps * param_distribution.step
        return float(value)
