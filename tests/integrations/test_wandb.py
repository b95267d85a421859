"""The run file of Weights & Biases, as far as it is written; the child whose end is ours.

Files of the real package: tests/frameworks/test_scripts.py.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sweep.integrations.wandb import BLOCK, FIRST, LAST, MIDDLE, WHOLE, RunFile, RunFiles
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


def number(value: int) -> bytes:
    """Return a protobuf varint."""
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def field(place: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return number(place << 3) + number(value)
    return number(place << 3 | 2) + number(len(value)) + value


def record(step: int, values: dict[str, Any], *, other: int = 7) -> bytes:
    """Return a Record of W&B's with a history, a further field before it."""
    items = b""
    for name, value in {**values, "_step": step, "_runtime": 0.5}.items():
        keys = [field(1, name.encode())]
        if isinstance(value, dict):  # as wandb.log({"a": {"b": 1}}) arrives
            (inner, value), *_ = value.items()
            keys = [field(2, name.encode()), field(2, inner.encode())]
        items += field(1, b"".join(keys) + field(16, json.dumps(value).encode()))
    return field(1, other) + field(2, items + field(2, field(1, step)))


def write_log(records: list[bytes]) -> bytes:
    """Return records as LevelDB's log has them: in pieces that no block's end cuts."""
    data = b":W&B\xe1\xbe\x00"
    for one in records:
        first = True
        while True:
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data += b"\0" * left
                continue
            piece, one = one[: left - 7], one[left - 7 :]
            kind = (WHOLE if first else LAST) if not one else (FIRST if first else MIDDLE)
            data += struct.pack("<IHB", 0, len(piece), kind) + piece
            first = False
            if not one:
                break
    return data


def test_all_of_a_file(tmp_path: Path) -> None:
    """Records across blocks, values that are no numbers, nested names, records of other kinds."""
    path = tmp_path / "run-1.wandb"
    records = [
        field(1, 1) + field(17, b"a header"),
        record(0, {"val/loss": 0.5, "note": "x" * 40_000, "ok": True, "nested": {"a": 3}}),
        record(1, {"note": "no number"}),
        record(7, {"val/loss": float("nan"), "acc": "Infinity", "list": [1]}),
    ]
    path.write_bytes(write_log(records))
    (first, last) = RunFile(str(path)).read()
    assert first == (0, {"val/loss": 0.5, "nested.a": 3})
    assert last[0] == 7 and str(last[1]["val/loss"]) == "nan" and last[1]["acc"] == float("inf")


@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_grows(seed: int, tmp_path: Path) -> None:
    """However far it is written at a look: each step comes once, in its order."""
    random = Random(seed)
    records = [record(i, {"loss": float(i), "t": "y" * random.randrange(9000)}) for i in range(60)]
    data = write_log(records)
    folder = tmp_path / "wandb/offline-run-1-a"
    folder.mkdir(parents=True)
    (folder.parent / "latest-run").symlink_to(folder.name)
    path = folder / "run-a.wandb"
    runs, found, place = RunFiles(str(tmp_path)), [], 0
    while place < len(data):
        place += random.randrange(1, 20_000)
        path.write_bytes(data[:place])
        found += list(runs.read())
    assert found == [(i, {"loss": float(i)}) for i in range(60)]


def run(script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(script)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SWEEP_TRIAL_DIR": str(folder),
        "SWEEP_METRICS": str(folder / "metrics.jsonl"),
        "SWEEP_CONTROL": str(folder / "control.json"),
    }
    command = [sys.executable, "-m", "sweep.integrations.wandb", "train.py", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environ, text=True, stderr=subprocess.PIPE)


# Writes what W&B would, where W&B was told to.
WRITES = (
    "import os, sys, shutil\n"
    "folder = os.path.join(os.environ['WANDB_DIR'], 'wandb/run-1-a')\n"
    "os.makedirs(folder)\nshutil.copy('log', folder + '/run-a.wandb')\n"
    "assert os.environ['WANDB_MODE'] == 'offline' and sys.argv[1:] == ['--lr', '0.1']\n"
)


def test_a_script_is_reported_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(write_log([record(3, {"val/loss": 0.25})]))
    child = run(WRITES + "sys.exit(3)\n", tmp_path, "--lr", "0.1")
    assert child.wait() == 3, child.communicate()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert (json.loads(line)["step"], json.loads(line)["metrics"]) == (3, {"val/loss": 0.25})


def test_a_script_without_a_run_is_told(tmp_path: Path) -> None:
    child = run("print(1)\n", tmp_path)
    _, told = child.communicate()
    assert child.returncode == 0
    assert "no number of wandb.log was found" in told and "wandb.init()" in told


WAITS = "import time\nopen('gate', 'w').close()\nwhile True: time.sleep(0.05)\n"


def test_a_pruned_script_ends(tmp_path: Path) -> None:
    """The script knows nothing of sweep: it is ended, and how it ended is passed on."""
    child = run(WAITS, tmp_path)
    wait_for((tmp_path / "gate").exists, "the script to run")
    (tmp_path / "control.json").write_text('{"stop": "checkpoint"}')
    (tmp_path / "control.json").write_text('{"stop": "pruned"}')
    child.communicate()
    assert child.returncode == -signal.SIGTERM
    assert "pruned" in (tmp_path / "answer.jsonl").read_text()


def test_without_sweep_the_script_runs_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys\nsys.exit('WANDB_DIR' in os.environ)\n")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SWEEP_", "WANDB_"))}
    command = [sys.executable, "-m", "sweep.integrations.wandb", "train.py"]
    environ["PYTHONPATH"] = str(ROOT)
    assert subprocess.run(command, cwd=tmp_path, env=environ, check=False).returncode == 0
