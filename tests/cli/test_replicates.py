"""Trials of several trainings, through real tasks: kill, collect, re-run, confirm, retry."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
from pathlib import Path

import pytest

from sweep.core.trial import replicate_seed
from tests.cli.commands import collected, counts, wait_for
from tests.conftest import Sweep
from tests.toys import TRAINING, write_toy
from tests.waiting import text_of

# The score moves with the seed, as real ones do, by up to 0.1.
NOISY = TRAINING.replace(
    "flags = parser.parse_args()",
    'parser.add_argument("--seed", type=int)\nflags = parser.parse_args()',
).replace("- 1 / (step + 2)\n", "- 1 / (step + 2) + flags.seed % 1000 / 10000\n")
COMMAND = "[python, train.py, '{params}', --seed, '{seed}'"


def score(x: float, seed: int, steps: int = 3) -> float:
    """Return what the training reports last."""
    return float(1 - (x - 0.25) ** 2 - 1 / (steps + 1) + seed % 1000 / 10000)


def test_a_study_of_several_seeds(sweep: Sweep, runs: Path, tmp_path: Path) -> None:
    """A training that is killed goes on; each result is a mean that was reckoned here as well."""
    gate = tmp_path / "gate"
    command = f"{COMMAND}, --gate, '{gate}']"
    path = write_toy(tmp_path, trials=3, training=NOISY, command=command, replicates=3, patience=30)
    assert sweep("launch", path).code == 0
    log = runs / "toy/trials/00000/attempts/1/log.txt"
    wait_for(lambda: "starts at step 0" in text_of(log), "the first training")
    saved = log.parent / "checkpoints/last"
    wait_for(lambda: text_of(saved) == "1", "its second step")
    wait_for(lambda: counts(sweep).get("running") == 2, "the other task's first training")
    pids = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _is(p, log)]
    os.kill(pids[0], signal.SIGKILL)
    gate.touch()
    assert sweep("launch", path, "--wait").code == 0

    rows = {row["trial"]: row for row in collected(sweep)}
    assert sorted(rows) == [0, 1, 2]
    for number, row in rows.items():
        values = [score(row["params"]["x"], replicate_seed(7, number, k)) for k in (1, 2, 3)]
        assert row["value"] == pytest.approx(statistics.fmean(values)), number
        assert row["sd"] == pytest.approx(statistics.stdev(values)), number
        assert (row["replicates"], row["attempts"]) == (3, 4 if number == 0 else 3), number
        assert row["seed"] == replicate_seed(7, number, 3)
    starts = [
        re.findall(r"starts at step (\d)", text_of(log.parents[1] / str(k) / "log.txt"))
        for k in (1, 2, 3, 4)
    ]
    assert starts == [["0"], ["2"], ["0"], ["0"]]
    records = [log.parents[1] / str(k) / "manifest.json" for k in (1, 2, 3, 4)]
    made = [json.loads(text_of(record)) for record in records]
    assert [one["execution"]["attempts"] for one in made] == [1, 2, 1, 1]

    shown = json.loads(sweep("status", "--json").out)["best"]
    top = rows[shown["trial"]]
    assert (shown["value"], shown["sd"], shown["replicates"]) == (top["value"], top["sd"], 3)
    paper = sweep("collect", "--format", "markdown", "--columns", "trial,score", "--digits", "3")
    assert re.search(rf"\*\*0\.\d+ ± {top['sd']:.3f}\*\*", paper.out), paper.out
    table = sweep("collect").out
    assert "± sd" in table and re.search(r"\bn\b", table)
    header = sweep("collect", "--format", "csv").out.splitlines()[0]
    assert ",value,sd,replicates," in header
    ran = sweep("rerun-best", "--wait", "--json")
    verdict = json.loads(ran.out)
    best = rows[verdict["trial"]]
    assert (ran.code, verdict["verdict"]) == (0, "reproduced"), verdict
    assert verdict["original"] == pytest.approx(best["value"]) == verdict["rerun"]
    seeds = [replicate_seed(7, verdict["trial"], k) for k in (1, 2, 3)]
    assert [one["seed"] for one in verdict["replicates"]] == seeds
    for one in verdict["replicates"]:
        value = score(best["params"]["x"], one["seed"])
        assert one["original"] == pytest.approx(value) == one["rerun"]
    said = sweep("rerun-best", "--report").out
    assert "means of             3 trainings" in said
    ran = sweep("confirm", "--top", "1", "--seeds", "2", "--wait", "--json")
    assert ran.code == 0, ran.err
    used = {replicate_seed(7, number, k) for number in range(3) for k in (1, 2, 3)}
    assert not used & set(json.loads(ran.out)["seeds"])


def test_a_result_that_is_reused(sweep: Sweep, tmp_path: Path) -> None:
    """It is shown with the trainings behind it, and run again it is what has trained."""
    points = "[{x: 0.25, kind: a}, {x: 0.25, kind: a}, {x: 0.9, kind: b}]"
    more = {"points": points, "duplicates": "reuse", "replicates": 2}
    command = f"{COMMAND}]"
    path = write_toy(tmp_path, trials=3, parallel=1, training=NOISY, command=command, **more)
    assert sweep("launch", path, "--wait").code == 0
    rows = {row["trial"]: row for row in collected(sweep)}
    first, again = rows[0], rows[1]
    values = [score(0.25, replicate_seed(7, 0, k)) for k in (1, 2)]
    assert first["value"] == pytest.approx(statistics.fmean(values))
    keys = ("value", "sd", "replicates")
    assert [again[key] for key in keys] == [first[key] for key in keys]
    assert again["reason"] == "" and again["attempts"] == 1

    ran = sweep("rerun-best", "--trial", "1", "--wait", "--json")
    verdict = json.loads(ran.out)
    assert (ran.code, verdict["trial"], verdict["verdict"]) == (0, 0, "reproduced"), verdict
    assert [one["seed"] for one in verdict["replicates"]] == [
        replicate_seed(7, 0, k) for k in (1, 2)
    ]
    assert "trial 1 has the result of trial 0" in ran.err
    ran = sweep("confirm", "--top", "3", "--seeds", "2", "--wait", "--json")
    assert sorted(one["trial"] for one in json.loads(ran.out)["trials"]) == [0, 2], ran


def _is(process: Path, log: Path) -> bool:
    """Tell whether a process is the training that writes a log."""
    try:
        argv = (process / "cmdline").read_bytes()
        return b"train.py" in argv and os.readlink(process / "fd/1") == str(log)
    except OSError:
        return False


def test_what_cannot_go_together_is_said(sweep: Sweep, tmp_path: Path) -> None:
    """Promotion, racing with several objectives, a range the wrong way round, no seed."""
    for more, said in (
        (
            {"replicates": 2, "pruner": "{type: promotion, max_resource: 3}"},
            "cannot go with pruner promotion",
        ),
        ({"replicates": "{min: 3, max: 2}"}, "min that is not above its max"),
        ({"replicates": 0}, "whole number from 1 to 100"),
    ):
        path = write_toy(tmp_path, training=NOISY, command=f"{COMMAND}]", **more)
        ran = sweep("check", path)
        assert ran.code == 2 and said in ran.err, (more, ran)
    path = write_toy(tmp_path, replicates=2)
    assert "the replicates of a trial would all be the same" in sweep("check", path).out
