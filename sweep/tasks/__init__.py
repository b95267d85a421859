"""What an array element runs: worker, attempt, slots, trackers, side runs."""
