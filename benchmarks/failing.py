"""How many trials a search wastes where a part of the space fails, and what it finds all the same.

    python -m benchmarks.failing run --seeds 20             # about 20 minutes of one core
    python -m benchmarks.failing report                     # the tables of RESULTS.md

Each problem is run with its failing region (out of memory, say) and without. Trials are simulated
as in ``benchmarks.search``, in one process; sweep's are proposed by its own samplers, start, view
of failures and estimate of risk, on a storage in memory. ``optuna`` is Optuna's default sampler and
start; it is told that a trial failed, as ``study.optimize(catch=...)`` would. Rows are appended to
benchmarks/results/failing.csv; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import copy
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

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from benchmarks import search_problems
from benchmarks.kept_rows import append_rows, read_rows
from benchmarks.search import RESULTS, make_study
from benchmarks.search_problems import Problem
from sweep.core import outcomes
from sweep.core.attributes import END
from sweep.core.space import Parameter, Space
from sweep.core.study import Study
from sweep.search.design import spread_design
from sweep.search.propose import choose_params, laid_out, start_size
from sweep.search.samplers import one_thread
from sweep.search.suggest import suggest_all
from sweep.search.view import view

PATH = RESULTS / "failing.csv"
COLUMNS = ("problem", "region", "sampler", "width", "trials", "seed", "wasted", "regret", "cpu_s")
SAMPLERS = ("optuna", "tpe", "gp")


def _edge(p: Mapping[str, Any]) -> float:
    """The best that fits lies where memory runs out; least -0.5."""
    return -float(p["x"] - (p["y"] - 0.3) ** 2)


EDGE = Problem(
    "edge",
    Space((Parameter("x", "float", low=0, high=1), Parameter("y", "float", low=0, high=1))),
    lambda p, _: [_edge(p)],
    -0.5,
    _edge,
)


@dataclass(frozen=True)
class Case:
    """A problem with a part that fails.

    Attributes:
        best: The least value of what does not fail.
        best_of_all: The least value of the whole space.
    """

    problem: Problem
    fails: Callable[[Mapping[str, Any]], bool]
    best: float
    best_of_all: float


def case(name: str) -> Case:
    """Return a problem with its failing region: 20 to 50 % of the space."""
    problem = EDGE if name == "edge" else search_problems.get(name)
    fails: dict[str, Callable[[Mapping[str, Any]], bool]] = {
        "edge": lambda p: p["x"] > 0.5,
        "branin": lambda p: p["x0"] + p["x1"] > 13,
        "mixed": lambda p: p["width"] * p["layers"] > 600,
        "hartmann6": lambda p: sum(p.values()) > 3,
        "digits": lambda p: p["batch_size"] * p["width"] * p["layers"] > 30_000,
        "mnist": lambda p: (
            p["layers"] * p["width"] ** 2 + 40 * p["batch_size"] * p["width"] > 375e3
        ),
    }
    # Elsewhere than on edge what is best does not fail.
    return Case(problem, fails[name], problem.best, -1.0 if name == "edge" else problem.best)


THREE = ("edge", "branin", "mixed")
MORE = ("hartmann6", "digits")
HELD_OUT = ("mnist",)  # first run when all was decided
ALL = (*THREE, *MORE, *HELD_OUT)


class Memory(InMemoryStorage):
    """A storage in memory that shows its trials as sweep's does, and keeps what is set apart.

    Args:
        shows: Whether as sweep's does; else as they are.
        marked: As for ``view``.
    """

    def __init__(self, shows: bool, marked: bool) -> None:
        super().__init__()
        self._shows, self._marked = shows, marked
        self._set: dict[int, dict[str, Any]] = {}

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Any = None
    ) -> list[FrozenTrial]:
        trials = super().get_all_trials(study_id, deepcopy=False)
        if self._shows:
            waiting = [trial for trial in trials if trial.state == TrialState.WAITING]
            directions = self.get_study_directions(study_id)
            trials = view(trials, directions, marked=self._marked) + waiting
        trials = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return copy.deepcopy(super().get_trial(trial_id))  # or what is taken back would stay

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: Any
    ) -> None:
        self._set.setdefault(trial_id, {})[param_name] = (param_value_internal, distribution)

    # What ``SamplerView`` has beyond a storage.

    def told(self, study_id: int) -> list[FrozenTrial]:
        return super().get_all_trials(study_id, deepcopy=False)

    def chosen_params(self, trial_id: int) -> dict[str, float]:
        return {name: value for name, (value, _) in self._set.get(trial_id, {}).items()}

    def take_choice(self, trial_id: int) -> dict[str, Any]:
        return self._set.pop(trial_id, {})

    def put_choice(self, trial_id: int, params: dict[str, Any]) -> None:
        self._set[trial_id] = params

    def write(self, trial_id: int) -> None:
        for name, (value, distribution) in self._set.pop(trial_id, {}).items():
            super().set_trial_param(trial_id, name, value, distribution)


class Proposer:
    """Proposes trials, as a worker of sweep's does or as Optuna by itself."""

    def __init__(self, study: Study, own: bool) -> None:
        self.study, self.own = study, own
        # What launch lays out: all in all ``choose_params`` would do the same, but sees no failure.
        self.design = spread_design(study, start_size(study))[: laid_out(study)] if own else []
        self.storage = Memory(own, marked=study.sampler.type == "gp")
        sampler = optuna.samplers.TPESampler(seed=study.seed)
        self.optuna = optuna.create_study(
            storage=self.storage, direction="minimize", sampler=sampler
        )

    def ask(self) -> tuple[int, dict[str, Any]]:
        """Return the next trial, and its values as training gets them."""
        storage, study, study_id = self.storage, self.study, self.optuna._study_id
        number = len(storage.told(study_id))
        is_laid_out = number < len(self.design)
        if is_laid_out:
            self.optuna.enqueue_trial(self.design[number])
        trial = self.optuna.ask()
        trial_id = trial._trial_id
        if self.own and not is_laid_out:
            choose_params(study, storage, study_id, trial_id, number)  # type: ignore[arg-type]
        else:
            suggest_all(study.space, trial)
        storage.write(trial_id)
        return trial_id, study.space.from_optuna(storage.get_trial(trial_id).params)

    def tell(self, trial_id: int, value: float | None) -> None:
        if value is None:
            note = {"state": outcomes.FAILED, "outcome": outcomes.OUT_OF_MEMORY, "reason": ""}
            self.storage.set_trial_user_attr(trial_id, END, note)
            self.storage.set_trial_state_values(trial_id, TrialState.FAIL)
        else:
            self.storage.set_trial_state_values(trial_id, TrialState.COMPLETE, [value])


