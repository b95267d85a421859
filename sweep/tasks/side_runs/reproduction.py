"""Say what a re-run's result means: reproduced, explained by what differs, or simply different."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sweep.control.open_study import Opened
from sweep.core import outcomes
from sweep.core.errors import InputError
from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.provenance import manifest
from sweep.provenance.differences import axes_of, differences
from sweep.storage import reruns
from sweep.storage.reruns import OTHER_SEED, Rerun
from sweep.tasks.side_runs import rerun
from sweep.tasks.side_runs.side_run import ask
from sweep.training.command import launchers
from sweep.training.journal import Journal

DEFAULT_TOLERANCE = 0.01
REPRODUCED = "reproduced"
DIFFERS = "differs"
EXPLAINED = "explained"
FAILED = "failed"
_BESIDE = "the trial trained beside {} others on its GPU"


@dataclass(frozen=True)
class Noise:
    """How far re-runs of one trial with one seed lie apart.

    Attributes:
        runs: How many there are.
        relative: (high - low) / |original|; high - low where the original is 0.
    """

    runs: int
    low: float
    high: float
    relative: float


@dataclass(frozen=True)
class Verdict:
    """Whether a re-run gave the original's result.

    Attributes:
        k: Of the re-run; of several the one with the seed of the trial's curve.
        original, rerun: Objective values, of several replicates their means; the re-run's is None
            when it failed.
        relative_difference: |rerun - original| / |original|, or the absolute difference where the
            original is 0.
        verdict: reproduced (within the tolerance, as many steps), explained (not, and something
            that makes a run has changed, or the trial shared its GPU and two runs alone agree),
            differs (not, and nothing known has) or failed.
        differences: What differs between the two runs, in sentences.
        other_seeds: Values of re-runs with further seeds.
        axes: Which of code, environment, data and execution differ.
        noise: What repeats with the same seed differ by; None where there are not two.
        causes: What makes trainings of this kind differ; where nothing else explains it.
        apart_from: First step at which the learning curves differ, or None.
        picture: Both learning curves, drawn.
        replicates: Of a trial with several trainings {"seed", "original", "rerun"} of each.
    """

    study: str
    trial: int
    k: int
    metric: str
    original: float
    rerun: float | None
    relative_difference: float | None
    tolerance: float
    verdict: str
    differences: Sequence[str]
    steps: tuple[int, int]
    folder: str
    other_seeds: Sequence[float | None] = ()
    axes: Sequence[str] = ()
    noise: Noise | None = None
    causes: Sequence[str] = ()
    apart_from: int | None = None
    picture: str | None = None
    replicates: Sequence[Mapping[str, Any]] = ()


def relative_difference(original: float, again: float) -> float:
    """Return |again - original| / |original|; the absolute difference where the original is 0."""
    difference = abs(again - original)
    return difference / abs(original) if original else difference


def parse_tolerance(text: str) -> float:
    """Return "1%" or "0.01" as a fraction. Raises: InputError."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError(
            f"--tolerance must be a percentage or a fraction (got {text!r}).",
            "For example 1% or 0.01.",
        )
    return value


def to_json(verdicts: Sequence[Verdict], *, as_list: bool = False) -> str:
    """Return the verdict as the contract's JSON; a list of them where there may be several."""
    found = [asdict(verdict) for verdict in verdicts]
    return json.dumps(found if as_list else found[0], indent=1)


