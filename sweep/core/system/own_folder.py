"""A folder of this user's on this machine, beside all studies: for locks that they share."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from sweep.core.errors import SweepError

# Of this machine alone, in the order in which all processes of a user try them.
PLACES = ("/tmp", "/var/tmp", "/dev/shm")


def own_path(name: str, place: str | Path) -> Path:
    """Return the path of a folder of this user's in a place, whatever is there."""
    return Path(place) / f"sweep-{name}-{os.geteuid()}"


def own_folder(name: str, places: Sequence[str | Path] = PLACES) -> Path:
    """Make a folder that only this user can enter, and return it; all processes get the same.

    Who else has taken the name in a place that all may write to is passed over, whether by chance
    or to be in the way.

    Raises:
        SweepError: None of the places will do; it says why.
        OSError: The first that is not somebody else's has no room, say: that passes, and another
            place would be another lock.
    """
    taken = []
    for place in places:
        folder = own_path(name, place)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            continue  # this machine has no such place
        found = folder.lstat()  # a link is not ours, wherever it leads
        if not stat.S_ISDIR(found.st_mode):
            taken.append(f"{folder} is no folder")
        elif found.st_uid != os.geteuid():
            taken.append(f"{folder} belongs to another user (uid {found.st_uid})")
        else:
            if stat.S_IMODE(found.st_mode) & 0o077:
                folder.chmod(0o700)
            return folder
    raise SweepError(
        f"There is no place for this user's locks on this machine: {'; '.join(taken)}.",
        "Have the administrator remove one of these.",
    )
