"""Hostile input: every reader of outside text against thousands of damaged and evil texts."""
