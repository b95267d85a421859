"""Hyperparameter search on Slurm job arrays.

From Python: ``sweep.load("digits").trials()`` gives a study's results as a pandas frame, and
``sweep.storage.PostgresStorage(url)`` is an Optuna storage. Nothing is imported before that: inside
training this package is the reporter and nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would be an import
if TYPE_CHECKING:
    import os

    from sweep.results.frames import Results


def load(name: str | None = None, runs: str | os.PathLike[str] | None = None) -> Results:
    """Open the results of a study that was launched.

    Args:
        name: The study's; the one last launched when None.
        runs: The runs folder; $SWEEP_RUNS, else ./runs, when None.

    Raises:
        InputError: There is no such study in that folder.
        DatabaseUnavailable: Its database does not answer at present.
    """
    from sweep.results.frames import load as load_results

    return load_results(name, runs)


def __getattr__(name: str) -> object:
    if name == "storage":
        import sweep.storage as storage

        return storage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
