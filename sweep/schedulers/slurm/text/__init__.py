"""Slurm as text: argv builders and parsers, without running anything.

Everything here is a pure function; ``sweep.schedulers.slurm`` runs the commands. Written for
Slurm 20.11 and newer, checked on the literal output of 22.05. Commands run in ``ask_environment``
(questions) or ``clean_environment`` (sbatch), so that no variable of the user changes what is
printed.
"""
