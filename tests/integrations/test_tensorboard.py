"""TensorBoard's event files, as far as they are written; which files are the script's own."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.integrations.tensorboard import EventFile, EventFiles
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]


def events(*values: tuple[int, str, float]) -> bytes:
    """Return an event file's bytes, made by TensorBoard's own messages."""
    from tensorboard.compat.proto.event_pb2 import Event

    found = [Event(wall_time=1.0, file_version="brain.Event:2")]
    for step, tag, value in values:
        event = Event(wall_time=2.0, step=step)
        event.summary.value.add(tag=tag, simple_value=value)
        found.append(event)
    return b"".join(map(pack, found))


def pack(event: object) -> bytes:
    data = event.SerializeToString()  # type: ignore[attr-defined]
    return struct.pack("<Q", len(data)) + b"head" + data + b"foot"


def test_numbers_in_all_their_forms(tmp_path: Path) -> None:
    """add_scalar's, and tensors as TensorFlow 2 writes them; no text, no image, no histogram."""
    from tensorboard.compat.proto.event_pb2 import Event

    event = Event(step=7)
    event.summary.value.add(tag="plain", simple_value=0.1)
    event.summary.value.add(tag="none", simple_value=float("nan"))
    packed = event.summary.value.add(tag="packed").tensor
    packed.dtype = 1
    packed.float_val.append(0.25)
    content = event.summary.value.add(tag="content").tensor
    content.dtype = 2
    content.tensor_content = struct.pack("<d", 0.123456789012)
    text = event.summary.value.add(tag="text").tensor
    text.dtype = 7
    text.string_val.append(b"words")
    event.summary.value.add(tag="histogram").histo.min = 3
    path = tmp_path / "e"
    path.write_bytes(pack(event))
    ((step, found),) = EventFile(str(path)).read()
    nan = found.pop("none")
    assert nan != nan
    assert (step, found) == (7, {"plain": 0.1, "packed": 0.25, "content": 0.123456789012})


def test_a_file_that_grows(tmp_path: Path) -> None:
    """Each number once, whatever part of a record is written."""
    data = events(*((step, "loss", step / 4) for step in range(20)))
    path = tmp_path / "e"
    file, found = EventFile(str(path)), []
    for end in range(0, len(data) + 7, 7):
        path.write_bytes(data[:end])
        found += list(file.read())
    assert found == [(step, {"loss": step / 4}) for step in range(20)]


def test_folders_of_a_script_are_told_apart(tmp_path: Path) -> None:
    """The first folder's tags are as they are, others have their folder before them; a file of
    another process, or of an earlier time, is none of them."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    files = EventFiles(child.pid, [str(tmp_path)])
    name = f"events.out.tfevents.17.{files._host}.{child.pid}.0"
    for folder in ("a_train", "a_train/best", "validation", "other"):
        (tmp_path / folder).mkdir()
        other = name.replace(f".{child.pid}.", ".1.") if folder == "other" else name
        (tmp_path / folder / other).write_bytes(events((3, "loss", 0.5)))
    old = tmp_path / "old" / name
    old.parent.mkdir()
    old.write_bytes(events((3, "loss", 0.75)))
    os.utime(old, (1, 1))
    found = [tag for _, metrics in files.read() for tag in metrics]
    assert found == ["loss", "validation/loss", "best/loss"]


def run(script: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(script)
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SWEEP_TRIAL_DIR": str(folder / "trial"),
        "SWEEP_METRICS": str(folder / "metrics.jsonl"),
        "SWEEP_CONTROL": str(folder / "control.json"),
    }
    (folder / "trial").mkdir()
    command = [sys.executable, "-m", "sweep.integrations.tensorboard", "train.py", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environ, text=True, stderr=subprocess.PIPE)


# Writes as a SummaryWriter does: into a folder of its own choice, under its process's number.
WRITES = """
import os, socket, sys
os.makedirs('runs/x')
name = f'runs/x/events.out.tfevents.17.{socket.gethostname()}.{os.getpid()}.0'
stream = open(name, 'wb')
stream.write(open('log', 'rb').read()); stream.flush()
assert sys.argv[1:] == ['--lr', '0.1']
"""


def reported(folder: Path) -> list[tuple[int, dict[str, float]]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [(line["step"], line["metrics"]) for line in map(json.loads, lines)]


def test_a_script_is_reported_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(events((3, "val/loss", 0.1), (4, "val/loss", 0.2)))
    child = run(WRITES + "sys.exit(3)\n", tmp_path, "--lr", "0.1")
    assert child.wait() == 3, child.communicate()
    assert reported(tmp_path) == [(3, {"val/loss": 0.1}), (4, {"val/loss": 0.2})]


def test_numbers_are_seen_while_it_runs(tmp_path: Path) -> None:
    """A file that is open is read, and a pruned script is ended."""
    (tmp_path / "log").write_bytes(events((3, "val/loss", 0.1)))
    child = run(WRITES + "while True: pass\n", tmp_path, "--lr", "0.1")
    wait_for((tmp_path / "metrics.jsonl").exists, "the number to be reported")
    (tmp_path / "control.json").write_text('{"stop": "pruned"}')
    child.communicate()
    assert child.returncode == -signal.SIGTERM
    assert reported(tmp_path) == [(3, {"val/loss": 0.1})]


def test_a_script_without_an_event_file_is_told(tmp_path: Path) -> None:
    child = run("print(1)\n", tmp_path)
    _, told = child.communicate()
    assert child.returncode == 0
    assert "no number was found that the script gave to TensorBoard" in told


REAL = """
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter()
for epoch in range(3):
    writer.add_scalar('Loss/val', 1 / (epoch + 1), epoch)
writer.add_scalars('Both', {'a': 1.0}, 0)
writer.add_hparams({'lr': 0.1}, {'hparam/loss': 0.5})
writer.close()
"""


@pytest.mark.long
def test_the_writer_of_torch(tmp_path: Path) -> None:
    """Its own files, in the folder that it chooses itself."""
    child = run(REAL, tmp_path)
    assert child.wait() == 0, child.communicate()
    found = reported(tmp_path)
    losses = [(step, metrics["Loss/val"]) for step, metrics in found if "Loss/val" in metrics]
    assert losses == [(0, 1.0), (1, 0.5), (2, 0.3333333)]
    assert (0, {"Both_a/Both": 1.0}) in found