def judge(opened: Opened, k: int, tolerance: float = DEFAULT_TOLERANCE) -> Verdict:
    """Compare an ended re-run with its trial; of several replicates, the means.

    Args:
        k: Of the re-run, or of one of those that repeat the trial together.

    Raises:
        InputError: There is no such re-run, or it still runs.
    """
    ledger, study = opened.ledger, opened.study
    all_reruns = ask(ledger, reruns.read_all)
    found = next((run for run in all_reruns if run.k == k), None)
    known = rerun.passes(all_reruns, found.trial) if found is not None else []
    runs = next((one for one in known if found in one), [found] if found is not None else [])
    if found is None or any(run.outcome is None for run in runs):
        raise InputError(f"Re-run {k} has not ended.", "Wait for it: sweep rerun-best --wait.")
    by_seed = rerun.originals(opened, found.trial, found.trial_id)
    # The curve of a trial is its last replicate's.
    found = next((run for run in runs if run.seed == list(by_seed)[-1]), runs[-1])
    original = _mean([by_seed[run.seed] for run in runs if run.seed in by_seed])
    if original is None:  # a run of an earlier version, whose seed the trial has no more
        original = rerun.choose_trial(opened, found.trial)[2]
    before, after = curves(opened, found)
    steps = (len(before), int(found.result.get("steps", 0)))
    value = _mean([_value(run) for run in runs])
    before_made = manifest.of_trial(opened.folder, found.trial)
    made = found.result.get("provenance") or {}
    differing = list(
        dict.fromkeys(
            sentence
            for run in runs
            for sentence in differences(before_made, run.result.get("provenance") or {})
        )
    )
    axes = axes_of(differing)
    beside = trained_beside(opened.folder, found.trial)
    relative = None if value is None else relative_difference(original, value)
    same_length = steps[0] == steps[1]
    failed = [run for run in runs if _value(run) is None]
    if relative is None or failed:
        verdict, relative = FAILED, None
        reason = failed[0].reason if failed else found.reason
        differing.insert(0, f"the re-run ended without a result: {reason}")
    elif relative <= tolerance and same_length:
        verdict = REPRODUCED
    else:
        others = _repeats([one for one in known if one is not runs], runs)
        if not differing and agrees_alone(beside, value, others, tolerance):
            differing.append(f"{_BESIDE.format(beside)}; two runs alone agree with each other")
        verdict = EXPLAINED if differing else DIFFERS
    if verdict != FAILED and not same_length:
        differing.append(f"steps: {steps[0]} originally, {steps[1]} in the re-run")
    for run in runs:
        ask(ledger, reruns.mark_shown, run.k)
    siblings = [r for r in all_reruns if r.trial == found.trial and r.outcome is not None]
    return Verdict(
        study=study.name,
        trial=found.trial,
        k=found.k,
        metric=study.objective.metric,
        original=original,
        rerun=value,
        relative_difference=relative,
        tolerance=tolerance,
        verdict=verdict,
        differences=differing,
        steps=steps,
        folder=str(opened.folder.rerun((failed[0] if failed else found).k).root),
        other_seeds=[_value(r) for r in siblings if r.kind == OTHER_SEED],
        axes=axes,
        noise=_noise(original, _repeats(known, runs)),
        causes=causes(study, made, beside) if verdict == DIFFERS else [],
        apart_from=_first_difference(before, after),
        replicates=[
            {"seed": run.seed, "original": by_seed.get(run.seed), "rerun": _value(run)}
            for run in runs
        ]
        if len(runs) > 1
        else (),
    )


def trained_beside(folder: StudyFolder, number: int) -> int:
    """Return beside how many others a trial trained on its GPU when its attempts began, at most."""
    whole, most = manifest.read(folder), 1
    for path in (folder.trial(number) / "attempts").glob("[0-9]*"):
        made = manifest.of_attempt(whole, folder.attempt(number, int(path.name)))
        told = made["execution"].get("trials_on_gpu")
        most = max(most, told) if isinstance(told, int) else most
    return most - 1


def agrees_alone(
    beside: int, value: float | None, others: Sequence[float | None], tolerance: float
) -> bool:
    """Tell whether sharing its GPU explains that a trial differs from its re-run: it does only
    where another re-run, alone as well, agrees with this one.

    Args:
        beside: How many others the trial trained beside.
        value: The re-run's.
        others: The trial's other re-runs' with the same seed.
    """
    if not beside or value is None:
        return False
    return any(
        other is not None and relative_difference(value, other) <= tolerance for other in others
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where one is missing, or all are."""
    whole = [value for value in values if value is not None]
    return statistics.fmean(whole) if whole and len(whole) == len(values) else None


def _repeats(known: Sequence[Sequence[Rerun]], runs: Sequence[Rerun]) -> list[float | None]:
    """Return what each of the ended repeats with the same seeds gave."""
    seeds = {run.seed for run in runs}
    same = [one for one in known if {run.seed for run in one} == seeds]
    return [_mean([_value(run) for run in one]) for one in same if all(r.outcome for r in one)]


def _value(rerun: Rerun) -> float | None:
    found = (rerun.result.get("values") or [None])[0]
    return float(found) if found is not None and rerun.outcome == outcomes.FINISHED else None


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
    series = ledger.db.retry(lambda _: ledger.lineage(rerun.trial_id, metric))
    journal = Journal(
        opened.folder.rerun(rerun.k), opened.study.objectives, read=launchers.reader(opened.study)
    )
    again = {
        report.step: report.metrics[metric] for report in journal.rest() if metric in report.metrics
    }
    return dict(series), dict(sorted(again.items()))


def _first_difference(a: Mapping[int, float], b: Mapping[int, float]) -> int | None:
    apart = (s for s in sorted(a.keys() & b.keys()) if a[s] != b[s] and not math.isnan(a[s] + b[s]))
    return next(apart, None)


def causes(study: Study, made: Mapping[str, Any], beside: int = 0) -> list[str]:
    """Return what makes trainings of this kind differ from run to run, likely ones first.

    Args:
        made: What made the re-run.
        beside: How many others the trial trained beside, on its GPU.
    """
    environment = made.get("environment") or {}
    packages = environment.get("packages") or {}
    said = []
    if beside:
        again = "sweep rerun-best once more: where two runs alone agree, that explains it"
        said.append(f"{_BESIDE.format(beside)}, which a re-run does not ({again})")
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
