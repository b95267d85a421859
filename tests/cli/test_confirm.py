"""``sweep confirm`` on a real small study: real processes, a real database."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import psycopg2

from tests.toys import write_toy

# Noise that the seed alone decides, larger than what most trials differ by.
NOISY = """\
import argparse, random
from sweep.report import Reporter
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--kind")
parser.add_argument("--seed", type=int)
flags = parser.parse_args()
score = 1 - (flags.x - 0.25) ** 2 + random.Random(flags.seed).gauss(0, 0.2)
Reporter().log(step=0, score=score)
"""


def test_confirm_a_real_study(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> None:
    """Fresh seeds, the same for all; kept apart from the trials; more seeds only add."""
    env = {"SWEEP_STORAGE": fresh_url}
    command = "[python, train.py, '{params}', --seed, '{seed}']"
    write_toy(tmp_path, trials=6, parallel=3, training=NOISY, command=command)
    assert sweep("launch", "study.yaml", "--wait", env=env).code == 0
    before = sweep("collect", "--format", "json", env=env).out
    done = sweep("confirm", "--top", "2", "--seeds", "3", "--wait", "--json", env=env)
    assert done.code == 0, done
    found = json.loads(done.out)
    best = json.loads(before)[:2]
    assert {(e["trial"], e["search_value"]) for e in found["trials"]} == {
        (row["trial"], row["value"]) for row in best
    }
    for entry in found["trials"]:
        assert len(entry["values"]) == 3
        assert entry["low"] < entry["mean"] < entry["high"]
        assert entry["mean"] == statistics.fmean(entry["values"])
    assert found["choice"] == max(found["trials"], key=lambda e: e["mean"])["trial"]
    # The seed's noise is common to both, so the pairs tell them apart where single values do not.
    assert found["distinguishable"]
    assert not found["seed_is_ignored"]
    rows = json.loads(sweep("collect", "--format", "json", env=env).out)
    confirmed = {row["trial"]: row.pop("confirmed") for row in rows if "confirmed" in row}
    assert rows == json.loads(before)  # the trials stay as they were
    assert {n: c["mean"] for n, c in confirmed.items()} == {
        entry["trial"]: entry["mean"] for entry in found["trials"]
    }
    more = sweep("confirm", "--top", "2", "--seeds", "4", "--wait", env=env)
    assert (more.code, "2 trainings with fresh seeds" in more.err) == (0, True), more
    assert f"the honest choice: trial {found['choice']}" in more.out
    again = sweep("confirm", "--top", "2", "--seeds", "4", "--json", env=env)
    assert len(json.loads(again.out)["trials"][0]["values"]) == 4
    with psycopg2.connect(fresh_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT kind, count(*), count(DISTINCT seed) FROM sweep_rerun GROUP BY kind")
        assert cursor.fetchall() == [("confirm", 8, 4)]
        cursor.execute("SELECT count(*) FROM trials")
        assert cursor.fetchone() == (6,)
