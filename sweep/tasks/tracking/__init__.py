"""Trackers (``track: [wandb, mlflow]``): what a study's trials do, shown in tools of others.

``outbox`` is the worker's end: one process a tracker, told when an attempt begins and ends, and
never waited for. ``feeder`` is that process: it reads the attempts' own journals. ``wandb_runs``,
``mlflow``, ``tensorboard`` and ``csv_files`` each write for one tool.
"""
