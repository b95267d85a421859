"""A secret in the user's command reaches training, and nothing else shows or keeps it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psycopg2

from tests.canary import Watcher
from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep, sweep_environment

TRAIN = """
import hashlib, json, os, sys, time
digest = hashlib.sha256("\\0".join(sys.argv[1:]).encode()).hexdigest()
with open(sys.argv[1], "a") as stream:
    held = [name for name in os.environ if name.startswith("SWEEP_SECRET")]
    stream.write(json.dumps([digest, held]) + "\\n")
time.sleep(0.5)
with open(os.environ["SWEEP_METRICS"], "a") as stream:
    stream.write(json.dumps({"step": 1, "metrics": {"loss": float(sys.argv[2])}}) + "\\n")
if len(open(sys.argv[1]).readlines()) == 2:
    sys.exit("this one fails")
"""


def test_canaries_are_found_nowhere(
    tmp_path: Path, runs: Path, sweep: Sweep, fresh_url: str
) -> None:
    """Launched, looked at in every way, run again: only training's own argv has the secrets."""
    sweep = partial(sweep, env={"SWEEP_STORAGE": fresh_url})
    key, token, word, set_later = (f"canary{secrets.token_hex(8)}" for _ in range(4))
    seen = tmp_path / "seen"
    code = tmp_path / "code"  # the study file, which holds the secrets, lies beside what is frozen
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    argv = [str(seen), "0.5", "--api-key", key, f"token={token}", f"--db=postgresql://u:{word}@h/d"]
    command = [sys.executable, "train.py", *argv]
    study: dict[str, Any] = {
        "name": "hush",
        "workdir": str(code),
        "command": [*command[:3], "{x}", *command[4:]],
        "objective": {"metric": "loss", "direction": "minimize"},
        "space": {"x": {"type": "float", "low": 0.5, "high": 0.5000001}},
        "points": [{"x": 0.5}] * 3,
        "duplicates": "keep",
        "sampler": "random",
        "executor": "local",
        "trials": 3,
        "max_parallel": 1,
    }
    (tmp_path / "study.yaml").write_text(json.dumps(study))
    every = [key, token, word, set_later]
    # Training's own argv, and what is typed after --set.
    may = ["train.py\0", "\0--set\0"]
    with Watcher(every, f"SWEEP_RUNS={runs}", may=may) as watcher:
        said = sweep("launch", "study.yaml", "--wait")
        calls: list[tuple[str, ...]] = [
            ("launch", "study.yaml", "--dry-run"),
            ("status", "hush"),
            ("status", "hush", "--json"),
            ("logs", "hush", "1"),
            *(("collect", "hush", "--format", f) for f in ("json", "csv", "markdown", "table")),
            ("report", "hush"),
            ("rerun-best", "hush", "--wait"),
            ("diff", "0", "1"),
            ("config", "study.yaml"),
            ("config", "study.yaml", "--set", f"storage=postgresql://u:{set_later}@h/d"),
            ("config", "study.yaml", "--set", f"command=python train.py --token {set_later} x"),
            ("launch", "study.yaml", "--set", "seed=7"),  # refused: it differs
        ]
        for call in calls:
            ran = sweep(*call)
            assert ran.code in (0, 1, 2, 3), (call, ran.err)
            watcher.look_at(" ".join(call[:2]), ran.out + ran.err)
    assert said.code == 0, said.err
    watcher.look_at("launch", said.out + said.err)
    assert "everybody on its machine can see it with ps" in said.out
    assert "environment.env" in said.out
    wait_for_runners(runs / "hush")
    watcher.look_at_files(runs, private=["environment.json"])
    connection = psycopg2.connect(fresh_url)
    watcher.look_at_database(connection)
    connection.close()
    assert watcher.hits == {}
    assert watcher.looks > 5 and len(watcher.seen) > 2
    kept = runs / "hush" / "environment.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert set(json.loads(kept.read_text()).values()) == {key, token, f"postgresql://u:{word}@h/d"}
    # All four trainings, the re-run too, had the same arguments, and no variable with a secret.
    lines = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(lines) == 4, lines
    expected = hashlib.sha256("\0".join(argv).encode()).hexdigest()
    assert lines == [[expected, []]] * 4
    record = (runs / "hush" / "manifest.json").read_text()
    assert "--api-key" in record and "***" in record


def test_a_new_value_of_a_secret_is_no_change(tmp_path: Path, sweep: Sweep, fresh_url: str) -> None:
    """A key that was renewed: the study goes on, with the new one; a lost one is said."""
    sweep = partial(sweep, env={"SWEEP_STORAGE": fresh_url})
    (tmp_path / "train.py").write_text(
        "import os, sys, json\n"
        "open(os.environ['SWEEP_METRICS'], 'a').write(\n"
        "    json.dumps({'step': 1, 'metrics': {'loss': len(sys.argv[2])}}) + '\\n')\n"
    )
    study = {
        "name": "renewed",
        "command": [sys.executable, "train.py", "--api-key", "k" * 10],
        "objective": {"metric": "loss", "direction": "minimize"},
        "space": {"x": {"type": "float", "low": 0, "high": 1}},
        "trials": 1,
        "executor": "local",
    }
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps(study))
    assert sweep("launch", "study.yaml", "--wait").code == 0
    study |= {"command": [sys.executable, "train.py", "--api-key", "m" * 20], "trials": 2}
    path.write_text(json.dumps(study))
    again = sweep("launch", "study.yaml", "--wait")
    assert again.code == 0, again.err
    rows = json.loads(sweep("collect", "renewed", "--format", "json").out)
    assert sorted(row["value"] for row in rows) == [10.0, 20.0]


def test_the_watcher_finds_what_is_planted(tmp_path: Path) -> None:
    """In a file, a name, an argv, an environment: each is found, and private files are spared."""
    word = f"canary{secrets.token_hex(8)}"
    mark = f"SWEEP_RUNS={tmp_path}"
    env = sweep_environment(tmp_path)
    for change, argv in (({}, [word]), ({"PLANTED": word}, [])):
        code = "import time; time.sleep(600)"
        child = subprocess.Popen([sys.executable, "-c", code, *argv], env={**env, **change})
        try:
            with Watcher([word], mark) as watcher:
                while not watcher.hits:
                    os.sched_yield()
            assert ("cmdline" if argv else "environ") in next(iter(watcher.hits))
        finally:
            child.kill()
            child.wait()
    watcher = Watcher([word], mark)
    private, public = tmp_path / "private", tmp_path / "public"
    private.write_text(word)
    private.chmod(0o600)
    watcher.look_at_files(tmp_path, private=["private"])
    assert watcher.hits == {}
    private.chmod(0o640)
    public.write_text(f"x{word}x")
    watcher.look_at_files(tmp_path, private=["private"])
    assert sorted(watcher.hits) == [f"file {private}", f"file {public}"]
