"""Writes study files: from a script's flags, from W&B and Hydra files."""
