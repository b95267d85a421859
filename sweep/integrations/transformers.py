"""Hugging Face transformers: what the Trainer logs, its checkpoints, stop on all ranks, resume.

from sweep.integrations.transformers import SweepCallback

trainer = Trainer(..., callbacks=[SweepCallback()])
trainer.train(resume_from_checkpoint=SweepCallback.resume())
"""

from transformers import TrainerCallback

from sweep.integrations.base import Link
from sweep.report import Reporter


class SweepCallback(TrainerCallback):
    """Tells sweep what the Trainer logs, and has it save and leave when sweep says so.

    The step is ``global_step``. ``output_dir`` becomes the attempt's checkpoint folder: how often
    the Trainer saves into it is its own ``save_strategy``.
    """

    def __init__(self):
        self._link = None
        self._leaves = False

    @staticmethod
    def resume():
        """Return the checkpoint to go on from, for ``train(resume_from_checkpoint=…)``, or None."""
        return Reporter().resume

    def on_init_end(self, args, state, control, **kwargs):
        """Trials share the script and its folder: each saves in a place of its own."""
        args.output_dir = Reporter().checkpoint_dir or args.output_dir

    def on_train_begin(self, args, state, control, **kwargs):
        """Begin: by now the ranks know each other."""
        self._link = Link()
        self._leaves = False

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Report losses and evaluations alike."""
        link = self._link or Link()  # evaluated without training
        link.log(state.global_step, logs or {})

    def on_step_end(self, args, state, control, **kwargs):
        """Leave at the same step on all ranks, and save first where the trial is to go on."""
        if state.global_step < state.max_steps:
            self._obey(self._link.word(), control)

    def on_evaluate(self, args, state, control, **kwargs):
        """Ask anew: an evaluation takes long, and its result may be what prunes."""
        if self._link and not self._leaves and state.global_step < state.max_steps:
            self._obey(self._link.word_now(), control)

    def on_epoch_end(self, args, state, control, **kwargs):
        """Nothing more of an epoch that was cut short."""
        if self._leaves:
            control.should_evaluate = control.should_save = control.should_log = False

    def _obey(self, word, control):
        if word:
            self._leaves = True
            control.should_training_stop = True
            control.should_save = control.should_save or word == "checkpoint"
        return control
