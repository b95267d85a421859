"""How good the search is: regret by sampler, problem and width; epochs and quality by pruner.

    python -m benchmarks.search samplers --width 1 --width 20 --seeds 20 --trials 100
    python -m benchmarks.search pruners --seeds 20 --trials 100
    python -m benchmarks.search samplers --problem FILE.py        # one that was never seen
    python -m benchmarks.search report                            # tables and the picture

Trials are simulated: ``width`` of them run at once, each for a random time, and whenever one ends
the next is proposed from what is known then, by sweep's own samplers, seeds and forms. ``optuna``
is Optuna's default sampler and start, seeded once, on the same simulation. Promotion is simulated
by the rules of ``sweep.storage.promotion``; other pruners are Optuna's, made as sweep makes them.

A problem file has ``SPACE``, as in a study file, and ``evaluate(params) -> float``, to be
minimised; ``BEST``, if it is known. Rows are appended to benchmarks/results/search_*.csv; what is
there already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import heapq
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
from benchmarks.search_problems import DESIGNED_ON, HELD_OUT, Problem
from sweep.core.study import Choice, Objective, Study
from sweep.core.trial import trial_seed
from sweep.search.design import fixed_design, spread_design
from sweep.search.propose import start_size
from sweep.search.pruning import RUNGED, SHARE, leads
from sweep.search.samplers import build_pruner, build_sampler, choose
from sweep.search.suggest import suggest
from sweep.storage import promotion

RESULTS = Path(__file__).parent / "results"
SAMPLERS = ("random", "qmc", "tpe", "tpe-multivariate", "gp", "auto", "optuna")
OPTUNAS = "-optuna"  # asha as Optuna's pruner is, which may stop the trial that leads
PRUNERS = ("none", "median", "percentile", "hyperband", "asha", "promotion")
SAMPLER_COLUMNS = ("problem", "sampler", "width", "trials", "seed", "regret", "log_auc", "cpu_s")
PRUNER_COLUMNS = ("problem", "pruner", "width", "trials", "seed", "epochs", "share", "error")


def make_study(problem: Problem, sampler: str, trials: int, width: int, seed: int) -> Study:
    """Return the study that the simulation proposes for."""
    options = {"multivariate": True} if sampler == "tpe-multivariate" else {}
    name = "tpe" if sampler in ("tpe-multivariate", "optuna") else sampler
    return Study(
        name="search",
        command=("true",),
        objectives=(Objective("value", "minimize"),),
        space=problem.space,
        trials=trials,
        seed=seed,
        sampler=Choice(name, options),
        max_parallel=width,
    )


class Proposer:
    """Proposes trials of an in-memory Optuna study as a worker of sweep's does."""

    def __init__(self, study: Study, sampler: str, problem: Problem) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study, self.problem = study, problem
        # What launch lays out: a fixed design, or the start of an adaptive one.
        self.design = fixed_design(study) or spread_design(study, start_size(study))
        self.own = sampler != "optuna"
        seeded = optuna.samplers.TPESampler(seed=study.seed)
        self.optuna = optuna.create_study(direction="minimize", sampler=seeded)

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Return the next trial, and its values as training gets them."""
        number = len(self.optuna.get_trials(deepcopy=False))
        if self.own:
            self.optuna.sampler = build_sampler(self.study, trial_seed(self.study.seed, number))
            row = self.design[number] if self.own and number < len(self.design) else None
            if row is not None:
                self.optuna.enqueue_trial(row)
        trial = self.optuna.ask()
        values: dict[str, Any] = {}
        for parameter in self.problem.space:
            if parameter.is_active(values):
                values[parameter.name] = parameter.from_optuna(suggest(trial, parameter))
        return trial, values


def run_sampler(
    problem: Problem, sampler: str, width: int, trials: int, seed: int
) -> dict[str, Any]:
    """Simulate one study; return its row."""
    study = make_study(problem, sampler, trials, width, seed)
    proposer, chance = Proposer(study, sampler, problem), random.Random(f"{seed}:{problem.name}")
    began = time.process_time()
    running: list[tuple[float, int, Any, float, float]] = []
    best, regrets, started = math.inf, [], 0
    clock = 0.0
    while len(regrets) < trials:
        while started < trials and len(running) < width:
            trial, values = proposer.ask()
            curve = problem.evaluate(values, chance)
            true = problem.true(values) if problem.true else curve[-1]
            ends = clock + chance.uniform(0.5, 1.5)
            heapq.heappush(running, (ends, started, trial, min(curve), true))
            started += 1
        clock, _, trial, value, true = heapq.heappop(running)
        proposer.optuna.tell(trial, value)
        best = min(best, true)
        regrets.append(max(best - problem.best, 1e-12))
    return {
        "problem": problem.name,
        "sampler": sampler,
        "width": width,
        "trials": trials,
        "seed": seed,
        "regret": f"{regrets[-1]:.6g}",
        "log_auc": f"{statistics.fmean(math.log10(max(r, 1e-6)) for r in regrets):.4f}",
        "cpu_s": f"{time.process_time() - began:.2f}",
    }


def _pruner(name: str, epochs: int, study: Study) -> Any:
    """Return Optuna's pruner as sweep makes it for trainings of so many epochs."""
    options = {"percentile": 25} if name == "percentile" else {}
    first = max(3, math.ceil(epochs / SHARE))
    return build_pruner(Study(**{**study.__dict__, "pruner": Choice(name, options)}), first)


