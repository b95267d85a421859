"""XGBoost: evaluations, the model, stop, resume; for ``xgboost.train`` and scikit-learn classes.

from sweep.integrations.xgboost import SweepCallback

xgb.train(params, train, 200, evals=[(valid, "valid")],
          callbacks=[SweepCallback(200)], xgb_model=SweepCallback.resume())
"""

from xgboost.callback import TrainingCallback

from sweep.integrations.base import Link, is_first, on_first
from sweep.report import Reporter


class SweepCallback(TrainingCallback):
    """Tells sweep about each round ("valid-rmse"), saves the model, and leaves when told so.

    Args:
        rounds: Of the whole training: a resumed one has some already, and would add as many again.
        save_every: Rounds between two checkpoints.
    """

    def __init__(self, rounds, save_every=10):
        super().__init__()
        self.rounds = rounds
        self.save_every = save_every
        self._link = None

    @staticmethod
    def resume():
        """Return the model to go on from, for ``xgb_model``, or None."""
        return Reporter().resume

    def before_training(self, model):
        """Begin: Dask hands this to its workers, where the ranks know each other by now."""
        self._link = Link()
        return model

    def before_iteration(self, model, epoch, evals_log):
        """End at once where nothing is left to train."""
        return model.num_boosted_rounds() >= self.rounds

    def after_iteration(self, model, epoch, evals_log):
        """Report, save, and tell whether to stop."""
        done = model.num_boosted_rounds()
        latest = {
            "%s-%s" % (data, metric): values[-1]
            for data, metrics in evals_log.items()
            for metric, values in metrics.items()
        }
        # Cross-validation gives (mean, standard deviation).
        means = {name: v[0] if isinstance(v, tuple) else v for name, v in latest.items()}
        self._link.log(done - 1, means)
        word = self._link.word() if done < self.rounds else None
        folder = self._link.reporter.checkpoint_dir
        has_to_save = word == "checkpoint" or done % self.save_every == 0 or done == self.rounds
        if folder and has_to_save and is_first():  # all ranks hold the same trees
            with on_first(folder, "round-%06d.ubj" % (done - 1)) as path:
                model.save_model(path)
        return word is not None or done >= self.rounds
