"""How many trials train at once on one GPU, decided by what was measured; no input or output."""
