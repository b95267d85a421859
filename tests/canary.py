"""A watcher that looks for secrets: in files, argv, environments, and what it is handed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

LOOK_EVERY_S = 0.05


class Watcher:
    """Looks at all processes while it is open, and notes where a secret is seen.

    Args:
        secrets: What must not be seen.
        mark: Stands in the environment of the processes that are watched.
        may: Parts of the command lines that may have a secret in argv: the training itself.
    """

    def __init__(self, secrets: Iterable[str], mark: str, may: Sequence[str] = ()) -> None:
        self.secrets = [secret.encode() for secret in secrets]
        self.hits: dict[str, str] = {}
        self.looks = 0
        self.seen: set[int] = set()
        self._mark, self._may = mark.encode(), [word.encode() for word in may]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def look_at_files(self, root: Path, private: Sequence[str] = ()) -> None:
        """Look into all files and at their names.

        Args:
            private: Names of files that may hold secrets where only their owner can read them.
        """
        for path in root.rglob("*"):
            self.look_at(f"name {path}", str(path))
            if not path.is_file() or path.is_symlink():
                continue
            if path.name in private and not path.stat().st_mode & 0o077:
                continue
            self.look_at(f"file {path}", path.read_bytes())

    def look_at(self, what: str, content: str | bytes) -> None:
        """Look at a text: what a command has printed, a dump."""
        data = content.encode() if isinstance(content, str) else content
        for secret in self.secrets:
            if secret in data:
                self.hits[what] = secret.decode()

    def look_at_database(self, connection: Any) -> None:
        """Look at every row of every table."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            for (table,) in cursor.fetchall():
                cursor.execute(f'SELECT t::text FROM "{table}" t')
                for (row,) in cursor.fetchall():
                    self.look_at(f"table {table}", row)

    def look_at_processes(self) -> None:
        """Look once at the argv and the environment of every process that is watched."""
        self.looks += 1
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            found: Mapping[str, bytes] = {}
            try:
                found = {
                    name: Path(f"/proc/{entry}/{name}").read_bytes()
                    for name in ("environ", "cmdline")
                }
            except OSError:
                continue
            if self._mark not in found["environ"]:
                continue
            self.seen.add(int(entry))
            is_training = any(word in found["cmdline"] for word in self._may)
            for name, data in found.items():
                if not (is_training and name == "cmdline"):
                    self.look_at(f"{name} of {found['cmdline'][:200]!r}", data)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self.look_at_processes()
