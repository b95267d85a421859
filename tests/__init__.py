"""The tests: unit (no services), contract (real services), cluster (real Slurm), chaos."""
