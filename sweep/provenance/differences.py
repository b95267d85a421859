"""How two records of provenance differ, in sentences for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

SHOWN_PACKAGES = 8
# The machine itself and the number of the GPU do not change a result; what it is made of may.
EXECUTION = {
    "command": "the command",
    "launcher": "the launcher",
    "nodes": "the number of nodes",
    "gpus_per_node": "the number of GPUs per node",
    "cpu": "the CPU model",
    "cpus": "the number of CPUs",
    "sweep": "sweep",
}
ENVIRONMENT = {
    "runtime": "the runtime",
    "image": "the image's name",
    "image_sha256": "the image's content",
    "python": "Python",
    "gpus": "the list of GPUs",
    "driver": "the GPU driver",
    "cuda": "CUDA",
    "modules": "the list of loaded modules",
}
AXES = ("code", "environment", "data", "execution")


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """Return what differs between two records, a being the earlier one.

    Each sentence begins with its axis: "code: …", "environment: …", "data: …" or "execution: …".
    What only one of the records knows is no difference.
    """
    axes: list[tuple[str, Callable[[Mapping[str, Any], Mapping[str, Any]], list[str]]]] = [
        ("code", _compare_code),
        ("environment", _compare_environment),
        ("data", _compare_data),
        ("execution", _compare_execution),
    ]
    return [
        f"{axis}: {sentence}."
        for axis, compare in axes
        for sentence in compare(a.get(axis) or {}, b.get(axis) or {})
    ]


def axes_of(sentences: Sequence[str]) -> list[str]:
    """Return the axes that sentences of ``differences`` name, each once, in their order."""
    named = {sentence.partition(":")[0] for sentence in sentences}
    return [axis for axis in AXES if axis in named]


def _compare_values(
    a: Mapping[str, Any], b: Mapping[str, Any], names: Mapping[str, str]
) -> list[str]:
    return [
        f"{label} was {_show(a[key])} and is {_show(b[key])}"
        for key, label in names.items()
        if key in a and key in b and a[key] != b[key]
    ]


def _show(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    text = "none" if value is None else str(value)
    return text[:12] if len(text) == 64 and text.isalnum() else text


def _compare_code(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = [f"{path} was changed in the frozen code" for path in b.get("modified", ())]
    if a.get("snapshot") and a.get("snapshot") == b.get("snapshot"):
        return found
    if a.get("snapshot") and b and not b.get("snapshot"):
        found.append("the frozen code that it ran is gone; the live code ran")
    if a.get("commit") and b.get("commit"):
        if a["commit"] != b["commit"]:
            found.append(f"the commit was {a['commit'][:10]} and is {b['commit'][:10]}")
        if a.get("diff") != b.get("diff"):
            if not a.get("dirty"):
                found.append("there are uncommitted changes now")
            elif not b.get("dirty"):
                found.append("there were uncommitted changes, and there are none now")
            else:
                found.append("the uncommitted changes are others now")
    elif a and b and bool(a.get("commit")) != bool(b.get("commit")):
        without = a if b.get("commit") else b
        when = "then" if without is a else "now"
        found.append(f"no commit is known {when} ({without.get('git', 'git was not asked')})")
    both = "files" in a and "files" in b
    before, after = (a["files"], b["files"]) if both else ({}, {})
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            found.append(f"{path} is gone")
        elif path not in before:
            found.append(f"{path} is new")
        elif before[path] != after[path]:
            found.append(f"{path} has changed")
    modules = {**a.get("submodules", {}), **b.get("submodules", {})} if both else {}
    found += [
        f"the submodule {path} has another commit"
        for path in sorted(modules)
        if a.get("submodules", {}).get(path) != b.get("submodules", {}).get(path)
    ]
    if not found and a.get("snapshot") and b.get("snapshot"):
        found.append("other files than the command's own have changed")
    return found


def _compare_execution(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = _compare_values(a, b, EXECUTION)
    if a.get("attempts", 1) > 1 and b.get("attempts", 1) == 1:
        found.append(f"it went on from checkpoints, in {a['attempts']} attempts; in one now")
    if a.get("snapshots", 1) > 1:
        found.append("its attempts ran different code")
    return found


def _compare_variables(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = []
    for name in sorted(a.keys() | b.keys()):
        if name not in b:
            found.append(f"the variable {name} was {a[name]} and is not set")
        elif name not in a:
            found.append(f"the variable {name} is {b[name]} and was not set")
        elif a[name] != b[name]:
            found.append(f"the variable {name} was {a[name]} and is {b[name]}")
    return found


def _compare_environment(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = _compare_values(a, b, ENVIRONMENT)
    if "variables" in a and "variables" in b:
        found += _compare_variables(a["variables"], b["variables"])
    before, after = a.get("packages"), b.get("packages")
    if before is None or after is None:
        return found
    changes = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            changes.append(f"{name} {before[name]} is gone")
        elif name not in before:
            changes.append(f"{name} {after[name]} is new")
        elif before[name] != after[name]:
            changes.append(f"{name} was {before[name]} and is {after[name]}")
    if len(changes) > SHOWN_PACKAGES:
        rest = len(changes) - SHOWN_PACKAGES
        changes[SHOWN_PACKAGES:] = [f"{rest} more packages differ"]
    return found + changes


def _compare_data(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    found = []
    for path in sorted(a.keys() & b.keys()):
        before, after = a[path], b[path]
        versions = _differing_versions(before, after)
        if before.get("missing") or after.get("missing"):
            if bool(before.get("missing")) != bool(after.get("missing")):
                found.append(f"{path} {'is missing now' if after.get('missing') else 'is new'}")
            continue
        what = _differing(before, after)
        if what:
            told = "; ".join(
                [
                    f"{before['files']} files of {before['bytes']} bytes, now {after['files']} of "
                    f"{after['bytes']}",
                    *versions,
                ]
            )
            found.append(f"{path} has other {what} ({told})")
        elif versions and not _same_content(before, after):
            found.append(
                f"{path} has another version ({'; '.join(versions)}), though its files look the "
                "same"
            )
    gone, new = sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys())
    if a and b and (gone or new):
        found.append(f"what is read was {_show(gone)} and is {_show(new)}")
    return found


def _differing_versions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return which versions of some data differ, by the word of the tools that keep them."""
    a, b = ({**one.get("pointers", {}), **one.get("versions", {})} for one in (before, after))
    return [
        f"{label} was {_show(a[label])} and is {_show(b[label])}"
        for label in sorted(a.keys() & b.keys())
        if a[label] != b[label]
    ]


def _same_content(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether both were hashed whole, to the same hash: what tools say of them matters not."""
    return "content_sha256" in before and before["content_sha256"] == after.get("content_sha256")


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return in which way data differ; "" where they do not, as far as they were read.

    Times change by copying: where both contents were hashed whole, they alone count.
    """
    for key, what in (
        ("content_sha256", "content"),
        ("manifest_file_sha256", "content, by its list of checksums"),
        ("listing_sha256", "files, or sizes of them"),
        ("sample_sha256", "content, by samples"),
        ("manifest_sha256", "files' times"),
    ):
        if key in before and key in after:
            if before[key] != after[key]:
                return what
            if key == "content_sha256":
                return ""
    return ""
