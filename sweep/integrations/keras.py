"""Keras 3: metrics of each epoch, checkpoints, stop, resume.

from sweep.integrations.keras import SweepCallback

model.fit(x, y, epochs=10, validation_split=0.2, callbacks=[SweepCallback()])
"""

from keras.callbacks import Callback

from sweep.integrations.base import Link, number_in, whole


class SweepCallback(Callback):
    """Tells sweep about each epoch, saves weights and optimizer, and leaves when told so.

    A resumed training begins with the epoch after the one that was saved last.

    Args:
        save_every: Epochs between two checkpoints.
    """

    def __init__(self, save_every=1):
        super().__init__()
        self.save_every = save_every
        self._link = Link()

    def on_train_begin(self, logs=None):
        """Go on from the checkpoint, as Keras' own BackupAndRestore does."""
        path = self._link.reporter.resume
        if not path:
            return
        optimizer = self.model.optimizer
        if optimizer is not None and not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        self.model.load_weights(path)
        self.model._initial_epoch = number_in(path) + 1

    def on_train_batch_end(self, batch, logs=None):
        """Leave within an epoch.

        Not by ``stop_training``: whatever else saves would take the epoch for whole.
        """
        if self._link.word():
            raise SystemExit(0)

    def on_epoch_end(self, epoch, logs=None):
        """Report, save, and leave if told so."""
        self._link.log(epoch, logs or {})
        folder = self._link.reporter.checkpoint_dir
        if folder and (epoch + 1) % self.save_every == 0:
            with whole(folder, "epoch-%06d.weights.h5" % epoch) as path:
                self.model.save_weights(path)
        if epoch + 1 < self.params.get("epochs", 0) and self._link.word_now():
            self.model.stop_training = True
