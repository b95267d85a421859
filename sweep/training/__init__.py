"""How one training is started, watched and read."""
