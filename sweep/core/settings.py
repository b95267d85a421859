"""Where a site's and a user's own settings lie: defaults of study files, and templates.

A site has ``/etc/sweep/site.yaml`` and ``/etc/sweep/templates``, a user
``~/.config/sweep/config.yaml`` and ``~/.config/sweep/templates``. $SWEEP_SITE_CONFIG and
$SWEEP_USER_CONFIG name other files; set to nothing, there are none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SITE_VARIABLE = "SWEEP_SITE_CONFIG"
USER_VARIABLE = "SWEEP_USER_CONFIG"
SITE, USER = "site", "user"


@dataclass(frozen=True)
class Home:
    """One place of settings.

    Attributes:
        whose: SITE or USER.
        file: Defaults of study files; it may not exist.
    """

    whose: str
    file: Path

    @property
    def templates(self) -> Path:
        return self.file.parent / "templates"


def homes(environ: Mapping[str, str] = os.environ) -> list[Home]:
    """Return the places of settings; a later one wins over an earlier one."""
    site = environ.get(SITE_VARIABLE, "/etc/sweep/site.yaml")
    found = [Home(SITE, Path(site).absolute())] if site else []
    user = environ.get(USER_VARIABLE)
    if user is None:
        config = environ.get("XDG_CONFIG_HOME") or os.path.join(
            environ.get("HOME") or os.path.expanduser("~"), ".config"
        )
        user = os.path.join(config, "sweep", "config.yaml")
    if user:
        found.append(Home(USER, Path(user).absolute()))
    return found
