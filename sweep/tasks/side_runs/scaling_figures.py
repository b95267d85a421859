"""What a scaling study found, as rows, a sentence on the bottleneck, a table and a picture.

From the training's own reports: ``samples_per_s`` (needed), and ``epoch_s``, ``share_compute``,
``share_communication``, ``share_data`` (parts of the time, which do not overlap) and ``memory_gb``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

from sweep.core.files import make_folders, write_atomic
from sweep.results.figures import INSTALL

RATE = "samples_per_s"
SHARES = ("compute", "communication", "data", "other")
GOOD = 0.9  # of linear: nothing to mend
COLOURS = {"compute": "#009E73", "communication": "#D55E00", "data": "#E69F00", "other": "#BBBBBB"}
ADVICE = {
    "communication": "More work between two exchanges (larger batches, accumulated gradients) or a "
    "faster network (ddp.interface, ddp.ib) would help.",
    "data": "Faster loading would help: more loading processes, data on a local disk or on the "
    "device.",
    "other": "The devices wait for the program that drives them: larger batches, fewer and larger "
    "operations, torch.compile or CUDA graphs would help.",
    "compute": "The devices compute more slowly side by side: they share cores, memory or power, "
    "or the batches of each have become too small.",
}


def figures(reports: Iterable[Mapping[str, float]]) -> dict[str, float | None]:
    """Return one training's figures from the metrics of its steps (epochs), in their order.

    The first of several epochs warms up, and does not count. A figure that was not reported is
    None; ``share_other`` is what the three shares leave.
    """
    steps = list(reports)

    def pick(name: str) -> list[float]:
        found = [step[name] for step in (steps[1:] if len(steps) > 1 else steps) if name in step]
        return found or [step[name] for step in steps if name in step]

    found: dict[str, float | None] = {}
    for name in (RATE, "epoch_s", "share_compute", "share_communication", "share_data"):
        values = pick(name)
        found[name] = median(values) if values else None
    memory = [step["memory_gb"] for step in steps if "memory_gb" in step]
    found["memory_gb"] = max(memory) if memory else None
    known = [found[f"share_{name}"] for name in SHARES[:3]]
    given = [value for value in known if value is not None]
    found["share_other"] = max(0.0, 1.0 - sum(given)) if len(given) == 3 else None
    return found


def pool(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one row of several trainings of the same case: the medians of those that did not fail.

    Beside the keys of a run it has ``runs`` (how many there were), ``failures``, ``reasons`` (of
    the failures), ``rates`` and ``spread``, (highest - lowest) / median of the rates; None of fewer
    than two. ``failed`` is a reason where all have failed.

    Args:
        runs: With ``failed`` and the keys of ``figures``; one at least.
    """
    good = [run for run in runs if not run["failed"]]
    reasons = [str(run["failed"]) for run in runs if run["failed"]]
    row = dict((good or runs)[0])
    names = (RATE, "epoch_s", *(f"share_{name}" for name in SHARES))
    for name in names if good else ():
        values = [run[name] for run in good if run[name] is not None]
        row[name] = median(values) if values else None
    memory = [run["memory_gb"] for run in good if run["memory_gb"] is not None]
    rates = [float(run[RATE]) for run in good]
    spread = (max(rates) - min(rates)) / median(rates) if len(rates) > 1 else None
    return {
        **row,
        "memory_gb": max(memory, default=row["memory_gb"]),
        "runs": len(runs),
        "failures": len(reasons),
        "reasons": reasons,
        "rates": rates,
        "spread": spread,
    }


