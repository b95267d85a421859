"""The JSON Schema of study files, generated from the same table as the loader.

Editors complete and check study files by it:
``# yaml-language-server: $schema=study.schema.json`` in the first line.
"""

from __future__ import annotations

from typing import Any

from sweep.studyfile.keys import STUDY


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12), with each key's sentence as its description."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sweep study",
        "description": "What to run, what to vary, what to optimise and what it may use.",
    }
    return head | STUDY.schema()
