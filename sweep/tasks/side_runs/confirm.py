"""Run the best few trials again with fresh seeds, and say which is the honest choice.

The runs are kept in ``sweep_rerun`` and ``reruns/<k>/``, never among the trials. All trials get the
same seeds, which no trial of the study has; asked again for more seeds, only what is missing runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.scheduler import Scheduler
from sweep.core.study import Study
from sweep.core.trial import replicate_seed, trial_seed
from sweep.storage import reruns
from sweep.storage.reruns import CONFIRM, Rerun
from sweep.tasks.side_runs import rerun
from sweep.tasks.side_runs.confidence import LEVEL, Estimate, Judgement, estimate, judge
from sweep.tasks.side_runs.side_run import ask

# These say something of the training itself; after any other end it runs again.
TELLING = (outcomes.FINISHED, outcomes.ERROR, outcomes.NO_METRIC, outcomes.DIVERGED)


@dataclass(frozen=True)
class Candidate:
    """A trial to confirm: its number, Optuna's id, and the value that the search saw."""

    trial: int
    trial_id: int
    value: float


def choose(opened: Opened, top: int) -> list[Candidate]:
    """Return the best complete trials, best first.

    Raises:
        InputError: No trial is complete, or the study has several objectives.
    """
    if opened.study.is_multi_objective:
        raise InputError(
            "The study has several objectives; there is no single ranking to confirm.",
            "Run one trial of the front with several seeds: sweep rerun-best --trial N --seeds 5.",
        )
    ledger = opened.ledger
    best = ledger.db.retry(lambda _: ledger.best_numbers(top, reused=False))
    if not best:
        raise rerun.no_best(opened)
    return [Candidate(*rerun.choose_trial(opened, number)) for number in best]


def fresh_seeds(study: Study, count: int) -> list[int]:
    """Return seeds that no trial of the study has, the same at each call.

    Trials count from 0 up; these count from -1 down.
    """
    taken = {trial_seed(study.seed, number) for number in range(study.trials)}
    taken |= {replicate_seed(study.seed, 0, k) for k in range(2, study.replicates.max + 1)}
    seeds: list[int] = []
    number = 0
    while len(seeds) < count:
        number -= 1
        seed = trial_seed(study.seed, number)
        if seed not in taken:
            taken.add(seed)
            seeds.append(seed)
    return seeds


def read(opened: Opened, chosen: Sequence[Candidate], seeds: Sequence[int]) -> list[Rerun]:
    """Return the runs that count: for each trial and seed the newest that runs or tells."""
    found = ask(opened.ledger, reruns.read_all)
    trials = {candidate.trial for candidate in chosen}
    kept = {
        (r.trial, r.seed): r
        for r in found
        if r.kind == CONFIRM
        and r.trial in trials
        and r.seed in seeds
        and (r.outcome is None or r.outcome in TELLING)
    }
    return list(kept.values())


def estimates(opened: Opened) -> dict[int, Estimate]:
    """Return the mean of each trial that was run with fresh seeds, by its number."""
    if opened.study.is_multi_objective:
        return {}
    values: dict[int, dict[int, float]] = {}
    for run in ask(opened.ledger, reruns.read_all):
        value = (run.result.get("values") or [None])[0]
        if run.kind == CONFIRM and run.outcome == outcomes.FINISHED and value is not None:
            values.setdefault(run.trial, {})[run.seed] = value
    return {trial: estimate(trial, got) for trial, got in values.items()}


def request(
    opened: Opened,
    schedule: Scheduler,
    environ: Any,
    chosen: Sequence[Candidate],
    seeds: Sequence[int],
) -> int:
    """Submit, as one array, the runs that are missing; return how many.

    Raises:
        InputError: The command can no longer be started.
        SchedulerError: The scheduler refused; nothing stays.
    """
    there = {(run.trial, run.seed) for run in read(opened, chosen, seeds)}
    # Seed by seed: whatever has ended early is comparable.
    plan = [
        (candidate.trial_id, CONFIRM, seed)
        for seed in seeds
        for candidate in chosen
        if (candidate.trial, seed) not in there
    ]
    if plan:
        trials = [candidate.trial for candidate in chosen]
        rerun.submit(opened, schedule, environ, plan, trials)
    return len(plan)


@dataclass(frozen=True)
class Confirmed:
    """What the runs say.

    Attributes:
        judgement: None when no run of any trial gave a value.
        no_value: Trials none of whose runs gave a value.
        why: Why the last run without a value has none; "" where all gave one.
    """

    study: Study
    chosen: Sequence[Candidate]
    seeds: Sequence[int]
    judgement: Judgement | None
    no_value: Sequence[int]
    why: str = ""

    @property
    def seed_is_ignored(self) -> bool:
        """Whether each trial gave one and the same value under all seeds."""
        ranking = self.judgement.ranking if self.judgement else ()
        return bool(ranking) and all(len(e.values) > 1 and not e.deviation for e in ranking)

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data for programs."""
        found = {candidate.trial: candidate.value for candidate in self.chosen}
        judged = self.judgement
        ranking = judged.ranking if judged else ()
        return {
            "study": self.study.name,
            "metric": self.study.objective.metric,
            "direction": self.study.objective.direction,
            "level": LEVEL,
            "seeds": list(self.seeds),
            "trials": [_entry(rank, e, found[e.trial]) for rank, e in enumerate(ranking, 1)],
            "without_value": list(self.no_value),
            "choice": ranking[0].trial if ranking else None,
            "choice_interval": [judged.low, judged.high] if judged else None,
            "second": ranking[1].trial if len(ranking) > 1 else None,
            "p_value": judged.p_value if judged else None,
            "distinguishable": judged.distinguishable if judged else None,
            "as_good": list(judged.as_good) if judged else [],
            "seeds_needed": judged.seeds_needed if judged else None,
            "seed_is_ignored": self.seed_is_ignored,
        }


def _entry(rank: int, found: Estimate, searched: float) -> dict[str, Any]:
    return {
        "rank": rank,
        "trial": found.trial,
        "search_value": searched,
        "mean": found.mean,
        "low": found.low,
        "high": found.high,
        "deviation": found.deviation,
        "values": list(found.values.values()),
        "failed": found.failed,
    }


def report(opened: Opened, chosen: Sequence[Candidate], seeds: Sequence[int]) -> Confirmed:
    """Judge the trials by the runs that have ended."""
    values: dict[int, dict[int, float]] = {candidate.trial: {} for candidate in chosen}
    failed = dict.fromkeys(values, 0)
    for run in read(opened, chosen, seeds):
        if run.outcome is None:
            continue
        value = (run.result.get("values") or [None])[0]
        if run.outcome == outcomes.FINISHED and value is not None:
            values[run.trial][run.seed] = value
        else:
            failed[run.trial] += 1
    estimates = [estimate(trial, got, failed[trial]) for trial, got in values.items() if got]
    direction = opened.study.objective.direction
    judgement = judge(estimates, direction) if estimates else None
    without = [trial for trial, got in values.items() if not got]
    ended = [
        run
        for run in ask(opened.ledger, reruns.read_all)
        if run.kind == CONFIRM
        and run.trial in values
        and run.outcome not in (None, outcomes.FINISHED)
    ]
    why = ended[-1].reason if ended else ""
    return Confirmed(opened.study, chosen, seeds, judgement, without, why)
