"""What real bars and loggers print is read while they live, each value before the next comes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.training.journal import Journal
from tests.waiting import text_of, wait_for

pytestmark = pytest.mark.real

EPOCHS = 4
# By kind: what is done before the first epoch, in each, and at the end. ``wait`` holds the program
# until the value has been read. Values are 0.58, 0.66, 0.74, 0.82.
PROGRAMS = {
    "a bar for each epoch, and a line": (
        "from tqdm import tqdm",
        "bar = tqdm(range(5), desc=f'epoch {e}', mininterval=0, leave=False)\n"
        "for i in bar:\n"
        "    if e: bar.set_postfix(val_acc=f'{acc - 0.08:.4f}')\n"
        "bar.set_postfix(val_acc=f'{acc:.4f}'); bar.close(); print(f'val_acc={acc:.4f}'); wait(e)",
        "",
    ),
    "one bar over epochs": (
        "from tqdm import tqdm\nbar = tqdm(total=4)",
        "bar.set_postfix(val_acc=f'{acc:.4f}'); wait(e); bar.update()",
        "",
    ),
    "rich": (
        "from rich.console import Console\nc = Console(force_terminal=True)",
        "c.print(f'epoch {e} val_acc=[bold green]{acc:.4f}[/] (best yet)'); wait(e)",
        "",
    ),
    "rich's bar": (
        "from rich.console import Console\nfrom rich.progress import Progress, TextColumn\n"
        "p = Progress('{task.description}', TextColumn('val_acc={task.fields[acc]}'),\n"
        "             console=Console(force_terminal=True), refresh_per_second=50)\n"
        "p.start(); t = p.add_task('train', acc='', total=4)",
        "p.update(t, acc=f'{acc:.4f}', completed=e); wait(e)",
        "p.stop()",
    ),
    "logging": (
        "import logging\n"
        "logging.basicConfig(level=logging.INFO, format='%(asctime)s %(levelname)s %(message)s')",
        "logging.info('epoch %d val_acc=%.4f', e, acc); wait(e)",
        "",
    ),
    "a table, and what sums it up": (
        "",
        "print(f'epoch {e} val_acc={acc:.4f}'); wait(e)",
        "print(f'best val_acc={acc:.4f}'); print(f'test val_acc={acc - .1:.4f}')",
    ),
    "crlf": ("", "sys.stdout.write(f'epoch {e} val_acc={acc:.4f}\\r\\n'); wait(e)", ""),
    "one line, drawn by hand": (
        "",
        "sys.stdout.write(f'\\repoch {e} val_acc={acc:.4f} ...'); wait(e)",
        "",
    ),
}
FRAME = """\
import os, sys, time
def wait(e):
    sys.stdout.flush()
    while not os.path.exists(f"read-{{e}}"):
        time.sleep(0.02)
{before}
for e in range({epochs}):
    acc = 0.58 + 0.08 * e
{each}
{after}
"""


@pytest.mark.parametrize("kind", PROGRAMS)
def test_each_value_is_read_before_the_next_is_printed(kind: str, tmp_path: Path) -> None:
    """A program waits after each epoch until its value was read; each is one step."""
    before, each, after = PROGRAMS[kind]
    indented = "\n".join(f"    {line}" for line in each.splitlines())
    code = FRAME.format(before=before, each=indented, after=after, epochs=EPOCHS)
    folder = AttemptFolder(tmp_path)
    pattern = "val_acc=([0-9.]+)"
    journal = Journal(folder, [Objective("val_acc", "maximize", pattern=pattern)])
    found: dict[int, float] = {}
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
    with folder.log.open("w") as log:
        command = [sys.executable, "-c", code]
        program = subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=log, stderr=log)
    try:
        for epoch in range(EPOCHS):

            def is_read(epoch: int = epoch) -> bool:
                found.update({r.step: r.metrics["val_acc"] for r in journal.read()})
                assert program.poll() is None, text_of(folder.log)
                return epoch in found

            wait_for(is_read, f"the value of epoch {epoch}")
            (tmp_path / f"read-{epoch}").touch()
        assert program.wait() == 0
    finally:
        program.kill()
        program.wait()
    found.update({r.step: r.metrics["val_acc"] for r in journal.rest()})
    journal.close()
    assert found == {0: 0.58, 1: 0.66, 2: 0.74, 3: 0.82}, folder.log.read_bytes()
