"""How much of a long history a Gaussian process needs: the next proposals after 600 trials.

    python -m benchmarks.search_history run --seeds 5
    python -m benchmarks.search_history report

TPE proposes the first trials of a study, and ``gp`` the next ten, one at a time: from all of them
(``all``), from 300 as sweep shows them (``bounded``: the best for one half, the most recent for a
quarter, of the rest each so-manieth), and from as many others (``best and last``: half the best,
half the most recent; ``best and even``: half the best, the others by even steps). The figure is
what the ten gained: the log10 of the regret before, less that after. Rows are appended to
benchmarks/results/search_history.csv; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import search_problems
from benchmarks.kept_rows import append_rows, read_rows
from benchmarks.search import Proposer, make_study
from sweep.core.trial import trial_seed
from sweep.search.samplers import GP_MOST, build_sampler
from sweep.search.suggest import suggest
from sweep.search.view import bounded

RESULTS = Path(__file__).parent / "results" / "search_history.csv"
COLUMNS = ("problem", "shown", "trials", "seed", "before", "after", "middle", "cpu_s")
SHOWN = ("all", "bounded", "best and last", "best and even")
PROBLEMS = ("hartmann6", "ackley_noisy", "mixed", "branin")
NEXT = 10


def choose(trials: Sequence[Any], directions: Sequence[Any], shown: str) -> list[Any]:
    """Return the complete trials that a proposal is made from."""
    if shown == "all" or len(trials) <= GP_MOST:
        return list(trials)
    if shown == "bounded":
        return bounded(trials, directions, GP_MOST)
    order = sorted(range(len(trials)), key=lambda n: trials[n].value)
    kept = order[: GP_MOST // 2]
    others = sorted(set(order) - set(kept))
    if shown == "best and last":
        kept += others[len(kept) - GP_MOST :]
        return [trials[n] for n in sorted(kept)]
    step = len(others) / (GP_MOST - len(kept))
    kept += [others[int(n * step)] for n in range(GP_MOST - len(kept))]
    return [trials[n] for n in sorted(kept)]


def run(name: str, trials: int, seed: int, missing: Sequence[str]) -> list[dict[str, Any]]:
    """Simulate one study, and what follows with each choice; return a row each."""
    import optuna

    problem, chance = search_problems.get(name), random.Random(f"{seed}:{name}")
    study = make_study(problem, "tpe", trials, 1, seed)
    proposer = Proposer(study, "tpe", problem)
    assert problem.true is not None, f"{name} has a value without noise"
    before = math.inf
    for _ in range(trials):
        trial, values = proposer.ask()
        proposer.optuna.tell(trial, problem.evaluate(values, chance)[-1])
        before = min(before, problem.true(values))
    gp = make_study(problem, "gp", trials + NEXT, 1, seed)
    rows = []
    for shown in missing:
        known = list(proposer.optuna.get_trials(deepcopy=False))
        noise, found, spent_s = random.Random(f"{seed}:{name}:next"), [], 0.0
        for number in range(trials, trials + NEXT):
            part = optuna.create_study(sampler=build_sampler(gp, trial_seed(seed, number)))
            part.add_trials(choose(known, part.directions, shown))
            began = time.process_time()
            asked = part.ask()
            values = {p.name: p.from_optuna(suggest(asked, p)) for p in problem.space}
            spent_s += time.process_time() - began
            part.tell(asked, problem.evaluate(values, noise)[-1])
            known.append(part.get_trials(deepcopy=False)[-1])
            found.append(problem.true(values))
        after = min(before, *found)
        rows.append(
            {
                "problem": name,
                "shown": shown,
                "trials": trials,
                "seed": seed,
                "before": f"{max(before - problem.best, 1e-12):.6g}",
                "after": f"{max(after - problem.best, 1e-12):.6g}",
                "middle": f"{statistics.median(found) - problem.best:.6g}",
                "cpu_s": f"{spent_s / NEXT:.3f}",
            }
        )
    return rows


def bench(given: argparse.Namespace) -> None:
    """Run what is asked for and not there yet, seed by seed."""
    have = {tuple(row[c] for c in COLUMNS[:4]) for row in read_rows(given.output)}

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(given.seeds):
            for name in given.problem or PROBLEMS:
                asked = given.only or SHOWN
                missing = [s for s in asked if (name, s, str(given.trials), str(seed)) not in have]
                if missing:
                    yield from run(name, given.trials, seed, missing)

    append_rows(given.output, COLUMNS, rows())


def report(path: Path) -> None:
    """Print, by problem, the gain of ten proposals with each choice (mean and standard error), the
    median regret of the ten, and the CPU of one."""
    found: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in read_rows(path):
        found[row["problem"], row["shown"]].append(row)
    print("| problem | seeds | " + " | ".join(SHOWN) + " |")
    print("|---" * (len(SHOWN) + 2) + "|")
    for problem in dict.fromkeys(name for name, _ in found):
        cells = []
        for shown in SHOWN:
            rows = found[problem, shown]
            gains = [math.log10(float(r["before"]) / float(r["after"])) for r in rows]
            error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
            middle = statistics.median(float(r["middle"]) for r in rows)
            cpu_s = statistics.median(float(r["cpu_s"]) for r in rows)
            cells.append(
                f"{statistics.fmean(gains):.3f} ± {error:.3f}; {middle:.3g}; {cpu_s:.2f} s"
            )
        print(f"| {problem} | {len(rows)} | " + " | ".join(cells) + " |")


def main(arguments: list[str]) -> int:
    """Run a part of the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("run", "report"))
    parser.add_argument("--problem", action="append", help="repeatable")
    parser.add_argument("--only", action="append", choices=SHOWN, help="repeatable")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=600, help="before")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the file to add to")
    given = parser.parse_args(arguments)
    if given.part == "report":
        report(given.output)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bench(given)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
