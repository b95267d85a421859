"""Lightning: metrics of each epoch, checkpoints, stop on all ranks, resume.

from sweep.integrations.lightning import SweepCallback

trainer = Trainer(max_epochs=10, callbacks=[SweepCallback()])
trainer.fit(model, ckpt_path=SweepCallback.resume())
"""

import sys

from sweep.integrations.base import Link, whole
from sweep.report import Reporter

# One project under two names; a Trainer takes callbacks of its own name.
if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
    from pytorch_lightning.callbacks import EarlyStopping
else:
    try:
        from lightning.pytorch.callbacks import EarlyStopping
    except ModuleNotFoundError:
        from pytorch_lightning.callbacks import EarlyStopping


class SweepCallback(EarlyStopping):
    """Tells sweep about each epoch, saves, and leaves when sweep says so.

    The step is the epoch, from 0; where several validations fall into an epoch, it is
    ``global_step``. Reported is what ``self.log`` was given since the last report.

    It is an early stopping, as Lightning calls only these after the module's own
    ``on_train_epoch_end``, which may log as well.

    Args:
        save_every: Epochs between two checkpoints; 0 where a ModelCheckpoint of the training's own
            saves into the folder ``$SWEEP_CHECKPOINT_DIR``.
    """

    def __init__(self, save_every=1):
        super().__init__(monitor="sweep", strict=False)
        self.save_every = save_every
        self._link = None
        self._seen = {}

    @staticmethod
    def resume():
        """Return the checkpoint to go on from, for ``fit(…, ckpt_path=…)``, or None."""
        return Reporter().resume

    def setup(self, trainer, pl_module, stage=None):
        """Monitor nothing."""

    def state_dict(self):
        """Return nothing: sweep knows what was reported."""
        return {}

    def load_state_dict(self, state_dict):
        """Restore nothing."""

    def on_fit_start(self, trainer, pl_module):
        """Begin: by now the ranks know each other."""
        self._link = Link()
        self._seen = {}

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        """Leave within an epoch, at the same batch on all ranks.

        Not by ``should_stop``: it would validate, and what saves would take the epoch for whole.
        """
        if not trainer.is_last_batch and self._link.word():
            raise SystemExit(0)

    def on_validation_end(self, trainer, pl_module):
        """Report a validation within an epoch."""
        if not trainer.sanity_checking and _validates_within_epochs(trainer):
            self._report(trainer, trainer.global_step)

    def on_train_epoch_end(self, trainer, pl_module):
        """Report, save, and leave if told so."""
        epoch = trainer.current_epoch
        self._report(trainer, trainer.global_step if _validates_within_epochs(trainer) else epoch)
        folder = self._link.reporter.checkpoint_dir
        if folder and self.save_every and (epoch + 1) % self.save_every == 0:
            with whole(folder, "epoch-%06d.ckpt" % epoch) as path:
                trainer.save_checkpoint(path)
        is_last = trainer.max_epochs not in (None, -1) and epoch + 1 >= trainer.max_epochs
        if not is_last and self._link.word_now():
            trainer.should_stop = True

    def _report(self, trainer, step):
        # What was not logged again is still there, as the same object: an old validation's.
        metrics = dict(trainer.callback_metrics)
        fresh = {name: v for name, v in metrics.items() if v is not self._seen.get(name)}
        self._seen = metrics
        self._link.log(step, fresh)


def _validates_within_epochs(trainer):
    if trainer.check_val_every_n_epoch is None:
        return True
    return trainer.val_check_batch < trainer.num_training_batches
