"""What an array element runs: worker, attempt, slots, trackers, side runs."""

import sweep.schedulers  # noqa: F401  (registers them: see ``core.executors``)
