"""At which step a value stands that training has printed: read beside it, else counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sweep.core import placeholders
from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective, Study
from sweep.training.attempt_files import has_resumed

MOST_STEP = 2**63 - 1


class PrintedSteps:
    """The steps of what is printed, one metric for itself.

    Where an objective has a pattern for the step, the step that was read last holds, in that line
    or before; without one, and before the first, each value is one more.

    Args:
        first_step: Where counting begins; asked when there is a first value: by then training has
            said whether it goes on from its checkpoint.
        known: What an earlier reader of the same output had come to (``state``).
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        first_step: Callable[[], int],
        known: Mapping[str, Any] = {},
    ) -> None:
        self._patterns = {
            o.metric: re.compile(o.step_pattern) for o in objectives if o.step_pattern
        }
        self._first_step = first_step
        self._read: dict[str, int] = dict(known.get("read", {}))
        self._next: dict[str, int] = dict(known.get("next", {}))
        self._odd: dict[str, str] = dict(known.get("odd", {}))

    def see(self, text: str) -> None:
        """Look for steps in a line."""
        for metric, pattern in self._patterns.items():
            if found := pattern.search(text):
                taken = next((g for g in found.groups() if g is not None), found[0])
                step = _whole(taken)
                if step is None:
                    self._odd.setdefault(metric, taken[:40])
                else:
                    self._read[metric] = step

    def of_next(self, metric: str) -> int:
        """Return the step of a metric's next value."""
        if metric in self._read:
            return self._read[metric]
        step = self._next.get(metric)
        if step is None:
            step = self._first_step()
        self._next[metric] = step + 1
        return step

    def state(self) -> dict[str, Any]:
        """Return what is to be known to who reads on."""
        found = {"read": self._read, "next": self._next, "odd": self._odd}
        return {name: value for name, value in found.items() if value}

    def notes(self) -> list[str]:
        """Return, in sentences, which steps could not be read."""
        return [
            f"{metric}: the pattern of its step takes {taken!r}, which is no whole number; the "
            "step before it holds"
            for metric, taken in self._odd.items()
        ]


def _whole(text: str) -> int | None:
    text = text.strip().replace(",", "").replace("_", "")
    try:
        number = int(text) if text.isdecimal() else float(text)
    except ValueError:
        return None
    if not 0 <= number <= MOST_STEP or number != int(number):
        return None
    return int(number)


def first_printed(study: Study, folder: AttemptFolder, next_step: int) -> int:
    """Return at which step counting begins in an attempt's output.

    A script that takes no checkpoint, and knows nothing of sweep, begins anew.

    Args:
        next_step: Where it begins if it goes on from its checkpoint.
    """
    if not next_step:
        return 0
    takes = any("resume" in placeholders.names(element) for element in study.command)
    return next_step if takes or study.resume == "folder" or has_resumed(folder) else 0
