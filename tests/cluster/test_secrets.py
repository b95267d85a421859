"""Secrets of the launching shell reach training alone, and nothing that Slurm shows or keeps."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg2
import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.test_launch import FROM_OUTPUT
from tests.cluster.user import User
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slurm

# It says what it found of its environment by length and kind, never by value.
TRAINING = """
import json, os, sys
found = {name: len(os.environ.get(name, "")) for name in ("WANDB_API_KEY", "SWEEP_STORAGE")}
found["pg"] = sum(name.startswith("PG") for name in os.environ)
found["password"] = sum(sys.argv[1] in value for value in os.environ.values())
open(sys.argv[2], "w").write(json.dumps(found))
import time
time.sleep(3)
print("value=1")
"""


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    with User(slurm, slurm.home / f"{tmp_path.parent.name}-{tmp_path.name}").leaving_nothing() as u:
        yield u


def contents(top: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the files below a folder with what they hold, but for those that go meanwhile."""
    for folder, _, names in os.walk(top):
        for file in (Path(folder, name) for name in names):
            with suppress(FileNotFoundError):
                if file.is_file():
                    yield file, file.read_bytes()


def test_canaries_are_found_nowhere(user: User, fresh_url: str) -> None:
    """A password and a key are not in what Slurm prints, records or keeps, in ps or in logs."""
    word, key = f"canary{secrets.token_hex(8)}", f"wandb{secrets.token_hex(8)}"
    role = f"r{secrets.token_hex(4)}"
    connection = psycopg2.connect(fresh_url)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD '{word}'")
    connection.close()
    url = f"postgresql://{role}:{word}@{fresh_url.rpartition('@')[2]}"
    script, seen = user.write("train.py", TRAINING), user.folder / "seen"
    # The training gets the password's first half: it looks for it, and must not hold it itself.
    command = ["/usr/bin/python3", str(script), word[:14], str(seen)]
    path = user.study("canary", command, objective=FROM_OUTPUT, trials=3, max_parallel=3)
    env = {"SWEEP_STORAGE": url, "WANDB_API_KEY": key, "PGPASSWORD": word}
    run = user.cluster.run
    texts: dict[str, str] = {}
    child = user.start("launch", path, env=env)
    give_up_at = time.monotonic() + 2 * PATIENCE_S
    number = 0
    while child.poll() is None or user.queue():
        assert time.monotonic() < give_up_at, user.explain()
        number += 1
        texts[f"ps {number}"] = run(["ps", "-eww", "-o", "pid,args"]).stdout
        texts[f"scontrol {number}"] = run(["scontrol", "show", "job", "-dd"]).stdout
        texts[f"squeue {number}"] = run(["squeue", "-o", "%all"]).stdout
        for job in {row[0].partition("_")[0] for row in user.queue()}:
            texts[f"script {job}"] = run(["scontrol", "write", "batch_script", job, "-"]).stdout
        time.sleep(0.2)
    out, err = child.communicate()
    texts["launch"] = out + err
    assert child.returncode == 0, texts["launch"]
    texts["status"] = user.sweep("status", "canary").stdout
    time.sleep(5)  # accounting lags behind

    def ours() -> list[str]:
        rows = run(["sacct", "-nPX", "-S", "now-1hour", "-o", "JobIDRaw,JobName"]).stdout.split()
        return [row.partition("|")[0] for row in rows if "sweep-canary" in row]

    wait_for(lambda: bool(ours()), 60, "the study's jobs in the accounting")
    ids = ",".join(ours())

    def is_all_kept() -> bool:
        """What Slurm keeps of the environment and of the script."""
        for name, more in (("sacct", ["-o", "ALL"]), ("env", ["--env-vars"]), ("batch", ["-B"])):
            texts[name] = run(["sacct", "-P", "-j", ids, *more]).stdout
        return "SWEEP_RUNS=" in texts["env"] and "exec" in texts["batch"]

    wait_for(is_all_kept, 60, "environment and script in the accounting")
    dump = ["mariadb-dump", "--no-defaults", f"--socket={user.cluster.root}/run/mariadb.socket"]
    texts["accounting"] = run([*dump, "slurm_acct_db"], check=True).stdout
    assert "sweep-canary" in texts["accounting"]
    root = user.cluster.root
    tops = (root / "state", root / "log", root / "spool", user.runs)
    kept = {file: data for top in tops for file, data in contents(top)}
    found = [name for name, text in texts.items() if word in text or key in text]
    assert found == []
    found = [file for file, data in kept.items() if word.encode() in data or key.encode() in data]
    assert {(file.name, file.stat().st_mode & 0o777) for file in found} == {
        ("storage.json", 0o600),
        ("environment.json", 0o600),
    }
    counts = json.loads(seen.read_text())
    assert counts == {"WANDB_API_KEY": len(key), "SWEEP_STORAGE": 0, "pg": 0, "password": 0}
    connection = psycopg2.connect(fresh_url)
    with connection, connection.cursor() as cursor:
        cursor.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP ROLE {role}")
    connection.close()
