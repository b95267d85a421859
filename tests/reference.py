"""``make reference``: renew the tables of docs/study-file.md from the loader's own."""

from __future__ import annotations

from pathlib import Path

import sweep.schedulers  # noqa: F401  (their keys are in the tables)
from sweep.core.files import write_atomic
from sweep.studyfile.document import renew

PATH = Path(__file__).parents[1] / "docs/study-file.md"

if __name__ == "__main__":
    write_atomic(PATH, renew(PATH.read_text(encoding="utf-8")), mode=0o644)
