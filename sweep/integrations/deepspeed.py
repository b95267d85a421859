"""DeepSpeed: a loop that resumes, saves the engine's state, and stops on all ranks.

from sweep.integrations.deepspeed import Epochs

for epoch in (epochs := Epochs(10, engine)):
    ...
    epochs.log(val_loss=loss)
"""

import os

from sweep.integrations.base import Loop, is_first


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

    def _keep(self, epoch):
        super()._keep(epoch)
        folder = self._link.reporter.checkpoint_dir
        if folder and is_first():  # as DeepSpeed would, but once all is whole
            part = os.path.join(folder, ".latest")
            with open(part, "w") as stream:
                stream.write("epoch-%06d" % epoch)
            os.replace(part, os.path.join(folder, "latest"))

    def _save(self, path):
        folder, tag = os.path.split(path)
        self._engine.save_checkpoint(folder, tag=tag, save_latest=False)

    def _load(self, path):
        folder, tag = os.path.split(os.path.normpath(path))
        loaded, _ = self._engine.load_checkpoint(folder, tag=tag)
        if loaded is None:
            raise FileNotFoundError("DeepSpeed found no checkpoint in %s" % path)
