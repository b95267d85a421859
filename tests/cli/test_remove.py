"""``sweep remove``: rows and folder of one study, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from sweep.control import removal
from sweep.core import files
from sweep.core.errors import InputError
from sweep.core.paths import Runs
from sweep.storage import studies
from sweep.storage.connection import Database
from tests.cli.commands import gated, steps_of, wait_for, wait_for_runners
from tests.conftest import Sweep, sweep_environment
from tests.toys import write_toy

TABLES = ("trials", "sweep_attempt", "sweep_metric", "study_system_attributes", "trial_params")


def rows(url: str) -> dict[str, int]:
    with closing(Database(url)) as db:
        return {table: db.execute(f"SELECT COUNT(*) FROM {table}")[0][0] for table in TABLES}


def test_one_study_goes_and_its_neighbour_stays(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """Also where a link in its folder points out of it, and a folder may not be written."""
    assert sweep("launch", write_toy(tmp_path, name="stays", file="s.yaml"), "--wait").code == 0
    wait_for_runners(runs / "stays")
    before = rows(fresh_url)
    kept = sorted(path for path in runs.rglob("*") if "stays" in str(path))
    assert sweep("launch", write_toy(tmp_path), "--wait").code == 0
    wait_for_runners(runs / "toy")
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "data").write_text("mine")
    (runs / "toy" / "link").symlink_to(outside)
    (runs / "toy" / "hard").mkdir(mode=0o500)
    ran = sweep("remove", "toy")
    assert ran.code == 2 and "Give --yes" in ran.err
    assert "4 trials (4 complete)" in ran.out and str(runs / "toy") in ran.out
    assert sweep("status", "toy", "--json").code == 0
    ran = sweep("remove", "toy", "--yes")
    assert (ran.code, ran.out) == (0, "study toy: removed\n"), ran.err
    assert (outside / "data").read_text() == "mine"
    assert not os.path.lexists(runs / "toy") and not (runs / ".removing").exists()
    assert not (runs / ".toy.lock").exists()
    assert rows(fresh_url) == before
    assert all(path.exists() for path in kept)
    ran = sweep("remove", "toy", "--yes")
    assert ran.code == 2 and "There is no study 'toy'" in ran.err
    assert not (runs / ".last").exists()


def test_nothing_is_removed_while_anything_runs(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """Nor where the study's runner is on another machine, and nobody here can say."""
    hold = f"python -c \"import pathlib, time; p = pathlib.Path('{tmp_path}'); (p / 'held').touch()"
    hold += "\nwhile not (p / 'gate').exists(): time.sleep(0.02)\""
    commands = json.dumps({"hold": hold})
    path = write_toy(tmp_path, trials=2, command=gated(tmp_path), commands=commands)
    assert sweep("launch", path).code == 0
    wait_for(lambda: min(steps_of(runs, "toy", 0), steps_of(runs, "toy", 1)) >= 2, "two steps")
    before = rows(fresh_url)
    ran = sweep("remove", "toy", "--yes")
    assert ran.code == 1 and "is at work" in ran.err and "sweep stop toy" in ran.err
    assert rows(fresh_url)["trials"] == before["trials"]
    (tmp_path / "gate").touch()
    assert sweep("launch", path, "--wait").code == 0
    wait_for_runners(runs / "toy")  # the study's finaliser is at work for a while yet
    # A re-run and another command of the study are no trials: its scheduler has them all the same.
    for start, begun in (
        (["rerun-best"], runs / "toy/reruns/1/checkpoints/last"),
        (["run", "hold"], tmp_path / "held"),
    ):
        (tmp_path / "gate").unlink()
        assert sweep(*start).code == 0
        wait_for(begun.exists, f"{start} to begin")
        ran = sweep("remove", "toy", "--yes")
        assert ran.code == 1 and "is running" in ran.err and "sweep stop toy" in ran.err, ran
        assert rows(fresh_url)["trials"] == before["trials"] and (runs / "toy").is_dir()
        ran = sweep("stop", "toy", "--drain")
        assert ran.code == 0 and "nothing to stop" in ran.out, ran
        ran = sweep("stop", "toy")
        assert ran.code == 0 and "1 re-run or other command" in ran.out, ran
        ran = sweep(*start, "--wait")
        assert ran.code == 1 and "asked to leave" in ran.out, ran
        (tmp_path / "gate").touch()
        wait_for_runners(runs / "toy")
    (record,) = (runs / "toy" / "local").glob(f"sweep-toy-{'[0-9a-f]' * 10}/runner.json")
    text = record.read_text()
    found = json.loads(text)
    record.write_text(json.dumps({**found, "host": "login7"}))
    ran = sweep("remove", "toy", "--yes")
    assert ran.code == 1 and "cannot be said" in ran.err and "login7" in ran.err
    record.write_text(text)
    assert sweep("remove", "toy", "--yes").code == 0


