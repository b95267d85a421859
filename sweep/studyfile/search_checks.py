"""What must hold between the keys that say how a study searches and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.space import Space
from sweep.studyfile.points_file import read_points
from sweep.studyfile.rules import INVALID, Reader
from sweep.studyfile.tree import Node

_LEARNING = ("auto", "tpe", "gp", "cmaes", "nsgaii")
_ONE_OBJECTIVE = ("target", "patience", "terminator")


def check_search(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    """Report what is wrong between keys, as far as the keys themselves are right."""
    _check_ends(values, root, reader)
    _check_promotion(values, root, reader)
    _check_design(values, root, reader)


def _check_ends(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    objectives, resources = values["objectives"], values["resources"]
    if objectives is not INVALID and len(objectives) > 1:
        for name in _ONE_OBJECTIVE:
            if name in root.entries:
                reader.report(
                    root.entries[name],
                    name,
                    "cannot be used with several objectives",
                    "None of them is the best: remove the key, or keep one objective.",
                    "",
                )
    if "gpu_hours" in root.entries and resources is not INVALID and not resources.gpus_used:
        rule = "needs resources.gpus: trials without GPUs use none"
        if resources.gpus_used is None:
            rule = "cannot be counted with resources.shard, which does not say of how many shares"
        reader.report(root.entries["gpu_hours"], "gpu_hours", rule, "Use time instead.")


def _check_promotion(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    pruner, objectives = values["pruner"], values["objectives"]
    if pruner is INVALID or objectives is INVALID or pruner.type != "promotion":
        return
    if any(objective.pattern for objective in objectives):
        reader.report(
            root.entries["pruner"],
            "pruner",
            "promotion needs a training that reports by itself",
            "A paused trial saves a checkpoint and leaves when it is told to: use "
            "sweep.report.Reporter, or asha.",
            "",
        )


def read_points_file(values: dict[str, Any], root: Node, folder: Path, reader: Reader) -> None:
    """Put a CSV file's rows where ``points`` names one; the space says what they may be."""
    node = root.entries.get("points")
    if node is None or node.kind != "scalar" or values["points"] is INVALID:
        return
    if isinstance(values["space"], Space) and values["space"]:
        values["points"] = read_points(str(node.value), node, values["space"], folder, reader)
        if isinstance(values["trials"], int) and len(values["points"]) > values["trials"]:
            # The earlier study may have had more trials than this one: its first rows are tried.
            values["points"] = values["points"][: values["trials"]]


def _check_design(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    space, sampler = values["space"], values["sampler"]
    again = values["duplicates"] in ("resample", "reuse")
    if isinstance(space, Space) and not len(space) and again:
        reader.report(
            root.entries["duplicates"],
            "duplicates",
            "must be keep where space is {}",
            "There all trials have the same configuration.",
        )
    if values["warm_start"] in (None, INVALID) or sampler is INVALID:
        return
    node = root.entries["warm_start"]
    if sampler.type not in _LEARNING:
        reader.report(
            node,
            "warm_start",
            f"has no meaning with sampler {sampler.type}, which learns nothing",
            "Use tpe, or give the earlier study's best as points.",
            "",
        )
    if values["warm_start"] == values["name"]:
        reader.report(node, "warm_start", "must be another study", "Name an earlier one.")
