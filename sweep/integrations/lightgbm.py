"""LightGBM: evaluations, the model, stop, resume; for ``lightgbm.train`` and scikit-learn classes.

from sweep.integrations.lightgbm import SweepCallback

lgb.train(params, train, 200, valid_sets=[valid],
          callbacks=[SweepCallback(200)], init_model=SweepCallback.resume())
"""

from lightgbm.callback import EarlyStopException

from sweep.integrations.base import Link, is_first, on_first, processes
from sweep.report import Reporter


class SweepCallback:
    """Tells sweep about each round ("valid_0-l2"), saves the model, and leaves when told so.

    Args:
        rounds: Of the whole training: a resumed one has some already, and would add as many again.
        save_every: Rounds between two checkpoints.
    """

    order = 40  # after LightGBM's own callbacks, so that all of them have seen the round
    before_iteration = False

    def __init__(self, rounds, save_every=10):
        self.rounds = rounds
        self.save_every = save_every
        self._link = Link()

    @staticmethod
    def resume():
        """Return the model to go on from, for ``init_model``, or None."""
        return Reporter().resume

    def __call__(self, env):
        """Report, save, and leave by LightGBM's own exception for it."""
        if env.iteration == env.begin_iteration:
            _check_machines(env.params, self._link)
        done = env.iteration + 1
        results = env.evaluation_result_list or []
        self._link.log(env.iteration, {"%s-%s" % one[:2]: one[2] for one in results})
        word = self._link.word() if done < self.rounds else None
        folder = self._link.reporter.checkpoint_dir
        has_to_save = word == "checkpoint" or done % self.save_every == 0 or done == self.rounds
        if folder and has_to_save and is_first():  # all ranks hold the same trees
            with on_first(folder, "round-%06d.txt" % env.iteration) as path:
                env.model.save_model(path, num_iteration=-1)
        if word or done >= self.rounds:
            raise EarlyStopException(env.iteration, results)


def _check_machines(params, link):
    """Refuse processes of which nobody knows which is the first one: each would report and save.

    LightGBM connects them by sockets of its own, and tells Python nothing of it.
    """
    count = max(int(params.get(name) or 1) for name in ("num_machines", "num_machine"))
    if link.reporter.active and count > 1 and processes() == 1:
        raise RuntimeError(
            "LightGBM trains on %d machines, and nothing says which of them this process is. Start "
            "them by mpirun with mpi4py, or by torchrun with torch.distributed, and import and "
            "initialise that before training: it also passes the word to stop to all." % count
        )
