"""The figures at the head of a report, and how hours and energy are said."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.core import outcomes
from sweep.core.times import span
from sweep.core.trial import TrialRecord, deviation
from sweep.results.page import accounts
from sweep.results.page.source import Source


@dataclass(frozen=True)
class Tile:
    """One figure with its name and a sentence."""

    name: str
    value: str
    note: str = ""


def duration(hours: float | None) -> str:
    """Return hours as people say them."""
    if hours is None:
        return "not known"
    return span(hours * 3600)


def gpu_text(hours: float | None) -> str:
    """Return GPU-hours as text."""
    if hours is None:
        return "not known"
    return f"{hours:,.0f} GPU-h" if hours >= 100 else f"{hours:.3g} GPU-h"


def _both(spent: accounts.Hours, hours: float | None) -> str:
    """Return hours of training, as GPU-hours where GPUs were used."""
    if hours is None:
        return "not known"
    return gpu_text(spent.of_gpus(hours)) if spent.gpus else duration(hours)


def _whose(best: TrialRecord) -> str:
    """Say which trial it is; of one of several trainings that the value is their mean."""
    count, sd = len(best.replicates), deviation(best.replicates)
    of = f": mean of {count} trainings, ± {sd:.3g}" if sd is not None else ""
    return f"trial {best.number}{of}"


def tiles(source: Source, spent: accounts.Hours) -> list[Tile]:
    counts = source.counts
    best = source.best
    study = source.study
    others = ", ".join(
        f"{counts[state]} {state}"
        for state in outcomes.STATES
        if counts[state] and state != outcomes.COMPLETE
    )
    found = []
    if best is not None and not study.is_multi_objective:
        found.append(Tile(f"best {study.objective.metric}", f"{best.values[0]:.6g}", _whose(best)))
    elif best is not None:
        size = sum(source.places[r.number] == 1 and r.is_feasible for r in source.records)
        found.append(Tile("on the Pareto front", str(size), "trials that none is better than"))
    elif source.infeasible:
        name = (
            "on the Pareto front" if study.is_multi_objective else f"best {study.objective.metric}"
        )
        found.append(Tile(name, "none", "no trial keeps to the constraints"))
    found.append(
        Tile(
            "trials complete",
            f"{counts[outcomes.COMPLETE]:,} of {len(source.records):,}",
            others or "no others",
        )
    )
    begin = accounts.first_claim(source)
    ended = [accounts.end_of(a) for _, a in accounts.attempts(source)]
    if begin is not None:
        found.append(
            Tile(
                "from first to last",
                duration((max(ended) - begin).total_seconds() / 3600),
                f"{begin:%Y-%m-%d %H:%M} to {max(ended):%Y-%m-%d %H:%M} UTC",
            )
        )
    no_gpu = "" if spent.gpus else "no GPUs were asked for: hours of training"
    if spent.gpus is None:
        no_gpu = "shares of GPUs: hours of training"
    found.append(
        Tile(
            "in training",
            _both(spent, spent.training),
            no_gpu or f"{duration(spent.training)} of training",
        )
    )
    # What there was none of, or what nothing measured, is no figure.
    if spent.lost:
        share = spent.lost / spent.training
        found.append(
            Tile(
                "lost to crashes",
                _both(spent, spent.lost),
                f"{share:.1%} of training: failed trials, and what was done again",
            )
        )
    if counts[outcomes.PRUNED] and spent.saved is not None:
        found.append(
            Tile(
                "saved by pruning",
                f"about {_both(spent, spent.saved)}",
                "what pruned trials had left to the usual number of steps",
            )
        )
    stops = accounts.interruptions(source)
    if stops.share is not None:
        found.append(
            Tile(
                "interrupted and resumed",
                f"{stops.resumed} of {stops.total}",
                f"{stops.share:.0%} from a checkpoint; "
                f"{stops.restarted} from the start, {stops.over} not again",
            )
        )
    used = accounts.energy(source)
    return [*found, _energy(used)] if used.joules else found


def _energy(used: accounts.EnergySum) -> Tile:
    how = {"nvml": "GPUs alone, by NVML", "slurm": "Slurm's accounting of the tasks"}
    note = " and ".join(how[by] for by in sorted(used.by) if by in how)
    if used.measured < used.attempts:
        note += f"; {used.measured:,} of {used.attempts:,} attempts"
    return Tile("energy", energy_text(used.joules or 0.0), note)


def energy_text(joules: float) -> str:
    """Return an energy as people say it."""
    kwh = joules / 3.6e6
    if kwh >= 100:
        return f"{kwh:,.0f} kWh"
    return f"{kwh:.3g} kWh" if kwh >= 0.001 else f"{joules:.3g} J"