def run_one(
    name: str, region: bool, sampler: str, width: int, trials: int, seed: int
) -> dict[str, Any]:
    """Simulate one study; return its row."""
    found = case(name)
    problem = found.problem
    study = make_study(problem, sampler, trials, width, seed)
    proposer = Proposer(study, own=sampler != "optuna")
    chance, began = random.Random(f"{seed}:{name}"), time.process_time()
    running: list[tuple[float, int, int, float | None]] = []
    best, wasted, started, ended, clock = math.inf, 0, 0, 0, 0.0
    while ended < trials:
        while started < trials and len(running) < width:
            trial_id, values = proposer.ask()
            value = None
            if not (region and found.fails(values)):
                curve = problem.evaluate(values, chance)
                value = min(curve)
                best = min(best, problem.true(values) if problem.true else curve[-1])
            heapq.heappush(running, (clock + chance.uniform(0.5, 1.5), started, trial_id, value))
            started += 1
        clock, _, trial_id, value = heapq.heappop(running)
        proposer.tell(trial_id, value)
        wasted += value is None
        ended += 1
    least = found.best if region else found.best_of_all
    return {
        "problem": name,
        "region": int(region),
        "sampler": sampler,
        "width": width,
        "trials": trials,
        "seed": seed,
        "wasted": wasted,
        "regret": f"{max(best - least, 0.0):.6g}",
        "cpu_s": f"{time.process_time() - began:.2f}",
    }


def run(arguments: argparse.Namespace) -> None:
    """Run what is asked for and not there yet, seed by seed, so that a part is of use."""
    have = {tuple(row[column] for column in COLUMNS[:6]) for row in read_rows(arguments.output)}

    def rows() -> Iterator[dict[str, Any]]:
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for width in arguments.width or [1, 10]:
                for name in arguments.problem or ALL:
                    for region in (True, False):
                        for sampler in arguments.sampler or SAMPLERS:
                            asked = (name, region, sampler, width, arguments.trials, seed)
                            if tuple(map(str, map(_plain, asked))) not in have:
                                yield run_one(*asked)
            print(f"seed {seed} is done", file=sys.stderr, flush=True)

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with one_thread():
            append_rows(arguments.output, COLUMNS, rows())


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def report(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return Markdown: wasted trials and median regret by problem, width and sampler.

    Of the seeds that all samplers have which were run on a problem.
    """
    lines = []
    found: dict[tuple[str, ...], dict[str, dict[int, tuple[int, float]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for row in rows:
        key = (row["width"], row["region"], row["problem"])
        pair = (int(row["wasted"]), float(row["regret"]))
        found[key][row["sampler"]][int(row["seed"])] = pair
    for width in sorted({key[0] for key in found}, key=int):
        for region, what in (("1", "a part fails"), ("0", "nothing fails")):
            names = [n for n in SAMPLERS if any(n in v for k, v in found.items() if k[0] == width)]
            head = [f"{n}: {c}" for n in names for c in (["wasted"] * (region == "1") + ["regret"])]
            lines += ["", f"| {what}, width {width} | " + " | ".join(head) + " | seeds |"]
            lines.append("|---" * (len(head) + 2) + "|")
            for problem in ALL:
                of = found.get((width, region, problem), {})
                seeds = set.intersection(*map(set, of.values())) if of else set()
                cells = []
                for name in names:
                    pairs = [pair for seed, pair in of.get(name, {}).items() if seed in seeds]
                    if region == "1":
                        cells.append(f"{sum(w for w, _ in pairs)}" if pairs else "")
                    cells.append(f"{statistics.median(r for _, r in pairs):.3g}" if pairs else "")
                lines.append(f"| {problem} | " + " | ".join(cells) + f" | {len(seeds)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--width", type=int, action="append")
    parser.add_argument("--problem", choices=ALL, action="append")
    parser.add_argument("--sampler", choices=SAMPLERS, action="append")
    parser.add_argument("--output", type=Path, default=PATH)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments)
    else:
        print("\n".join(report(read_rows(arguments.output))))


if __name__ == "__main__":
    main()
