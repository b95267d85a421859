"""What an element of the array does: it pulls trials and trains them, in slots or one at a time."""

from __future__ import annotations

import os

from sweep.control.place import COUNT_VARIABLE, PACKED_VARIABLE, SLOT_VARIABLE
from sweep.core.errors import EXIT_DONE
from sweep.core.paths import StudyFolder
from sweep.core.system import processes
from sweep.tasks.context import default_context
from sweep.tasks.job_study import find_ledger
from sweep.tasks.packed import Packed
from sweep.tasks.slots import Slots
from sweep.tasks.worker import Worker

BLAS_THREADS = "OPENBLAS_NUM_THREADS"  # of NumPy, which starts one for each core otherwise


def run(folder: StudyFolder, options: list[str]) -> int:
    """Pull trials until none is left, or until the task's time ends; return an exit code."""
    assert options == []
    ledger, schedule = find_ledger(folder)
    processes.adopt_orphans()  # what a training leaves behind is found without reading all of /proc
    context = default_context(folder, ledger, schedule)
    os.environ.pop(SLOT_VARIABLE, None)  # by it the worker is found, and none of its children
    count = int(os.environ.pop(COUNT_VARIABLE, None) or 1)
    if os.environ.pop(PACKED_VARIABLE, None):
        return Packed(context, count, os.environ).run()
    if count > 1:
        return Slots(context, count, os.environ).run()
    # What a task computes is small, and training runs beside it; training itself gets the
    # environment that the context has taken already.
    os.environ.setdefault(BLAS_THREADS, "1")
    done = Worker(context).run()
    print(f"{done} attempts made", flush=True)
    return EXIT_DONE
