"""``storage``: a PostgreSQL URL without a password, or where the embedded server runs."""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from sweep.core.masking import holds_password, keep_url, mask_url
from sweep.core.study import Storage
from sweep.studyfile.rules import INVALID, Entry, Word, either
from sweep.studyfile.sections import Key, Section


@dataclass(frozen=True)
class Url:
    """A PostgreSQL URL without a password."""

    in_words = "URL"

    def read(self, at: Entry) -> Any:
        url = at.node.value
        if not isinstance(url, str):
            return at.report("must be a PostgreSQL URL")
        keep_url(url)
        kind = re.split(r"[+:]", url.lower(), maxsplit=1)[0]
        if url.startswith("$"):
            rule = "must be a URL, not a variable"
            advice = "Remove the key: SWEEP_STORAGE is used when the file has no storage."
        elif kind == "sqlite" or re.search(r"\.(db|sqlite3?)$", url):
            rule = (
                "must be PostgreSQL, because SQLite hands one trial to several workers (16 "
                "processes claiming 200 trials made 159 double claims)"
            )
            advice = "Remove the key: an embedded PostgreSQL is started for you."
        elif holds_password(url):
            rule = "must not hold a password"
            advice = "Put the whole URL into SWEEP_STORAGE, or the password into ~/.pgpass."
        elif kind not in ("postgresql", "postgres") or "://" not in url:
            rule = "must be a PostgreSQL URL"
            advice = "For example postgresql://user@host:5432/database."
        else:
            return url
        return at.report(rule, advice, json.dumps(mask_url(url), ensure_ascii=False))

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^postgres(ql)?(\+\w+)?://"}


@dataclass(frozen=True)
class Listen:
    """A network interface, or an address of one."""

    in_words = "interface or address"

    def read(self, at: Entry) -> Any:
        given = at.node.value
        if not isinstance(given, str) or not re.fullmatch(r"[\w.:@-]{1,45}", given, re.ASCII):
            return at.report("must be a network interface or an address", "See: ip -brief address")
        try:
            if ipaddress.ip_address(given).is_unspecified:
                advice = "Remove the key: then the server listens on all where nodes must reach it."
                return at.report("must be one address, not all of them", advice)
        except ValueError:  # an interface
            if re.fullmatch(r"[\d.]+", given) or len(given) > 15:  # IFNAMSIZ, less the end
                return at.report("must be a network interface or an address")
        return given

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": r"^[\w.:@-]{1,45}$"}


@dataclass(frozen=True)
class Embedded:
    """Where the embedded server runs, and what it listens on."""

    at: str = "job"
    listen: str | None = None


PLACE = Word(("job", "here"))
EMBEDDED = Section(
    "storage.embedded",
    Embedded,
    {
        "at": Key(
            PLACE,
            "Where the embedded server runs on a cluster: in a job of its own, or here.",
            example="here",
        ),
        "listen": Key(
            Listen(),
            "The network interface, or the address, that the server listens on, and on nothing "
            "else. Absent: this machine's own (127.0.0.1), or all where nodes must reach it.",
            example="ib0",
        ),
    },
)


@dataclass(frozen=True)
class EmbeddedServer:
    """``job`` or ``here``, or keys."""

    in_words = "`job` or `here`, or keys"

    def read(self, at: Entry) -> Any:
        if at.node.kind == "map":
            return EMBEDDED.read(at)
        place = PLACE.read(at)
        return place if place is INVALID else Embedded(place)

    def schema(self) -> dict[str, Any]:
        return either([PLACE.schema(), EMBEDDED.schema()])


@dataclass(frozen=True)
class StorageAddress:
    """A PostgreSQL URL without a password, or {embedded: job | here}."""

    section: Section

    in_words = "URL, or keys"

    def read(self, at: Entry) -> Any:
        if isinstance(at.node.value, str):
            url = Url().read(at)
            return url if url is INVALID else Storage(url=url)
        if at.node.kind != "map":
            return at.report("must be a PostgreSQL URL, or {embedded: job | here}")
        value = self.section.read(at)
        if value is not INVALID and value.url and "embedded" in at:
            advice = "With a URL, nothing is embedded: remove one of the two."
            return at.report("must have url or embedded, not both", advice, "")
        if value is not INVALID and isinstance(value.embedded, Embedded):
            value = replace(value, embedded=value.embedded.at, listen=value.embedded.listen)
        return value

    def schema(self) -> dict[str, Any]:
        return either([Url().schema(), self.section.schema()])


STORAGE = StorageAddress(
    Section(
        "storage",
        Storage,
        {
            "url": Key(
                Url(),
                "A PostgreSQL URL without a password.",
                example="postgresql://user@host:5432/database",
            ),
            "embedded": Key(
                EmbeddedServer(),
                "Where the embedded server runs on a cluster: in a job of its own, or here.",
                example="here",
            ),
        },
    )
)
