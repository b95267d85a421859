"""``resources.share``: how many trials may share a GPU, and who decides."""

from __future__ import annotations

from typing import Any

from sweep.core.study import Share
from sweep.studyfile.amounts import Memory
from sweep.studyfile.rules import INVALID, Entry, Whole, Word, either
from sweep.studyfile.sections import Key, Section

AUTO = "auto"
_COUNT = Whole(1, 48)  # clients that MPS takes; nothing trains well beyond
SHARE = Section(
    "resources.share",
    Share,
    {
        "max": Key(_COUNT, "Trials on one GPU at most; how many is measured.", example=16),
        "memory": Key(
            Memory(),
            "GPU memory of a trial, where it is known: so many as fit are begun with. Absent: it "
            "is measured.",
            example="10G",
            field="memory_mb",
        ),
        "mps": Key(
            Word(("off",)),
            "Whether CUDA's MPS serves the trials of a GPU: sweep starts none.",
            example="off",
        ),
    },
)


class ShareRule:
    """``auto``, a number of trials, or keys. Read as ``Share``."""

    in_words = f"auto, {_COUNT.in_words}, or keys"

    def read(self, at: Entry) -> Any:
        if at.node.kind == "map":
            return SHARE.read(at)
        if at.node.value == AUTO:
            return Share()
        if isinstance(at.node.value, str):
            return at.report("must be auto, a number or a mapping", "For example share: auto.")
        count = _COUNT.read(at)
        return INVALID if count is INVALID else Share(max=count, measured=False)

    def schema(self) -> dict[str, Any]:
        return either([{"const": AUTO}, _COUNT.schema(), SHARE.schema()])
