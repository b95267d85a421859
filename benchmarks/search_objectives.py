"""Several objectives: the hypervolume that samplers reach, by problem.

    python -m benchmarks.search_objectives run --seeds 20 --trials 100 --width 8
    python -m benchmarks.search_objectives run --seeds 5 --trials 30 --width 4 --only tpe --only gp
    python -m benchmarks.search_objectives report --trials 30 --width 4

Problems with known fronts: ``zdt1`` (6 numbers), ``zdt3`` (6 numbers, a front in pieces), ``dtlz2``
(6 numbers, three objectives) and ``mixed`` (zdt1 behind a category, an integer and a number on a
log scale). Trials are simulated as in ``benchmarks.search``: ``width`` run at once, each for a
random time, and start with sweep's Latin hypercube. ``autosampler`` is OptunaHub's AutoSampler as
its rule says (revision of November 2026): a Gaussian process without categories, else TPE
with all parameters together, to 250 trials.

The figure is the share of the hypervolume between the reference point and the true front that the
trials have not covered: 0 is perfect. Rows are appended to results/search_objectives.csv; what is
there is not run again.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kept_rows import append_rows, read_rows
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Objective, Study
from sweep.core.trial import trial_seed
from sweep.search.design import spread_design
from sweep.search.propose import start_size
from sweep.search.samplers import build_sampler
from sweep.search.suggest import suggest

RESULTS = Path(__file__).parent / "results" / "search_objectives.csv"
SAMPLERS = ("random", "tpe", "tpe-multivariate", "nsgaii", "nsgaiii", "gp", "autosampler")
COLUMNS = ("problem", "sampler", "width", "trials", "seed", "missing", "cpu_s")
FRONT_POINTS = 2000


@dataclass(frozen=True)
class Problem:
    """Objectives to be minimised, and points of their true front."""

    space: Space
    evaluate: Callable[[Mapping[str, Any]], list[float]]
    reference: tuple[float, ...]
    front: Callable[[], list[list[float]]]


def _numbers(count: int) -> Space:
    return Space(tuple(Parameter(f"x{n}", "float", low=0.0, high=1.0) for n in range(count)))


def _zdt1(x: Sequence[float]) -> list[float]:
    g = 1 + 9 * statistics.fmean(x[1:])
    return [x[0], g * (1 - math.sqrt(x[0] / g))]


def _zdt3(x: Sequence[float]) -> list[float]:
    g, f = 1 + 9 * statistics.fmean(x[1:]), x[0]
    return [f, g * (1 - math.sqrt(f / g) - f / g * math.sin(10 * math.pi * f))]


def _dtlz2(x: Sequence[float]) -> list[float]:
    g = sum((one - 0.5) ** 2 for one in x[2:])
    a, b = x[0] * math.pi / 2, x[1] * math.pi / 2
    r = 1 + g
    return [r * math.cos(a) * math.cos(b), r * math.cos(a) * math.sin(b), r * math.sin(a)]


MIXED = Space(
    (
        Parameter("x", "float", low=0.0, high=1.0),
        Parameter("kind", "categorical", choices=("a", "b", "c", "d")),
        Parameter("depth", "int", low=1, high=8),
        Parameter("rate", "float", low=1e-5, high=1.0, log=True),
        Parameter("share", "float", low=0.0, high=1.0),
    )
)


def _mixed(params: Mapping[str, Any]) -> list[float]:
    others = [
        {"a": 0.6, "b": 0.0, "c": 0.3, "d": 1.0}[params["kind"]],
        abs(params["depth"] - 5) / 5,
        abs(math.log10(params["rate"]) + 3) / 3,
        abs(params["share"] - 0.4),
    ]
    return _zdt1([params["x"], *others])


def _line(of: Callable[[Sequence[float]], list[float]]) -> list[list[float]]:
    return [of([n / FRONT_POINTS, *[0.0] * 5]) for n in range(FRONT_POINTS + 1)]


def _ball() -> list[list[float]]:
    steps = [n / 60 for n in range(61)]
    return [_dtlz2([a, b, *[0.5] * 4]) for a in steps for b in steps]


def _in_order(params: Mapping[str, Any]) -> list[float]:
    return [params[f"x{n}"] for n in range(len(params))]


PROBLEMS = {
    "zdt1": Problem(_numbers(6), lambda p: _zdt1(_in_order(p)), (1.1, 11.0), lambda: _line(_zdt1)),
    "zdt3": Problem(_numbers(6), lambda p: _zdt3(_in_order(p)), (1.1, 11.0), lambda: _line(_zdt3)),
    "dtlz2": Problem(_numbers(6), lambda p: _dtlz2(_in_order(p)), (2.0, 2.0, 2.0), _ball),
    "mixed": Problem(MIXED, _mixed, (1.1, 11.0), lambda: _line(_zdt1)),
}


def make_study(problem: Problem, sampler: str, trials: int, width: int, seed: int) -> Study:
    """Return the study that the simulation proposes for."""
    options = {"multivariate": True} if sampler == "tpe-multivariate" else {}
    kind = {"tpe-multivariate": "tpe", "autosampler": "tpe", "nsgaiii": "nsgaii"}
    return Study(
        name="objectives",
        command=("true",),
        objectives=tuple(Objective(f"f{n}", "minimize") for n in range(len(problem.reference))),
        space=problem.space,
        trials=trials,
        seed=seed,
        sampler=Choice(kind.get(sampler, sampler), options),
        max_parallel=width,
    )


def make_sampler(study: Study, sampler: str, seed: int) -> Any:
    """Return the sampler of one proposal."""
    import optuna

    if sampler == "nsgaiii":
        return optuna.samplers.NSGAIIISampler(seed=seed, population_size=20)
    if sampler == "nsgaii":  # 50 would be half of the trials
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)
    if sampler == "autosampler":
        if all(parameter.type != "categorical" for parameter in study.space):
            return optuna.samplers.GPSampler(seed=seed)
        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constant_liar=True, warn_independent_sampling=False
        )
    return build_sampler(study, seed)


def run(name: str, sampler: str, width: int, trials: int, seed: int) -> dict[str, Any]:
    """Simulate one study; return its row."""
    import numpy
    import optuna
    from optuna._hypervolume import compute_hypervolume

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem, chance = PROBLEMS[name], random.Random(f"{seed}:{name}")
    study = make_study(problem, sampler, trials, width, seed)
    design = spread_design(study, start_size(study))
    shown = optuna.create_study(directions=["minimize"] * len(problem.reference))
    running: list[tuple[float, int, Any, list[float]]] = []
    values: list[Any] = []
    started, clock = 0, 0.0
    began = time.process_time()
    while len(values) < trials:
        while started < trials and len(running) < width:
            shown.sampler = make_sampler(study, sampler, trial_seed(seed, started))
            if started < len(design):
                shown.enqueue_trial(design[started])
            trial = shown.ask()
            params = {p.name: p.from_optuna(suggest(trial, p)) for p in problem.space}
            ends = clock + chance.uniform(0.5, 1.5)
            heapq.heappush(running, (ends, started, trial, problem.evaluate(params)))
            started += 1
        clock, _, trial, found = heapq.heappop(running)
        shown.tell(trial, found)
        values.append(found)
    cpu_s = time.process_time() - began
    reference = numpy.array(problem.reference)

    def volume(points: Sequence[Sequence[float]]) -> float:
        inside = numpy.array([p for p in points if all(numpy.array(p) < reference)])
        return float(compute_hypervolume(inside, reference)) if len(inside) else 0.0

    whole = volume(problem.front())
    return {
        "problem": name,
        "sampler": sampler,
        "width": width,
        "trials": trials,
        "seed": seed,
        "missing": f"{1 - volume(values) / whole:.6f}",
        "cpu_s": f"{cpu_s:.2f}",
    }


def bench(given: argparse.Namespace) -> None:
    """Run what is asked for and not there yet, seed by seed."""
    have = {tuple(row[column] for column in COLUMNS[:5]) for row in read_rows(RESULTS)}

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(given.seeds):
            for problem in given.problem or PROBLEMS:
                for sampler in given.only or SAMPLERS:
                    asked = (problem, sampler, given.width, given.trials, seed)
                    if tuple(map(str, asked)) not in have:
                        yield run(*asked)

    append_rows(RESULTS, COLUMNS, rows())


def report(trials: int, width: int) -> None:
    """Print medians with quartiles by problem and sampler, and in how many seeds each is better
    than tpe, with the p of Wilcoxon's signed ranks; of studies of one size."""
    from scipy.stats import wilcoxon

    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in read_rows(RESULTS):
        if (row["trials"], row["width"]) != (str(trials), str(width)):
            continue
        found[row["problem"], row["sampler"]][row["seed"]] = float(row["missing"])
    names = [name for name in SAMPLERS if any(s == name for _, s in found)]
    print("| missing hypervolume | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for problem in PROBLEMS:
        cells = []
        for name in names:
            values = list(found[problem, name].values())
            if len(values) < 2:
                cells.append("")
                continue
            low, middle, high = statistics.quantiles(values, n=4)
            text = f"{middle:.3g} ({low:.3g} to {high:.3g})"
            base = found[problem, "tpe"]
            pairs = [(v, base[s]) for s, v in found[problem, name].items() if s in base]
            if name != "tpe" and pairs:
                better = sum(a < b for a, b in pairs)
                p = wilcoxon([a - b for a, b in pairs]).pvalue
                text += f"; {better} of {len(pairs)}, p {p:.2g}"
            cells.append(text)
        print(f"| {problem} | " + " | ".join(cells) + " |")


def main(arguments: list[str]) -> int:
    """Run a part of the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_objectives",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("run", "report"))
    parser.add_argument("--problem", action="append", choices=list(PROBLEMS), help="repeatable")
    parser.add_argument("--only", action="append", choices=SAMPLERS, help="repeatable")
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    given = parser.parse_args(arguments)
    if given.part == "report":
        report(given.trials, given.width)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            bench(given)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
