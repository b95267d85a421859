"""What an array element runs: ``python -m sweep.task FOLDER``, and what small jobs run.

Without an option it pulls trials (``pull``). ``--finalise TOKEN`` looks after an ended wave
(``conclude``); ``--serve`` is the job that holds the database on a cluster, ``--host`` does so
within a task (``serve_database``); ``--image`` builds the study's image (``build_image``);
``--fetch`` brings data (``fetch_data``), ``--stage`` copies them to one of a trial's nodes
(``stage_here``); all others are jobs that somebody waits for (``side_jobs``).

Each is imported when it is asked for, as commands are: an array's tasks all start at once, and
what one of them computes before it trains, the others wait for.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from sweep.core.errors import EXIT_FAILED, EXIT_FAULT, REFUSALS, RefusedBySystem, SweepError
from sweep.core.masking import keep_environment
from sweep.core.paths import StudyFolder
from sweep.core.system.crash import write_crash
from sweep.core.system.lasting_output import outlive_readers

PULL, SIDE_JOBS = "pull", "side_jobs"
MODULES = {
    "--finalise": "conclude",
    "--serve": "serve_database",
    "--host": "serve_database",
    "--image": "build_image",
    "--fetch": "fetch_data",
    "--fetch-alone": "fetch_data",
    "--stage": "stage_here",
}


def start(arguments: list[str]) -> int:
    """Run one task as a process of its own, whoever reads what it prints, and for how long."""
    outlive_readers()
    return main(arguments)


def main(arguments: list[str]) -> int:
    """Run one task; return its exit code."""
    folder = StudyFolder(Path(arguments[0]))
    keep_environment(os.environ)
    try:
        code: int = work_of(arguments).run(folder, arguments[1:])
        return code
    except SweepError as error:
        print(f"sweep: {error}", flush=True)
        return error.exit_code
    except Exception as error:
        if isinstance(error, OSError) and error.errno in REFUSALS:
            print(f"sweep: {RefusedBySystem(error)}", flush=True)
            return EXIT_FAILED
        path = write_crash(folder.root.parent, error, arguments)
        print(f"sweep: a fault of sweep's own; details in {path}", flush=True)
        return EXIT_FAULT


def work_of(arguments: list[str]) -> ModuleType:
    """Return the module whose ``run`` does what these arguments ask for, with all it imports."""
    name = MODULES.get(arguments[1], SIDE_JOBS) if len(arguments) > 1 else PULL
    return import_module(f"sweep.tasks.{name}")


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
