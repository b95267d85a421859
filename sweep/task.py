"""What jobs call by name: ``python -m sweep.task FOLDER``.

Scripts wait in queues for days, and outlive an upgrade of sweep: this name and its arguments stay.
What it does is in ``sweep.tasks.main``.
"""

from __future__ import annotations

import sys

from sweep.tasks.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
