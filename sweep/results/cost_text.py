"""What a study cost, in words and as a table: for the terminal, and the same on the page."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.core.times import span
from sweep.results.cost_to_solution import (
    CommonLevel,
    CostToSolution,
    QualityLevel,
    TrainingCost,
    thinned,
)

_MEASURED = {"nvml": "GPUs alone, by NVML", "slurm": "Slurm's accounting of the tasks"}


def duration(hours: float | None) -> str:
    """Return hours as people say them."""
    return "not known" if hours is None else span(hours * 3600)


def gpu_text(hours: float | None) -> str:
    """Return GPU-hours as text."""
    if hours is None:
        return "not known"
    return f"{hours:,.0f} GPU-h" if hours >= 100 else f"{hours:.3g} GPU-h"


def energy_text(joules: float) -> str:
    """Return an energy as people say it."""
    kwh = joules / 3.6e6
    if kwh >= 100:
        return f"{kwh:,.0f} kWh"
    return f"{kwh:.3g} kWh" if kwh >= 0.001 else f"{joules:.3g} J"


def spent_text(spent: TrainingCost) -> str:
    """Return what some training took: GPU-hours where GPUs were used, else its time."""
    return gpu_text(spent.gpu_hours) if spent.gpu_hours else span(spent.training_s)


def measured_text(cost: CostToSolution) -> str:
    """Return by what the energy was measured, and of how many attempts where not of all."""
    said = " and ".join(_MEASURED[by] for by in cost.energy_by if by in _MEASURED)
    if cost.energy_measured < cost.attempts:
        said += f"; {cost.energy_measured:,} of {cost.attempts:,} attempts"
    return said


def facts(cost: CostToSolution) -> list[tuple[str, str]]:
    """Return labels and texts of what it cost; what there was none of, or what nothing measured, is
    no figure."""
    spent, recovery = cost.spent, cost.recovery
    found = [
        ("from first to last", span(cost.after_s or 0.0)),
        ("training", span(spent.training_s)),
    ]
    if spent.gpu_hours != 0:
        found.append(("GPU-hours", gpu_text(spent.gpu_hours)))
    if spent.energy_j:
        found.append(("energy", f"{energy_text(spent.energy_j)} ({measured_text(cost)})"))
    if cost.lost.training_s:
        found.append(("lost to crashes", f"{spent_text(cost.lost)} ({cost.lost_share:.1%})"))
    if cost.saved_by_pruning is not None and cost.saved_by_pruning.training_s:
        found.append(("saved by pruning", f"about {spent_text(cost.saved_by_pruning)}"))
    if cost.saved_by_packing is not None:
        found.append(("saved by sharing GPUs", f"about {gpu_text(cost.saved_by_packing)}"))
    if recovery.rate is not None:
        said = f"{recovery.recovered} of {recovery.trials} trials ({recovery.rate:.0%})"
        if recovery.interrupted:
            said += f"; {recovery.resumed} of {recovery.interrupted} attempts from a checkpoint"
        found.append(("recovered after failures", said))
    return found


def level_cells(cost: CostToSolution) -> list[list[str]]:
    """Return the table of quality levels, its heading first; [] without any."""
    has_gpus, has_energy = cost.spent.gpu_hours != 0, cost.spent.energy_j is not None
    head = [cost.metric, "trial", "after", "training"]
    head += [*(["GPU-hours"] if has_gpus else []), *(["energy"] if has_energy else []), "results"]
    rows = [head] if cost.levels else []
    for level in thinned(cost.levels):
        row = [f"{level.value:.6g}", str(level.trial), span(level.after_s)]
        row.append(span(level.spent.training_s))
        row += [gpu_text(level.spent.gpu_hours)] if has_gpus else []
        row += [_energy(level)] if has_energy else []
        rows.append([*row, str(level.ended)])
    return rows


def common_cells(
    levels: Sequence[CommonLevel], a: CostToSolution, b: CostToSolution
) -> list[list[str]]:
    """Return the table of the levels of two studies, its heading first."""
    with_energy = a.spent.energy_j is not None or b.spent.energy_j is not None
    sides = ("a", "b")
    head = [a.metric, *(f"after {s}" for s in sides), *(f"cost {s}" for s in sides)]
    rows = [head + ([f"energy {s}" for s in sides] if with_energy else [])]
    for one in levels:
        both = (one.a, one.b)
        row = [f"{one.value:.6g}"]
        row += ["-" if level is None else span(level.after_s) for level in both]
        row += ["-" if level is None else spent_text(level.spent) for level in both]
        row += ["-" if level is None else _energy(level) for level in both] if with_energy else []
        rows.append(row)
    return rows


def _energy(level: QualityLevel) -> str:
    return "not known" if level.spent.energy_j is None else energy_text(level.spent.energy_j)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's rows as lines, each column as wide as its widest cell, to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def text(cost: CostToSolution) -> str:
    """Return all of it for a terminal."""
    found = facts(cost)
    width = max(len(label) for label, _ in found)
    lines = [
        f"{cost.study}: what it cost",
        *(f"  {label:<{width}}  {said}" for label, said in found),
    ]
    table = level_cells(cost)
    if table:
        lines += ["", *aligned(table)]
        if len(table) - 1 < len(cost.levels):
            lines.append(f"the largest steps of {len(cost.levels)}; all of them: --format json")
    return "\n".join(lines)
