"""What must hold between the keys that say where and how trainings run."""

from __future__ import annotations

from sweep.core.study import Choice, Ddp, Environment, Resources, Slurm
from sweep.studyfile.crosscheck import crosscheck
from sweep.studyfile.rules import Entry


@crosscheck
def _gpus_are_whole_or_shared(root: Entry, resources: Resources) -> None:
    shares = [n for n in ("shard", "mps") if "resources" in root and n in root["resources"]]
    if shares and (resources.gpus or len(shares) > 1):
        rule = f"cannot go with {'gpus' if resources.gpus else 'shard'}"
        advice = "A trial has whole GPUs or a share of one: keep one of the keys."
        root["resources"][shares[-1]].report(rule, advice)


@crosscheck
def _a_trial_that_shares_has_one_gpu(root: Entry, resources: Resources, launcher: str) -> None:
    if resources.share is None:
        return
    at = root["resources"]["share"]
    shares = [name for name in ("shard", "mps") if name in root["resources"]]
    if shares:
        rule = f"cannot go with {shares[0]}: others use that card too, and what they take is unseen"
        at.report(rule, "Write gpus: 1 instead: the study's own trials share it.", "")
    elif not resources.gpu_count:
        at.report("has no meaning without GPUs", "Write gpus: 1 beside it, or remove it.", "")
    elif resources.gpu_count != 1:
        rule = f"needs gpus: 1 (it is {resources.gpus}): a trial of several GPUs shares none"
        at.report(rule, "Remove one of the two.", "")
    elif resources.nodes != 1:
        rule = f"needs nodes: 1 (it is {resources.nodes}): a trial of several nodes shares no GPU"
        at.report(rule, "Remove one of the two.", "")
    elif "ddp" in root or launcher in ("torchrun", "srun"):
        key = "ddp" if "ddp" in root else f"launcher {launcher}"
        rule = f"cannot go with {key}: the ranks of a trial wait for each other"
        at.report(rule, "Remove one of the two.", "")


@crosscheck
def _time_is_no_resource_where_trials_share(
    root: Entry, resources: Resources, pruner: Choice
) -> None:
    if resources.share is not None and pruner.options.get("resource") == "seconds":
        rule = "cannot be seconds with resources.share: how fast a trial is depends on others"
        root["pruner"]["resource"].report(rule, "Use steps or epochs.", "")


@crosscheck
def _grace_is_shorter_than_time(root: Entry, resources: Resources, grace_s: int) -> None:
    limit_s = resources.time_limit_s
    if limit_s is None or grace_s < limit_s:
        return
    advice = "Give the task more time, or write a shorter grace."
    if "grace" in root:
        root["grace"].report(f"must be shorter than resources.time, {limit_s} s", advice)
    else:
        root["resources"]["time"].report(f"must be longer than grace, {grace_s} s", advice)


@crosscheck
def _slots_share_one_node(root: Entry, resources: Resources, slurm: Slurm) -> None:
    if slurm.slots == 1:
        return
    for other, is_so, why in (
        ("resources.nodes", resources.nodes > 1, "The trials of a task share one node"),
        ("resources.shard", resources.shard, "Tasks that share a GPU need no slots"),
        ("resources.mps", resources.mps, "Tasks that share a GPU need no slots"),
    ):
        if is_so:
            root["slurm"]["slots"].report(f"cannot go with {other}", f"{why}: keep one of the two.")


@crosscheck
def _each_rank_has_a_gpu(root: Entry, resources: Resources, ddp: Ddp) -> None:
    gpus = resources.gpu_count
    if ddp.ranks_per_node is not None and gpus not in (0, ddp.ranks_per_node):
        rule = f"must be the number of GPUs of a node, {gpus}: each process has one"
        root["ddp"]["ranks_per_node"].report(rule, "Remove it.")


@crosscheck
def _each_rank_has_a_core(root: Entry, resources: Resources, ddp: Ddp, launcher: str) -> None:
    ranks = ddp.ranks_per_node or resources.gpu_count or 1
    if launcher != "python" and resources.cpus is not None and resources.cpus < ranks:
        rule = f"must not be below the number of processes of a node, {ranks}"
        root["resources"]["cpus"].report(rule, "Raise it.")


@crosscheck
def _srun_serves_one_slot(root: Entry, launcher: str, slurm: Slurm) -> None:
    if launcher == "srun" and slurm.slots > 1:
        rule = "must not be srun where a task has several slots"
        advice = "Use torchrun, or auto: each slot is a step of srun's already."
        root["launcher"].report(rule, advice)


_CONTAINERS = ("binds", "make_binds", "workdir", "options", "remap_root", "name", "unpack")
_USELESS = {
    "none": ("image", "setup", "build", *_CONTAINERS),
    "venv": ("setup", *_CONTAINERS),
    "conda": _CONTAINERS,
    "modules": ("image", "build", *_CONTAINERS),
    "apptainer": ("remap_root", "name"),
    "singularity": ("remap_root", "name"),
    "enroot": ("unpack",),
    "pyxis": ("unpack",),
}


@crosscheck
def _runtime_has_what_it_needs(root: Entry, environment: Environment) -> None:
    if "environment" not in root:
        return
    at, runtime = root["environment"], environment.runtime
    for name in _USELESS[runtime]:
        if name in at:
            advice = "Remove it."
            if "runtime" not in at:
                advice = "Write the runtime that it is for, such as runtime: apptainer."
            at[name].report(f"has no meaning with runtime {runtime}", advice, "")
    why = f" for runtime {runtime}"
    needs_image = runtime not in ("none", "venv", "modules") and not environment.is_prepared
    if needs_image and environment.image is None:
        what = "Name or folder of the environment." if runtime == "conda" else "Path of the image."
        if runtime == "pyxis":
            what += " Or write name, of a container that you have made."
        at.report_missing("image", what, why)
    if runtime == "modules" and not environment.setup:
        what = 'Write the lines that load them: ["module load python/3.11"].'
        at.report_missing("setup", what, why)
