"""Python's own parser on text of any origin: what it cannot take is always a SyntaxError.

Beside SyntaxError it raises ValueError (a NUL, too many digits), and MemoryError or RecursionError
for what is nested too deep.
"""

from __future__ import annotations

import ast
from typing import Any


def parse_python(text: str) -> ast.Module:
    """Return the tree of a Python file's text.

    Raises:
        SyntaxError: It is no Python, or nothing that Python's parser takes.
    """
    try:
        return ast.parse(text)
    except (ValueError, MemoryError, RecursionError) as error:
        raise SyntaxError(str(error) or "it is nested too deep") from None


def parse_expression(text: str) -> ast.expr:
    """Return the tree of one expression. Raises: as ``parse_python``."""
    try:
        return ast.parse(text, mode="eval").body
    except (ValueError, MemoryError, RecursionError) as error:
        raise SyntaxError(str(error) or "it is nested too deep") from None


def read_literal(node: ast.AST | str) -> Any:
    """Return the value of a literal.

    Raises:
        ValueError: It is none.
    """
    try:
        return ast.literal_eval(parse_expression(node) if isinstance(node, str) else node)  # type: ignore[arg-type]
    except (SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(str(error) or "it is nested too deep") from None
