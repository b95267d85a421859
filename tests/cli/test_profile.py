"""``profile: true`` and ``sweep profile``, by the command line on small studies."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.cli.commands import collected
from tests.conftest import Sweep
from tests.toys import write_toy


def test_each_training_and_one_more(sweep: Sweep, tmp_path: Path, runs: Path) -> None:
    """A study's trainings are looked at; its best once more, which counts nowhere."""
    file = write_toy(tmp_path, trials=1, profile="true", command="[python, train.py, '{params}']")
    assert sweep("launch", file, "--wait").code == 0
    kept = json.loads((runs / "toy/trials/00000/attempts/1/profile.json").read_text())
    assert kept["judgement"]["cause"] and kept["over_time"]
    before = collected(sweep)

    ran = sweep("profile", "--time", "3600", "--json")
    assert ran.code == 0, ran
    found = json.loads(ran.out)
    assert (found["trial"], found["outcome"]) == (0, "finished")
    assert found["judgement"].keys() == {"cause", "evidence", "remedy"}
    again = json.loads((runs / "toy/profiles/00000/profile.json").read_text())
    assert again["judgement"] == found["judgement"] and again["host"] == kept["host"]
    assert collected(sweep) == before and not list((runs / ".profiles").glob("*"))
    (note,) = [n for n in json.loads(sweep("status", "--json").out)["notes"] if "back" in n]
    assert note.startswith("what holds trainings back: ") and "of 2 trainings" in note


# Stands for Nsight Systems: notes how it is called, and runs the training as a child, as that does.
NSYS = """#!/bin/sh
output=
for word; do
  if [ "$output" = next ]; then output=$word; fi
  if [ "$word" = --output ]; then output=next; fi
done
echo "$*" > "$output.nsys-rep" || exit 1
while [ "$1" != python ]; do shift; done
"$@"
"""


def test_nsight_systems(finished: Sweep, tmp_path: Path) -> None:
    """By a stand-in on PATH: what it writes is kept beside the attempt, and named. Without one
    nothing is trained, and it is said where to have it from."""
    ran = finished("profile", "toy", "1", "--nsys")
    assert ran.code == 1 and "Nsight Systems is not there where trials run" in ran.err
    assert "environment.setup" in ran.err
    kept = finished.keywords["runs"] / "toy/profiles/00001"  # type: ignore[attr-defined]
    assert not kept.exists()

    (tmp_path / "nsys").write_text(NSYS)
    (tmp_path / "nsys").chmod(0o755)
    env = {**finished.keywords["env"], "PATH": f"{tmp_path}:{os.environ['PATH']}"}  # type: ignore[attr-defined]
    ran = finished("profile", "toy", "1", "--nsys", "--json", env=env)
    assert ran.code == 0, ran
    found = json.loads(ran.out)
    assert (found["outcome"], found["files"]) == ("finished", [f"{kept}/profile/nsys.nsys-rep"])
    words = (kept / "profile/nsys.nsys-rep").read_text().split()
    assert words[:2] == ["profile", "--output"] and "train.py" in words
    assert "--trace cuda,nvtx,osrt --delay 10 --duration 20 --kill none python" in " ".join(words)


def test_what_is_refused(finished: Sweep) -> None:
    for words, said in (
        (("99",), "has no trial 99"),
        (("toy", "x"), "must be a trial's number"),
        (("--time", "0"), "--time"),
    ):
        ran = finished("profile", *words)
        assert ran.code == 2 and said in ran.err, ran
