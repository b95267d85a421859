"""Bring a study's data to where all nodes see them, before any task needs them.

``data: {birds: {path: /data/birds, fetch: …}}`` names what does it: a command, or addresses. What
it makes lies beside the data first, in ``.birds.sweep-fetch``, and gets its name when it is whole.
So data that are there are whole, and a fetch that was killed is begun again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweep.core.errors import InputError, SweepError
from sweep.core.files import locked, make_folders, read_tail, remove_tree, write_atomic
from sweep.core.study import Study
from sweep.training.fetched import folder_of, log_of, read_record
from sweep.training.program_log import quoted, run_logged

TARGET, TARGET_VARIABLE = "{target}", "SWEEP_TARGET"
TAIL_LINES = 12
CHUNK_BYTES = 1 << 20
CONNECT_S = 60.0  # without a byte
_ADDRESS = re.compile(r"(?:https?|ftp|file)://", re.IGNORECASE)


class FetchFailed(SweepError):
    """Some data could not be fetched; the end of the log is in the message."""


def fetch(
    study: Study, names: Sequence[str], environ: Mapping[str, str], say: Callable[[str], object]
) -> None:
    """Fetch data sets, one after the other; what is there already stays.

    Args:
        environ: Of commands.
        say: Told what takes long.

    Raises:
        FetchFailed: One could not be fetched.
    """
    for name in names:
        path = study.data_paths[name]
        try:
            make_folders(path.parent)
            with locked(folder_of(path) / "lock"):
                if not os.path.exists(path):  # another may have fetched it while we waited
                    _fetch_one(study, name, path, environ, say)
        except OSError as error:
            raise FetchFailed(
                f"data.{name}: {path} could not be fetched: {error.filename or path.parent}: "
                f"{error.strerror}.",
                f"Make its folder writable, or correct data.{name}.path.",
            ) from error


def is_address(text: str) -> bool:
    return _ADDRESS.match(text) is not None


def _fetch_one(
    study: Study, name: str, path: Path, environ: Mapping[str, str], say: Callable[[str], object]
) -> None:
    asked = study.datasets[name].fetch
    new = folder_of(path) / "new"
    place = new / path.name
    began = time.time()
    say(f"data.{name}: fetching {path} (log: {log_of(path)})")
    addresses = is_address(asked[0])
    wanted = folder_of(path) / "wanted.json"
    # Left by a command that was killed or has failed, or it was to be something else.
    if not addresses or read_record(wanted) != list(asked):
        remove_tree(new)
        write_atomic(wanted, json.dumps(asked) + "\n")
    make_folders(new)
    if addresses:
        for address in asked:
            target = place if len(asked) == 1 else place / _last_part(address)
            _download(name, address, target, new / ".part", log_of(path))
    else:
        _run(study, name, [word.replace(TARGET, str(place)) for word in asked], place, environ)
    os.rename(place, path)
    remove_tree(new)
    took_s = time.time() - began
    record = {"fetch": list(asked), "at": time.time(), "took_s": took_s}
    write_atomic(folder_of(path) / "done.json", json.dumps(record) + "\n")
    say(f"data.{name}: fetched in {took_s:.1f} s")


def _run(
    study: Study, name: str, argv: Sequence[str], place: Path, environ: Mapping[str, str]
) -> None:
    path = study.data_paths[name]
    with log_of(path).open("wb") as log:
        try:
            env = {**environ, TARGET_VARIABLE: str(place)}
            code = run_logged(argv, study.workdir or None, env, log)
        except OSError as error:
            raise FetchFailed(
                f"data.{name}: {argv[0]}: {error.strerror}.",
                "Install it where the data are fetched, or load it in slurm.setup.",
            ) from error
    if code or not os.path.lexists(place):
        said = quoted(read_tail(log_of(path), TAIL_LINES))
        what = f"ended with code {code}" if code else f"made nothing at {TARGET} ({place})"
        raise FetchFailed(
            f"data.{name}: {argv[0]}, which is to fetch {path}, {what}."
            + (f"\n{said}" if said else ""),
            f"All it said is in {log_of(path)}.",
        )


def _download(name: str, address: str, target: Path, part: Path, log: Path) -> None:
    """Download a file, unless an earlier try has; it gets its name when it is whole."""
    if target.exists():
        return
    make_folders(target.parent)
    try:
        with urllib.request.urlopen(address, timeout=CONNECT_S) as answer:
            with part.open("wb") as stream:
                shutil.copyfileobj(answer, stream, CHUNK_BYTES)
            wanted = answer.headers.get("Content-Length")
        size = part.stat().st_size
        if wanted is not None and int(wanted) != size:
            raise FetchFailed(
                f"data.{name}: {address} broke off after {size} of {wanted} bytes.",
                "Try again: files that are whole already are kept.",
            )
    except (urllib.error.URLError, ValueError, OSError) as error:
        said = getattr(error, "reason", None) or error
        raise FetchFailed(
            f"data.{name}: {address} could not be fetched: {said}.",
            f"Correct data.{name}.fetch; on nodes without a network: sweep data fetch STUDY.yaml "
            "here.",
        ) from error
    os.replace(part, target)
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"{address}: {size} bytes\n")


def _last_part(address: str) -> str:
    """Return the name under which a file of several is kept."""
    name = Path(urllib.parse.unquote(urllib.parse.urlsplit(address).path)).name
    if name in ("", ".", ".."):
        raise InputError(
            f"{address} names no file.", "Write the addresses of files, each with a name."
        )
    return name
