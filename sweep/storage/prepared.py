"""Statements that a session plans once: the planning of a long one takes longer than running it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

_NAMED = re.compile(r"%\((\w+)\)s|%%")


@cache
def as_prepared(sql: str) -> tuple[str, tuple[str, ...], str]:
    """Return a statement with psycopg2's named parameters as PostgreSQL numbers them.

    Where nothing else tells the type of a parameter, the statement must: ``%(index)s::int``.

    Returns:
        The text for PREPARE, the parameters' names in the order of their numbers, and what follows
        the name in EXECUTE, as psycopg2 takes it.
    """
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name = found.group(1)
        if name is None:
            return "%"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    text = _NAMED.sub(number, sql)
    return text, tuple(names), f" ({', '.join(['%s'] * len(names))})" if names else ""


def numbers(column: Sequence[float | None]) -> str:
    """Return numbers as one array literal: quicker by far than psycopg2's adapting of each."""
    return "{" + ",".join("NULL" if number is None else repr(number) for number in column) + "}"
