"""The reference trainer: what users copy from, and what shows that sweep's trials really train.

It needs torch and the one file ``sweep/report.py``, nothing else of sweep, and runs alone as well:

    python -m trainer.train --data digits --lr 0.1

Several devices: ``torchrun --nproc-per-node 4 -m trainer.train …``, or the same under srun.

Rooms: ``config`` (parameters; ``convert``, ``flat_file``), ``data`` (data sets; ``fetch``,
``cifar``, ``shards``, ``synthetic``, ``split``, ``png``), ``augment``, ``model`` and ``resnet``,
``optimizer``, ``step`` (one step), ``run`` (all that a run is), ``loop`` (the training),
``checkpoint`` and ``writer``, ``ranks`` (several processes; ``connection``, ``pulse``), and the
commands: ``train``, ``evaluate`` (``confusion``) and ``export``.
"""
