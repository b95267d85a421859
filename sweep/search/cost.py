"""What a proposal of ``sampler: auto`` costs, against how long trials take.

A slot waits while its next trial is proposed, and where several run at once one process prepares
proposals for all of them. A Gaussian process is worth that where trials take long, and where they
are short it is not: ``auto`` proposes by TPE then. How long they take nobody knows before the first
have ended; so does what is proposed until then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from statistics import median
from typing import TYPE_CHECKING

from sweep.core.study import Choice, Study
from sweep.search.samplers import GP_MOST, choose, most_gp_trials

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Measured on one core, 2 to 8 parameters and up to 200 trials (benchmarks/RESULTS.md).
GP_S = 0.5  # a proposal: 0.23 to 0.55 s of CPU
GP_OF_TWO_S = 1.3  # with two objectives, up to 100 trials
GP_FIRST_S = 3.0  # the first one of a process: torch is imported, and what it needs is made
SHARE = 0.05  # of a trial's time that a proposal may take

LEAST_AT_ONCE = 4  # trials, from which proposals are prepared by one process beside training
BUSY = 0.5  # of that process's time that new proposals may take; the rest renews them


def least_trial_s(study: Study) -> float:
    """Return how long trials have to take for a Gaussian process to be worth its proposals.

    Each of a study's tasks imports torch once, and serves so many trials as there are for it. Where
    proposals are prepared one process alone imports it, and has to keep up with all slots.
    """
    one_s = GP_OF_TWO_S if study.is_multi_objective else GP_S
    if study.parallel >= LEAST_AT_ONCE:
        alone_s = (one_s + GP_FIRST_S / study.trials) / SHARE
        return max(alone_s, study.parallel * one_s / BUSY)
    trials_a_task = max(1.0, study.trials / study.parallel)
    return (one_s + GP_FIRST_S / trials_a_task) / SHARE


def keeps_up(study: Study, typical_s: float | None) -> bool:
    """Tell whether one process can propose by a Gaussian process for all that run at once.

    Args:
        typical_s: How long the study's trials take; None where that is not known yet.
    """
    one_s = GP_OF_TWO_S if study.is_multi_objective else GP_S
    return typical_s is None or typical_s >= study.parallel * one_s


def describe_choice(study: Study) -> tuple[str, str]:
    """Return which sampler a study uses, and why, with what is not known before trials have run."""
    name, why = choose(study)
    if study.sampler.type == "auto" and name == "gp":
        why += f"; tpe while trials take less than {least_trial_s(study):.0f} s"
    return name, why


def warn(study: Study) -> str:
    """Return what a study's own choice of gp comes to; "" where there is nothing to say."""
    if study.sampler.type != "gp" or study.trials <= GP_MOST:
        return ""
    return (
        f"sampler gp: of {study.trials} trials it learns from {GP_MOST} at a time, the best "
        "among them and the most recent, for 0.6 to 0.8 s of CPU a proposal. "
        "tpe learns from all, for 0.1 s."
    )


def weigh(study: Study, durations_s: Iterable[float], earlier: int = 0) -> Study:
    """Return the study as its next trial is proposed: ``auto`` is tpe where gp is not worth it.

    Args:
        durations_s: Of the trials that are complete.
        earlier: Trials of an earlier study that a Gaussian process would have to learn from, too.
    """
    if study.sampler.type != "auto" or choose(study)[0] != "gp":
        return study
    known, is_small = list(durations_s), study.trials + earlier <= most_gp_trials(study)
    if is_small and known and median(known) >= least_trial_s(study):
        return study
    return dataclasses.replace(study, sampler=Choice("tpe"))


def durations_of(trials: Iterable[FrozenTrial]) -> list[float]:
    """Return how long the complete ones of some trials took, in seconds, pauses included."""
    return [
        trial.duration.total_seconds()
        for trial in trials
        if trial.state.name == "COMPLETE" and trial.duration is not None
    ]
