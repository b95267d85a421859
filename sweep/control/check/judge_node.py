"""What the answers of a machine mean: facts → line. Pure; ``facts`` gathers them.

``judge_services`` has what the machine reaches.
"""

from __future__ import annotations

from sweep.control.check.lines import FAILED, NOT_ASKED, OK, WARNING, Fact, Line, size
from sweep.core.numbers import is_whole

SLOW_IMPORT_S = 10.0
# Below these training will not get far; what a study needs in all cannot be known here.
LEAST_BYTES = 100 << 20
FEW_BYTES = 2 << 30
FILES_OF_A_TRIAL = 10  # six of ours when it has ended, and its checkpoints
SKEW_WARNING_S = 2.0
SKEW_FAILED_S = 30.0


def interpreter(fact: Fact, login_glibc: str) -> Line:
    """Judge sweep's own Python on the node."""
    name = "interpreter"
    if fact["error"]:
        return Line(
            name,
            FAILED,
            f"{fact['path']} cannot import sweep here: {fact['error']}",
            "Install sweep where every node reads the same files, with all its packages.",
        )
    c_library = f", glibc {fact['glibc']}" if fact["glibc"] else ""
    text = f"{fact['path']}: Python {fact['version']}, imports in {fact['import_s']:.1f} s"
    text += c_library
    if _version(fact["glibc"]) < _version(login_glibc):
        return Line(
            name,
            WARNING,
            f"{text}, older than {login_glibc} where sweep was called",
            "Packages compiled there may not load here: make sweep's environment on a node.",
        )
    if fact["import_s"] > SLOW_IMPORT_S:
        return Line(
            name,
            WARNING,
            f"{text}: slow",
            "Put sweep's environment on a faster file system: each task waits for it.",
        )
    return Line(name, OK, text)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if is_whole(part))


def no_interpreter(path: str, node: str) -> Line:
    """Return the line for a node on which sweep's Python does not start at all."""
    where = f"node {node}" if node else "the node"
    return Line(
        "interpreter",
        FAILED,
        f"{path} does not start on {where}",
        "Install sweep where every node sees it (a shared file system), for their kind of "
        "processor; or name nodes that do: slurm.constraint, slurm.partition.",
    )


def setup(fact: Fact) -> Line:
    """Judge the setup lines of the batch script."""
    for one in fact["lines"]:
        if one["code"]:
            said = f": {one['said']}" if one["said"] else ""
            return Line(
                "setup",
                FAILED,
                f"slurm.setup: {one['line']!r} fails with exit code {one['code']}{said}",
                "Correct the line; for a module, see `module avail` on a node, and source its "
                "start file first where `module` is no command in batch jobs.",
            )
    count = len(fact["lines"])
    return Line("setup", OK, f"{count} line{'s' if count > 1 else ''} of slurm.setup ran")


def workdir(fact: Fact) -> Line:
    if fact["exists"] and fact["enters"]:
        return Line("workdir", OK, fact["path"])
    why = "may not be entered" if fact["exists"] else "is no folder"
    return Line(
        "workdir",
        FAILED,
        f"{fact['path']} {why} on this node",
        "Put the code on a file system that the nodes see, or name such a folder as workdir.",
    )


def command(fact: Fact) -> Line:
    if fact["error"]:
        hint = fact.get("hint") or "Correct command, or the environment that brings its program."
        return Line("command", FAILED, fact["error"], hint)
    return Line("command", OK, fact["program"])


def runtime(fact: Fact) -> Line:
    """Judge the program that starts containers or environments."""
    kind = fact["runtime"]
    if not fact["program"]:
        what = {
            "pyxis": "srun has no --container-image: the Pyxis plugin is not installed",
            "modules": "`module` is no command in a login shell",
        }.get(kind, f"there is no {kind} on PATH")
        return Line(
            "runtime",
            FAILED,
            f"{what} on this node",
            "Add what puts it there to slurm.setup (such as module load), choose another "
            "partition, or another environment.runtime.",
        )
    if fact["words"]:
        return Line(
            "runtime",
            FAILED,
            f"{fact['program']} does not run: {fact['words']}",
            "Ask the site, or choose another environment.runtime.",
        )
    version = fact["version"] or kind
    return Line("runtime", OK, f"{fact['program']} ({version})")


