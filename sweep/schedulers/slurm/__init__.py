"""Arrays on Slurm; ``text`` is its commands and answers, without running anything."""
