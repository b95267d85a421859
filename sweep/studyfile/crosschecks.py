"""What must hold between the keys of a study file, as far as each is right by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core.errors import closest
from sweep.core.placeholders import CHECKPOINT, RESERVED, SPREAD, Placeholder, parse
from sweep.core.space import Space, same_value
from sweep.core.study import Choice
from sweep.studyfile.conditions import describe_values
from sweep.studyfile.rules import INVALID, Reader, join
from sweep.studyfile.tree import Node

GRID_LIMIT = 100_000  # points; more do not make a search


def check_together(values: dict[str, Any], root: Node, reader: Reader) -> None:
    """Report what is wrong between keys, as far as the keys themselves are right."""
    _check_names(root, reader)
    _check_command(values, root, reader)
    _check_objectives(values, root, reader)
    _check_points(values, root, reader)
    _check_trials(values, root, reader)
    _check_pruner(values["pruner"], root, reader)
    _check_resources(values, root, reader)
    _check_slots(values, root, reader)
    _check_ranks(values, root, reader)
    _check_environment(values["environment"], root, reader)


def _names(root: Node, key: str) -> list[str]:
    return list(root.entries[key].entries) if key in root.entries else []


def _check_names(root: Node, reader: Reader) -> None:
    for name in _names(root, "fixed"):
        if name in _names(root, "space"):
            node = root.entries["fixed"].entries[name]
            reader.report(
                node,
                f"fixed.{name}",
                "is a parameter of the space as well",
                "Remove one of the two.",
                "",
            )


def _check_command(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    if values["command"] is not INVALID:
        _check_words(values["command"], "command", RESERVED, root.entries["command"], root, reader)
    commands = values["commands"]
    for name, words in commands.items() if commands is not INVALID else ():
        node = root.entries["commands"].entries[name]
        _check_words(words, f"commands.{name}", (*RESERVED, CHECKPOINT), node, root, reader)


def _check_words(
    command: Sequence[str],
    path: str,
    reserved: Sequence[str],
    node: Node,
    root: Node,
    reader: Reader,
) -> None:
    parameters = _names(root, "space")
    known = [*reserved, *parameters, *_names(root, "fixed")]
    for word in command:
        try:
            pieces = parse(word)
        except ValueError:
            reader.report(
                node,
                path,
                "has a brace without its partner",
                "Write {{ and }} for braces.",
                f'"{word}"',
            )
            continue
        for piece in pieces:
            if not isinstance(piece, Placeholder):
                continue
            name = piece.name
            if name not in known:
                near = closest(name, known)
                advice = f"Did you mean {{{near}}}?" if near else "Write {{ and }} for braces."
                reader.report(node, path, f"unknown placeholder {{{name}}}", advice, "")
            elif name in reserved and name in known[len(reserved) :]:
                reader.report(
                    node,
                    path,
                    f"{{{name}}} is a placeholder and a parameter as well",
                    "Rename the parameter.",
                    "",
                )
            elif name in SPREAD and len(pieces) > 1:
                reader.report(
                    node,
                    path,
                    f"{{{name}}} must be an argument of its own, for it becomes several",
                    "Put spaces around it.",
                    f'"{word}"',
                )


def _check_objectives(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    objectives = values["objectives"]
    if objectives is INVALID:
        return
    node = root.entries["objective"]
    nodes = node.items or [node]
    seen: set[str] = set()
    for i, (objective, one) in enumerate(zip(objectives, nodes, strict=True)):
        path = f"objective[{i}]" if node.items else "objective"
        if objective.metric in seen:
            reader.report(
                one.entries["metric"],
                f"{path}.metric",
                "is optimised twice",
                "Remove one of the two.",
            )
        seen.add(objective.metric)
        if objective.pattern is not None:
            _check_pattern(objective.pattern, one, path, reader)
    if len(objectives) < 2:
        return
    pruner, sampler = values["pruner"], values["sampler"]
    if pruner is not INVALID and pruner.type != "none":
        reader.report(
            root.entries["pruner"],
            "pruner",
            "cannot be used with several objectives",
            "Remove it, or keep one objective.",
            pruner.type,
        )
    if sampler is not INVALID and sampler.type == "cmaes":
        reader.report(
            root.entries["sampler"],
            "sampler",
            "cannot be used with several objectives",
            "Use nsgaii or tpe.",
            sampler.type,
        )


def _check_pattern(pattern: str, objective: Node, path: str, reader: Reader) -> None:
    source = objective.entries["from"].entries["stdout"]
    where = f"{path}.from.stdout"
    try:
        groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        reader.report(
            source,
            where,
            f"must be a regular expression, and is none: {error}",
            r"Put \ before a character that stands for itself.",
        )
        return
    if not groups:
        reader.report(
            source,
            where,
            "must have a group around the number",
            'For example "val_acc=([0-9.eE+-]+)".',
        )


def _check_points(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    space, points = values["space"], values["points"]
    if not points or not isinstance(space, Space):
        return
    for i, item in enumerate(root.entries["points"].items):
        point = item.plain()
        for name, value in point.items():
            path, node = f"points[{i}].{name}", item.entries[name]
            if name not in space.names():
                near = closest(name, space.names())
                advice = f"Did you mean {near}?" if near else "Remove it."
                reader.report(node, path, "is not a parameter of the space", advice, "")
                continue
            parameter = space.get(name)
            if not parameter.contains(value):
                rule = f"must be a value that {name} can take"
                reader.report(node, path, rule, describe_values(parameter, value))
            for parent, allowed in parameter.when.items():
                if parent in point and not any(same_value(point[parent], v) for v in allowed):
                    given = item.entries[parent].shown()
                    rule = f"does not exist when {parent} is {given}"
                    reader.report(node, path, rule, "Remove it.")
    trials = values["trials"]
    if isinstance(trials, int) and len(points) > trials:
        reader.report(
            root.entries["points"],
            "points",
            f"must not be more than trials, {trials}",
            "Raise trials, or remove points.",
            str(len(points)),
        )


def _check_trials(values: dict[str, Any], root: Node, reader: Reader) -> None:
    """Check trials against a grid, and fill in its size where trials is absent."""
    sampler, space = values["sampler"], values["space"]
    is_grid = sampler is not INVALID and sampler.type == "grid"
    if not is_grid:
        if values["trials"] is None:
            reader.report(root, "trials", "is missing", "For example trials: 30.", "")
        return
    if not isinstance(space, Space):
        return
    endless = [parameter.name for parameter in space if parameter.count() is None]
    for name in endless:
        node = root.entries["space"].entries[name]
        reader.report(
            node,
            f"space.{name}",
            "must have a step, because a grid needs separate values",
            "Add step, or use choices.",
            "",
        )
    size = space.grid_size(limit=GRID_LIMIT)
    if endless or size is None or values["trials"] is INVALID:
        return
    if size > GRID_LIMIT:
        rule = f"must not make a grid of more than {GRID_LIMIT} points"
        reader.report(
            root.entries["space"],
            "space",
            rule,
            "Use fewer values, or sampler random or qmc.",
            str(size),
        )
        return
    size += len(values["points"] or ())  # the user's own points come before the grid's
    if values["trials"] is None:
        values["trials"] = size
    elif values["trials"] > size:
        reader.report(
            root.entries["trials"],
            "trials",
            f"must not be above the size of the grid, {size}",
            f"Write trials: {size}, or remove the key.",
        )


def _check_pruner(pruner: Any, root: Node, reader: Reader) -> None:
    """Check the options of a pruner against each other, in one inside another too."""
    if not isinstance(pruner, Choice):
        return
    path, node = "pruner", root.entries.get("pruner")
    options: dict[str, Any] = {"type": pruner.type, **pruner.options}
    while node is not None:
        kind = options["type"]
        lower, upper = options.get("lower"), options.get("upper")
        if kind == "threshold" and lower is None and upper is None:
            reader.report(node, path, "needs lower or upper", "Write one of them.")
        if lower is not None and upper is not None and lower >= upper:
            reader.report(
                node.entries["lower"],
                f"{path}.lower",
                f"must be below upper, {node.entries['upper'].text}",
                "Swap the two.",
            )
        least, most = options.get("min_resource", 1), options.get("max_resource")
        if isinstance(most, int) and isinstance(least, int) and least > most:
            reader.report(
                node.entries["max_resource"],
                f"{path}.max_resource",
                f"must not be below min_resource, {least}",
                "Raise it.",
            )
        node = node.entries.get("pruner")
        path, options = join(path, "pruner"), options.get("pruner") or {}


def _check_resources(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    resources = values["resources"]
    if resources is INVALID or "resources" not in root.entries:
        return
    entries = root.entries["resources"].entries
    shares = [name for name in ("shard", "mps") if name in entries]
    if shares and (resources.gpus or len(shares) > 1):
        other = "gpus" if resources.gpus else "shard"
        reader.report(
            entries[shares[-1]],
            f"resources.{shares[-1]}",
            f"cannot go with {other}",
            "A trial has whole GPUs or a share of one: keep one of the keys.",
        )
    limit_s, grace_s = resources.time_limit_s, values["grace_s"]
    if limit_s is not None and grace_s is not INVALID and grace_s >= limit_s:
        key, path = ("grace", "grace") if "grace" in root.entries else ("time", "resources.time")
        node = root.entries["grace"] if key == "grace" else entries["time"]
        rule = f"must be shorter than resources.time, {limit_s} s"
        if key == "time":
            rule = f"must be longer than grace, {grace_s} s"
        reader.report(node, path, rule, "Give the task more time, or write a shorter grace.")


def _check_slots(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    slurm, resources = values["slurm"], values["resources"]
    if slurm is INVALID or slurm.slots == 1 or resources is INVALID:
        return
    node = root.entries["slurm"].entries["slots"]
    for other, is_so, why in (
        ("resources.nodes", resources.nodes > 1, "The trials of a task share one node"),
        ("resources.shard", resources.shard, "Tasks that share a GPU need no slots"),
        ("resources.mps", resources.mps, "Tasks that share a GPU need no slots"),
    ):
        if is_so:
            reader.report(
                node, "slurm.slots", f"cannot go with {other}", f"{why}: keep one of the two."
            )


def _check_ranks(values: Mapping[str, Any], root: Node, reader: Reader) -> None:
    """Check the number of processes against GPUs, CPUs and slots."""
    resources, ddp, slurm = values["resources"], values["ddp"], values["slurm"]
    if resources is INVALID or ddp is INVALID:
        return
    ranks = ddp.ranks_per_node
    if ranks is not None and resources.gpu_count not in (0, ranks):
        reader.report(
            root.entries["ddp"].entries["ranks_per_node"],
            "ddp.ranks_per_node",
            f"must be the number of GPUs of a node, {resources.gpu_count}: each process has one",
            "Remove it.",
        )
    several = ranks or resources.gpu_count or 1
    starts = values["launcher"] not in (INVALID, "python")
    if starts and resources.cpus is not None and several > 1 and resources.cpus < several:
        reader.report(
            root.entries["resources"].entries["cpus"],
            "resources.cpus",
            f"must not be below the number of processes of a node, {several}",
            "Raise it.",
        )
    if values["launcher"] == "srun" and slurm is not INVALID and slurm.slots > 1:
        reader.report(
            root.entries["launcher"],
            "launcher",
            "must not be srun where a task has several slots",
            "Use torchrun, or auto: each slot is a step of srun's already.",
        )


def _check_environment(environment: Any, root: Node, reader: Reader) -> None:
    if environment is INVALID or "environment" not in root.entries:
        return
    node = root.entries["environment"]
    runtime = environment.runtime
    inside = ("binds", "workdir", "options", "remap_root", "name", "unpack")
    useless = {
        "none": ("image", "setup", "build", *inside),
        "venv": ("setup", *inside),
        "conda": inside,
        "modules": ("image", "build", *inside),
        **dict.fromkeys(("apptainer", "singularity"), ("remap_root", "name")),
        **dict.fromkeys(("enroot", "pyxis"), ("unpack",)),
    }
    for name in useless.get(runtime, ()):
        if name in node.entries:
            advice = "Remove it."
            if "runtime" not in node.entries:
                advice = "Write the runtime that it is for, such as runtime: apptainer."
            reader.report(
                node.entries[name],
                f"environment.{name}",
                f"has no meaning with runtime {runtime}",
                advice,
                "",
            )
    if runtime not in ("none", "venv", "modules") and environment.image is None:
        what = "Name or folder of the environment." if runtime == "conda" else "Path of the image."
        reader.report(node, "environment.image", f"is missing for runtime {runtime}", what, "")
    if runtime == "modules" and not environment.setup:
        what = 'Write the lines that load them: ["module load python/3.11"].'
        reader.report(node, "environment.setup", f"is missing for runtime {runtime}", what, "")
