"""Hyperparameter search on Slurm job arrays."""
