"""Orbax: a loop over a JAX state (Flax, Equinox, …) that resumes, saves and stops.

from sweep.integrations.orbax import Epochs

for epoch, state in (epochs := Epochs(10, state)):
    state, loss = train(state)
    epochs.report(state, val_loss=loss)
"""

import os

import jax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from sweep.integrations.base import Loop


class Epochs(Loop):
    """The epochs that are left, each with the state to go on from.

    Args:
        total: Number of epochs of the whole training.
        state: A tree of arrays as training begins with: parameters, optimizer's state, keys.
        save_every: Epochs between two saves.
    """

    def __init__(self, total, state, save_every=1):
        super().__init__(total, save_every)
        self._state = state
        self._checkpointer = ocp.StandardCheckpointer()

    def report(self, state, **metrics):
        """Report metrics of this epoch, and take the state that it ended with.

        Args:
            state: A tree like the first one.
        """
        self._state = state
        self.log(**metrics)

    def _item(self, epoch):
        return epoch, self._state

    def _wait(self):
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices("sweep")

    def _save(self, path):
        self._checkpointer.save(os.path.abspath(path), self._state)
        self._checkpointer.wait_until_finished()

    def _load(self, path):
        self._state = self._checkpointer.restore(os.path.abspath(path), self._state)