def image(fact: Fact, *, may_change: bool = False) -> Line:
    """Judge the image: there, readable, and the one that the study began with.

    Args:
        may_change: Another image is worth a warning only: a launch may go on with a mended one.
    """
    name, path = "image", fact["image"]
    if not fact["kind"]:
        if fact["is_name"]:
            return Line(name, NOT_ASKED, f"{fact['given']} is a name, and no file to look at")
        what = "environment" if fact["runtime"] in ("venv", "conda") else "image"
        return Line(
            name,
            FAILED,
            f"{path} does not exist on this node",
            f"Make the {what} there, or name another: environment.image.",
        )
    if not fact["readable"]:
        return Line(name, FAILED, f"{path} may not be read", f"chmod u+r {path}")
    if fact.get("python") is False:
        return Line(
            name,
            FAILED,
            f"{path} has no bin/python that runs here",
            "Make the virtual environment with a Python that the nodes have.",
        )
    digest, recorded = fact["sha256"], fact["recorded"]
    if digest and recorded and digest != recorded:
        return Line(
            name,
            WARNING if may_change else FAILED,
            f"{path} has sha256 {digest[:12]}…; the study was launched with {recorded[:12]}…",
            "Put the old image back, or give the study another name: results of two images do "
            "not compare.",
        )
    if fact["kind"] == "folder":
        return Line(name, OK, f"{path} (a folder, which has no digest)")
    told = f", {size(fact['bytes'])}"
    if not digest:
        return Line(name, OK, f"{path}{told}; digest not asked: it is large to read")
    told += f", sha256 {digest[:12]}…"
    if not recorded:
        return Line(name, OK, f"{path}{told}; the first launch records it")
    return Line(name, OK, f"{path}{told}, as recorded")


def binds(fact: Fact) -> Line:
    """Judge what the container is to see, on the host's side."""
    made = [one["source"] for one in fact["binds"] if not one["exists"] and one.get("is_made")]
    there = [one for one in fact["binds"] if one["source"] not in made]
    for one in there:
        if not one["exists"]:
            return Line(
                "binds",
                FAILED,
                f"{one['bind']}: {one['source']} does not exist on this node",
                "Name a folder that the nodes see, remove it from environment.binds, or have it "
                "made: make_binds: true.",
            )
        if not one["reads"]:
            return Line(
                "binds",
                FAILED,
                f"{one['bind']}: you may not read {one['source']}",
                "Ask its owner for the right, or name another folder in environment.binds.",
            )
    for one in there:
        if not one["writes"] and not one["read_only"]:
            return Line(
                "binds",
                WARNING,
                f"{one['bind']}: you may not write to {one['source']}",
                "Bind it read-only (append :ro), if training only reads it.",
            )
    if made:
        said = f"{', '.join(made)} will be made by the first task that does not find it"
        return Line("binds", WARNING, said, "Is it spelled as it should be?")
    return Line("binds", OK, ", ".join(one["bind"] for one in fact["binds"]))


def space(fact: Fact, name: str = "space", trials: int = 0) -> Line:
    """Judge free blocks and inodes.

    Args:
        trials: Each needs a few files.
    """
    where = fact["folder"]
    move = "Delete what is no longer needed, or keep runs elsewhere: --runs, SWEEP_RUNS."
    if name != "space":
        move = "Have TMPDIR name a larger folder, in slurm.setup or environment.env."
    if fact["error"]:
        return Line(name, FAILED, f"{where} cannot be written to: {fact['error']}", move)
    free = fact["free_bytes"]
    text = f"{where}: {size(free)} free"
    inodes = fact["free_inodes"]
    if inodes is not None:
        text += f", {inodes:,} inodes"
    if free < LEAST_BYTES:
        # Less matters in a scratch folder, that nothing of ours is written to.
        return Line(name, FAILED if name == "space" else WARNING, f"{text}: nearly full", move)
    if inodes is not None and inodes < trials * FILES_OF_A_TRIAL:
        return Line(
            name, FAILED, f"{text}: too few for {trials} trials ({FILES_OF_A_TRIAL} each)", move
        )
    if name == "space" and free < FEW_BYTES:
        return Line(name, WARNING, f"{text}: little for checkpoints", move)
    return Line(name, OK, text)


