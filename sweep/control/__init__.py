"""The life of a study in any process: launch, waves, finaliser, dead attempts, check."""

import sweep.schedulers  # noqa: F401  (registers them: see ``core.executors``)
