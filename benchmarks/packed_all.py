"""All measurements of trials that share a GPU, in one command that goes on where it was stopped.

Where a command may take ten minutes, six times this (fifty minutes; OUT is a folder that stays):

    python -m benchmarks.packed_all --data data --results OUT/packed.json --minutes 9

and at the end, on any machine, the table, what is asked of it, and the picture:

    python -m benchmarks.packed_all --results OUT/packed.json --minutes 0 --plot OUT/packed.png

The steps are those of PLAN in its order; one begins only where its usual time is left, and is
stopped when the command's time is over. What the results have is not measured again; a step that
has failed twice is left out, and said. On Slurm are measured the steps whose executor it is, where
there is an ``sbatch``: bring one up on the machine before the command. Without ``--data`` (a folder
with mnist/ in it) MNIST's steps train on synthetic images of the same size and number.

``--tiny`` tries the commands themselves, on any machine: with few and small trainings.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import packed_kills
from benchmarks.packing import (
    CASES,
    LR,
    SPACES,
    SYNTHETIC,
    TINY,
    Leg,
    machine,
    run_leg,
    stop_database,
    write_study,
)

KILLS = "kills"
MOST_FAILURES = 2
TINY_S = 1.0
LEAST_S = 30.0  # a step is given so much at least


@dataclass(frozen=True)
class Step:
    """One measurement.

    Attributes:
        case: Of ``packing``'s CASES, or KILLS.
        usual_s: How long it takes on an H200 with 16 cores, about; it is stopped after twice that.
        mps: Whether CUDA's MPS serves trials that share; of KILLS: auto.
    """

    name: str
    case: str
    leg: Leg
    usual_s: float
    mps: str = "auto"
    executor: str = "local"


_AUTO = Step("MNIST, auto", "mnist", Leg("auto", 200), 300.0)
_ALONE = Step("MNIST, alone", "mnist", Leg("1", 16), 220.0)
PLAN = (
    _AUTO,
    Step("kills under MPS", KILLS, Leg("12", 64), 220.0),
    _ALONE,
    Step("MNIST, 16 by hand", "mnist", Leg("16", 48), 70.0),
    Step("ResNet-18, alone", "resnet", Leg("1", 3), 160.0),
    Step("ResNet-18, auto", "resnet", Leg("auto", 5), 180.0),
    Step("memory, auto", "memory", Leg("auto", 12), 150.0),
    Step("Slurm, auto, MPS", "mnist", Leg("auto", 40), 130.0, executor="slurm"),
    Step("kills on Slurm", KILLS, Leg("12", 64), 300.0, executor="slurm"),
    Step("Slurm, auto, no MPS", "mnist", Leg("auto", 40), 140.0, "off", "slurm"),
    Step("MNIST, 12 by hand", "mnist", Leg("12", 36), 60.0),
    Step("memory, alone", "memory", Leg("1", 12), 240.0),
    *(_AUTO, _ALONE) * 2,
)


def left_of(plan: Sequence[Step], found: Mapping[str, Any]) -> list[Step]:
    """Return the steps that were not measured yet, each as often as the plan has it.

    Args:
        found: The results so far.
    """
    done = {name: len(runs) for name, runs in found["rows"].items()}
    done |= dict.fromkeys(found["kills"], 1)
    left = []
    for step in plan:
        if done.get(step.name, 0):
            done[step.name] -= 1
        elif len(found["failed"].get(step.name, ())) < MOST_FAILURES:
            left.append(step)
    return left


def medians(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return by step the medians of its runs, and how many trials were missing in all."""
    found = {}
    for name, runs in rows.items():
        told: dict[str, Any] = {"runs": len(runs)}
        for key in ("per_hour", "trial_s", "at_once", "memory_gb", "busy", "joules"):
            values = [run[key] for run in runs if run[key] is not None]
            told[key] = round(statistics.median(values), 3) if values else None
        told["missing"] = sum(run["trials"] - run["complete"] for run in runs)
        told["again"] = sum(run["again"] for run in runs)
        found[name] = told
    return found


