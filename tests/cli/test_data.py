"""Data sets through whole studies on one machine, and ``sweep data``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sweep.cli.data import data as data_group
from sweep.core.errors import InputError
from sweep.core.files import make_private
from sweep.core.paths import Runs
from sweep.core.system import processes
from sweep.studyfile import load
from sweep.training.command.preflight import check_data
from sweep.training.fetching import FetchFailed
from tests.cli.commands import collected
from tests.conftest import Sweep
from tests.study_rows import make_study
from tests.tasks.sharding.sources import write_pictures

READS = """\
import os, pathlib, sys
from sweep.report import Reporter
given, named = sys.argv[1], os.environ["SWEEP_DATA_WORDS"]
text = pathlib.Path(given, "words.txt").read_text()
pathlib.Path(os.environ["SWEEP_TRIAL_DIR"], "read").write_text(given + " " + named)
Reporter().log(step=0, score=len(text))
"""


@pytest.fixture
def words(tmp_path: Path) -> Path:
    folder = tmp_path / "common" / "words"
    folder.mkdir(parents=True)
    (folder / "words.txt").write_text("some words")
    (tmp_path / "disk").mkdir()
    return folder


def write(folder: Path, **more: Any) -> Path:
    """Return a study file whose trainings read the words; JSON is YAML."""
    (folder / "train.py").write_text(READS)
    study = {
        "name": "reads",
        "command": "python train.py {data.words}",
        "objective": {"metric": "score", "direction": "maximize"},
        "space": {"x": {"type": "float", "low": 0, "high": 1}},
        "trials": 2,
        "max_parallel": 2,
        "executor": "local",
        "data": {"words": {"path": "common/words", "stage": "node"}},
        "staging": {"place": str(folder / "disk")},
    }
    path = folder / "study.yaml"
    path.write_text(json.dumps(study | more))
    return path


def call(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(data_group, arguments)
    if isinstance(ran.exception, InputError):
        raise ran.exception
    return ran.exit_code, ran.output


@pytest.mark.real
def test_purge_removes_what_killed_tasks_have_left(tmp_path: Path) -> None:
    """Of trials on several nodes, in the runs folder; what a task is at stays."""
    runs = Runs(tmp_path / "runs")
    folder = runs.study("wide")
    for name, pid in (("dead", 1), ("live", os.getpid())):
        place = make_private(folder.data / f"step-{name}")
        start = 0 if name == "dead" else processes.start_time(pid)
        owner = {"boot": processes.boot_id(), "pid": pid, "start": start}
        (place / "owner.json").write_text(json.dumps(owner))
    folder.study.write_text(make_study(executor="local").to_json())
    where = ("--place", str(tmp_path / "disk"), "--runs", str(runs.root))
    assert "step-" not in call("purge", "--dry-run", *where)[1]
    code, out = call("purge", *where)
    assert code == 0 and f"{folder.data}/step-dead  of a task that was killed" in out
    assert [path.name for path in folder.data.iterdir()] == ["step-live"]


def test_trials_read_the_copy(sweep: Sweep, tmp_path: Path, runs: Path, words: Path) -> None:
    """By the placeholder and by the variable; a re-run reads it too. They were fetched first."""
    (tmp_path / "far").mkdir()
    (words / "words.txt").rename(tmp_path / "far/words.txt")
    words.rmdir()
    data = {"path": "common/words", "stage": "node", "fetch": "cp -r far {target}"}
    ran = sweep("launch", write(tmp_path, data={"words": data}), "--wait")
    assert ran.code == 0, ran.err
    assert f"data.words: fetching {words}" in ran.err
    assert [row["value"] for row in collected(sweep)] == [10.0, 10.0]
    read = {path.read_text() for path in runs.glob("reads/trials/*/attempts/1/read")}
    (line,) = read
    given, named = line.split(" ")
    assert given == named
    assert (tmp_path / "disk") in Path(given).parents

    ran = sweep("rerun-best", "--wait")
    assert ran.code == 0, ran.err
    assert (runs / "reads/reruns/1/read").read_text() == line


# What stands for another node: its copy is gone, and the data are not what they were.
CHANGES = """
import shutil
for copies in pathlib.Path(given).parents[1].glob("words*"):
    shutil.rmtree(copies) if copies.is_dir() else copies.unlink()
