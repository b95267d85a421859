"""A disk is full: a study is held with the reason or waits, no command breaks, and once there is
room again all trials end as if nothing had been."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from tests.chaos.scene import Scene, read_journal
from tests.needs import require
from tests.waiting import text_of, wait_for


class Disk:
    """A small file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Write until there is no room left, for a single byte neither."""
        for part, name in ((65536, "filler"), (1, "last")):
            with (
                (self.folder / name).open("wb", buffering=0) as stream,
                pytest.raises(OSError, match="No space left"),
            ):
                while True:
                    stream.write(bytes(part))

    def make_room(self) -> None:
        for name in ("filler", "last"):
            (self.folder / name).unlink()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Disk]:
    """Mount a file system in memory of that size."""
    require("mount")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = f"size={size},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def begin(scene: Scene) -> None:
    """Launch, and wait until two trials have reported two steps, of two metrics each."""
    scene.write().launch("--no-check")  # which would refuse so small a disk
    scene.wait_for(lambda: count_lines(scene) == 2 * 2 * 2)


def count_lines(scene: Scene) -> int:
    return sum(len(read_journal(path)) for path in scene.root.glob("trials/*/attempts/*/metrics.*"))


def test_of_the_runs(tmp_path: Path, runs: Path, sweep: Any, fresh_url: str) -> None:
    """Held with the reason; the commands that must write say so; it is taken up where it was."""
    with small_disk(runs, "8m") as disk:
        scene = Scene(tmp_path, runs, sweep, fresh_url, trials=4, gated=True)
        disk.fill()
        scene.write()
        ran = sweep("launch", scene.file.name, "--no-check", env=scene.env)
        assert ran.code in (1, 2) and "No space left on device" in ran.err, ran
        disk.make_room()
        begin(scene)
        disk.fill()
        scene.gate.touch()
        held = scene.wait_state("held")
        assert held["reason"].startswith(f"no space is left on the disk of {scene.root}")
        scene.wait_for(lambda: not scene.processes())
        assert "mend that; then `sweep launch` goes on" in sweep("status", env=scene.env).out
        for words in (["launch", scene.file.name], ["report"], ["collect"]):
            ran = sweep(*words, env=scene.env)
            assert ran.code in (1, 2), ran
            assert "No space left on device" in ran.err or "nearly full" in ran.err, ran
        disk.make_room()
        scene.launch("--no-check")
        scene.wait()
        records = scene.check()
        assert {a.outcome for r in records for a in r.attempts} == {"given back", "finished"}


def test_of_the_database(tmp_path: Path, runs: Path, sweep: Any) -> None:
    """Training goes on, status says what is wrong, and what was reported arrives later."""
    with small_disk(runs / ".postgres", "120m") as disk:
        scene = Scene(tmp_path, runs, sweep, None, trials=4, steps=60, pause_s=0.01, gated=True)
        begin(scene)
        # What is allocated and unused takes some rows yet: this takes it.
        url = sweep("db", "url", env=scene.env).out.strip().replace("+psycopg2", "")
        connection = psycopg2.connect(url)
        connection.autocommit = True
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE filler (x text)")
        disk.fill()
        with pytest.raises(psycopg2.errors.DiskFull):
            while True:
                cursor.execute("INSERT INTO filler SELECT repeat('x', 100)")
        connection.close()
        scene.gate.touch()
        trainings = set(scene.trainings())
        scene.wait_for(lambda: count_lines(scene) == 2 * 2 * scene.steps)
        found = scene.status()
        assert any(note.startswith("no space is left on the disk of the database") for note in
                   found["notes"]), found  # fmt: skip
        assert found["state"] == "running" and set(scene.trainings()) <= trainings
        disk.make_room()
        scene.wait()
        assert [len(record.attempts) for record in scene.check()] == [1] * scene.trials


@pytest.mark.long
def test_of_the_database_s_log(tmp_path: Path, runs: Path, sweep: Any) -> None:
    """The server itself dies of it and cannot start: one sentence says why, tasks wait for it."""
    with small_disk(runs / ".postgres", "120m") as disk:
        scene = Scene(tmp_path, runs, sweep, None, trials=4, gated=True)
        begin(scene)
        url = sweep("db", "url", env=scene.env).out.strip().replace("+psycopg2", "")
        disk.fill()
        with (
            contextlib.closing(psycopg2.connect(url)) as connection,
            pytest.raises(psycopg2.OperationalError, match="closed the connection"),
        ):
            while True:
                text = "SELECT pg_logical_emit_message(true, 'x', repeat('y', 1000000))"
                connection.cursor().execute(text)
                connection.commit()
        scene.gate.touch()
        for words in (["status"], ["launch", scene.file.name, "--no-check"]):
            ran = sweep(*words, env=scene.env)
            assert ran.code == 1 and "does not start: no space is left on its disk." in ran.err, ran
            assert "probably means that some data is corrupted" not in ran.err
        waits = "does not start: no space"
        logs = scene.root / "logs"
        wait_for(lambda: any(waits in text_of(p) for p in logs.glob("*")), "a task to wait")
        disk.make_room()
        scene.wait()
        assert [len(record.attempts) for record in scene.check()] == [1] * scene.trials


@pytest.mark.long
def test_of_home_and_temporary_files(tmp_path: Path, runs: Path, sweep: Any) -> None:
    """Nothing of a study's needs them."""
    with small_disk(tmp_path / "small", "64k") as disk:
        home, temporary = tmp_path / "small/home", tmp_path / "small/tmp"
        home.mkdir()
        temporary.mkdir()
        disk.fill()
        scene = Scene(tmp_path, runs, sweep, None, trials=2)
        env = {**scene.env, "HOME": str(home), "TMPDIR": str(temporary)}
        scene.write()
        commands = [["launch", scene.file.name, "--wait"], ["collect"], ["report"]]
        for words in [*commands, ["rerun-best", "--wait"]]:
            ran = sweep(*words, env=env)
            assert ran.code == 0, (words, ran)
        scene.check()