def table(told: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the medians as rows for RESULTS.md."""
    lines = [
        "| Study | runs | trials an hour | against alone | a trial, s | at once | memory, GB "
        "| busy | J a trial | missing | again |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in told.items():
        against = _ratio(told, name, f"{name.partition(',')[0]}, alone")
        cells = [name, one["runs"], f"{one['per_hour']:,.0f}"]
        cells.append("" if against is None else f"{against:.2f}")
        cells += [one[key] for key in ("trial_s", "at_once", "memory_gb", "busy", "joules")]
        cells += [one["missing"], one["again"]]
        lines.append("| " + " | ".join("" if c is None else str(c) for c in cells) + " |")
    return "\n".join(lines)


def _ratio(
    told: Mapping[str, Mapping[str, Any]], name: str, other: str, key: str = "per_hour"
) -> float | None:
    first, second = (told.get(one, {}).get(key) for one in (name, other))
    return first / second if first is not None and second else None


def asked(found: Mapping[str, Any]) -> list[tuple[str, float | None, bool | None]]:
    """Return what is asked of the results: in words, what it came to, and whether it holds; None
    and None where it was not measured."""
    told = medians(found["rows"])
    by_hand = [name for name in told if name.endswith("by hand")]
    best = max(by_hand, key=lambda name: told[name]["per_hour"], default="")
    least = [
        ("MNIST: auto against alone, at least 5", ("MNIST, auto", "MNIST, alone"), 5.0),
        ("MNIST: auto against the best by hand, at least 0.85", ("MNIST, auto", best), 0.85),
        (
            "ResNet-18: auto against alone, at least 0.95",
            ("ResNet-18, auto", "ResNet-18, alone"),
            0.95,
        ),
    ]
    said: list[tuple[str, float | None, bool | None]] = []
    for words, names, wanted in least:
        value = _ratio(told, *names)
        said.append((words, value, None if value is None else value >= wanted))
    joules = _ratio(told, "MNIST, auto", "MNIST, alone", "joules")
    said.append(("MNIST: joules a trial, auto against alone", joules, None))
    for name in ("memory, auto", "memory, alone"):
        missing = told[name]["missing"] if name in told else None
        said.append(
            (f"{name}: trials missing, none", missing, None if missing is None else not missing)
        )
    for step in PLAN:
        if step.case == KILLS:
            one = found["kills"].get(step.name)
            words = f"{step.name}: trainings killed, 50, all complete and all curves equal"
            said.append((words, one and one["kills"], one and is_sound(one)))
    return said


def is_sound(one: Mapping[str, Any]) -> bool:
    """Tell whether a run of kills lost no trial and changed no curve."""
    kinds = [one["survivors"], one["resumed"]]
    return one["complete"] == one["trials"] and all(k["equal"] == k["trials"] for k in kinds)


def plot(told: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw trials an hour, and joules a trial, of each study."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (9, 0.4 * len(told) + 1.4)
    figure, axes = pyplot.subplots(1, 2, figsize=size, layout="constrained", sharey=True)
    named = (("per_hour", "trials an hour on one GPU"), ("joules", "joules a trial"))
    names = sorted(told, key=lambda name: name.partition(",")[0])  # studies of one case together
    for axis, (key, title) in zip(axes, named, strict=True):
        values = [told[name][key] or 0.0 for name in names]
        bars = axis.barh(names, values, color="#3b6ea5")
        axis.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
        axis.set(xscale="log", xlim=(10, 10 * max([*values, 10])), xlabel=f"{title}, medians")
    axes[0].invert_yaxis()
    figure.savefig(path, dpi=150)


def main(argv: list[str] | None = None) -> int:
    """Run what is left; return 1 where trials are missing or a step failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.packed_all", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--data", type=Path, help="folder with mnist/ in it; absent: synthetic")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this command; 0: no step")
    parser.add_argument("--results", type=Path, required=True, help="JSON, read and written")
    parser.add_argument("--plot", type=Path, help="a picture of trials an hour")
    parser.add_argument("--tiny", action="store_true", help="few and small trainings: a trial run")
    given = parser.parse_args(argv)
    until = time.monotonic() + given.minutes * 60
    found: dict[str, Any] = {"rows": {}, "kills": {}, "failed": {}}
    if given.results.exists():
        found = json.loads(given.results.read_text(encoding="utf-8"))
    plan = [_tiny(step) for step in PLAN] if given.tiny else PLAN
    if not shutil.which("sbatch"):
        print("no sbatch: the steps on Slurm are left out", flush=True)
        plan = [step for step in plan if step.executor != "slurm"]
    with tempfile.TemporaryDirectory(prefix="packed-") as made:
        for number, step in enumerate(left_of(plan, found)):
            if time.monotonic() + step.usual_s > until:
                continue  # a shorter one may fit
            limit_s = max(LEAST_S, min(2 * step.usual_s, until - time.monotonic()))
            if given.tiny:
                limit_s = 600.0
            try:
                _measure(step, Path(made) / str(number), given, limit_s, found)
            except (Exception, SystemExit) as error:  # the next one may do
                said = f"{type(error).__name__}: {error}"[-2000:]
                found["failed"].setdefault(step.name, []).append(said)
                print(f"{step.name} failed: {said}", flush=True)
            found["machine"] = machine()
            given.results.write_text(json.dumps(found) + "\n", encoding="utf-8")
    told = medians(found["rows"])
    print(table(told))
    for words, value, holds in asked(found):
        shown = "not measured" if value is None else f"{value:.2f}"
        print(f"{words}: {shown}" + ("" if holds is None else ", holds" if holds else ", MISSED"))
    left = [step.name for step in left_of(plan, found)]
    print(
        f"left: {', '.join(left) or 'nothing'}; failed: {', '.join(found['failed']) or 'nothing'}"
    )
    print(json.dumps(found))
    if given.plot is not None:
        plot(told, given.plot)
    return int(any(one["missing"] for one in told.values()) or bool(found["failed"]))