def clock(fact: Fact, submitted_s: float, seen_s: float, database_skew_s: float | None) -> Line:
    """Judge the node's clock.

    It is between the submission and the sight of the result, by the clock of where sweep was
    called; the file system's and the database's tell more exactly where they are asked.

    Args:
        submitted_s, seen_s: By that clock.
        database_skew_s: The database's clock less the node's, or None.
    """
    now_s = fact["now_s"]
    outside = max(submitted_s - now_s, now_s - seen_s, 0.0)
    skews = {"the machine where sweep was called": outside}
    if fact["files_skew_s"] is not None:
        skews["the file system"] = abs(fact["files_skew_s"])
    if database_skew_s is not None:
        skews["the database"] = abs(database_skew_s)
    whose, skew_s = max(skews.items(), key=lambda pair: pair[1])
    if skew_s < SKEW_WARNING_S:
        return Line("clock", OK, f"within {max(0.1, skew_s):.1f} s of {' and '.join(skews)}")
    return Line(
        "clock",
        FAILED if skew_s >= SKEW_FAILED_S else WARNING,
        f"differs by {skew_s:.0f} s (or more) from {whose}",
        "Ask the site to run NTP on that node; time limits and log times depend on it.",
    )


def gpus(fact: Fact, on_slurm: bool = True) -> Line:
    """Judge what nvidia-smi sees on the node."""
    wanted = fact["wanted"]
    broken = (
        "Choose a partition with GPUs (sinfo -o '%P %G'), or tell the site that the driver of this "
        "node is broken."
        if on_slurm
        else "Repair this machine's NVIDIA driver, or set resources.gpus: 0."
    )
    fewer = (
        "Compare resources.gpus with: sinfo -o '%N %G'; is the GPU a GRES in slurm.conf?"
        if on_slurm
        else "Lower resources.gpus, or look at CUDA_VISIBLE_DEVICES."
    )
    if fact["error"]:
        if fact["rocm"]:
            return Line("gpus", NOT_ASKED, "an AMD node: rocm-smi is here, and nvidia-smi is not")
        return Line(
            "gpus", FAILED, f"nvidia-smi does not work on the node: {fact['error']}", broken
        )
    found = fact["gpus"]
    kinds = sorted({f"{gpu['name']} ({gpu['memory']})" for gpu in found})
    text = f"{len(found)} on the node: {', '.join(kinds)}"
    if found:
        text += f", driver {found[0]['driver']}"
    visible = fact["visible"]
    given = None if visible is None else len([part for part in visible.split(",") if part.strip()])
    if given is not None:
        text += f"; this task has {given}"
    if len(found) < wanted or (given is not None and given < wanted):
        return Line("gpus", FAILED, f"{text}, {wanted} asked for", fewer)
    return Line("gpus", OK, text)


def compute_mode(fact: Fact) -> Line:
    """Judge whether several processes may use a GPU, where the study's trials share one."""
    name = "compute mode"
    if not fact["gpus"]:
        return Line(name, NOT_ASKED, "no GPU is seen on the node")
    modes = {gpu["mode"] for gpu in fact["gpus"]}
    text = ", ".join(sorted(modes))
    if "Prohibited" in modes:
        return Line(
            name,
            FAILED,
            f"{text}: no process may use it",
            "Ask the site for compute mode Default: nvidia-smi -c 0.",
        )
    if fact["shard"] and any("Exclusive" in mode for mode in modes):
        return Line(
            name,
            FAILED,
            f"{text}: one process a GPU, and resources.shard has trials share it",
            "Use whole GPUs (resources.gpus), or ask the site for compute mode Default.",
        )
    return Line(name, OK, f"{text}, which trials may share" if fact["shard"] else text)
