"""Hyperparameter search on Slurm job arrays.

From Python: ``sweep.launch(...)`` launches a study, ``sweep.load("digits")`` opens one that was
launched; both return a handle with ``status()``, ``wait()``, ``trials()`` (a pandas frame) and what
else the commands do. ``sweep.Study(...)`` is a study file in Python, and
``sweep.storage.PostgresStorage(url)`` an Optuna storage. Nothing is imported before that: inside
training this package is the reporter and nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from typing import Any

    from sweep.cli.handle import StudyHandle
    from sweep.studyfile.from_python import GivenStudy as Study


def launch(
    study: Study | Mapping[str, Any] | Callable[..., Any] | str | os.PathLike[str],
    *,
    wait: bool = False,
    runs: str | os.PathLike[str] | None = None,
    say: Callable[[str], None] = lambda _: None,
    **keys: Any,
) -> StudyHandle:
    """Launch a study, or go on with it, as ``sweep launch`` does.

        def train(config, reporter):
            for epoch in range(10):
                ...
                reporter.log(epoch, loss=loss)
            return loss

        if __name__ == "__main__":
            study = sweep.launch(
                train, objective="loss", direction="minimize", trials=50,
                space={"lr": {"type": "float", "low": 1e-5, "high": 0.1, "log": True}},
            )
            for trial in study:
                print(trial["trial"], trial["value"])

    Args:
        study: The path of a study file; a ``Study`` or dict with the keys of one; or a function at
            the top level of a file. It is called with a dict of a trial's values and, where it
            takes two arguments, a ``sweep.report.Reporter``; a number that it returns is its last
            report of the objective.
        wait: Wait until it is over.
        runs: The runs folder; $SWEEP_RUNS, else ./runs, when None.
        say: Told what takes long.
        keys: Further keys of a study file, which win over the study's; ``objective`` may be a
            metric's name beside ``direction``.

    Raises:
        StudyFileError: With all problems of the keys.
        InputError: No training could find the function, or this is a training.
        SweepError: As ``sweep launch`` refuses.
    """
    from sweep.cli.handle import launch as launch_study

    return launch_study(study, wait=wait, runs=runs, say=say, **keys)


def load(name: str | None = None, runs: str | os.PathLike[str] | None = None) -> StudyHandle:
    """Open a study that was launched.

    Args:
        name: The study's; the one last launched when None.
        runs: The runs folder; $SWEEP_RUNS, else ./runs, when None.

    Raises:
        InputError: There is no such study in that folder.
        DatabaseUnavailable: Its database does not answer at present.
    """
    from sweep.cli.handle import load as load_study

    return load_study(name, runs)


def __getattr__(name: str) -> object:
    if name == "storage":
        import sweep.storage as storage

        return storage
    if name == "Study":
        from sweep.studyfile.from_python import GivenStudy

        return GivenStudy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
