"""Tables of ``benchmarks.search``: medians by problem, and mean ranks."""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from collections.abc import Sequence

from benchmarks.search_problems import DESIGNED_ON, HELD_OUT

SAMPLERS = ("random", "qmc", "tpe-alone", "tpe-multivariate", "gp", "auto", "optuna", "autosampler")
PRUNERS = ("none", "median", "percentile", "hyperband", "asha", "promotion")


def sizes(rows: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    """Return the (width, trials) of some rows' studies, the smallest first."""
    return sorted({(row["width"], row["trials"]) for row in rows}, key=lambda s: (*map(int, s),))


def table(rows: Sequence[dict[str, str]], of: str, value: str, size: tuple[str, str]) -> list[str]:
    """Return Markdown: medians (and how many seeds) by problem and sampler or pruner.

    Args:
        size: (width, trials) of the studies.
    """
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        if (row["width"], row["trials"]) == size:
            found[row["problem"], row[of]].append(float(row[value]))
    order = [*DESIGNED_ON, *HELD_OUT]
    order += sorted({p for p, _ in found} - set(order))
    problems = [problem for problem in order if any(p == problem for p, _ in found)]
    known = SAMPLERS if of == "sampler" else PRUNERS
    names = [name for name in known if any(n == name for _, n in found)]
    lines = [
        f"| {value}, width {size[0]}, {size[1]} trials | " + " | ".join(names) + " | seeds |",
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


def ranks(
    rows: Sequence[dict[str, str]], size: tuple[str, str], among: Sequence[str] = ()
) -> list[str]:
    """Return Markdown: each sampler's mean rank by the final regret, with a 95 % interval.

    Ranks are among the samplers that are named, else those that have run half of what the most
    complete one has, over the problems and seeds that all of these have run; ties share theirs.
    Seeds are drawn again 2,000 times for the interval (percentiles of the bootstrap), whole
    problems stay.
    """
    found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        if (row["width"], row["trials"]) == size:
            found[row["problem"], row["seed"]][row["sampler"]] = float(row["regret"])
    counts = {name: sum(name in one for one in found.values()) for name in SAMPLERS}
    names = [
        name
        for name in SAMPLERS
        if (name in among if among else 2 * counts[name] >= max(counts.values()))
    ]
    placed: dict[str, list[list[float]]] = defaultdict(list)  # by problem, of each seed
    for (problem, _), one in sorted(found.items()):
        if all(name in one for name in names):
            regrets = [one[name] for name in names]
            below = [sum(other < mine for other in regrets) for mine in regrets]
            same = [regrets.count(mine) for mine in regrets]
            placed[problem].append([b + (s + 1) / 2 for b, s in zip(below, same, strict=True)])
    if not placed:
        return [f"no problem was run by all of {', '.join(names)} with one seed"]
    chance, drawn = random.Random(0), []
    for _ in range(2000):
        lines = [line for seeds in placed.values() for line in chance.choices(seeds, k=len(seeds))]
        drawn.append([statistics.fmean(column) for column in zip(*lines, strict=True)])
    lines = [line for seeds in placed.values() for line in seeds]
    cells = []
    for place, column in enumerate(zip(*lines, strict=True)):
        low, high = (sorted(d[place] for d in drawn)[n] for n in (49, 1949))
        cells.append(f"{statistics.fmean(column):.2f} ({low:.2f} to {high:.2f})")
    ran = ", ".join(f"{name} {len(seeds)}" for name, seeds in placed.items())
    return [
        f"| mean rank, width {size[0]}, {size[1]} trials | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
        f"| {ran} | " + " | ".join(cells) + " |",
    ]
