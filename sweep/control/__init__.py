"""The life of a study in any process: launch, waves, finaliser, dead attempts, check."""
