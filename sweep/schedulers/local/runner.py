"""The process that runs one local array, in the background.

Started by ``LocalScheduler.submit`` as
``python -m sweep.schedulers.local.runner FOLDER``, or ahead of it as
``… --ahead ROOT``, which reads the folder when there is one; ends by itself when the array and its
finaliser have ended. What it does meanwhile is in ``array_loop``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from sweep.core.files import open_private, write_atomic
from sweep.core.system.gpus import GpuPool
from sweep.core.system.shared_cards import SharedCards, sampler_of
from sweep.schedulers.local.array_loop import Runner
from sweep.schedulers.local.element import MODULE, load
from sweep.schedulers.local.events import EventLog
from sweep.schedulers.local.job import JobFolder, RunnerRecord


def _listen() -> int:
    """Have signals wake the runner, and return the descriptor that tells."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    return reader


def take(folder: JobFolder) -> int | None:
    """Take an array for this process; None where it is another's, was given up, or has run."""
    lock = folder.try_lock()
    if lock is not None and (folder.void.exists() or folder.runner.exists()):
        os.close(lock)
        return None
    return lock


def await_folder() -> JobFolder | None:
    """Load what elements need, then read the folder of the array from standard input.

    Returns:
        None where there is no array: whoever was to submit it has ended.
    """
    load([sys.executable, "-m", MODULE])
    path = sys.stdin.buffer.read()  # to its end: a folder's name may hold anything
    if not path:
        return None
    folder = JobFolder(Path(os.fsdecode(path)))
    with open(os.devnull, "rb") as null, open(folder.runner_log, "ab", opener=open_private) as log:
        os.dup2(null.fileno(), 0)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return folder


def main(argv: list[str]) -> int:
    """Run the array in a folder, in the background: returns once it is sure to run."""
    folder = await_folder() if argv[1] == "--ahead" else JobFolder(Path(argv[1]))
    lock = None if folder is None else take(folder)
    if folder is None or lock is None:
        return 1
    job, gpu_names = folder.read_request()
    ready, tell = os.pipe()
    # The launcher waits for this process; the runner proper is its child, so that whoever collects
    # orphans collects it, and no zombie stays with a launcher that lives on.
    if os.fork():
        os.close(tell)
        return 0 if os.read(ready, 1) else 1
    os.close(ready)
    wakeup = _listen()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    events = os.open(folder.events, flags, 0o600)
    log = EventLog(lambda content: os.write(events, content))
    record = RunnerRecord.of_this_process(job.size)
    write_atomic(folder.runner, json.dumps(asdict(record)), sync=True)
    os.write(tell, b"1")
    os.close(tell)
    pool = GpuPool(gpu_names)
    runner = Runner(folder, job, pool, log, wakeup, load(job.argv))
    if job.share is not None:
        runner.cards = SharedCards(
            pool, job.share, Path(job.cards), job.packed_as, job.cpus, sampler_of
        )
    runner.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
