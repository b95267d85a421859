"""DeepSpeed: a loop that resumes, saves the engine's state, and stops on all ranks.

from sweep.integrations.deepspeed import Epochs

for epoch in (epochs := Epochs(10, engine)):
    ...
    epochs.log(val_loss=loss)
"""

from sweep.integrations.base import Loop

TAG = "state"  # each save has a folder of its own: the tag within says nothing


class Epochs(Loop):
    """The epochs that are left; ``engine.save_checkpoint`` after each, ``load_checkpoint`` before.

    Args:
        total: Number of epochs of the whole training.
        engine: What ``deepspeed.initialize`` returned.
        save_every: Epochs between two saves.
    """

    def __init__(self, total, engine, save_every=1):
        super().__init__(total, save_every)
        self._engine = engine

    def _save(self, path):
        self._engine.save_checkpoint(path, tag=TAG)

    def _load(self, path):
        loaded, _ = self._engine.load_checkpoint(path, tag=TAG)
        if loaded is None:
            raise FileNotFoundError("DeepSpeed found no checkpoint in %s" % path)
