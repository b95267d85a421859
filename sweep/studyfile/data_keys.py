"""Keys that say which data a study's trainings read, and where nodes keep copies of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sweep.core.study import DataSet, Staging
from sweep.studyfile.amounts import Memory
from sweep.studyfile.kinds import Command
from sweep.studyfile.rules import INVALID, Boolean, Entry, Text, TextList, Word, either
from sweep.studyfile.sections import REQUIRED, Key, Section

_ADDRESS = r"(?:https?|ftp|file)://\S+"


@dataclass(frozen=True)
class Fetch:
    """What fetches a data set: a command, or addresses."""

    in_words = "a command, an address or a list of addresses"

    def read(self, at: Entry) -> Any:
        words = Command().read(at)
        if words is INVALID:
            return words
        addresses = [re.fullmatch(_ADDRESS, word, re.IGNORECASE) is not None for word in words]
        if addresses[0]:
            if not all(addresses):
                return at.report("must be addresses alone, or a command", "Write a list of them.")
            return words
        if not any("{target}" in word or "SWEEP_TARGET" in word for word in words):
            return at.report(
                "must say where its data go: {target}, or $SWEEP_TARGET",
                "For example rsync -a host:/data/birds/ {target}/.",
            )
        return words

    def schema(self) -> dict[str, Any]:
        return Command().schema()


_PATH = Text(rule="must be a path")
_NAME = r"[A-Za-z][A-Za-z0-9_]{0,39}"

DATA_SET = Section(
    "a data set",
    DataSet,
    {
        "path": Key(
            _PATH,
            "A file or a folder that all nodes see; a relative one lies in the workdir.",
            example="/data/mnist",
            aliases="source src folder dir root",
            default=REQUIRED,
        ),
        "stage": Key(
            Word(("none", "node"), {"local": "node", "task": "node", "job": "node"}),
            "none: training reads it where it lies. node: each node copies it once to a disk of "
            "its own, however many trainings ask; where that cannot be, they read it where it "
            "lies, and it is said.",
            example="node",
            aliases="staging copy cache",
        ),
        "wait": Key(
            Boolean(),
            "Whether a training waits while another one copies; else it reads the data where they "
            "lie.",
            example=False,
        ),
        "unpack": Key(
            Boolean(),
            "Whether an archive (.tar, .tar.gz, .tar.xz, .tar.zst, .zip) is unpacked where it is "
            "staged: training is given the folder.",
            example=False,
            aliases="extract",
        ),
        "fetch": Key(
            Fetch(),
            "What brings the data to their path where they are not there, before any task starts: "
            "a command that makes {target} (or $SWEEP_TARGET), which gets its name when it is "
            "whole; or the address of a file, or a list of them for a folder.",
            example="hf download org/birds --repo-type dataset --local-dir {target}",
            aliases="download get",
        ),
    },
)

STAGING = Section(
    "staging",
    Staging,
    {
        "place": Key(
            Text(
                pattern=r"[/~$].*",
                rule="must be an absolute path",
                advice="For example /local, or $TMPDIR.",
            ),
            "Folder of the nodes in which copies of data are kept, for all studies; $NAME is a "
            "variable of the task. Absent: the first of the usual ones that will do.",
            example="/local",
            aliases="path folder dir scratch",
        ),
        "quota": Key(
            Memory(),
            "What all your copies in it take at most: what was not used for longest goes first. "
            "Absent: half of that disk.",
            example="500G",
            aliases="limit size max_size",
            field="quota_mb",
        ),
    },
)


@dataclass(frozen=True)
class Data:
    """Paths that are recorded: one or a list; or data sets by name, each a path or keys.

    The paths are read as a tuple, data sets as a mapping.
    """

    in_words = "texts: one or a list; or names with paths or keys"
    paths = TextList(_PATH)

    def read(self, at: Entry) -> Any:
        return at.read_each(self._read_one) if at.node.kind == "map" else self.paths.read(at)

    def _read_one(self, name: str, at: Entry) -> Any:
        if name in DATA_SET.keys:
            advice = "Write data: {mnist: {path: /data/mnist, stage: node}}, say."
            return at.report("is a key of a data set, which needs a name above it", advice, "")
        if not re.fullmatch(_NAME, name):
            return at.report("must be named by up to 40 letters, digits and _", "Rename it.", "")
        if at.node.kind == "map":
            return DATA_SET.read(at)
        with at.advising(f"For example {name}: /data/{name}."):
            path = _PATH.read(at)
        return path if path is INVALID else DataSet(path)

    def schema(self) -> dict[str, Any]:
        one = either([_PATH.schema(), DATA_SET.schema()])
        named = {"type": "object", "propertyNames": {"pattern": f"^{_NAME}$"}}
        return either([*self.paths.schema()["anyOf"], named | {"additionalProperties": one}])
