"""``--cpu``: a study that asks for GPUs, on a machine that has none to give.

It becomes a study of its own, under another name: its trials are never mixed with those that train
on GPUs, whichever is launched first, and how it was launched is in its files.
"""

from __future__ import annotations

from sweep.studyfile.tree import Node

ENDING = "-cpu"  # of the study's name
FILE = "--cpu"  # stands for the file of what it sets
# By these CUDA and ROCm choose their GPUs: empty, a program sees none, even where one is there.
HIDDEN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


def put_on_cpu(root: Node) -> None:
    """Take all that asks for GPUs out of a study's tree, and give the study a name of its own."""
    name = root.entries.get("name")
    if name is not None and isinstance(name.value, str):
        root.entries["name"] = _scalar(name.value + ENDING, name)
    root.entries.pop("gpu_hours", None)  # trials without GPUs use none
    resources = _section(root, "resources")
    if resources is not None:
        for share in ("shard", "mps", "share"):
            resources.entries.pop(share, None)
        resources.entries["gpus"] = _scalar(0)
    environment = _section(root, "environment")
    if environment is not None:
        if "gpu" in environment.entries:
            environment.entries["gpu"] = _scalar("none")
        variables = _section(environment, "env")
        if variables is not None:
            variables.entries |= {variable: _scalar("") for variable in HIDDEN}


def _section(root: Node, key: str) -> Node | None:
    """Return a section, made where there is none; None where what stands there is no mapping."""
    node = root.entries.get(key)
    if node is None or (node.kind == "scalar" and node.value is None):
        node = root.entries[key] = Node("map", FILE, 0)
    return node if node.kind == "map" else None


def _scalar(value: str | int, of: Node | None = None) -> Node:
    file, line = (FILE, 0) if of is None else (of.file, of.line)
    return Node("scalar", file, line, value, str(value))
