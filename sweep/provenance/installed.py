"""What is installed where a Python looks for packages: one file, standard library only.

sweep uses it for interpreters of this machine. In a container, or behind modules, it runs by itself
(Python 3.8 or newer) and prints one line of JSON behind MARK: the interpreter's version, and the
version of each package.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

MARK = "SWEEP-INSTALLED "


def list_packages(folders: list[Path]) -> dict[str, str]:
    """Return {name: version} of the packages in some folders, by the names of their records.

    The names tell enough and cost no reading: 200 packages take 2 ms instead of 200. Only what was
    installed from a folder or a repository has a record that is read: its address, without secrets,
    follows the version.
    """
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for entry in names:
            match = re.fullmatch(r"(.+?)-([^-]+)(?:-py[\d.]+)?\.(dist-info|egg-info)", entry)
            if not match:
                continue
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            version = match[2]
            origin = _read_origin(folder / entry / "direct_url.json")
            # The first folder wins, as on sys.path.
            found.setdefault(name, f"{version} @ {origin}" if origin else version)
    return dict(sorted(found.items()))


def _read_origin(path: Path) -> str:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        commit = record.get("vcs_info", {}).get("commit_id", "")
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""
    # Without a user and password: ``core.masking`` is out of this file's reach.
    url = re.sub(r"(?s)://.*@", "://***@", str(record.get("url", "")))
    return url + (f"@{commit}" if commit else "")


def main() -> None:
    """Print what the interpreter that runs this has; not what lies in the folder where it runs."""
    here = {os.path.realpath(path) for path in (os.getcwd(), os.path.dirname(__file__))}
    folders = [Path(path) for path in sys.path if path and os.path.realpath(path) not in here]
    version = ".".join(map(str, sys.version_info[:3]))
    found = {"python": version, "packages": list_packages(folders)}
    sys.stdout.write("\n" + MARK + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
