"""Arrays as processes of this machine, with the meaning of a Slurm array."""
