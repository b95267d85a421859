"""User-facing failures: what was wrong, where, what was received, what to do; and the exit code.

Every failure that a user can cause or mend is a SweepError. The command line catches it once,
prints its text and leaves with its exit code; anything else is a fault of ours (exit code 70). A
command that failed, or whose re-run differs, without an error says so by the code it returns.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from sweep.core.masking import mask

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_INPUT = 2  # what the user gave cannot be used
EXIT_DIFFERS = 3  # the re-run differs
EXIT_FAULT = 70  # a fault of ours, with a crash file
EXIT_INTERRUPTED = 130


class SweepError(Exception):
    """A failure that the user can understand: a message, and what to do about it.

    No secret is in it: what may quote one is masked here, whoever prints it.

    Args:
        message: What went wrong, in one or two sentences, ending with a full stop.
        hint: What to do next; printed on a line of its own.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = mask(message)
        self.hint = mask(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class InputError(SweepError):
    """What the user gave cannot be used: a flag, a name, a combination (exit code 2)."""

    exit_code = EXIT_INPUT


class DamagedFile(SweepError):
    """A file that sweep wrote, and that cannot be read or understood any more."""


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong in a study file.

    ``str()`` gives ``file:line: dotted.path: rule (got …). what to do``.
    """

    file: str
    line: int
    path: str
    rule: str
    got: str = ""
    advice: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        path = f" {self.path}:" if self.path else ""
        got = f" (got {self.got})" if self.got else ""
        advice = f" {self.advice}" if self.advice else ""
        return f"{where}:{path} {self.rule}{got}.{advice}"


class StudyFileError(InputError):
    """Everything that is wrong in a study file, all at once (exit code 2)."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class StudyChangedError(InputError):
    """A study of this name exists and differs where it must not (exit code 2)."""


_IN_THE_WAY = (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP)
# What the system refuses for the state of a disk, a folder or a permission: not a fault of ours.
REFUSALS = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.EROFS),  # may not
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ESTALE),  # the disk
        *(*_IN_THE_WAY, errno.ENAMETOOLONG),  # a path
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM),  # this machine's limits
    }
)


class RefusedBySystem(SweepError):
    """The system refused to read or write something; it says what and why (exit code 1)."""

    def __init__(self, error: OSError) -> None:
        where = error.filename2 or error.filename
        hint = ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "Make room there, then give the same command again; nothing is half written."
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            hint = "Choose another place, or have its owner let you write there."
        elif error.errno in _IN_THE_WAY:
            hint = "Move away what stands there, then give the same command again."
        what = f"{os.fsdecode(where)}: " if isinstance(where, str | bytes) else ""
        super().__init__(f"The system refuses: {what}{error.strerror or error}.", hint)


class BusyError(SweepError):
    """Another command does the same thing right now."""


class NoRoom(SweepError):
    """As many trials run as max_parallel lets run, and others are left."""


class SchedulerError(SweepError):
    """The scheduler refused (its own words are in the message)."""


class OverLimit(SchedulerError):
    """The scheduler refused because too much was asked at once: fewer tasks, or later, may pass."""


class CouldNotAsk(SweepError):
    """The scheduler did not answer; this is neither "gone" nor "succeeded"."""


class SubmitUnclear(SweepError):
    """The submission may or may not have happened; look for the job's name token to settle it."""


class DatabaseUnavailable(SweepError):
    """The database does not answer at present; asking again later may help."""


class StaleAttempt(SweepError):
    """A write came from an attempt that no longer owns its trial; nothing was written."""


class LeftRunning(SweepError):
    """The user left what goes on without them (exit code 130)."""

    exit_code = EXIT_INTERRUPTED


def closest(word: str, valid: Sequence[str]) -> str:
    """Return the valid word that looks most like this one, or an empty string."""
    found = get_close_matches(word, valid, n=1, cutoff=0.6)
    return found[0] if found else ""
