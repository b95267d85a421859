"""What the YAML parser's complaints mean for the person who wrote the file."""

from __future__ import annotations

from typing import Any


def explain_syntax(error: Any) -> tuple[str, str]:
    """Return the rule that was broken and what to do, for a syntax error."""
    problem = str(error.problem or "")
    context = str(error.context or "")
    opened = f" from line {error.context_mark.line + 1}" if error.context_mark else ""
    if "'\\t'" in problem:
        return "is not YAML: a tab cannot indent", "Indent with spaces."
    if "cannot start any token" in problem:
        character = problem.split("'")[1]
        return f"is not YAML: text cannot start with {character}", "Put the text in quotes."
    if "another document" in problem:
        return "must hold one YAML document", "Remove the second ---, or write two files."
    if "mapping values are not allowed" in problem:
        return (
            'is not YAML: a second ": " in one line, or a wrong indentation',
            "Put text that contains a colon in quotes, and indent sisters alike.",
        )
    if "unexpected end of stream" in problem or "quoted scalar" in context:
        return f"is not YAML: the quote{opened} is never closed", "Close it."
    if "flow" in context:
        return (
            f"is not YAML: the bracket{opened} is not closed, or a comma is missing",
            "Separate entries by commas, and close the bracket.",
        )
    if "undefined alias" in problem:
        return f"is not YAML: {problem.replace('found ', '')}", "Define it before, with &name."
    if "block" in context or "expected" in problem:
        return (
            "is not YAML: this does not go on from the lines above",
            "Check the indentation, quotes and brackets here and above.",
        )
    return f"is not YAML: {problem or context or 'syntax error'}", "Check this line."
