"""How good the search is: regret by sampler, problem and width; epochs and quality by pruner.

    python -m benchmarks.search samplers --width 1 --width 20 --seeds 20 --trials 100
    python -m benchmarks.search pruners --seeds 20 --trials 100
    python -m benchmarks.search samplers --problem FILE.py        # one that was never seen
    python -m benchmarks.search samplers --only autosampler --autosampler REGISTRY
    python -m benchmarks.search report                            # tables and the picture
    python -m benchmarks.search report --only auto --only optuna  # ranks among these

Trials are simulated: ``width`` of them run at once, each for a random time, and whenever one ends
the next is proposed from what is known then, by sweep's own samplers, seeds and forms. ``optuna``
is Optuna's default sampler and start, seeded once, on the same simulation; ``autosampler`` is
OptunaHub's AutoSampler so, from a clone of its registry
(https://github.com/optuna/optunahub-registry). Promotion is simulated
by the rules of ``sweep.storage.promotion``; other pruners are Optuna's, made as sweep makes them.

``tpe-alone`` models one parameter at a time, ``tpe-multivariate`` all together: sweep's ``tpe`` is
the second with few at once and the first with many, and ``auto`` is one of these or ``gp``.

A problem file has ``SPACE``, as in a study file, and ``evaluate(params) -> float``, to be
minimised; ``BEST``, if it is known. Rows are appended to benchmarks/results/search_*.csv; what is
there already is not run again.
"""

from __future__ import annotations

import argparse
import heapq
import importlib.util
import math
import random
import statistics
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import search_problems
from benchmarks.kept_rows import append_rows, read_rows
from benchmarks.search_picture import draw
from benchmarks.search_problems import DESIGNED_ON, HELD_OUT, Problem
from benchmarks.search_report import PRUNERS, SAMPLERS, ranks, sizes, table
from sweep.core.study import Choice, Objective, Study
from sweep.core.trial import trial_seed
from sweep.search.design import fixed_design, spread_design
from sweep.search.propose import start_size
from sweep.search.pruning import RUNGED, SHARE, leads
from sweep.search.samplers import JOINT_WIDTH, build_pruner, build_sampler, choose, one_thread
from sweep.search.suggest import suggest
from sweep.storage import promotion

RESULTS = Path(__file__).parent / "results"
PEERS = ("optuna", "autosampler")  # not sweep's: their own start, one object for a whole study
TPES = {"tpe-alone": {"multivariate": False}, "tpe-multivariate": {"multivariate": True}}
OPTUNAS = "-optuna"  # asha as Optuna's pruner is, which may stop the trial that leads
SAMPLER_COLUMNS = ("problem", "sampler", "width", "trials", "seed", "regret", "log_auc", "cpu_s")
PRUNER_COLUMNS = ("problem", "pruner", "width", "trials", "seed", "epochs", "share", "error")


def make_study(problem: Problem, sampler: str, trials: int, width: int, seed: int) -> Study:
    """Return the study that the simulation proposes for."""
    options = TPES.get(sampler, {})
    name = "tpe" if sampler in (*TPES, *PEERS) else sampler
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


def resolved(problem: Problem, trials: int, width: int) -> str:
    """Return which of the other samplers ``auto`` is, for a problem and a size."""
    name = choose(make_study(problem, "auto", trials, width, 0))[0]
    if name != "tpe":
        return name
    return "tpe-multivariate" if width <= JOINT_WIDTH else "tpe-alone"


