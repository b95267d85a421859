"""Kills a training by SIGKILL at a random moment of a save, once a trial: on its PYTHONPATH.

Python tells an audit hook about each file that is opened, made, renamed or removed. After the first
report, the first attempt of a trial counts those in its checkpoint folder, and at one of them,
drawn by the trial's seed, ends: at once, or within milliseconds, amid what native code writes.
"""

import os
import random
import signal
import sys
import threading
import time

_FOLDER = os.environ.get("SWEEP_CHECKPOINT_DIR", "")
_METRICS = os.environ.get("SWEEP_METRICS", "")
_EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir")
_draw = random.Random(int(os.environ.get("SWEEP_SEED") or 0))
_left = _draw.randint(1, int(os.environ.get("KILL_WITHIN") or 1))
_delay_s = _draw.choice((0.0, _draw.random() * 0.005))
_is_inside = threading.local()


def watch(event, given):
    """Count what happens in the checkpoint folder."""
    global _left
    if event not in _EVENTS or getattr(_is_inside, "yes", False):
        return
    if not given or not isinstance(given[0], str) or not given[0].startswith(_FOLDER):
        return
    _is_inside.yes = True
    try:
        has_reported = os.path.exists(_METRICS) and os.path.getsize(_METRICS) > 0
    finally:
        _is_inside.yes = False
    if has_reported:
        _left -= 1
        if _left == 0:
            threading.Thread(target=kill, daemon=True).start()
            if not _delay_s:
                kill()


def kill():
    """End, as the kernel ends what takes too much memory."""
    time.sleep(_delay_s)
    os.kill(os.getpid(), signal.SIGKILL)


# One process of a trial: rank 0 of several, which does most of a save.
_is_first = os.environ.get("RANK", "0") == "0"
if _FOLDER and os.environ.get("SWEEP_ATTEMPT") == "1" and _is_first and "KILL_WITHIN" in os.environ:
    sys.addaudithook(watch)
