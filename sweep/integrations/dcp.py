"""torch.distributed.checkpoint: sharded models (FSDP2, or none) in a hand-written loop.

from sweep.integrations.dcp import Epochs

for epoch in (epochs := Epochs(10, model, optimizer)):
    ...
    epochs.log(val_loss=loss)
"""

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from sweep.integrations.base import Loop


class Epochs(Loop):
    """The epochs that are left; each rank saves its shards after each, and loads them before.

    Args:
        total: Number of epochs of the whole training.
        model: The model, sharded or not.
        optimizer: One, or several.
        more: By name what else belongs to the state, with ``state_dict`` and ``load_state_dict``: a
            scheduler, a dataloader.
        save_every: Epochs between two saves.
    """

    def __init__(self, total, model, optimizer, save_every=1, **more):
        super().__init__(total, save_every)
        self._model = model
        self._optimizer = optimizer
        self._more = more

    def _state(self):
        model, optimizer = get_state_dict(self._model, self._optimizer)
        more = {name: one.state_dict() for name, one in self._more.items()}
        return {"model": model, "optimizer": optimizer, **more}

    def _save(self, path):
        dcp.save(self._state(), checkpoint_id=path)

    def _load(self, path):
        state = self._state()
        dcp.load(state, checkpoint_id=path)
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        for name, one in self._more.items():
            one.load_state_dict(state[name])
