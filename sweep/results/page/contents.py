"""Which charts a study's report has, and the tables beside them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sweep.core import outcomes
from sweep.results.page import accounts, charts, charts_space, charts_tasks, views
from sweep.results.page.charts import Chart
from sweep.results.page.importance import importances
from sweep.results.page.lanes import timeline
from sweep.results.page.source import Source
from sweep.results.page.tiles import Tile, tiles
from sweep.results.page.views import View

MOST_AXES = 10  # of parallel coordinates
MOST_MAPS = 3  # contours
TABLE = 20  # trials in the table
FAILED_SHOWN = 10


@dataclass(frozen=True)
class Contents:
    """All of a report, as text and charts.

    Attributes:
        command: Runs the winner again; empty without one.
        charts: In reading order.
        noted: What could not be read or stored of trials: number and sentence.
    """

    source: Source
    tiles: list[Tile]
    command: str
    charts: list[Chart]
    levels: list[accounts.Level]
    hours: accounts.Hours
    failures: list[accounts.NodeFailures]
    failed: list[Mapping[str, Any]]
    trials: list[Mapping[str, Any]]
    noted: list[tuple[int, str]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)


def arrange(source: Source, runs: str | None = None) -> Contents:
    """Return what a report shows.

    Args:
        runs: The runs folder, where a command must name it.
    """
    spent = accounts.hours(source)
    failed = [row for row in source.rows if row["state"] == outcomes.FAILED]
    return Contents(
        source=source,
        tiles=tiles(source, spent),
        command=rerun_command(source, runs),
        charts=_charts(source),
        levels=accounts.levels(source),
        hours=spent,
        failures=accounts.failures(source),
        failed=failed[:FAILED_SHOWN],
        trials=[row for row in source.rows if row["rank"] is not None][:TABLE],
        noted=[(record.number, note) for record in source.records for note in record.notes],
        facts=_facts(source),
    )


def rerun_command(source: Source, runs: str | None) -> str:
    """Return the command that runs the winner again."""
    if source.best is None:
        return ""
    argv = ["sweep", "rerun-best", source.study.name, "--trial", str(source.best.number), "--wait"]
    return shlex.join([*argv, *(["--runs", runs] if runs else [])])


def _facts(source: Source) -> list[tuple[str, str]]:
    study = source.study
    facts = [("command", shlex.join(study.command))]
    for objective in study.objectives:
        facts.append(("objective", f"{objective.direction} {objective.metric} ({objective.at})"))
    for bound in study.constraints:
        facts.append(("constraint", f"{bound.metric} {bound.limits}"))
    for parameter in study.space:
        facts.append((parameter.name, _range(parameter)))
    for name, value in study.fixed.items():
        facts.append((f"{name} (fixed)", views.text_of(value)))
    facts += [
        ("sampler", study.sampler.type),
        ("pruner", study.pruner.type),
        ("seed", str(study.seed)),
        ("at once", f"{study.parallel} trials"),
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
    if study.environment.runtime != "none":
        facts.append(
            ("environment", f"{study.environment.runtime} {study.environment.image or ''}".strip())
        )
    for record in source.records:
        for before in record.retries:
            facts.append((f"trial {record.number}", before.sentence))
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


def _charts(source: Source) -> list[Chart]:
    found: list[Chart] = []
    makers: list[Callable[[Source], list[Chart]]] = [_progress, _pareto, _learning, _space, _work]
    for make in makers:
        found += make(source)
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
    caption = f"{objective.metric}; the best in colour, other complete trials faint, pruned and "
    caption += "failed ones grey. " + _part(view, "curves") + _breaking(source)
    return [
        Chart(
            "curves",
            "Learning curves",
            charts.curves(view, objective, scale),
            caption,
            f"{objective.metric} over the steps, one line a trial.",
        )
    ]


def _space(source: Source) -> list[Chart]:
    objective = source.study.objective
    shares = importances(source)
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
                + ("Grey ones break the constraints. " if _breaking(source) else "")
                + _part(view, "trials"),
            )
        )
    for place, parameter in enumerate(chosen[: views.MOST_SLICES]):
        part = views.slice_of(source, parameter)
        found.append(
            Chart(
                f"slice-{place}",
                f"{objective.metric} over {parameter.name}",
                charts_space.slice_of(part, parameter, objective, scale),
                _part(part, "trials"),
                small=True,
            )
        )
    numeric = [p for p in chosen if p.type != "categorical"][:MOST_MAPS]
    for a, b in views.pairs(numeric, MOST_MAPS):  # type: ignore[arg-type]
        found_map = views.contour(source, numeric[a], numeric[b])
        if found_map is not None:
            grid, dots = found_map
            spec = charts_space.contour(grid, dots, numeric[a], numeric[b], objective, complete)
            title = f"{objective.metric} over {numeric[a].name} and {numeric[b].name}"
            found.append(
                Chart(
                    f"contour-{a}-{b}",
                    title,
                    spec,
                    "Linear between the complete trials (dots)."
                    + (" Crosses break the constraints." if _breaking(source) else ""),
                )
            )
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
