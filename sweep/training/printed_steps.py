"""At which step a value stands that training has printed: read beside it, else counted."""

from __future__ import annotations

import re

from sweep.core import placeholders
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.training.attempt_files import has_resumed

MOST_STEP = 2**63 - 1


def find_step(pattern: re.Pattern[str], text: str) -> tuple[int | None, str]:
    """Return the step that a pattern finds in a text, and what it takes for it; "" for nothing.

    The first group that took part in the match is the step.
    """
    found = pattern.search(text)
    if found is None:
        return None, ""
    taken = next((group for group in found.groups() if group is not None), found[0])
    return _whole(taken), taken


def _whole(text: str) -> int | None:
    text = text.strip().replace(",", "").replace("_", "")
    try:
        number = int(text) if text.isdecimal() else float(text)
        is_whole = 0 <= number <= MOST_STEP and number == int(number)
    except (ValueError, OverflowError):
        return None
    return int(number) if is_whole else None


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
