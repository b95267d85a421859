"""Trainings beside the trials: re-runs, confirmations, further commands, scaling."""
