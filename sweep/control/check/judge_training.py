"""What the answers from inside the training's environment mean: facts → line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.control.check.lines import FAILED, NOT_ASKED, OK, WARNING, Fact, Line, size

OLDEST_PYTHON = (3, 8)  # the reporter's


def environment(fact: Fact, *, runs_python: bool) -> Line:
    """Judge whether the environment starts at all, and the Python in it.

    Args:
        fact: ``error`` and ``tail`` where it did not, else ``python``.
        runs_python: Whether the study's command is a Python program.
    """
    name = "python"
    if fact.get("none"):
        text = f"the environment has no Python ({fact['tail']})"
        if runs_python:
            return Line(
                name, FAILED, text, "The command needs it: correct environment, or command."
            )
        return Line(
            name,
            WARNING,
            text,
            "That is well for a program that needs none; it then reports by its output "
            "(objective.from) or by appending to $SWEEP_METRICS.",
        )
    if fact.get("error"):
        tail = f"\n{fact['tail']}" if fact.get("tail") else ""
        return Line(
            name,
            FAILED,
            f"the environment does not start: {fact['error']}{tail}",
            fact.get("hint") or "Correct the section environment; what it said stands above.",
        )
    python = fact["python"]
    text = f"{python['version']} ({python['executable']})"
    if tuple(int(part) for part in python["version"].split(".")[:2]) < OLDEST_PYTHON:
        return Line(
            name,
            WARNING,
            text,
            "sweep.report needs 3.8 or newer: report by output (objective.from), or take a newer "
            "Python into the environment.",
        )
    return Line(name, OK, text)


def reporter(fact: Fact) -> Line:
    if "error" in fact:
        return Line(
            "reporter",
            FAILED,
            f"sweep.report cannot be imported: {fact['error']} (PYTHONPATH={fact['pythonpath']})",
            "Something in the environment drops PYTHONPATH: python -I, -E, or a wrapper.",
        )
    return Line("reporter", OK, "sweep.report can be imported")


def torch(fact: Fact, needed: str) -> Line:
    """Judge torch in the environment.

    Args:
        needed: Why the study needs it; empty where that is not known.
    """
    if "error" in fact:
        what = "is not installed" if fact["missing"] else "cannot be imported"
        text = f"torch {what} in the environment ({fact['error']})"
        if needed:
            return Line(
                "torch",
                FAILED,
                f"{text}, and {needed}",
                "Install it there, or name the environment that has it: environment.",
            )
        return Line("torch", WARNING, text, "That is well if training does not use it.")
    built = f"CUDA {fact['cuda']}" if fact["cuda"] else f"ROCm {fact['hip']}" if fact["hip"] else ""
    built = built or "CPU only"
    return Line("torch", OK, f"{fact['version']} ({built}), imported in {fact['import_s']:.1f} s")


def cuda(facts: Fact, wanted: int) -> list[Line]:
    """Judge the GPUs that training sees, and a matrix product on each."""
    lines = []
    smi = facts["smi"]
    if "error" in smi:
        lines.append(
            Line(
                "nvidia-smi",
                WARNING,
                f"does not work inside the environment: {smi['error']}",
                "Where torch sees the GPUs below that is well; else let environment.gpu be nvidia.",
            )
        )
    else:
        lines.append(Line("nvidia-smi", OK, f"sees {len(smi['gpus'])} inside the environment"))
    if "cuda" not in facts:
        why = "torch cannot be imported"
        return [*lines, *(Line(n, NOT_ASKED, why) for n in ("torch gpus", "matrix product"))]
    found = facts["cuda"]["devices"]
    visible = facts["cuda"]["visible"]
    text = f"torch sees {len(found)} of {wanted} (CUDA_VISIBLE_DEVICES={visible})"
    if len(found) < wanted:
        torch_fact = facts["torch"]
        advice = "Does the container get the GPUs (environment.gpu: nvidia), and the driver?"
        if not torch_fact["cuda"] and not torch_fact["hip"]:
            advice = "This torch was built for CPUs: install one with CUDA into the environment."
        lines.append(Line("torch gpus", FAILED, text, advice))
    else:
        lines.append(Line("torch gpus", OK, f"{text}: {found[0]['name']}"))
    lines.append(_product(found))
    return lines


def _product(devices: Sequence[Mapping[str, object]]) -> Line:
    name = "matrix product"
    if not devices:
        return Line(name, NOT_ASKED, "torch sees no GPU")
    for number, device in enumerate(devices):
        if "error" in device or not device["right"]:
            what = device.get("error") or "gives a wrong result"
            return Line(
                name,
                FAILED,
                f"GPU {number}: {what}",
                "Is the GPU in use by others, or the driver older than torch's CUDA wants? Else "
                "tell the site, and exclude the node: slurm.extra: [--exclude=NODE].",
            )
    times = ", ".join(f"{1e3 * float(str(device['product_s'])):.1f} ms" for device in devices)
    return Line(name, OK, f"right on each GPU ({times})")


def paths(facts: Sequence[Fact]) -> Line:
    """Judge what training sees of its folders and binds."""
    for one in facts:
        if not one["exists"] or not one["reads"]:
            what = "may not be read" if one["exists"] else "is not there"
            return Line(
                "folders",
                FAILED,
                f"{one['path']} {what} inside the environment",
                "Add it to environment.binds.",
            )
        if one["writes"] and one["error"]:
            return Line(
                "folders",
                FAILED,
                f"{one['path']} cannot be written to inside the environment: {one['error']}",
                "Bind it without :ro, and see that you (not root) may write there; or bind it "
                "read-only, if training only reads it.",
            )
    return Line("folders", OK, ", ".join(one["name"] for one in facts))


def training_signal(fact: Fact) -> Line:
    """Judge whether a signal to training arrives within the environment."""
    if fact.get("signal") == "SIGTERM":
        return Line("training signal", OK, f"arrives inside in {fact['after_s']:.1f} s")
    return Line(
        "training signal",
        FAILED,
        f"SIGTERM does not arrive inside: {fact['error']}",
        "Use `exec` in wrappers and setup lines, so that no shell stands between; without it a "
        "time limit ends training before it has saved.",
    )


def all_reduce(fact: Fact, network: Fact | None, timeout_s: float) -> Line:
    """Judge the first sum over all ranks, and say what to set where it hangs."""
    name = "all-reduce"
    if fact.get("error") or not fact.get("right", True):
        names = ", ".join((network or {}).get("addresses", {})) or "`ip -br address` shows them"
        why = fact.get("error") or "the sum is wrong: another run's ranks took part"
        if fact.get("hangs"):
            why = f"no sum within {timeout_s:.0f} s"
        tail = f"\n{fact['tail']}" if fact.get("tail") else ""
        return Line(
            name,
            FAILED,
            f"{why}{tail}",
            f"Set ddp.interface to the network between the nodes (of {names}); then ddp.ib: off, "
            "which keeps NCCL from InfiniBand; ddp.debug: info prints where it waits. Is a "
            "firewall between the nodes, or ddp.port_range closed?",
        )
    ranks = fact["ranks"]
    torches = sorted({rank["torch"] for rank in ranks})
    interfaces = sorted({rank["interface"] for rank in ranks} - {""})
    hosts = len({rank["host"] for rank in ranks})
    text = (
        f"{fact['backend']}, {fact['world']} ranks on {hosts} host{'s' if hosts > 1 else ''}: "
        f"first sum after {fact['first_s']:.1f} s, then {size(fact['bytes_per_s'])}/s a rank, by "
        f"{', '.join(interfaces) or 'an interface that cannot be told'}"
    )
    if len(torches) > 1:
        return Line(
            name,
            FAILED,
            f"{text}; torch differs: {', '.join(torches)}",
            "Give all nodes the same environment.",
        )
    return Line(name, OK, text)
