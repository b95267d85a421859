"""Which charts a study's report has, and the tables beside them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweep.core import outcomes
from sweep.core.shell_text import show_command
from sweep.results import cost_text, held_back
from sweep.results.cost_to_solution import CostToSolution, cost
from sweep.results.counts import count_trainings
from sweep.results.held_back import HeldBack
from sweep.results.page import accounts, charts, charts_profile, charts_space, charts_tasks, views
from sweep.results.page.charts import Chart
from sweep.results.page.current import Current
from sweep.results.page.dataset import MOST_AXES, columns
from sweep.results.page.importance import importances
from sweep.results.page.lanes import timeline
from sweep.results.page.source import Source
from sweep.results.page.tiles import Tile, tiles
from sweep.results.page.views import View
from sweep.storage.reruns import SAME_SEED, Rerun

MOST_MAPS = 3  # contours
MOST_GPUS = 12  # each in a chart of its own
TABLE = 20  # trials in the table
FAILED_SHOWN = 10


@dataclass(frozen=True)
class Pair:
    """A re-run's value of an objective beside the trial's own, and the difference in words."""

    value: float | None
    before: float | None
    difference: str


@dataclass(frozen=True)
class Again:
    """A re-run as the page shows it."""

    k: int
    trial: int
    seed: str
    outcome: str
    values: list[Pair]


@dataclass(frozen=True)
class Contents:
    """All of a report, as text and charts.

    Attributes:
        command: Runs the winner again; empty without one.
        charts: In reading order.
        levels: What each quality level took: a heading, then a row for each.
        columns: All trials, for brushing and comparing.
        current: What the study does now, where that was read.
        trials: The best; behind the complete ones the pruned ones, by what they reported last.
        not_listed: How many trials have no place in such a table, in words.
        noted: What could not be read or stored of trials: number and sentence.
        held_back: What holds trainings back, the most frequent first.
    """

    source: Source
    tiles: list[Tile]
    command: str
    charts: list[Chart]
    cost: CostToSolution
    levels: list[list[str]]
    failures: list[accounts.NodeFailures]
    failed: list[Mapping[str, Any]]
    trials: list[Mapping[str, Any]]
    noted: list[tuple[int, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    columns: Mapping[str, Any] = field(default_factory=dict)
    current: Current | None = None
    not_listed: str = ""
    reruns: list[Again] = field(default_factory=list)
    held_back: list[HeldBack] = field(default_factory=list)

    def at(self, current: Current) -> Contents:
        """Return the same at another moment: what the study does now is read more often."""
        return replace(self, current=current)

    @property
    def has_pruned(self) -> bool:
        """Whether the table of the best holds pruned trials."""
        return any(row["state"] == outcomes.PRUNED for row in self.trials)


def arrange(
    source: Source,
    runs: str | None = None,
    current: Current | None = None,
    judge: Callable[[Source], Mapping[str, float]] = importances,
) -> Contents:
    """Return what a report shows.

    Args:
        runs: The runs folder, where a command must name it.
        current: What the study does now.
        judge: Gives the parameters' importances; they take seconds.
    """
    shares = judge(source)
    spent = cost(source)
    failed = [row for row in source.rows if row["state"] == outcomes.FAILED]
    return Contents(
        source=source,
        tiles=tiles(source, spent),
        command=rerun_command(source, runs),
        charts=_charts(source, shares),
        cost=spent,
        levels=cost_text.level_cells(spent),
        failures=accounts.failures(source),
        failed=failed[:FAILED_SHOWN],
        trials=_table(source),
        not_listed=_not_listed(source),
        reruns=[_again(source, one) for one in source.reruns],
        noted=[(record.number, note) for record in source.records for note in record.notes],
        facts=_facts(source),
        columns=columns(source, views.varied(source, shares)),
        current=current,
        held_back=held_back.causes(source.looked_at),
    )


def _table(source: Source) -> list[Mapping[str, Any]]:
    ranked = [row for row in source.rows if row["rank"] is not None][:TABLE]
    if source.study.is_multi_objective:
        return ranked
    sign = -1.0 if source.study.objective.direction == "maximize" else 1.0
    pruned = [
        row for row in source.rows if row["state"] == outcomes.PRUNED and row["value"] is not None
    ]
    pruned.sort(key=lambda row: (sign * row["value"], row["trial"]))
    return [*ranked, *pruned][:TABLE]


def _not_listed(source: Source) -> str:
    without = (outcomes.FAILED, outcomes.CANCELLED)
    said = [f"{source.counts[state]:,} {state}" for state in without if source.counts[state]]
    return f"Not in this table: {' and '.join(said)}." if said else ""


def _again(source: Source, one: Rerun) -> Again:
    own = {record.number: record for record in source.records}
    before = own[one.trial].values if one.trial in own else ()
    if one.trial in own and one.kind == SAME_SEED:  # of several trainings the one that it repeats
        done = {each.seed: each.values for each in own[one.trial].replicates}
        before = done.get(one.seed, before)
    found = one.result.get("values") or ()
    seed = f"{one.seed} (its own)" if one.kind == SAME_SEED else str(one.seed)
    return Again(
        one.k,
        one.trial,
        seed,
        one.outcome or ("waiting" if one.claimed is None else "running"),
        [
            _pair(found[place] if place < len(found) else None, before[place : place + 1])
            for place in range(len(source.study.objectives))
        ],
    )


def _pair(value: float | None, own: Sequence[float]) -> Pair:
    before = own[0] if own else None
    if value is None or before is None:
        return Pair(value, before, "")
    if value == before:
        return Pair(value, before, "none")
    if not before or not math.isfinite(value) or not math.isfinite(before):
        return Pair(value, before, "differs")
    return Pair(value, before, f"{(value - before) / abs(before):+.3%}")


def rerun_command(source: Source, runs: str | None) -> str:
    """Return the command that runs the winner again."""
    if source.best is None:
        return ""
    argv = ["sweep", "rerun-best", source.study.name, "--trial", str(source.best.number), "--wait"]
    return shlex.join([*argv, *(["--runs", runs] if runs else [])])


def _facts(source: Source) -> list[tuple[str, str]]:
    study = source.study
    facts = [("command", show_command(study.command))]
    for objective in study.objectives:
        facts.append(("objective", f"{objective.direction} {objective.metric} ({objective.at})"))
    for bound in study.constraints:
        facts.append(("constraint", f"{bound.metric} {bound.limits}"))
    for parameter in study.space:
        facts.append((parameter.name, _range(parameter)))
    for name, value in study.fixed.items():
        facts.append((f"{name} (fixed)", views.text_of(value)))
    facts += [
        *(("where", clause) for clause in study.where),
        ("sampler", study.sampler.type),
        ("pruner", study.pruner.type),
        *([("trainings of a trial", count_trainings(study))] if study.is_replicated else []),
        ("seed", str(study.seed)),
        ("at once", f"{study.parallel} trial{'' if study.parallel == 1 else 's'}"),
        ("executor", study.executor),
    ]
    resources = study.resources
    asked = [
        f"{resources.nodes} node{'s' if resources.nodes > 1 else ''}",
        f"{resources.gpus or 'no'} GPU{'' if resources.gpus == 1 else 's'}",
    ]
    if resources.cpus:
        asked.append(f"{resources.cpus} CPU{'s' if resources.cpus > 1 else ''}")
    facts.append(("one trial has", ", ".join(asked)))
    facts += [("trials that share a GPU", said) for said in source.shared.gains]
    if study.environment.runtime != "none":
        facts.append(
            ("environment", f"{study.environment.runtime} {study.environment.image or ''}".strip())
        )
    for record in source.records:
        for before in record.retries:
            facts.append((f"trial {record.number}", before.sentence))
    if not accounts.energy(source).joules:
        facts.append(("energy", "not reported: neither NVML nor Slurm's accounting measures here"))
    code = source.provenance.get("code", {})
    if source.code.sentence:
        facts.append(("code", source.code.sentence))
    elif code.get("commit"):
        dirty = " with uncommitted changes" if code.get("dirty") else ""
        facts.append(("code", f"commit {code['commit'][:12]}{dirty}"))
    return facts


def _range(parameter: Any) -> str:
    if parameter.type == "categorical":
        text = ", ".join(views.text_of(choice) for choice in parameter.choices)
    else:
        text = f"{parameter.low} to {parameter.high}" + (", log" if parameter.log else "")
        text += f", step {parameter.step}" if parameter.step else ""
    conditions = " and ".join(
        f"{name} is {' or '.join(views.text_of(v) for v in values)}"
        for name, values in parameter.when.items()
    )
    return text + (f"; when {conditions}" if conditions else "")


def _part(view: View, what: str) -> str:
    """Return a sentence about what is left out; empty where nothing is."""
    if not view.is_part:
        return ""
    return f"Drawn: {view.shown:,} of {view.total:,} {what}, spread evenly."


def _charts(source: Source, shares: Mapping[str, float]) -> list[Chart]:
    return [
        *_progress(source),
        *_pareto(source),
        *_learning(source),
        *_space(source, shares),
        *_work(source),
        *_profile(source),
        *_shared(source),
    ]


def _profile(source: Source) -> list[Chart]:
    """Return the course of the training that was looked at: the best's, or else the first known."""
    known = [one for one in source.looked_at if one.over_time]
    best = source.best.number if source.best is not None else None
    own = [one for one in known if one.trial == best and one.attempt is not None]
    for one in [*own[-1:], *known][:1]:
        return charts_profile.course(one.label, one.over_time)
    return []


