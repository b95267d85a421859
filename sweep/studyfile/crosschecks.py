"""What must hold between the keys of a study file that say what is searched, and until when."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.core import executors
from sweep.core.errors import closest
from sweep.core.placeholders import CHECKPOINT, DATA, RESERVED, SPREAD, Placeholder, parse
from sweep.core.relations import breaches, keeps_to, read_relation, read_relations
from sweep.core.space import Space, same_value
from sweep.core.study import (
    Choice,
    ConfigFile,
    Environment,
    Notify,
    Objective,
    Replicates,
    Resources,
)
from sweep.studyfile.conditions import describe_values
from sweep.studyfile.crosscheck import crosscheck
from sweep.studyfile.keys import TRIAL
from sweep.studyfile.relation_keys import check_relation, known_values
from sweep.studyfile.rules import INVALID, Entry

GRID_LIMIT = 100_000  # points; more do not make a search
_LEARNING = ("auto", "tpe", "gp", "cmaes", "nsgaii")
_FORGETTING = ("auto", "tpe", "gp")  # a wrong prior

Objectives = tuple[Objective, ...]


def fill_in_trials(values: dict[str, Any], root: Entry) -> None:
    """Put the size of the grid where ``trials`` is absent; without a grid it must be there."""
    sampler, space, points = values["sampler"], values["space"], values["points"]
    if values["trials"] is not None:
        return
    if sampler is INVALID or sampler.type != "grid":
        root.report_missing("trials", "For example trials: 30.")
    elif isinstance(space, Space) and INVALID not in (values["where"], values["fixed"]):
        values["trials"] = _grid_size(space, values["fixed"], values["where"], points or ())


def _grid_size(
    space: Space, fixed: Mapping[str, Any], where: Sequence[str], points: Sequence[Any]
) -> int | None:
    """Return how many trials a grid has; None where they have no number, or are too many."""
    size = space.grid_size(limit=GRID_LIMIT)
    if size is None or size > GRID_LIMIT:
        return None
    if where:
        relations = read_relations(tuple(where))
        size = sum(keeps_to(relations, {**fixed, **one}) for one in space.combinations())
    # The user's own points come before the grid's.
    return size + len(points)


@crosscheck
def _names_are_given_once(root: Entry) -> None:
    if "fixed" in root and "space" in root:
        for name, place in root["fixed"].entries().items():
            if name in root["space"]:
                rule = "is a parameter of the space as well"
                place.report(rule, "Remove one of the two.", "")


@crosscheck
def _nested_names_do_not_clash(root: Entry, config: ConfigFile) -> None:
    """A value cannot be a mapping of others as well, unless it is one itself."""
    if not config.nested:
        return
    places = {
        name: place
        for key in ("fixed", "space")
        if key in root
        for name, place in root[key].entries().items()
    }
    for name, place in places.items():
        parts = name.split(".")
        for count in range(1, len(parts)):
            above = ".".join(parts[:count])
            is_seed = above == "seed" and config.seed
            if is_seed or (above in places and not _holds_mappings(places[above])):
                rule = f"lies within {above}, which is a value: config.nested makes a mapping of it"
                place.report(rule, "Rename one of the two.", "")
                break


def _holds_mappings(place: Entry) -> bool:
    """Tell whether what a fixed value or a choice is are mappings, which others can be put into."""
    given = place.node.plain()
    if place.path.startswith("fixed"):
        return isinstance(given, dict)
    choices = given.get("choices") if isinstance(given, dict) else None
    return isinstance(choices, list) and all(isinstance(one, dict) for one in choices)


@crosscheck
def _a_workdir_of_ones_own_is_ours(root: Entry, workdir: str, environment: Environment) -> None:
    if workdir == TRIAL and environment.workdir is not None:
        rule = "must be absent with workdir: trial, which says where training starts"
        root["environment"]["workdir"].report(rule, "Remove one of the two.")


@crosscheck
def _placeholders_are_known(root: Entry, command: Sequence[str], data: Any) -> None:
    _check_words(root, root["command"], command, (*RESERVED, *_data_names(data)))


@crosscheck
def _placeholders_of_commands_are_known(
    root: Entry, commands: Mapping[str, Sequence[str]], data: Any
) -> None:
    known = (*RESERVED, CHECKPOINT, *_data_names(data))
    for name, words in commands.items():
        _check_words(root, root["commands"][name], words, known)


def _data_names(data: Any) -> list[str]:
    return [DATA + name for name in data] if isinstance(data, Mapping) else []


@crosscheck
def _data_sets_have_names_of_their_own(root: Entry, data: Any) -> None:
    seen: dict[str, str] = {}
    for name in data if isinstance(data, Mapping) else ():
        if (first := seen.setdefault(name.upper(), name)) != name:
            rule = f"has the variable of {first}: SWEEP_DATA_{name.upper()}"
            root["data"][name].report(rule, "Rename it.", "")
        for key in ("space", "fixed"):
            if key in root and DATA + name in root[key]:
                root[key][DATA + name].report("is where a data set lies", "Rename it.", "")


def _check_words(root: Entry, at: Entry, command: Sequence[str], reserved: Sequence[str]) -> None:
    own = [name for key in ("space", "fixed") if key in root for name in root[key].node.entries]
    for word in command:
        try:
            pieces = parse(word)
        except ValueError:
            advice = "Write {{ and }} for braces."
            at.report("has a brace without its partner", advice, f'"{word}"')
            continue
        for name in [piece.name for piece in pieces if isinstance(piece, Placeholder)]:
            if name not in reserved and name not in own:
                near = closest(name, [*reserved, *own])
                advice = f"Did you mean {{{near}}}?" if near else "Write {{ and }} for braces."
                at.report(f"unknown placeholder {{{name}}}", advice, "")
            elif name in reserved and name in own:
                rule = f"{{{name}}} is a placeholder and a parameter as well"
                at.report(rule, "Rename the parameter.", "")
            elif name in SPREAD and len(pieces) > 1:
                rule = f"{{{name}}} must be an argument of its own, for it becomes several"
                at.report(rule, "Put spaces around it.", f'"{word}"')


@crosscheck
def _objectives_differ_and_can_be_read(root: Entry, objectives: Objectives) -> None:
    seen: set[str] = set()
    at = root["objective"]
    for objective, one in zip(objectives, at.items() or [at], strict=True):
        if objective.metric in seen:
            one["metric"].report("is optimised twice", "Remove one of the two.")
        seen.add(objective.metric)
        if objective.pattern is not None:
            _check_pattern(objective.pattern, one["from"]["stdout"], "val_acc=([0-9.eE+-]+)")
        if objective.step_pattern is not None:
            _check_pattern(objective.step_pattern, one["from"]["step"], "Epoch ([0-9]+)")


def _check_pattern(pattern: str, at: Entry, example: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except (re.error, RecursionError, OverflowError) as error:
        rule = f"must be a regular expression, and is none: {error}"
        at.report(rule, r"Put \ before a character that stands for itself.")
        return
    if not groups:
        at.report("must have a group around the number", f'For example "{example}".')


@crosscheck
def _pruner_has_one_objective(root: Entry, objectives: Objectives, pruner: Choice) -> None:
    if len(objectives) > 1 and pruner.type != "none":
        rule = "cannot be used with several objectives"
        root["pruner"].report(rule, "Remove it, or keep one objective.", pruner.type)


@crosscheck
def _cmaes_has_one_objective(root: Entry, objectives: Objectives, sampler: Choice) -> None:
    if len(objectives) > 1 and sampler.type == "cmaes":
        rule = "cannot be used with several objectives"
        root["sampler"].report(rule, "Use nsgaii or tpe.", sampler.type)


@crosscheck
def _points_lie_in_the_space(root: Entry, space: Space, points: Sequence[Any]) -> None:
    for item in root["points"].items() if points else ():
        point = item.node.plain()
        for name, value in point.items():
            at = item[name]
            if name not in space.names():
                near = closest(name, space.names())
                advice = f"Did you mean {near}?" if near else "Remove it."
                at.report("is not a parameter of the space", advice, "")
                continue
            parameter = space.get(name)
            if not parameter.contains(value):
                rule = f"must be a value that {name} can take"
                at.report(rule, describe_values(parameter, value))
            for parent, allowed in parameter.when.items():
                if parent in point and not any(same_value(point[parent], v) for v in allowed):
                    rule = f"does not exist when {parent} is {item[parent].node.shown()}"
                    at.report(rule, "Remove it.")


@crosscheck
def _points_are_no_more_than_trials(
    root: Entry, space: Space, points: Sequence[Any], trials: int | None
) -> None:
    if trials is not None and len(points) > trials:
        rule = f"must not be more than trials, {trials}"
        root["points"].report(rule, "Raise trials, or remove points.", str(len(points)))


@crosscheck
def _relations_are_about_the_space(
    root: Entry, space: Space, fixed: Mapping[str, Any], where: Sequence[str]
) -> None:
    if "where" in root:
        at = root["where"]
        for one in at.items() or [at]:
            check_relation(read_relation(one.node.value), space, fixed, one)


@crosscheck
def _points_keep_to_relations(
    root: Entry,
    space: Space,
    fixed: Mapping[str, Any],
    where: Sequence[str],
    points: Sequence[Mapping[str, Any]],
) -> None:
    """Hold the points to the relations of which they give all; ``design`` completes the others."""
    relations, places = read_relations(tuple(where)), root["points"].items() if points else []
    for number, point in enumerate(points if relations else ()):
        if any(name not in space.names() for name in point):
            continue  # reported already
        for clause, why in breaches(relations, known_values(point, fixed, space)):
            at = places[number] if places else root["points"]
            named = "" if places else f"configuration {number + 1} of it "
            at.report(f"{named}breaks {clause}: {why}", "Correct it, or leave it out.", "")
            break


@crosscheck
def _grid_has_an_end(root: Entry, sampler: Choice, space: Space) -> None:
    for parameter in space if sampler.type == "grid" else ():
        if parameter.count() is None:
            rule = "must have a step, because a grid needs separate values"
            root["space"][parameter.name].report(rule, "Add step, or use choices.", "")


@crosscheck
def _grid_is_not_too_large(root: Entry, sampler: Choice, space: Space) -> None:
    size = space.grid_size(limit=GRID_LIMIT) if sampler.type == "grid" else None
    if size is not None and size > GRID_LIMIT:
        rule = f"must not make a grid of more than {GRID_LIMIT} points"
        root["space"].report(rule, "Use fewer values, or sampler random or qmc.", str(size))


@crosscheck
def _trials_are_no_more_than_the_grid(
    root: Entry,
    sampler: Choice,
    space: Space,
    fixed: Mapping[str, Any],
    where: Sequence[str],
    points: Sequence[Any],
    trials: int | None,
) -> None:
    size = _grid_size(space, fixed, where, points) if sampler.type == "grid" else None
    if size == 0:
        root["where" if "where" in root else "space"].report(
            "keeps to none of the grid's points", "Correct the relations, or the choices."
        )
    elif size is not None and trials is not None and trials > size:
        rule = f"must not be above the size of the grid, {size}"
        rule += " points that keep to where" if where else ""
        root["trials"].report(rule, f"Write trials: {size}, or remove the key.")


@crosscheck
def _options_of_a_pruner_fit(root: Entry, pruner: Choice) -> None:
    if pruner.is_own:
        return
    options: Mapping[str, Any]
    at, options = root, {"pruner": {"type": pruner.type, **pruner.options}}
    while "pruner" in at:  # in one inside another too
        at, options = at["pruner"], options.get("pruner") or {}
        lower, upper = options.get("lower"), options.get("upper")
        if options["type"] == "threshold" and lower is None and upper is None:
            at.report("needs lower or upper", "Write one of them.")
        if lower is not None and upper is not None and lower >= upper:
            at["lower"].report(f"must be below upper, {at['upper'].node.text}", "Swap the two.")
        least, most = options.get("min_resource", 1), options.get("max_resource")
        if isinstance(most, int) and isinstance(least, int) and least > most:
            at["max_resource"].report(f"must not be below min_resource, {least}", "Raise it.")


@crosscheck
def _ends_have_one_objective(root: Entry, objectives: Objectives) -> None:
    for name in ("target", "patience", "terminator") if len(objectives) > 1 else ():
        if name in root:
            advice = "None of them is the best: remove the key, or keep one objective."
            root[name].report("cannot be used with several objectives", advice, "")


@crosscheck
def _replicates_can_be_compared(
    root: Entry, replicates: Replicates, objectives: Objectives, pruner: Choice
) -> None:
    if replicates.max > 1 and pruner.type == "promotion":
        rule = "cannot go with pruner promotion, which pauses a trial's one training"
        root["replicates"].report(rule, "Use pruner asha: it compares each trial's first.", "")
    if replicates.max > replicates.min and len(objectives) > 1:
        rule = "must be one number with several objectives: none of the trials is the best"
        root["replicates"].report(rule, f"For example replicates: {replicates.min}.", "")


@crosscheck
def _gpu_hours_can_be_counted(root: Entry, resources: Resources) -> None:
    if "gpu_hours" in root and not resources.gpus_used:
        rule = "needs resources.gpus: trials without GPUs use none"
        if resources.gpus_used is None:
            rule = "cannot be counted with resources.shard, which does not say of how many shares"
        root["gpu_hours"].report(rule, "Use time instead.")


@crosscheck
def _paused_trials_report(root: Entry, objectives: Objectives, pruner: Choice) -> None:
    if pruner.type == "promotion" and any(objective.pattern for objective in objectives):
        advice = (
            "A paused trial saves a checkpoint and leaves when it is told to: use "
            "sweep.report.Reporter, or asha."
        )
        root["pruner"].report("promotion needs a training that reports by itself", advice, "")


@crosscheck
def _configurations_can_differ(root: Entry, space: Space, duplicates: str) -> None:
    if not len(space) and duplicates != "keep":
        advice = "There all trials have the same configuration."
        root["duplicates"].report("must be keep where space is {}", advice)


@crosscheck
def _sampler_learns_from_a_warm_start(
    root: Entry, warm_start: str | None, sampler: Choice, space: Space
) -> None:
    if warm_start is not None and sampler.type not in _LEARNING:
        why = "is shown this study alone" if sampler.is_own else "learns nothing"
        rule = f"has no meaning with sampler {sampler.type}, which {why}"
        advice = "Use tpe, or give the earlier study's best as points."
        root["warm_start"].report(rule, advice, "")
    elif warm_start is not None and sampler.type == "cmaes" and "sigma0" in sampler.options:
        rule = "cannot go with the sampler's sigma0: where it starts follows from the earlier study"
        root["warm_start"].report(rule, "Leave out one of the two.", "")
    elif warm_start is not None and sampler.type == "cmaes" and any(p.when for p in space):
        rule = "cannot go with sampler cmaes where a parameter depends on another (when)"
        root["warm_start"].report(rule, "Use the sampler tpe.", "")


@crosscheck
def _notify_tells_somebody(root: Entry, notify: Notify, executor: str) -> None:
    """Mail comes from Slurm alone; and what does nothing is a mistake."""
    if notify.email and executor != executors.AUTO and not executors.get(executor).sends_mail:
        advice = "Remove it, or let notify.command send one."
        root["notify"]["email"].report("is Slurm's, and needs executor slurm", advice)
    elif not notify.email and not notify.command and "notify" in root:
        example = "For example notify: {command: [python, tell.py]}."
        root["notify"].report("tells nobody anything", example, "")


@crosscheck
def _warm_start_is_another_study(root: Entry, warm_start: str | None, name: str) -> None:
    if warm_start == name:
        root["warm_start"].report("must be another study", "Name an earlier one.")


@crosscheck
def _sampler_can_forget_a_prior(root: Entry, sampler: Choice, space: Space) -> None:
    for parameter in space if sampler.type not in _FORGETTING else ():
        if parameter.prior:
            advice = "Use the sampler tpe, gp or auto; or give it as one of points."
            rule = f"has no meaning with sampler {sampler.type}, which would not forget a wrong one"
            root["space"][parameter.name]["prior"].report(rule, advice, "")
