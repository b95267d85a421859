"""Runs arrays behind one interface: ``slurm`` and ``local``.

Each is one folder with a subclass of ``core.scheduler.Scheduler``, registered here; nothing else
knows which one it asks.
"""

from sweep.core.executors import register
from sweep.schedulers.local.scheduler import LocalScheduler
from sweep.schedulers.slurm.scheduler import SlurmScheduler

register(SlurmScheduler)
register(LocalScheduler)
