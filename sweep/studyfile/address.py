"""``storage``: a PostgreSQL URL without a password, or where the embedded server runs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from sweep.core.study import Storage
from sweep.studyfile.rules import INVALID, Reader, Word, either
from sweep.studyfile.sections import Key, Section
from sweep.studyfile.tree import Node


@dataclass(frozen=True)
class StorageAddress:
    """A PostgreSQL URL without a password, or {embedded: job | here}."""

    section: Section

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if isinstance(node.value, str):
            url = self.read_url(node, path, reader)
            return url if url is INVALID else Storage(url=url)
        if node.kind != "map":
            return reader.report(node, path, "must be a PostgreSQL URL, or {embedded: job | here}")
        value = self.section.read(node, path, reader)
        if value is not INVALID and value.url and "embedded" in node.entries:
            return reader.report(
                node,
                path,
                "must have url or embedded, not both",
                "With a URL, nothing is embedded: remove one of the two.",
                "",
            )
        return value

    @staticmethod
    def read_url(node: Node, path: str, reader: Reader) -> Any:
        url = node.value
        hidden = re.sub(r"(?s)(://[^:@/?]*):.*@", r"\1:***@", url)
        hidden = re.sub(r"(?i)(password\s*=\s*)[^&\s]*", r"\1***", hidden)
        got = json.dumps(hidden, ensure_ascii=False)
        example = "For example postgresql://user@host:5432/database."
        kind = re.split(r"[+:]", url.lower(), maxsplit=1)[0]
        if url.startswith("$"):
            return reader.report(
                node,
                path,
                "must be a URL, not a variable",
                "Remove the key: SWEEP_STORAGE is used when the file has no storage.",
                got,
            )
        if kind == "sqlite" or re.search(r"\.(db|sqlite3?)$", url):
            return reader.report(
                node,
                path,
                "must be PostgreSQL, because SQLite hands one trial to several workers (16 "
                "processes claiming 200 trials made 159 double claims)",
                "Remove the key: an embedded PostgreSQL is started for you.",
                got,
            )
        if hidden != url:
            return reader.report(
                node,
                path,
                "must not hold a password",
                "Put the whole URL into SWEEP_STORAGE, or the password into ~/.pgpass.",
                got,
            )
        if kind not in ("postgresql", "postgres") or "://" not in url:
            return reader.report(node, path, "must be a PostgreSQL URL", example, got)
        return url

    def schema(self) -> dict[str, Any]:
        url = {"type": "string", "pattern": r"^postgres(ql)?(\+\w+)?://"}
        return either([url, self.section.schema()])


@dataclass(frozen=True)
class Url:
    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if not isinstance(node.value, str):
            return reader.report(node, path, "must be a PostgreSQL URL")
        return StorageAddress.read_url(node, path, reader)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^postgres(ql)?(\+\w+)?://"}


STORAGE = StorageAddress(
    Section(
        "storage",
        (
            Key(
                "url",
                Url(),
                "A PostgreSQL URL without a password.",
                None,
                "postgresql://user@host:5432/database",
            ),
            Key(
                "embedded",
                Word(("job", "here")),
                "Where the embedded server runs on a cluster: in a job of its own, or here.",
                "job",
                "here",
            ),
        ),
        Storage,
    )
)
