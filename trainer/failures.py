"""What can go wrong that is not a fault of the trainer, as exceptions; the text says what to do."""

from __future__ import annotations


class InputError(Exception):
    """What the user gave cannot be used; the text says what to do (exit code 2)."""


class RanksError(Exception):
    """The processes of a run could not work together; the text says why (exit code 1)."""
