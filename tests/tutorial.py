"""Pages whose commands are run as they are written: blocks of ``sh``, and what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
ANY = "…"  # something within a line; alone on a line: any lines, or none


@dataclass(frozen=True)
class Block:
    """Commands, and what they print on standard output; None where that is not shown."""

    commands: str
    printed: str | None


def read_blocks(page: str) -> list[Block]:
    """Return the blocks of a page of docs/ in order (```bash is not run: it installs)."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", text, re.M | re.S)
    return [Block(commands, printed or None) for commands, printed in found]


def check(block: Block, printed: str) -> None:
    """Fail where something else was printed than the page says."""
    if block.printed is None:
        return
    pattern = ""
    for line in block.printed.splitlines():
        if line == ANY:
            pattern += r"(?:[^\n]*\n)*?"
        else:
            # What is different each time may also be longer or shorter than on the page.
            words = re.escape(line).replace(re.escape(ANY), r"[^\n]*?")
            pattern += re.sub(r"(\\ )+", " +", words) + r" *\n"
    given = "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"
    assert re.fullmatch(pattern, given), (
        f"the page says for\n{block.commands}\n{block.printed}\nand it printed\n{given}"
    )