def _shared(source: Source) -> list[Chart]:
    """Return the memory and the work of each GPU that trials share, over time."""
    courses = source.shared.courses
    found = []
    for number, (label, seen) in enumerate(list(courses.items())[:MOST_GPUS]):
        for chart in charts_profile.course(
            f"{label}, which trials share", seen, f"shared-{number}"
        ):
            found.append(replace(chart, title=label, caption=""))
    if len(courses) > MOST_GPUS and found:
        left_out = f"Drawn: the first {MOST_GPUS} of {len(courses)} GPUs."
        found[-1] = replace(found[-1], caption=left_out)
    return found


def _scale(source: Source, objective: int = 0) -> views.Scale | None:
    values = [r.values[objective] for r in accounts.finished(source) if len(r.values) > objective]
    best = source.best.values[objective] if source.best is not None else None
    return views.scale_of(values, source.study.objectives[objective].direction, best)


def _breaking(source: Source) -> str:
    """Return a sentence about results that cannot win; empty where all can."""
    count = sum(not source.can_win(record) for record in views.valued(source))
    if not count:
        return ""
    return f" {count:,} {'breaks' if count == 1 else 'break'} the constraints, and cannot be best."


def _progress(source: Source) -> list[Chart]:
    study = source.study
    results = views.results(source)
    if study.is_multi_objective or not results.cells:
        return []
    best, scale, metric = views.best_so_far(source), _scale(source), study.objective.metric
    edge = "Results beyond the axis stand at its edge."
    pruned = (
        " A pruned trial has no rank, whatever it reported."
        if source.counts[outcomes.PRUNED]
        else ""
    )
    pruned += _breaking(source)
    unit = views.clock(source)[0]
    found = [
        Chart(
            "history",
            "Best so far",
            charts.history(results, best, study.objective, scale, "place"),
            edge + pruned,
            f"Each result of {metric} in the order they ended, and the best so far.",
        )
    ]
    if results.cells[0]["time"] is not None:
        found.append(
            Chart(
                "time",
                "Quality against time",
                charts.history(results, best, study.objective, scale, "time", unit),
                f"{unit.capitalize()} since the first attempt began.",
                f"Each result of {metric} by the time at which it was there.",
            )
        )
    return found


