"""The figures at the head of a report."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.core import outcomes
from sweep.core.times import span
from sweep.core.trial import TrialRecord, deviation
from sweep.results.cost_text import duration, energy_text, gpu_text, measured_text, spent_text
from sweep.results.cost_to_solution import CostToSolution
from sweep.results.page import accounts
from sweep.results.page.source import Source


@dataclass(frozen=True)
class Tile:
    """One figure with its name and a sentence."""

    name: str
    value: str
    note: str = ""


def _whose(best: TrialRecord) -> str:
    """Say which trial it is; of one of several trainings that the value is their mean."""
    count, sd = len(best.replicates), deviation(best.replicates)
    of = f": mean of {count} trainings, ± {sd:.3g}" if sd is not None else ""
    return f"trial {best.number}{of}"


def tiles(source: Source, cost: CostToSolution) -> list[Tile]:
    counts = source.counts
    best = source.best
    study = source.study
    others = ", ".join(
        f"{counts[state]:,} {state}"
        for state in outcomes.STATES
        if counts[state] and state != outcomes.COMPLETE
    )
    found = []
    if best is not None and not study.is_multi_objective:
        found.append(Tile(f"best {study.objective.metric}", f"{best.values[0]:.6g}", _whose(best)))
    elif best is not None:
        size = sum(source.places[r.number] == 1 and r.is_feasible for r in source.records)
        found.append(Tile("on the Pareto front", f"{size:,}", "trials that none is better than"))
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
    spent, lost, saved = cost.spent, cost.lost, cost.saved_by_pruning
    is_without = not spent.gpu_hours and spent.training_s
    no_gpu = "no GPUs were asked for: hours of training" if is_without else ""
    if spent.gpu_hours is None:
        no_gpu = "shares of GPUs: hours of training"
    note = no_gpu or f"{span(spent.training_s)} of training"
    found.append(Tile("in training", spent_text(spent), note))
    # What there was none of, or what nothing measured, is no figure.
    if lost.training_s:
        said = f"{cost.lost_share:.1%} of training: failed trials, and what was done again"
        found.append(Tile("lost to crashes", spent_text(lost), said))
    if counts[outcomes.PRUNED] and saved is not None:
        said = "what pruned trials had left to the usual number of steps"
        found.append(Tile("saved by pruning", f"about {spent_text(saved)}", said))
    if cost.saved_by_packing is not None:
        said = "at the pace of trials that had a GPU for themselves"
        found.append(
            Tile("saved by sharing GPUs", f"about {gpu_text(cost.saved_by_packing)}", said)
        )
    recovery = cost.recovery
    if recovery.rate is not None:
        found.append(
            Tile(
                "recovered after failures",
                f"{recovery.recovered:,} of {recovery.trials:,}",
                f"{recovery.rate:.0%} of the trials that met one came to a result",
            )
        )
    stops = accounts.interruptions(source)
    if stops.share is not None:
        found.append(
            Tile(
                "interrupted and resumed",
                f"{stops.resumed:,} of {stops.total:,}",
                f"{stops.share:.0%} from a checkpoint; "
                f"{stops.restarted:,} from the start, {stops.over:,} not again",
            )
        )
    if spent.energy_j:
        found.append(Tile("energy", energy_text(spent.energy_j), measured_text(cost)))
    return found