def _tiny(step: Step) -> Step:
    share = step.leg.share if step.leg.share in ("1", "auto") else "2"
    trials = 8 if step.case == KILLS else 2
    return replace(step, leg=Leg(share, trials), usual_s=TINY_S)


def _measure(
    step: Step, folder: Path, given: argparse.Namespace, limit_s: float, found: dict[str, Any]
) -> None:
    """Run a step and put what it came to among the results."""
    folder.mkdir()
    if step.case == KILLS:
        path = folder / "kills.json"
        words = ["--kills", "3" if given.tiny else "50", "--servers", "1" if given.tiny else "2"]
        words += ["--trials", str(step.leg.trials), "--share", step.leg.share]
        words += ["--executor", step.executor, "--limit", str(limit_s), "--output", str(path)]
        words += ["--device", "cpu"] if given.tiny else []
        words += ["--tasks", "1"] if step.executor == "slurm" else []
        packed_kills.main(words)
        found["kills"][step.name] = json.loads(path.read_text(encoding="utf-8"))
        return
    fixed = dict(CASES[step.case])
    if step.case == "mnist":
        real = {"data": "mnist", "data_dir": str(given.data.resolve())} if given.data else SYNTHETIC
        fixed |= real
    if given.tiny:
        fixed = dict(TINY)
    space = LR if given.tiny else SPACES.get(step.case, LR)
    study = write_study(folder, "study", step.leg, fixed, 1, space, step.executor, step.mps)
    try:
        row = asdict(run_leg(study, step.leg, folder, limit_s))
    finally:
        stop_database(folder)
    if row["stopped"]:
        raise RuntimeError(f"stopped after {limit_s:.0f} s: {json.dumps(row)}")
    found["rows"].setdefault(step.name, []).append(row)
    print(f"{step.name}: {row['per_hour']} trials an hour\n{row['status']}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
