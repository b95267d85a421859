"""``sweep diff`` on a real small study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweep.cli.diff import say_comparison
from sweep.tasks.side_runs.diff import Side, compare
from tests.study_rows import make_study
from tests.toys import TRAINING, write_toy


def test_diff_names_what_differs(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> None:
    """Two trials, a trial and its re-run after the script was changed, and two studies."""
    env = {"SWEEP_STORAGE": fresh_url}
    write_toy(tmp_path, trials=2, fixed="{steps: 3}", code="live")
    assert sweep("launch", "study.yaml", "--wait", env=env).code == 0
    rows = json.loads(sweep("collect", "--format", "json", env=env).out)
    params = {row["trial"]: row["params"] for row in rows}

    def diff(a: str, b: str) -> Any:
        done = sweep("diff", a, b, "--json", env=env)
        assert done.code == 0, done
        return json.loads(done.out)

    found = diff("0", "toy:1")
    assert found["values"]["x"] == [params[0]["x"], params[1]["x"]]
    assert "steps" not in found["values"]
    assert (found["study"], found["axes"]) == ([], [])
    score = found["curves"]["score"]
    assert (score["steps"], score["common"], score["first_difference"]) == ([3, 3], 3, 0)
    gap = abs((params[0]["x"] - 0.25) ** 2 - (params[1]["x"] - 0.25) ** 2)
    assert abs(score["greatest_difference"] - gap) < 1e-12

    (tmp_path / "train.py").write_text(TRAINING.replace("score=float", "extra=1.0, score=float"))
    again = sweep("rerun-best", "--trial", "0", "--wait", env=env)
    assert again.code == 0, again
    found = diff("0", "r1")
    assert found["values"] == {}
    assert [axis.partition(":")[0] for axis in found["axes"]] == ["code"]
    assert "train.py has changed" in found["axes"][0]
    assert found["curves"]["score"]["first_difference"] is None
    assert found["curves"]["extra"]["steps"] == [0, 3]
    said = sweep("diff", "0", "r1", env=env).out
    assert "train.py has changed" in said
    assert "score: 3 and 3 steps; equal in the 3 common steps" in said

    write_toy(tmp_path, name="other", trials=3, fixed="{steps: 2}", training=TRAINING)
    assert sweep("launch", "study.yaml", "--wait", env=env).code == 0
    found = diff("toy", "other")
    assert found["values"]["trials complete"] == [2, 3]
    assert any("steps" in sentence for sentence in found["study"])
    costs = [json.loads(sweep("collect", name, "--cost", "--format", "json", env=env).out)
             for name in ("toy", "other")]  # fmt: skip
    assert found["cost"] == costs and costs[0]["levels"]
    quality = {level["value"] for one in costs for level in one["levels"]}
    assert [level["value"] for level in found["levels"]] == sorted(quality)
    said = sweep("diff", "toy", "other", env=env).out
    assert "cost" in said.splitlines() and "after a" in said and "lost" not in said
    assert sweep("collect", "toy", "--cost", env=env).out.startswith("toy: what it cost")
    refused = sweep("collect", "toy", "--cost", "--format", "csv", env=env)
    assert refused.code == 2 and "--cost is of the whole study" in refused.err
    missing = sweep("diff", "toy:7", "toy:0", env=env)
    assert (missing.code, "toy has no trial 7" in missing.err) == (2, True)


def test_null_is_a_value_and_none_is_none() -> None:
    """A choice may be null; a parameter of another branch is not there at all."""
    a, b = (
        Side(name, make_study(), values, {}, {})
        for name, values in (
            ("0", {"clip": None, "depth": None, "same": None, "word": "null"}),
            ("1", {"clip": 0.5, "same": None, "word": None, "width": None}),
        )
    )
    found = compare(a, b)
    assert found.values == {
        "clip": (None, 0.5),
        "depth": (None, None),
        "word": ("null", None),
        "width": (None, None),
    }
    assert found.only_in == {"depth": "a", "width": "b"}
    assert json.loads(found.to_json())["only_in"] == {"depth": "a", "width": "b"}
    said = [line.split() for line in say_comparison(found).splitlines() if "|" in line]
    assert said == [
        ["clip", "null", "|", "0.5"],
        ["depth", "null", "|", "-"],
        ["word", '"null"', "|", "null"],
        ["width", "-", "|", "null"],
    ]
