"""The reference trainer: shows what a full training needs, and that sweep's trials really train.

It is not what you copy to begin with: that is ``templates/starter/train.py`` (``sweep init`` writes
it), a page of plain Python. Here is all that comes later: several GPUs and nodes, checkpoints that
resume bit for bit, mixed precision, CUDA graphs, export.

It needs torch and the one file ``sweep/report.py``, nothing else of sweep, and runs alone as well.
From a checkout, and from an installed sweep:

    python -m trainer.train --data digits --lr 0.1
    python -m sweep.trainer.train --data digits --lr 0.1

Imports in here are relative, and messages name ``__package__``, so that both hold. Several devices:
``torchrun --nproc-per-node 4 -m trainer.train …``, or the same under srun.

Rooms: ``config`` (parameters; ``convert``, ``flat_file``), ``data`` (data sets; ``fetch``,
``cifar``, ``shards``, ``synthetic``, ``split``; ``stream`` and ``sources`` of what is
read while training, ``pictures``, ``png``), ``augment``, ``model`` and ``resnet``,
``optimizer``, ``step`` (one step), ``run`` (all that a run is), ``loop`` (the training),
``checkpoint`` and ``writer``, ``ranks`` (several processes; ``connection``, ``pulse``), and the
commands: ``train``, ``evaluate`` (``confusion``) and ``export``.
"""
