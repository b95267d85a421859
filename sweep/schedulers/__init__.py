"""Runs arrays behind one interface: ``slurm`` and ``local``."""
