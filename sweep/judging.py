"""Say what a re-run's result means: reproduced, explained by what differs, or simply different."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sweep import manifest, provenance
from sweep import trial as words
from sweep.differences import axes_of
from sweep.errors import InputError
from sweep.journal import Journal
from sweep.opened import Opened
from sweep.rerun import choose_trial
from sweep.side_run import PATIENCE_S, ask
from sweep.storage import reruns
from sweep.storage.reruns import OTHER_SEED, SAME_SEED, Rerun
from sweep.study import Study
from sweep.verdict import (
    DEFAULT_TOLERANCE,
    DIFFERS,
    EXPLAINED,
    FAILED,
    REPRODUCED,
    Noise,
    Verdict,
    relative_difference,
)


def judge(opened: Opened, k: int, tolerance: float = DEFAULT_TOLERANCE) -> Verdict:
    """Compare an ended re-run with its trial.

    Raises:
        InputError: There is no such re-run, or it still runs.
    """
    ledger, study = opened.ledger, opened.study
    all_reruns = ask(ledger, reruns.read_all)
    found = next((rerun for rerun in all_reruns if rerun.k == k), None)
    if found is None or found.outcome is None:
        raise InputError(f"Re-run {k} has not ended.", "Wait for it: sweep rerun-best --wait.")
    _, _, original = choose_trial(opened, found.trial)
    before, after = curves(opened, found)
    steps = (len(before), int(found.result.get("steps", 0)))
    value = _value(found)
    made = found.result.get("provenance") or {}
    differences = provenance.differences(manifest.of_trial(opened.folder, found.trial), made)
    axes = axes_of(differences)
    relative = None if value is None else relative_difference(original, value)
    same_length = steps[0] == steps[1]
    if relative is None or found.outcome != words.FINISHED:
        verdict, relative = FAILED, None
        differences.insert(0, f"the re-run ended without a result: {found.reason}")
    elif relative <= tolerance and same_length:
        verdict = REPRODUCED
    else:
        verdict = EXPLAINED if differences else DIFFERS
    if verdict != FAILED and not same_length:
        differences.append(f"steps: {steps[0]} originally, {steps[1]} in the re-run")
    ask(ledger, reruns.mark_shown, k)
    siblings = [r for r in all_reruns if r.trial == found.trial and r.outcome is not None]
    return Verdict(
        study=study.name,
        trial=found.trial,
        k=k,
        metric=study.objective.metric,
        original=original,
        rerun=value,
        relative_difference=relative,
        tolerance=tolerance,
        verdict=verdict,
        differences=differences,
        steps=steps,
        folder=str(opened.folder.rerun(k).root),
        other_seeds=[_value(r) for r in siblings if r.kind == OTHER_SEED],
        axes=axes,
        noise=_noise(original, [_value(r) for r in siblings if r.kind == SAME_SEED]),
        causes=causes(study, made) if verdict == DIFFERS else [],
        apart_from=_first_difference(before, after),
    )


def _value(rerun: Rerun) -> float | None:
    found = (rerun.result.get("values") or [None])[0]
    return float(found) if found is not None and rerun.outcome == words.FINISHED else None


def _noise(original: float, values: Sequence[float | None]) -> Noise | None:
    """Return how far runs of the same trial with the same seed lie apart; None below two."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if len(finite) < 2:
        return None
    low, high = min(finite), max(finite)
    return Noise(len(finite), low, high, relative_difference(original, original + high - low))


def curves(opened: Opened, rerun: Rerun) -> tuple[dict[int, float], dict[int, float]]:
    """Return the objective by step: of the trial, and of its re-run."""
    ledger, metric = opened.ledger, opened.study.objective.metric
    series = ledger.db.retry(
        lambda _: ledger.lineage(rerun.trial_id, metric), patience_s=PATIENCE_S
    )
    journal = Journal(opened.folder.rerun(rerun.k), opened.study.objectives)
    again = {
        report.step: report.metrics[metric]
        for report in journal.read(final=True)
        if metric in report.metrics
    }
    return dict(series), dict(sorted(again.items()))


def _first_difference(a: Mapping[int, float], b: Mapping[int, float]) -> int | None:
    apart = (s for s in sorted(a.keys() & b.keys()) if a[s] != b[s] and not math.isnan(a[s] + b[s]))
    return next(apart, None)


def causes(study: Study, made: Mapping[str, Any]) -> list[str]:
    """Return what makes trainings of this kind differ from run to run, likely ones first."""
    environment = made.get("environment") or {}
    packages = environment.get("packages") or {}
    said = []
    text = " ".join(study.command)
    if "{seed}" not in text and "{config}" not in text:
        said.append("the command is not given {seed}, so the script must read SWEEP_SEED itself")
    said.append(
        "random numbers without a seed: Python's random, NumPy and the framework each have their "
        "own, and so has each data-loading worker"
    )
    if environment.get("gpus"):
        said.append(
            "GPU kernels that add up in no fixed order: torch.use_deterministic_algorithms(True), "
            "CUBLAS_WORKSPACE_CONFIG=:4096:8 and torch.backends.cudnn.benchmark = False"
        )
    elif "torch" in packages or "tensorflow" in packages or "jax" in packages:
        said.append("sums over threads: a fixed OMP_NUM_THREADS keeps their order")
    if study.world > 1:
        said.append(
            "sums over ranks, whose order NCCL and gloo choose: NCCL_ALGO=Ring fixes one of them"
        )
    said.append("threads that race, the time of day, the order in which a folder lists its files")
    return said