def test_what_may_be_anothers_is_left_alone(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """A symbolic link, a folder without the mark, with another study's mark, a path."""
    assert sweep("launch", write_toy(tmp_path), "--wait").code == 0
    root, moved = runs / "toy", tmp_path / "moved"
    wait_for_runners(root)
    identity = root / "identity.json"
    mark = identity.read_text()
    before = rows(fresh_url)

    def refuse(what: str, name: str = "toy") -> None:
        ran = sweep("remove", name, "--yes")
        assert ran.code == 2, (what, ran)
        assert (root / "study.json").exists(), what
        assert rows(fresh_url) == before, what

    root.rename(moved)
    root.symlink_to(moved)
    refuse("a link")
    assert root.is_symlink()
    root.unlink()
    moved.rename(root)
    identity.unlink()
    refuse("unmarked")
    identity.write_text(json.dumps({"study": "ab" * 16}))
    refuse("another's")
    identity.write_text(mark)
    refuse("a path", "../runs/toy")


def test_a_killed_removal_is_gone_on_with(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """Whatever was done by then; and the name is free for a new study at once."""
    path = write_toy(tmp_path, trials=1)
    assert sweep("launch", path, "--wait").code == 0
    for step in ("renamed", "rows gone", "half of the files"):
        wait_for_runners(runs / "toy")
        mark = json.loads((runs / "toy" / "identity.json").read_text())["study"]
        (runs / ".removing").mkdir()
        left = runs / ".removing" / f"toy.{mark}"
        (runs / "toy").rename(left)
        if step != "renamed":
            with closing(Database(fresh_url)) as db:
                study_id = studies.find_study(db, "toy")
                assert study_id is not None
                db.retry(partial(studies.delete_study, study_id=study_id))
        if step == "half of the files":
            shutil.rmtree(left / "trials")
            (left / "study.json").unlink()
            (left / "storage.json").unlink()
        ran = sweep("remove", "toy", "--yes")
        assert (ran.code, ran.out) == (0, "study toy: removed\n"), (step, ran.err)
        assert not left.exists(), step
        assert rows(fresh_url)["trials"] == 0, step
        assert sweep("launch", path, "--wait").code == 0, step


def test_kills_at_any_moment(sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str) -> None:
    """As soon as the folder has been moved, by a real SIGKILL: the repeat removes the rest."""
    assert sweep("launch", write_toy(tmp_path), "--wait").code == 0
    wait_for_runners(runs / "toy")
    for number in range(3000):
        (runs / "toy" / f"more-{number}").touch()
    environ = sweep_environment(runs, sweep.keywords["env"])  # type: ignore[attr-defined]
    child = subprocess.Popen(
        [sys.executable, "-m", "sweep", "remove", "toy", "--yes"], cwd=tmp_path, env=environ
    )
    wait_for(lambda: not (runs / "toy").exists(), "the folder to be moved")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    ran = sweep("remove", "toy", "--yes")
    if ran.code:  # it was quicker than the signal
        assert "There is no study 'toy'" in ran.err
    assert not (runs / ".removing").exists() and rows(fresh_url)["trials"] == 0


def test_killed_at_its_very_end(sweep: Sweep, runs: Path, fresh_url: str) -> None:
    """All is gone but the folder in which folders are removed, and that it was the last study that
    was named: the repeat tidies that up."""
    (runs / ".removing").mkdir(parents=True)
    (runs / ".last").write_text("toy\n")
    assert "There is no study 'another'" in sweep("remove", "another", "--yes").err
    assert (runs / ".last").exists() and not (runs / ".removing").exists()
    assert "There is no study 'toy'" in sweep("remove", "toy", "--yes").err
    assert not (runs / ".last").exists()


def test_another_removal_ends_at_the_same_moment(
    sweep: Sweep, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_url: str
) -> None:
    """It tidies up the folder that this one has just made."""
    assert sweep("launch", write_toy(tmp_path), "--wait").code == 0
    wait_for_runners(runs / "toy")
    made = []

    def make_private(folder: Path) -> None:
        files.make_private(folder)
        made.append(folder)
        if len(made) == 1:
            folder.rmdir()

    monkeypatch.setattr(removal, "make_private", make_private)
    with removal.found(Runs(runs), "toy") as there, removal.alone(there):
        removal.carry_out(there)
    assert len(made) == 2
    assert not (runs / "toy").exists() and not (runs / ".removing").exists()
    assert rows(fresh_url)["trials"] == 0


def test_a_name_says_nothing_of_a_path(tmp_path: Path) -> None:
    """Whatever is given as a name stays within the runs folder."""
    for name in ("", ".", "..", "a/b", "/etc", ".postgres", ".aside"):
        with pytest.raises(InputError), removal.found(Runs(tmp_path), name):
            pass
