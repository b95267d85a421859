"""What jobs call by name: ``python -m sweep.task FOLDER``.

Scripts wait in queues for days, and outlive an upgrade of sweep: this name and its arguments stay.
What it does is in ``sweep.tasks.main``.
"""

from __future__ import annotations

import os
import sys
import traceback

__all__ = ["main", "work_of"]

SCRIPT_VARIABLE = "SWEEP_SCRIPT"  # the batch script of this task, which can have the node avoided

try:
    from sweep.tasks.main import main, start, work_of

    if __name__ == "__main__":
        work_of(sys.argv[1:])
except Exception:  # a library that does not load on this node raises all sorts of things
    script = os.environ.get(SCRIPT_VARIABLE)
    if __name__ != "__main__" or not script:
        raise
    traceback.print_exc()
    sys.stderr.flush()
    os.execv("/bin/bash", ["bash", script, "--sick"])

if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
