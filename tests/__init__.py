"""The tests: a folder a package of sweep; e2e (whole runs), cluster (real Slurm), chaos."""
