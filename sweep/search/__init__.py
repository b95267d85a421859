"""What to try next and what to stop: the only place that knows samplers and pruners."""