pathlib.Path("SHARED", "more.txt").touch()
"""


@pytest.mark.real
def test_data_that_change_hold_the_study(sweep: Sweep, tmp_path: Path, words: Path) -> None:
    """No trial trains on other data than the launch has recorded without a word."""
    study = write(tmp_path, max_parallel=1)
    (tmp_path / "train.py").write_text(READS + CHANGES.replace("SHARED", str(words)))
    ran = sweep("launch", study, "--wait")
    assert ran.code == 1
    said = " ".join((ran.out + ran.err).split())
    assert "is not what the launch recorded: 1 files of 10 bytes, here 2 of 10." in said
    assert "launch again: that records them as they are now" in said
    assert [row["value"] for row in collected(sweep)] == [10.0]


def test_data_are_fetched_here(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sweep data fetch``: what is missing comes, what is there stays; and what cannot come."""
    monkeypatch.chdir(tmp_path)
    fetched = {"path": "common/more", "fetch": "cp -r common/words {target}"}
    study = write(tmp_path, data={"words": "common/words", "more": fetched})
    runs = ("--runs", str(tmp_path / "runs"))
    code, said = call("fetch", str(study), *runs)
    assert code == 0, said
    assert (tmp_path / "common/more/words.txt").read_text() == "some words"
    with pytest.raises(InputError, match="study reads has no data that are fetched"):
        call("fetch", str(write(tmp_path)), *runs)
    gone = {"path": "common/other", "fetch": "false {target}"}
    study = write(tmp_path, data={"words": gone})
    with pytest.raises(InputError, match="not fetched yet") as refused:
        check_data(load(study))
    assert refused.value.hint == f"Fetch it: sweep data fetch {study}"
    ran = CliRunner().invoke(data_group, ["fetch", str(study), *runs])
    assert isinstance(ran.exception, FetchFailed)


def test_data_that_are_not_there_are_refused(
    sweep: Sweep, tmp_path: Path, words: Path, runs: Path
) -> None:
    ran = sweep("launch", write(tmp_path, data={"words": "common/wrods"}))
    assert ran.code == 2
    assert "data.words: " in ran.err
    assert "common/wrods does not exist" in ran.err
    assert not (runs / "reads").exists()


def test_copies_are_made_shown_and_removed(
    tmp_path: Path, words: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``stage`` of a study file, ``status``, ``purge``; no study folder is made."""
    monkeypatch.chdir(tmp_path)
    study, place = str(write(tmp_path)), str(tmp_path / "disk")
    code, out = call("stage", study)
    assert code == 0, out
    copy = Path(out.splitlines()[-1].split(" ")[1])
    assert (copy / "words.txt").read_text() == "some words"
    assert not (tmp_path / "runs").exists()
    code, out = call("status", "--place", place)
    assert f"10 B  {words}  unused for 0.0 days" in out
    code, out = call("status", "--place", place, "--json")
    ((entry,),) = [one["copies"] for one in json.loads(out)]
    assert (entry["bytes"], entry["is_complete"], entry["is_used"]) == (10, True, False)
    assert call("purge", "--place", place, "--days", "1")[1].splitlines() == ["0 B removed"]
    assert call("purge", "--place", place, "--dry-run")[1].endswith("10 B would be removed\n")
    assert copy.exists()
    assert call("purge", "--place", place)[1].endswith("10 B removed\n")
    assert not copy.exists()
    assert "no copies" in call("status", "--place", place)[1]


def test_a_place_that_nobody_used_is_left_as_it_is(tmp_path: Path) -> None:
    _, out = call("status", "--place", str(tmp_path))
    assert out.splitlines()[-1] == "  no copies"
    assert os.listdir(tmp_path) == []


def test_a_site_names_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its defaults hold for ``status`` as for studies."""
    (tmp_path / "site.yaml").write_text(f"staging: {{place: {tmp_path}, quota: 5G}}\n")
    monkeypatch.setenv("SWEEP_SITE_CONFIG", str(tmp_path / "site.yaml"))
    assert call("status")[1].startswith(f"{tmp_path}: ")


def test_nothing_to_stage_is_said(tmp_path: Path, words: Path) -> None:
    study = write(tmp_path, data={"words": "common/words"})
    with pytest.raises(InputError, match="has no data that are staged"):
        call("stage", str(study))


def test_shards_are_made_and_verified(tmp_path: Path) -> None:
    """By the command: what was made, duplicates, and as JSON; a size without a unit is refused."""
    pytest.importorskip("PIL")
    write_pictures(tmp_path / "d", 6)
    (tmp_path / "d" / "cat" / "again.png").write_bytes((tmp_path / "d/cat/0.png").read_bytes())
    source, target = str(tmp_path / "d"), str(tmp_path / "s")
    with pytest.raises(InputError, match="--size 256: must be a size with a unit"):
        call("shard", source, target, "--size", "256")
    code, said = call("shard", source, target, "--size", "1M")
    assert code == 0
    assert "1 examples are there twice:" in said
    assert said.splitlines()[-1].endswith("s: 7 train examples in 1 shards, 15.4 kB")
    assert call("verify", target) == (0, "1 shards are whole\n")
    code, said = call("shard", source, str(tmp_path / "t"), "--json", "--ignore", "again.png")
    assert json.loads(said)["examples"] == {"train": 6}