def _pareto(source: Source) -> list[Chart]:
    study = source.study
    found = []
    if not study.is_multi_objective or not views.valued(source):
        return []
    for a, b in views.pairs(study.objectives):
        across, up = study.objectives[a], study.objectives[b]
        view = views.front(source, a, b)
        spec = charts.pareto(view, across, up, [_scale(source, a), _scale(source, b)])
        first = sum(cell["front"] for cell in view.cells)
        found.append(
            Chart(
                f"front-{a}-{b}",
                f"Pareto front: {up.metric} and {across.metric}",
                spec,
                f"{first} trials on the front, of all {len(study.objectives)} objectives."
                + _breaking(source),
            )
        )
    return found


def _learning(source: Source) -> list[Chart]:
    view = views.curves(source)
    if not view.cells:
        return []
    objective = source.study.objective
    scale = views.scale_of([cell["value"] for cell in view.cells], objective.direction)
    caption = f"{objective.metric}; the best in colour, other complete trials faint, all others "
    caption += "grey. " + _part(view, "curves") + _breaking(source)
    return [
        Chart(
            "curves",
            "Learning curves",
            charts.curves(view, objective, scale),
            caption,
            f"{objective.metric} over the steps, one line a trial.",
        )
    ]


def _space(source: Source, shares: Mapping[str, float]) -> list[Chart]:
    objective = source.study.objective
    chosen = views.varied(source, shares)
    found = []
    if shares:
        found.append(
            Chart(
                "importances",
                "Parameter importances",
                charts.bars(shares),
                f"PED-ANOVA (Optuna) of {objective.metric} over the complete trials.",
            )
        )
    if not chosen or not accounts.finished(source):
        return found
    scale, complete = _scale(source), views.complete_scale(source)
    axes = chosen[:MOST_AXES]
    view, marks = views.parallel(source, axes)
    if view.cells:
        left_out = len(chosen) - len(axes)
        caption = f"The {len(axes)} most important parameters. " if left_out else ""
        found.append(
            Chart(
                "parallel",
                "Parallel coordinates",
                charts_space.parallel(view, marks, [p.name for p in axes], objective, complete),
                caption
                + "Complete trials; the brighter, the better. "
                + ("Purple ones break the constraints. " if _breaking(source) else "")
                + "Drag along an axis to keep those within; click it to let go.",
            )
        )
    winner = source.best.number if source.best is not None else None
    sliced = chosen[: views.MOST_SLICES]
    for parameter, key in zip(sliced, _file_names([p.name for p in sliced]), strict=True):
        part = views.slice_of(source, parameter)
        if not part.cells:
            continue  # a parameter that no result has
        is_marked = any(cell["trial"] == winner for cell in part.cells)
        found.append(
            Chart(
                f"slice-{key}",
                f"{objective.metric} over {parameter.name}",
                charts_space.slice_of(part, parameter, objective, scale, winner),
                ("The diamond is the best. " if is_marked else "") + _part(part, "trials"),
                small=True,
            )
        )
    numeric = [p for p in chosen if p.type != "categorical"][:MOST_MAPS]
    keys = _file_names([parameter.name for parameter in numeric])
    for a, b in views.pairs(numeric, MOST_MAPS):  # type: ignore[arg-type]
        found_map = views.contour(source, numeric[a], numeric[b])
        if found_map is not None:
            grid, dots = found_map
            spec = charts_space.contour(grid, dots, numeric[a], numeric[b], objective, complete)
            title = f"{objective.metric} over {numeric[a].name} and {numeric[b].name}"
            found.append(
                Chart(
                    f"contour-{keys[a]}-{keys[b]}",
                    title,
                    spec,
                    "Linear between the complete trials (dots)."
                    + (" Crosses break the constraints." if _breaking(source) else ""),
                )
            )
    return found


def _holds(view: View, trial: int | None) -> bool:
    return any(cell["trial"] == trial for cell in view.cells)


def _file_names(names: Sequence[str]) -> list[str]:
    """Return a name for the picture of each parameter, which any file system takes."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:60].strip("_.") or "parameter"
        same = [other for other in found if other.lower().partition("~")[0] == plain.lower()]
        found.append(f"{plain}~{len(same) + 1}" if same else plain)
    return found


def _work(source: Source) -> list[Chart]:
    view = timeline(source)
    if not view.cells:
        return []
    caption = "One row for each place that serves one trial at a time; thin: it waited."
    if view.is_part:
        caption += f" Drawn: {view.shown} of {view.total} places."
    found = [Chart("timeline", "What the slots did", charts_tasks.timeline(view), caption)]
    failures = accounts.failures(source)
    if failures:
        found.append(
            Chart(
                "failures",
                "Attempts that did not end well",
                charts_tasks.failures(failures),
                "By reason and node. A trial goes on after an interruption, as its next attempt.",
            )
        )
    return found
