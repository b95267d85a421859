"""Jobs beside the search, which somebody waits for.

``--rerun K`` trains a trial again, ``--command K`` runs another command of the study on a trial,
``--measure`` trains one case of a scaling study, ``--check`` asks what would fail on this node,
``--build PLAN`` builds an image, ``--shell`` becomes a shell, ``--try`` trains once,
``--profile`` trains a trial's values for a while and looks at what holds that back.
"""

from __future__ import annotations

from pathlib import Path

from sweep.control.check import node_task
from sweep.core.errors import EXIT_DONE, InputError
from sweep.core.paths import StudyFolder
from sweep.core.sharing import share
from sweep.core.system import processes
from sweep.tasks.context import default_context
from sweep.tasks.job_study import find_ledger
from sweep.tasks.side_runs import profile_run, scaling, shell, trial_command, trying
from sweep.tasks.side_runs.rerun import run_rerun
from sweep.training import build


def run(folder: StudyFolder, options: list[str]) -> int:
    """Run what the first option names."""
    match options:
        case ["--measure"]:
            scaling.measure(folder)
        case ["--check"]:
            node_task.run(folder)
        case ["--build", plan, *force]:
            build.build_planned(Path(plan), force=force == ["force"])
        case ["--shell"]:
            shell.start(folder)
        case ["--try"]:
            trying.train_once(folder)
        case ["--profile"]:
            profile_run.profile_once(folder)
        case [("--rerun" | "--command") as which, number]:
            _run_again(folder, which, int(number))
        case _:
            raise InputError(f"A task of sweep knows no {' '.join(options)!r}.")
    return EXIT_DONE


def _run_again(folder: StudyFolder, which: str, number: int) -> None:
    """Run a row of the table of re-runs: its training again, or another command on its trial."""
    ledger, schedule = find_ledger(folder)
    processes.adopt_orphans()  # what a training leaves behind is found without reading all of /proc
    context = default_context(folder, ledger, schedule)
    if which == "--rerun":
        run_rerun(context, number + (context.place.index or 0))
    else:
        trial_command.run(context, number)
    share(ledger.study, folder, folder.root / "reruns", folder.logs)
