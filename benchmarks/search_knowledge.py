"""What users' own knowledge is worth: priors, right and misleading; relations against penalties.

    python -m benchmarks.search_knowledge priors --seeds 20
    python -m benchmarks.search_knowledge where --seeds 20     # on the database of $SWEEP_STORAGE
    python -m benchmarks.search_knowledge report

**priors**: studies without a prior, with a right one (its centre is off the optimum by half a
spread by chance, the spread is 15 % of the range, an optimal choice weighs 4 against 1) and with a
misleading one (in each parameter the centre lies near the end that is farther from the optimum,
the weight on another choice). Simulated as in ``benchmarks.search``, some trials at once.

**where**: what is best lies at the edge of what is allowed. With ``where`` a trial that is not
allowed never runs; without, it runs and is told a value that is worse than all others (the
penalty). Proposals are sweep's own, on a real database.

Rows are appended to benchmarks/results/search_knowledge.csv; what is there is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import math
import os
import random
import statistics
import sys
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import search_problems
from benchmarks.kept_rows import append_rows, read_rows
from benchmarks.search import Proposer, make_study
from benchmarks.search_problems import Problem
from sweep.core.space import Parameter, Prior, Space
from sweep.search import priors, propose
from sweep.search.valid import Where
from sweep.storage import tables

RESULTS = Path(__file__).parent / "results" / "search_knowledge.csv"
COLUMNS = ("part", "problem", "arm", "sampler", "width", "seed", "invalid", "regrets")
OPTIMA: dict[str, Mapping[str, Any]] = {
    "branin": {"x0": math.pi, "x1": 2.275},
    "hartmann6": dict(
        zip(
            (f"x{i}" for i in range(6)),
            (0.20169, 0.150011, 0.476874, 0.275332, 0.311652, 0.6573),
            strict=True,
        )
    ),
    "mixed": {"act": "relu", "norm": "bn", "width": 128, "layers": 4, "lr": 10**-2.5},
    "ackley_noisy": {f"x{i}": 0.0 for i in range(5)},
    "rosenbrock": {"x0": 1.0, "x1": 1.0, "kind": "a"},
}
LEAST = 1e-4  # a regret that is as good as none
TRIALS, MORE = 60, 66  # of a study without a prior; a tenth more
SPREAD = 0.15  # of a range
WEIGHT = 4.0  # of the choice that is believed to be the best


def with_prior(space: Space, optimum: Mapping[str, Any], arm: str, seed: int) -> Space:
    """Return a space with a right or a misleading prior for every parameter."""
    chance = random.Random(f"prior {seed}")
    return Space(
        tuple(dataclasses.replace(p, prior=_prior(p, optimum[p.name], arm, chance)) for p in space)
    )


def _prior(parameter: Parameter, best: Any, arm: str, chance: random.Random) -> Prior:
    if parameter.type == "categorical":
        place = parameter.choices.index(best) + (arm == "misleading")
        weights = [1.0] * len(parameter.choices)
        weights[place % len(weights)] = WEIGHT
        return Prior(weights=tuple(weights))
    assert parameter.low is not None and parameter.high is not None
    scale: Callable[[float], float] = math.log if parameter.log else float
    low, high, at = scale(parameter.low), scale(parameter.high), scale(best)
    spread = SPREAD * (high - low)
    center = chance.gauss(at, spread / 2)
    if arm == "misleading":
        center = low + 0.1 * (high - low) if at - low > high - at else high - 0.1 * (high - low)
    center = min(max(center, low), high)
    if parameter.log:
        return Prior(math.exp(center), math.exp(spread))
    return Prior(center, spread)


def simulate(
    problem: Problem,
    trials: int,
    width: int,
    seed: int,
    ask: Callable[[int], tuple[Any, dict[str, Any]]],
    tell: Callable[[Any, float, bool], None],
    is_valid: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> tuple[list[float], int]:
    """Return the regret of the best valid trial after each, and how many were not valid."""
    chance = random.Random(f"{seed}:{problem.name}")
    running: list[tuple[float, int, Any, float, float, bool]] = []
    regrets: list[float] = []
    best, started, clock, invalid = math.inf, 0, 0.0, 0
    while len(regrets) < trials:
        while started < trials and len(running) < width:
            trial, values = ask(started)
            value = min(problem.evaluate(values, chance))
            true = problem.true(values) if problem.true else value
            ends = clock + chance.uniform(0.5, 1.5)
            heapq.heappush(running, (ends, started, trial, value, true, is_valid(values)))
            started += 1
        clock, _, trial, value, true, good = heapq.heappop(running)
        tell(trial, value, good)
        invalid += not good
        best = min(best, true) if good else best
        regrets.append(max(best - problem.best, 1e-12))
    return regrets, invalid


def run_prior(problem: Problem, arm: str, sampler: str, width: int, seed: int) -> dict[str, Any]:
    """Simulate one study with or without a prior; return its row."""
    trials = TRIALS if arm == "none" else MORE
    space = problem.space
    if arm != "none":
        space = with_prior(space, OPTIMA[problem.name], arm, seed)
    study = dataclasses.replace(make_study(problem, sampler, trials, width, seed), space=space)
    proposer = Proposer(study, sampler, dataclasses.replace(problem, space=space))

    def ask(number: int) -> tuple[Any, dict[str, Any]]:
        seen = proposer.optuna.get_trials(deepcopy=False)
        is_start = number < len(proposer.design)
        if not is_start and priors.is_called_for(study, seen, number):
            proposer.optuna.enqueue_trial(priors.believed_row(study, number))
        return proposer.ask()

    def tell(trial: Any, value: float, _: bool) -> None:
        proposer.optuna.tell(trial, value)

    regrets, _ = simulate(problem, trials, width, seed, ask, tell)
    return _row("priors", problem, arm, sampler, width, seed, 0, regrets)


def edge(p: Mapping[str, Any]) -> float:
    """The sum of two numbers, the more the better; of what ``where`` allows the least is -1.2."""
    return -float(p["x0"] + p["x1"]) + 0.5 * abs(float(p["x0"]) - 0.3)


EDGE = Problem("edge", Space(search_problems.floats(2, 0, 1)), lambda p, _: [edge(p)], -1.2, edge)
# What is allowed, and what is worse than all that is.
RELATIONS = {"edge": (("x0 + x1 <= 1.2",), 1.0), "branin": (("x0 + x1 <= 5.5",), 400.0)}


def run_where(
    problem: Problem, arm: str, sampler: str, width: int, seed: int, url: str
) -> dict[str, Any]:
    """Run the proposals of one study under relations, or with penalties; return its row."""
    from optuna.study import StudyDirection
    from optuna.trial import TrialState

    from sweep.storage.bulk import insert_waiting_trials
    from sweep.storage.optuna_storage import PostgresStorage

    where, penalty = RELATIONS[problem.name]
    study = make_study(problem, sampler, TRIALS, width, seed)
    ruled = dataclasses.replace(study, where=where)
    study = ruled if arm == "where" else study
    storage = PostgresStorage(url)
    name = f"{problem.name}-{arm}-{seed}-{uuid.uuid4().hex[:8]}"
    study_id = storage.create_new_study([StudyDirection.MINIMIZE], name)
    with storage.database.transaction():
        rows = propose.first_rows(study, study.trials)
        insert_waiting_trials(storage.database, study_id, rows)

    def ask(number: int) -> tuple[int, dict[str, Any]]:
        trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
        storage.set_trial_state_values(trial_id, TrialState.RUNNING)
        stored = dict(storage.get_trial(trial_id).params)
        if not stored:
            stored = propose.propose(study, storage, study_id, trial_id, number)
        return trial_id, study.space.from_optuna(stored)

    def tell(trial_id: int, value: float, good: bool) -> None:
        told = value if good else penalty
        storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [told])

    try:
        regrets, invalid = simulate(problem, TRIALS, width, seed, ask, tell, Where(ruled).keeps)
    finally:
        storage.delete_study(study_id)
        storage.database.close()
    return _row("where", problem, arm, sampler, width, seed, invalid, regrets)


def _row(
    part: str,
    problem: Problem,
    arm: str,
    sampler: str,
    width: int,
    seed: int,
    invalid: int,
    regrets: Sequence[float],
) -> dict[str, Any]:
    shown = " ".join(f"{regret:.3g}" for regret in regrets)
    given = (part, problem.name, arm, sampler, width, seed, invalid, shown)
    return dict(zip(COLUMNS, given, strict=True))


def bench(given: argparse.Namespace) -> None:
    """Run what is asked for and not there yet, seed by seed."""
    have = {tuple(row[c] for c in COLUMNS[:6]) for row in read_rows(given.output)}
    is_where = given.part == "where"
    names = given.problem or (list(RELATIONS) if is_where else list(OPTIMA))
    arms = ("penalty", "where") if is_where else ("none", "right", "misleading")
    url = os.environ.get("SWEEP_STORAGE", "") if is_where else ""
    if is_where and not url:
        raise SystemExit("where needs a database: SWEEP_STORAGE=$(sweep db url)")
    if url:
        tables.create(url, own=False)

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(given.seeds):
            for name in names:
                problem = EDGE if name == "edge" else search_problems.get(name)
                for arm in arms:
                    asked = (given.part, name, arm, given.sampler, given.width, seed)
                    if tuple(map(str, asked)) in have:
                        continue
                    if is_where:
                        yield run_where(problem, arm, given.sampler, given.width, seed, url)
                    else:
                        yield run_prior(problem, arm, given.sampler, given.width, seed)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        append_rows(given.output, COLUMNS, rows())


def _curve(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the median regret after each trial."""
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def report(path: Path) -> list[str]:
    """Return the tables in Markdown."""
    found: dict[tuple[str, ...], dict[int, list[float]]] = defaultdict(dict)
    invalid: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for row in read_rows(path):
        key = tuple(row[c] for c in ("part", "problem", "arm", "sampler", "width"))
        found[key][int(row["seed"])] = [float(text) for text in row["regrets"].split()]
        invalid[key].append(int(row["invalid"]))
    lines = [
        "| prior | sampler | width | none, 60 trials | right: trials to that | right, 60 trials | "
        "misleading: trials to that | misleading, 66 trials | seeds |",
        "|---" * 9 + "|",
    ]
    for (part, problem, arm, sampler, width), runs in sorted(found.items()):
        if part != "priors" or arm != "none":
            continue
        goal = _curve(list(runs.values()))[TRIALS - 1]
        cells = [problem, sampler, width, f"{goal:.3g}"]
        for other in ("right", "misleading"):
            theirs = found.get((part, problem, other, sampler, width), {})
            curve = _curve(list(theirs.values())) if theirs else []
            at = next((n for n, regret in enumerate(curve, 1) if regret <= goal), None)
            last = TRIALS if other == "right" else MORE
            cells.append("" if not curve else str(at) if at else f"over {MORE}")
            cells.append(f"{curve[last - 1]:.3g}" if curve else "")
        lines.append("| " + " | ".join([*cells, str(len(runs))]) + " |")
    for arm, at in (("right", 2 * TRIALS // 3), ("misleading", MORE)):
        pairs = [
            (runs[seed][at - 1], found[key[0], key[1], "none", key[3], key[4]][seed][TRIALS - 1])
            for key, runs in found.items()
            if key[0] == "priors" and key[2] == arm
            for seed in runs
        ]
        if pairs:
            logs = [math.log10(max(a, LEAST) / max(b, LEAST)) for a, b in pairs]
            spread = statistics.stdev(logs) / math.sqrt(len(logs))
            lines += [
                "",
                f"All: the log10 of the regret after {at} trials with a {arm} prior, less that "
                f"after {TRIALS} without: {statistics.fmean(logs):+.2f} ± {spread:.2f} "
                f"({len(logs)} pairs).",
            ]
    lines += [
        "",
        "| where | sampler | width | penalty | its invalid trials | where | its invalid trials | "
        "better with where | seeds |",
        "|---" * 9 + "|",
    ]
    for key, runs in sorted(found.items()):
        part, problem, arm, sampler, width = key
        theirs = found.get((part, problem, "where", sampler, width), {})
        if part != "where" or arm != "penalty" or not theirs:
            continue
        ours = (part, problem, "where", sampler, width)
        both = sorted(set(runs) & set(theirs))
        better = sum(theirs[seed][-1] < runs[seed][-1] for seed in both)
        lines.append(
            f"| {problem} | {sampler} | {width} | {_curve(list(runs.values()))[-1]:.3g} | "
            f"{statistics.fmean(invalid[key]):.1f} | {_curve(list(theirs.values()))[-1]:.3g} | "
            f"{statistics.fmean(invalid[ours]):.1f} | {better} of {len(both)} | {len(both)} |"
        )
    return lines


def main(arguments: list[str]) -> int:
    """Run a part of the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_knowledge",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("priors", "where", "report"))
    parser.add_argument("--problem", action="append", default=[], help="repeatable")
    parser.add_argument("--sampler", default="tpe")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--output", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.part == "report":
        print("\n".join(report(given.output)))
    else:
        bench(given)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