def run_pruner(problem: Problem, pruner: str, width: int, trials: int, seed: int) -> dict[str, Any]:
    """Simulate one study of TPE with a pruner, epoch by epoch; return its row."""
    import optuna

    study = make_study(problem, "tpe", trials, width, seed)
    proposer, chance = Proposer(study, "tpe", problem), random.Random(f"{seed}:{problem.name}")
    epochs = len(problem.evaluate(proposer.ask()[1], random.Random(0)))
    proposer = Proposer(study, "tpe", problem)
    options = {"max_resource": epochs, "reduction_factor": 3}
    study = Study(**{**study.__dict__, "pruner": Choice("promotion", options)})
    rungs = promotion.rungs(study) if pruner == "promotion" else []
    if pruner != "promotion":
        proposer.optuna.pruner = _pruner(pruner.removesuffix(OPTUNAS), epochs, study)
    # Its best so far, of each trial: the one that leads is not stopped.
    bests: dict[int, float] = {}
    reached: list[dict[int, float]] = [{} for _ in rungs]  # rung → trial → error
    paused: dict[int, int] = {}  # trial → the rung at which it waits
    curves: dict[int, tuple[Any, Sequence[float], float]] = {}
    spent, done, complete = 0, 0, []
    queue: list[tuple[float, int, int, int]] = []  # end of an epoch, order, trial, epoch
    clock, order, started = 0.0, 0, 0

    def top(rung: int, least: int = 0) -> list[int]:
        found = sorted(reached[rung], key=lambda n: (reached[rung][n], n))
        return found[: max(least, len(found) // 3)]

    def pull() -> tuple[int, int] | None:
        """Return (trial, epochs that it has) of what is to run next."""
        nonlocal started
        for last in (False, True):  # the second time: what is left once nothing else runs
            for rung in reversed(range(len(rungs))) if not last else range(len(rungs)):
                for number in top(rung, 1 if last else 0):
                    if paused.get(number) == rung:
                        del paused[number]
                        return number, rungs[rung]
            if started < trials:
                trial, values = proposer.ask()
                true = problem.true(values) if problem.true else math.nan
                curves[started] = (trial, problem.evaluate(values, chance), true)
                started += 1
                return started - 1, 0
            if queue:
                return None
        return None

    while True:
        while len(queue) < width:
            found = pull()
            if found is None:
                break
            order += 1
            heapq.heappush(queue, (clock + chance.uniform(0.8, 1.2), order, found[0], found[1]))
        if not queue:
            break
        clock, _, number, epoch = heapq.heappop(queue)
        trial, curve, true = curves[number]
        spent += 1
        trial.report(curve[epoch], epoch + 1)
        epoch += 1
        bests[number] = min(curve[:epoch])
        if epoch == epochs:
            proposer.optuna.tell(trial, min(curve))
            complete.append((min(curve), true))
            done += 1
            continue
        if epoch in rungs:
            rung = rungs.index(epoch)
            reached[rung][number] = min(curve[:epoch])
            if number not in top(rung):
                paused[number] = rung
                # Here the sampler takes it for one that runs; sweep's shows it as pruned.
                continue
        elif (
            pruner not in ("none", "promotion")
            and trial.should_prune()
            and not (pruner in RUNGED and leads(number, bests, "minimize"))
        ):
            proposer.optuna.tell(trial, state=optuna.trial.TrialState.PRUNED)
            done += 1
            continue
        order += 1
        heapq.heappush(queue, (clock + chance.uniform(0.8, 1.2), order, number, epoch))
    chosen = min(complete)[1] if complete else math.nan
    return {
        "problem": problem.name,
        "pruner": pruner,
        "width": width,
        "trials": trials,
        "seed": seed,
        "epochs": spent,
        "share": f"{spent / (trials * epochs):.4f}",
        "error": f"{chosen:.6g}",
    }


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _append(path: Path, columns: Sequence[str], rows: Iterator[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="", buffering=1) as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for row in rows:
            writer.writerow(row)
            stream.flush()


def _problems(arguments: argparse.Namespace, default: Sequence[str]) -> list[Problem]:
    if arguments.file:
        return [search_problems.read(path) for path in arguments.file]
    if arguments.problems:
        return [search_problems.get(name) for name in arguments.problems]
    for name in default:
        if not search_problems.is_recorded(name):
            print(
                f"left out: {name}, whose table is not recorded "
                f"(python -m benchmarks.search_tables {name} 60)",
                file=sys.stderr,
            )
    return [search_problems.get(name) for name in default if search_problems.is_recorded(name)]


def bench(arguments: argparse.Namespace, kind: str) -> None:
    """Run what is asked for and not there yet, seed by seed, so that a part is of use."""
    samplers = kind == "samplers"
    path = arguments.output or RESULTS / f"search_{kind}.csv"
    columns = SAMPLER_COLUMNS if samplers else PRUNER_COLUMNS
    run = run_sampler if samplers else run_pruner
    default = (*DESIGNED_ON, *HELD_OUT) if samplers else ("digits", "mnist")
    have = {tuple(row[column] for column in columns[:5]): row for row in _rows(path)}

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(arguments.seeds):
            for width in arguments.width or [20]:
                for problem in _problems(arguments, default):
                    for name in arguments.only or (SAMPLERS if samplers else PRUNERS):
                        asked = (problem.name, name, width, arguments.trials, seed)
                        if tuple(map(str, asked)) in have:
                            continue
                        chosen = choose(make_study(problem, name, 1, width, seed))[0]
                        same = (problem.name, chosen, width, arguments.trials, seed)
                        one = have.get(tuple(map(str, same))) if name == "auto" else None
                        if one is None:  # auto is one of the others: the same run
                            one = run(problem, name, width, arguments.trials, seed)
                        yield {**one, columns[1]: name}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _append(path, columns, rows())


def table(rows: Sequence[dict[str, str]], of: str, value: str, width: str) -> list[str]:
    """Return Markdown: medians (and how many seeds) by problem and sampler or pruner."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if row["width"] == width:
            found[row["problem"], row[of]].append(float(row[value]))
    order = [*DESIGNED_ON, *HELD_OUT]
    order += sorted({p for p, _ in found} - set(order))
    problems = [problem for problem in order if any(p == problem for p, _ in found)]
    known = SAMPLERS if of == "sampler" else PRUNERS
    names = [name for name in known if any(n == name for _, n in found)]
    lines = [
        f"| {value}, width {width} | " + " | ".join(names) + " | seeds |",
        "|---" * (len(names) + 2) + "|",
    ]
    for problem in problems:
        cells, counts = [], []
        medians = {n: statistics.median(found[problem, n]) for n in names if (problem, n) in found}
        for name in names:
            values = found.get((problem, name), [])
            counts.append(len(values))
            text = f"{medians[name]:.3g}" if values else ""
            best = values and medians[name] == min(medians.values())
            cells.append(f"**{text}**" if best else text)
        low, high = min(c for c in counts if c), max(counts)
        shown = str(low) if low == high else f"{low} to {high}"
        lines.append(f"| {problem} | " + " | ".join(cells) + f" | {shown} |")
    return lines


def report(arguments: argparse.Namespace) -> None:
    """Print the tables, and draw the picture."""
    samplers, pruners = (_rows(RESULTS / f"search_{kind}.csv") for kind in ("samplers", "pruners"))
    for width in sorted({row["width"] for row in samplers}, key=int):
        for value in ("regret", "log_auc"):
            print("\n".join(table(samplers, "sampler", value, width)), "\n")
    for width in sorted({row["width"] for row in pruners}, key=int):
        for value in ("share", "error"):
            print("\n".join(table(pruners, "pruner", value, width)), "\n")
    draw(samplers, pruners, arguments.output or RESULTS / "search.png")


def draw(samplers: Sequence[dict[str, str]], pruners: Sequence[dict[str, str]], path: Path) -> None:
    """Draw each sampler's median regret by problem, and each pruner's cost against quality."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5), width_ratios=(3, 2))
    width = "20" if any(row["width"] == "20" for row in samplers) else samplers[0]["width"]
    problems = [p for p in (*DESIGNED_ON, *HELD_OUT) if any(r["problem"] == p for r in samplers)]
    for place, name in enumerate(SAMPLERS):
        points = []
        for x, problem in enumerate(problems):
            values = [
                float(r["regret"])
                for r in samplers
                if r["sampler"] == name and r["problem"] == problem and r["width"] == width
            ]
            if values:
                points.append((x + (place - 3) * 0.1, max(statistics.median(values), 1e-6)))
        if points:
            left.plot(*zip(*points, strict=True), "o", label=name)
    left.set_yscale("log")
    left.set_xticks(range(len(problems)), problems, rotation=20)
    left.set_ylabel(f"median final regret, width {width}")
    left.legend(fontsize=8)
    for name in PRUNERS:
        for problem, mark in (("digits", "o"), ("mnist", "s")):
            mine = [r for r in pruners if r["pruner"] == name and r["problem"] == problem]
            if mine:
                x = statistics.median(float(r["share"]) for r in mine)
                y = statistics.median(float(r["error"]) for r in mine)
                right.plot(
                    [x],
                    [100 * y],
                    mark,
                    color=f"C{PRUNERS.index(name)}",
                    label=f"{name}, {problem}",
                )
    right.set_xlabel("epochs spent, of those without a pruner")
    right.set_ylabel("median error of the chosen trial, %")
    right.set_xlim(0, 1.05)
    right.legend(fontsize=7, ncols=2, loc="lower left")
    low, high = right.get_ylim()
    right.set_ylim(low - 0.6 * (high - low), high)  # room for the legend
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main(arguments: list[str]) -> int:
    """Run a part of the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", choices=("samplers", "pruners", "report", "choose"))
    parser.add_argument(
        "--problem", action="append", default=[], help="a name, or a Python file; repeatable"
    )
    parser.add_argument("--only", action="append", help="this sampler or pruner; repeatable")
    parser.add_argument("--width", type=int, action="append", help="20; repeatable")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--output", type=Path, help="the file to add to")
    given = parser.parse_args(arguments)
    given.file = [Path(text) for text in given.problem if text.endswith(".py")]
    given.problems = [text for text in given.problem if not text.endswith(".py")]
    if given.part == "report":
        report(given)
    elif given.part == "choose":
        for problem in _problems(given, (*DESIGNED_ON, *HELD_OUT)):
            name, why = choose(make_study(problem, "auto", given.trials, 20, 0))
            print(f"{problem.name}: {name}, because {why}")
    else:
        bench(given, given.part)
        if given.file:
            path = given.output or RESULTS / f"search_{given.part}.csv"
            for width in given.width or [20]:
                rows = [r for r in _rows(path) if r["problem"] in {p.stem for p in given.file}]
                samplers = given.part == "samplers"
                shown = ("sampler", "regret") if samplers else ("pruner", "error")
                print("\n".join(table(rows, *shown, str(width))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
