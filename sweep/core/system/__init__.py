"""This machine: processes, memory, disks, GPUs."""
