"""The picture of the search benchmark's results."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.search_problems import DESIGNED_ON, HELD_OUT


def draw(
    samplers: Sequence[dict[str, str]],
    pruners: Sequence[dict[str, str]],
    path: Path,
    sampler_names: Sequence[str],
    pruner_names: Sequence[str],
) -> None:
    """Draw each sampler's median regret by problem, and each pruner's cost against quality.

    Args:
        samplers, pruners: Rows of the results.
        sampler_names, pruner_names: In the order in which they are shown.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5), width_ratios=(3, 2))
    width = "20" if any(row["width"] == "20" for row in samplers) else samplers[0]["width"]
    problems = [p for p in (*DESIGNED_ON, *HELD_OUT) if any(r["problem"] == p for r in samplers)]
    for place, name in enumerate(sampler_names):
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
    for name in pruner_names:
        for problem, mark in (("digits", "o"), ("mnist", "s")):
            mine = [r for r in pruners if r["pruner"] == name and r["problem"] == problem]
            if mine:
                share = statistics.median(float(r["share"]) for r in mine)
                y = statistics.median(float(r["error"]) for r in mine)
                right.plot(
                    [share],
                    [100 * y],
                    mark,
                    color=f"C{pruner_names.index(name)}",
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