def repeated(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return in a sentence how many trainings failed and how far repeats lie apart; "" of ones."""
    runs = sum(row["runs"] for row in rows)
    if runs <= len(rows):
        return ""
    failures = sum(row["failures"] for row in rows)
    said = f"{failures} of {runs} trainings failed ({failures / runs:.0%})"
    apart = [row["spread"] for row in rows if row["spread"] is not None]
    if not apart:
        return f"{said}; too few are left to say how far repeats lie apart."
    most = max(apart)
    said += f"; the rates of repeats lie at most {most:.1%} of their median apart"
    efficiency = rows[-1]["efficiency"]
    if efficiency is not None and len(rows) > 1 and abs(1 - efficiency) <= most:
        said += ", which is no less than what the most ranks are away from linear"
    return f"{said}."


def compare(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with ``speedup`` and ``efficiency`` against the first one; None in all where
    that has no rate, for then nothing is known of what they would be compared with.

    Args:
        rows: With ``ranks`` and the keys of ``figures``, fewest ranks first.
    """
    first = rows[0] if rows else {}
    found = []
    for row in rows:
        speedup = efficiency = None
        if first.get(RATE) and row.get(RATE):
            speedup = row[RATE] / first[RATE]
            efficiency = speedup * first["ranks"] / row["ranks"]
        found.append({**row, "speedup": speedup, "efficiency": efficiency})
    return found


def bottleneck(rows: Sequence[Mapping[str, Any]], unit: str) -> str:
    """Return in a sentence what limits the most ranks, and what would help.

    Args:
        rows: As ``compare`` returns them.
        unit: "GPU" or "process".
    """
    done = [row for row in rows if row.get(RATE)]
    if not done:
        return "Nothing was measured."
    if not rows[0].get(RATE):
        return (
            f"The training with {_count(rows[0]['ranks'], unit)} gave no rate, so there is nothing "
            "to compare the others with."
        )
    first, last = done[0], done[-1]
    if last.get("share_other") is None:
        return "The training reports no shares of its time, so nothing can be said of the cause."
    if last is first:
        name = max(SHARES, key=lambda each: last[f"share_{each}"])
        return (
            f"With {_count(last['ranks'], unit)}, {_name(name)} takes most of the time "
            f"({last[f'share_{name}']:.0%})."
        )
    efficiency = last["efficiency"]
    start = (
        f"{_count(last['ranks'], unit)} give {last['speedup']:.2f} times the speed of "
        f"{first['ranks']}: {efficiency:.0%} of linear."
    )
    if efficiency >= GOOD:
        return f"{start} Nothing limits much."

    def cost_s(row: Mapping[str, Any], name: str) -> float:
        """Time of all ranks that an example takes in this way."""
        return float(row[f"share_{name}"]) * row["ranks"] / float(row[RATE])

    lost = {name: cost_s(last, name) - cost_s(first, name) for name in SHARES}
    name = max(SHARES, key=lost.__getitem__)
    part = lost[name] / sum(value for value in lost.values() if value > 0)
    return (
        f"{start} {part:.0%} of what is lost is {_name(name)} "
        f"({first[f'share_{name}']:.0%} of the time with {first['ranks']}, "
        f"{last[f'share_{name}']:.0%} with {last['ranks']}). {ADVICE[name]}"
    )


def _name(share: str) -> str:
    return {"other": "waiting for the host program", "data": "waiting for data"}.get(share, share)


def plural(unit: str) -> str:
    """Return what several of it are called: of "GPU" or "process"."""
    return {"GPU": "GPUs", "process": "processes"}[unit]


def _count(ranks: int, unit: str) -> str:
    return f"{ranks} {unit if ranks == 1 else plural(unit)}"


COLUMNS = (
    ("ranks", "ranks", "d"),
    ("nodes", "nodes", "d"),
    ("batch", "batch", "g"),
    (RATE, "samples/s", ",.0f"),
    ("epoch_s", "epoch s", ".3g"),
    ("speedup", "speedup", ".2f"),
    ("efficiency", "efficiency", ".1%"),
    ("share_compute", "compute", ".0%"),
    ("share_communication", "communication", ".0%"),
    ("share_data", "data", ".0%"),
    ("share_other", "other", ".0%"),
    ("memory_gb", "memory GB", ".2f"),
)


REPEATED = (("spread", "spread", ".1%"), ("failures", "failed", "d"), ("runs", "of", "d"))


def cells(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table: its heading, then a line for each row."""
    columns = COLUMNS + (REPEATED if any(row.get("runs", 1) > 1 for row in rows) else ())
    return [
        [title for _, title, _ in columns],
        *(
            ["-" if row.get(key) is None else format(row[key], form) for key, _, form in columns]
            for row in rows
        ),
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as aligned text, with a line under the heading."""
    lines = cells(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    texts = [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    return "\n".join([texts[0], "─" * len(texts[0]), *texts[1:]])


def draw(rows: Sequence[Mapping[str, Any]], title: str, unit: str, path: Path) -> str:
    """Draw speed against the ideal, and the shares; return why there is no picture, or ""."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return INSTALL
    done = [row for row in rows if row.get(RATE)]
    if not done:
        return "no plot: no training reported samples_per_s"
    counts = [row["ranks"] for row in done]
    rates = [row[RATE] for row in done]
    figure = Figure(figsize=(9, 4), layout="constrained")
    speed, parts = figure.subplots(1, 2)
    if done[0] is rows[0]:  # without it nobody knows what linear would be
        ideal = [rates[0] * count / counts[0] for count in counts]
        speed.plot(counts, ideal, "--", color="#555555", label="linear")
    speed.plot(counts, rates, "o-", color="#0072B2", label="measured")
    low = [row[RATE] - min(row.get("rates") or [row[RATE]]) for row in done]
    high = [max(row.get("rates") or [row[RATE]]) - row[RATE] for row in done]
    if any(low) or any(high):
        speed.errorbar(counts, rates, [low, high], fmt="none", ecolor="#0072B2", capsize=4)
    for row in (row for row in done if row["efficiency"] is not None):
        speed.annotate(
            f"{row['efficiency']:.0%}",
            (row["ranks"], row[RATE]),
            xytext=(4, -12),
            textcoords="offset points",
        )
    speed.set(xlabel=plural(unit), ylabel="samples/s", xticks=counts, ylim=(0, None))
    speed.margins(x=0.16)  # room for the last label
    speed.legend(frameon=False)
    places = range(len(done))
    bottom = [0.0] * len(done)
    for name in SHARES:
        values = [row.get(f"share_{name}") or 0.0 for row in done]
        parts.bar(places, values, bottom=bottom, color=COLOURS[name], label=name, width=0.6)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    parts.set(xlabel=plural(unit), ylabel="share of the time", ylim=(0, 1))
    parts.set_xticks(list(places), [str(count) for count in counts])
    parts.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    figure.suptitle(title)
    make_folders(path.parent)
    out = BytesIO()
    figure.savefig(out, dpi=120, format=path.suffix[1:])
    write_atomic(path, out.getvalue())
    return ""
