"""Whether several seeds per configuration choose better ones, at equal numbers of trainings.

    python -m benchmarks.search_replicates --seeds 20
    python -m benchmarks.search_replicates report

Each study has so many trainings, and its budget ends it. ``single``: as many configurations, one
training each; ``three``: ``replicates: 3``; ``race``: ``replicates: {min: 1, max: 5}``. The trial
with the best mean is chosen, and its true value (without noise) less the least that can be had is
the regret. Trials are simulated as in ``benchmarks.search``, some at once, and who gets a further
training is decided by sweep's own rule. The noise of a training is normal; ``noise`` is its
standard deviation.

Rows are appended to benchmarks/results/search_replicates.csv; what is there is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import random
import statistics
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import search_problems
from benchmarks.kept_rows import append_rows, read_rows
from benchmarks.search import Proposer, make_study
from benchmarks.search_problems import Problem
from sweep.control.replicating import may_be_best
from sweep.core.study import Replicates
from sweep.core.trial import Replicate, mean_values

RESULTS = Path(__file__).parent / "results" / "search_replicates.csv"
COLUMNS = ("problem", "noise", "arm", "sampler", "width", "trainings", "seed", "trials", "regret")
ARMS = {"single": Replicates(), "three": Replicates(3, 3), "race": Replicates(1, 5)}
# As much noise as the better half of the space differs by, and a quarter of that.
NOISE = {"branin": (20.0, 5.0), "hartmann6": (0.8, 0.2), "ackley_noisy": (4.0, 1.0)}
TRAININGS = 90


@dataclasses.dataclass
class Running:
    """A trial whose trainings follow each other."""

    trial: Any
    true: float
    values: list[float] = dataclasses.field(default_factory=list)

    def replicates(self) -> list[Replicate]:
        return [Replicate(k, k, k, (value,)) for k, value in enumerate(self.values, 1)]


def run(
    problem: Problem, noise: float, arm: str, sampler: str, width: int, trainings: int, seed: int
) -> dict[str, Any]:
    """Simulate one study; return its row."""
    wanted = ARMS[arm]
    count = trainings // wanted.min
    study = dataclasses.replace(make_study(problem, sampler, count, width, seed), replicates=wanted)
    proposer = Proposer(study, sampler, problem)
    chance = random.Random(f"{seed}:{problem.name}:{noise}")
    running: list[tuple[float, int, Running]] = []
    ended: list[Running] = []
    used, started, clock = 0, 0, 0.0

    def begin(one: Running) -> None:
        nonlocal used
        used += 1
        heapq.heappush(running, (clock + chance.uniform(0.5, 1.5), used, one))

    while used < trainings or running:
        while used < trainings and len(running) < width and started < count:
            trial, params = proposer.ask()
            started += 1
            true = problem.true(params) if problem.true else min(problem.evaluate(params, chance))
            begin(Running(trial, true))
        if not running:
            break
        clock, _, one = heapq.heappop(running)
        one.values.append(one.true + chance.gauss(0, noise))
        others = [other.replicates() for other in ended]
        may_go_on = len(one.values) < wanted.max and used < trainings
        if may_go_on and (
            len(one.values) < wanted.min or may_be_best(study, one.replicates(), others)
        ):
            begin(one)
        elif len(one.values) >= wanted.min:
            proposer.optuna.tell(one.trial, mean_values(one.replicates())[0])
            ended.append(one)
    chosen = min(ended, key=lambda one: mean_values(one.replicates())[0])
    regret = max(chosen.true - problem.best, 1e-12)
    given = (problem.name, noise, arm, sampler, width, trainings, seed, started, f"{regret:.4g}")
    return dict(zip(COLUMNS, given, strict=True))


def bench(given: argparse.Namespace) -> None:
    """Run what is asked for and not there yet, seed by seed."""
    have = {tuple(row[c] for c in COLUMNS[:7]) for row in read_rows(given.output)}

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(given.seeds):
            for name, noises in NOISE.items():
                for noise in noises:
                    for arm in ARMS:
                        asked = (name, noise, arm, given.sampler, given.width, TRAININGS, seed)
                        if tuple(map(str, asked)) not in have:
                            yield run(search_problems.get(name), *asked[1:])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        append_rows(given.output, COLUMNS, rows())


def report(path: Path) -> list[str]:
    """Return the table in Markdown: median regrets, and how often an arm chose better."""
    found: dict[tuple[str, ...], dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in read_rows(path):
        key = tuple(row[c] for c in ("problem", "noise", "sampler", "width", "trainings"))
        found[key][row["arm"]][int(row["seed"])] = float(row["regret"])
    head = ["problem", "noise", "sampler", "width", "trainings", *ARMS]
    head += [f"{arm} better" for arm in ARMS if arm != "single"]
    lines = ["| " + " | ".join([*head, "seeds"]) + " |", "|---" * (len(head) + 1) + "|"]
    for key, arms in sorted(found.items()):
        cells = [*key, *(f"{statistics.median(arms[arm].values()):.3g}" for arm in ARMS)]
        for arm in ARMS:
            if arm != "single":
                cells.append(_wins(arms[arm], arms["single"]))
        lines.append("| " + " | ".join([*cells, str(len(arms["single"]))]) + " |")
    return lines


def _wins(ours: dict[int, float], theirs: dict[int, float]) -> str:
    both = sorted(set(ours) & set(theirs))
    return f"{sum(ours[seed] < theirs[seed] for seed in both)} of {len(both)}"


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_replicates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", choices=("run", "report"), default="run")
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