class Proposer:
    """Proposes trials of an in-memory Optuna study as a worker of sweep's does.

    Args:
        registry: A clone of OptunaHub's, for ``autosampler``.
    """

    def __init__(
        self, study: Study, sampler: str, problem: Problem, registry: Path | None = None
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study, self.problem = study, problem
        # What launch lays out: a fixed design, or the start of an adaptive one.
        self.design = fixed_design(study) or spread_design(study, start_size(study))
        self.own = sampler not in PEERS
        self.may_be_gp = sampler == "autosampler" or choose(study)[0] == "gp"
        seeded: Any = optuna.samplers.TPESampler(seed=study.seed)
        if sampler == "autosampler":
            seeded = auto_sampler(registry, study.seed)
        self.optuna = optuna.create_study(direction="minimize", sampler=seeded)

    def ask(self) -> tuple[Any, dict[str, Any]]:
        """Return the next trial, and its values as training gets them."""
        number = len(self.optuna.get_trials(deepcopy=False))
        if self.own:
            self.optuna.sampler = build_sampler(self.study, trial_seed(self.study.seed, number))
            row = self.design[number] if self.own and number < len(self.design) else None
            if row is not None:
                self.optuna.enqueue_trial(row)
        values: dict[str, Any] = {}
        with one_thread() if self.may_be_gp else nullcontext():  # as in a task
            trial = self.optuna.ask()
            for parameter in self.problem.space:
                if parameter.is_active(values):
                    values[parameter.name] = parameter.from_optuna(suggest(trial, parameter))
        return trial, values


def auto_sampler(registry: Path | None, seed: int) -> Any:
    """Return OptunaHub's AutoSampler, of a clone of its registry.

    Raises:
        SystemExit: There is none.
    """
    folder = (registry or Path()) / "package" / "samplers" / "auto_sampler"
    file = folder / "_sampler.py"
    if registry is None or not file.is_file():
        raise SystemExit(
            f"{file}: no such file. Clone https://github.com/optuna/optunahub-registry and "
            f"name the clone with --autosampler."
        )
    spec = importlib.util.spec_from_file_location("optunahub_auto_sampler", file)
    assert spec is not None and spec.loader is not None, "it is a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.AutoSampler(seed=seed)


def run_sampler(
    problem: Problem, sampler: str, width: int, trials: int, seed: int, registry: Path | None = None
) -> dict[str, Any]:
    """Simulate one study; return its row."""
    study = make_study(problem, sampler, trials, width, seed)
    proposer = Proposer(study, sampler, problem, registry)
    chance = random.Random(f"{seed}:{problem.name}")
    began = time.process_time()
    running: list[tuple[float, int, Any, float, float]] = []
    regrets: list[float] = []
    best, started = math.inf, 0
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

    study = make_study(problem, "tpe-alone", trials, width, seed)
    proposer = Proposer(study, "tpe-alone", problem)
    chance = random.Random(f"{seed}:{problem.name}")
    epochs = len(problem.evaluate(proposer.ask()[1], random.Random(0)))
    proposer = Proposer(study, "tpe-alone", problem)
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
    run = partial(run_sampler, registry=arguments.autosampler) if samplers else run_pruner
    names = arguments.only or (SAMPLERS if samplers else PRUNERS)
    if "autosampler" in names and arguments.autosampler is None and not arguments.only:
        print("left out: autosampler, which needs --autosampler REGISTRY", file=sys.stderr)
        names = [name for name in names if name != "autosampler"]
    default = (*DESIGNED_ON, *HELD_OUT) if samplers else ("digits", "mnist")
    have = {tuple(row[column] for column in columns[:5]): row for row in read_rows(path)}

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(arguments.first_seed, arguments.seeds):
            for width in arguments.width or [20]:
                for problem in _problems(arguments, default):
                    for name in names:
                        asked = (problem.name, name, width, arguments.trials, seed)
                        if tuple(map(str, asked)) in have:
                            continue
                        one = None
                        if name == "auto":  # one of the others: the same run
                            chosen = resolved(problem, arguments.trials, width)
                            same = (problem.name, chosen, width, arguments.trials, seed)
                            one = have.get(tuple(map(str, same)))
                        if one is None:
                            one = run(problem, name, width, arguments.trials, seed)
                        have[tuple(map(str, asked))] = one
                        yield {**one, columns[1]: name}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        append_rows(path, columns, rows())


def report(arguments: argparse.Namespace) -> None:
    """Print the tables, and draw the picture."""
    samplers, pruners = (
        read_rows(RESULTS / f"search_{kind}.csv") for kind in ("samplers", "pruners")
    )
    for size in sizes(samplers):
        for value in ("regret", "log_auc"):
            print("\n".join(table(samplers, "sampler", value, size)), "\n")
        print("\n".join(ranks(samplers, size, arguments.only or ())), "\n")
    for size in sizes(pruners):
        for value in ("share", "error"):
            print("\n".join(table(pruners, "pruner", value, size)), "\n")
    picture = arguments.output or RESULTS / "search.png"
    draw(samplers, pruners, picture, SAMPLERS, PRUNERS)


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
    parser.add_argument(
        "--only",
        action="append",
        help="this sampler or pruner; repeatable; for report: ranks among these",
    )
    parser.add_argument("--width", type=int, action="append", help="20; repeatable")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--output", type=Path, help="the file to add to")
    parser.add_argument("--autosampler", type=Path, help="a clone of OptunaHub's registry")
    parser.add_argument("--first-seed", type=int, default=0)
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
            rows = [r for r in read_rows(path) if r["problem"] in {p.stem for p in given.file}]
            shown = ("sampler", "regret") if given.part == "samplers" else ("pruner", "error")
            for width in given.width or [20]:
                print("\n".join(table(rows, *shown, (str(width), str(given.trials)))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
