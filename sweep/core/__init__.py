"""What a study, a trial, an outcome and an array are, as plain data; file names; the scheduler's
interface. ``core.system`` is this machine.
"""
