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
    None,
    {
        "max": Key(
            _COUNT,
            "Trials on one GPU at most; how many is measured.",
            example=16,
            default=Share().max,
        ),
        "fixed": Key(
            _COUNT,
            "Trials on one GPU from the start, whether that gains or not; instead of max. "
            "share: 8 is short for share: {fixed: 8}.",
            example=8,
            aliases="count number trials exactly min",
        ),
        "memory": Key(
            Memory(),
            "GPU memory of a trial, where it is known: so many as fit are begun with. Absent: it "
            "is measured.",
            example="10G",
        ),
        "mps": Key(
            Word(("auto", "on", "off")),
            "Whether CUDA's MPS serves the trials of a GPU: auto where sweep may start it, on "
            "refuses to train without.",
            example="off",
            default=Share().mps,
        ),
    },
)


class ShareRule:
    """``auto``, a number of trials, or keys. Read as ``Share``."""

    in_words = f"auto, {_COUNT.in_words}, or keys"

    def read(self, at: Entry) -> Any:
        if at.node.kind == "map":
            return self._read_keys(at)
        if at.node.value == AUTO:
            return Share()
        if isinstance(at.node.value, str):
            return at.report("must be auto, a number or a mapping", "For example share: auto.")
        count = _COUNT.read(at)
        return INVALID if count is INVALID else Share(max=count, measured=False)

    def _read_keys(self, at: Entry) -> Any:
        if "max" in at and "fixed" in at:
            advice = "max: how many is measured, up to that. fixed: so many from the start."
            return at.report("must have max or fixed, not both", advice)
        found = SHARE.read(at)
        if found is INVALID:
            return INVALID
        usual = Share()
        return Share(
            max=found.get("fixed", found.get("max", usual.max)),
            memory_mb=found.get("memory"),
            mps=found.get("mps", usual.mps),
            measured="fixed" not in found,
        )

    def schema(self) -> dict[str, Any]:
        return either([{"const": AUTO}, _COUNT.schema(), SHARE.schema()])
