"""Accelerate: a loop that resumes, saves the state of what was prepared, and stops on all ranks.

from sweep.integrations.accelerate import Epochs

for epoch in (epochs := Epochs(10, accelerator)):
    ...
    epochs.log(val_loss=loss)
"""

from sweep.integrations.base import Loop


class Epochs(Loop):
    """The epochs that are left; ``accelerator.save_state`` after each, ``load_state`` before.

    Args:
        total: Number of epochs of the whole training.
        accelerator: It has prepared what belongs to the state.
        save_every: Epochs between two saves.
    """

    def __init__(self, total, accelerator, save_every=1):
        super().__init__(total, save_every)
        self._accelerator = accelerator

    def _save(self, path):
        self._accelerator.save_state(path)

    def _load(self, path):
        self._accelerator.load_state(path)
