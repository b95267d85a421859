"""The environment in which training starts: what it gets, what is kept from it, and its PATH.

The word ``python`` in a command means the interpreter of the environment: of the named venv with
runtime ``venv``; else the first on PATH, as in the shell that launched. Where that shell had no
environment activated (``.venv/bin/sweep launch …``), the folder of sweep's own interpreter is put
first, unless sweep lives in a place of its own (pipx, uv tool, the system).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.executors import kind_of
from sweep.core.files import write_atomic
from sweep.core.paths import PACKAGE, AttemptFolder, StudyFolder
from sweep.core.scheduler import INDEX_VARIABLE, JOB_VARIABLE
from sweep.core.secret_arguments import VARIABLE
from sweep.core.secrets import is_secret
from sweep.core.study import FOR_TRAINING, Study
from sweep.core.system.search_path import search_path

_NO_DATA: Mapping[str, Path] = {}
DATA_VARIABLE = "SWEEP_DATA_"  # and the name of a data set, in capitals
SHARED_VARIABLE = "SWEEP_SHARED_GPU"  # set where other trials may train on the GPU
MLFLOW_URI = "MLFLOW_TRACKING_URI"  # where MLflow keeps its runs
INSTALLED = "installed.py"  # beside the reporter
INTEGRATIONS = "integrations"  # likewise, a folder
# The package as a training imports it. A script that launches itself imports these names as well.
WITHIN_TRAINING = '''from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)


def launch(*_arguments, **_keys):
    """Refuse: a training would launch itself for ever."""
    raise RuntimeError(
        "a function of sweep was called within a training, which would launch itself for ever; "
        \'put the call under: if __name__ == "__main__":\'
    )


Study = load = launch
'''


@dataclass(frozen=True)
class TrialValues:
    """What one attempt of one trial runs with.

    Attributes:
        number: The trial's number in its study, from 0.
        attempt: From 1.
        seed: The trial's seed.
        params: Names to values as training gets them, the fixed ones too.
        config: The YAML file that holds ``params``.
        trial_dir: The attempt's folder.
        checkpoint_dir: Where this attempt saves.
        resume: Checkpoint to go on from, or None.
        metrics: The journal that training appends to.
        control: The file that tells training to stop.
        token: The attempt's token, by which the ranks of a job know each other.
        run: An id that no other run has: of the study, the trial and, for what is no attempt of
            it, of which kind it is. Empty where nobody is to see it.
        next_step: At which step it goes on from that checkpoint.
        data: Where each data set of the study lies for it, by name.
        shares_gpu: Whether other trials may train on its GPU: the reporter says what torch takes.
        mps: What it needs to be served by CUDA's MPS: variables.
    """

    number: int
    attempt: int
    seed: int
    params: Mapping[str, Any]
    config: Path
    trial_dir: Path
    checkpoint_dir: Path
    resume: Path | None
    metrics: Path
    control: Path
    token: str
    run: str = ""
    next_step: int = 0
    data: Mapping[str, Path] = field(default_factory=dict)
    shares_gpu: bool = False
    mps: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def within(
        cls,
        folder: AttemptFolder,
        *,
        config: Path,
        params: Mapping[str, Any],
        seed: int,
        token: str,
        number: int = 0,
        attempt: int = 1,
        resume: Path | None = None,
        run: str = "",
        next_step: int = 0,
        data: Mapping[str, Path] = _NO_DATA,
    ) -> TrialValues:
        """Return the values of an attempt whose files lie in this folder."""
        return cls(
            number=number,
            attempt=attempt,
            seed=seed,
            params=params,
            config=config,
            trial_dir=folder.root,
            checkpoint_dir=folder.checkpoints,
            resume=resume,
            metrics=folder.metrics,
            control=folder.control,
            token=token,
            run=run,
            next_step=next_step,
            data=data,
        )


def environment(
    study: Study, values: TrialValues, base: Mapping[str, str], python_path: Path
) -> dict[str, str]:
    """Return the environment of the training's process.

    It is the task's own, less all that is sweep's or names the database, with ``environment.env``
    and the trial's variables added.

    Args:
        base: The task's environment.
        python_path: The folder that ``install_reporter`` filled; it goes to the end of PYTHONPATH,
            so that a checkout or a folder of the user's with a whole ``sweep`` in it comes first.

    Raises:
        InputError: ``environment.env`` sets what is sweep's, or wants the database's passed on.
    """
    found = without_database(base, base)
    found |= {
        # Sets iterate by string hashes: with a seed they do so alike in every run of this trial.
        "PYTHONHASHSEED": str(values.seed),
        # A log that is buffered is lost with the process, and hides a stall.
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": _join_paths(found.get("PYTHONPATH", ""), str(python_path)),
        "PATH": search_path(base),
    }
    for name, value in study.environment.env.items():
        where = f"environment.env.{name}"
        if name.startswith("SWEEP_") and name not in FOR_TRAINING:
            raise InputError(f"{where}: names with SWEEP_ in front are sweep's own.")
        if value is not None:
            if name == "PYTHONPATH":
                value = _join_paths(value, str(python_path))
            found[name] = value
        elif name in base and name not in found:
            raise InputError(
                f"{where}: what names the study's database is never passed to training.",
                "Give it a value of its own if training uses another database.",
            )
    for name, value in places(study, values).items():
        found.setdefault(name, value)
    return found | {
        "SWEEP_CONFIG": str(values.config),
        "SWEEP_TRIAL_DIR": str(values.trial_dir),
        "SWEEP_SEED": str(values.seed),
        "SWEEP_METRICS": str(values.metrics),
        "SWEEP_CONTROL": str(values.control),
        "SWEEP_TRIAL": str(values.number),
        "SWEEP_ATTEMPT": str(values.attempt),
        "SWEEP_CHECKPOINT_DIR": str(values.checkpoint_dir),
        "SWEEP_RESUME": str(values.resume or ""),
        **({"SWEEP_NEXT_STEP": str(values.next_step)} if values.resume else {}),
        **{DATA_VARIABLE + name.upper(): str(path) for name, path in values.data.items()},
        **({SHARED_VARIABLE: "1"} if values.shares_gpu else {}),
        **values.mps,
        "SWEEP_TOKEN": values.token,
        # By these a local array finds what its tasks have started, wherever it has moved to.
        **{name: base[name] for name in (JOB_VARIABLE, INDEX_VARIABLE) if name in base},
    }


def places(study: Study, values: TrialValues) -> dict[str, str]:
    """Return the variables by which loggers keep apart what trials write.

    No address is among them, nor what decides where a run is sent. A trial's attempts go on with
    one run of W&B's; a re-run has another id, and never overwrites it.
    """
    run = {"WANDB_RUN_ID": values.run, "WANDB_RESUME": "allow"} if values.run else {}
    return {
        **run,
        "WANDB_DIR": str(values.trial_dir),
        "WANDB_RUN_GROUP": study.name,
        "TENSORBOARD_LOGGING_DIR": str(values.trial_dir / "tensorboard"),
        "COMET_OFFLINE_DIRECTORY": str(values.trial_dir / "comet"),
    }


def without_database(found: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Drop sweep's variables, libpq's, and any whose value holds the database's address.

    Args:
        environ: Where the address is known from.
    """
    address = environ.get("SWEEP_STORAGE") or "\0"
    return {
        name: value
        for name, value in found.items()
        if (name in FOR_TRAINING or not name.startswith(("SWEEP_", "PG"))) and address not in value
    }


def keep_secrets(folder: StudyFolder, study: Study, environ: Mapping[str, str]) -> None:
    """Write what a study's tasks need of secrets into its 0600 file.

    Those that its command refers to, and where the scheduler records the environment that it is
    given, which therefore has none, also the variables that training may inherit.
    """
    kept = {name: value for name, value in environ.items() if name.startswith(VARIABLE)}
    if kind_of(study).records_environment:
        secrets = {name: value for name, value in environ.items() if is_secret(name, value)}
        kept |= without_database(secrets, environ)
    if kept or folder.secrets.exists():
        write_atomic(folder.secrets, json.dumps(kept) + "\n", mode=0o600)


def _join_paths(paths: str, last: str) -> str:
    return os.pathsep.join([path for path in paths.split(os.pathsep) if path] + [last])


def install_reporter(folder: Path) -> Path:
    """Fill a folder, for PYTHONPATH, with the reporter, the integrations, and what tells the
    packages of a container; return the folder.

    The package there looks for its other modules further along ``sys.path``: where the whole of
    sweep is installed beside the training, none of it is hidden.
    """
    package = folder / "sweep"
    for made in (folder, package, package / INTEGRATIONS):
        made.mkdir(mode=0o755, parents=True, exist_ok=True)
    write_atomic(package / "__init__.py", WITHIN_TRAINING, mode=0o644)
    for source in (PACKAGE / "report.py", PACKAGE / "provenance" / INSTALLED):
        write_atomic(package / source.name, source.read_bytes(), mode=0o644)
    for source in sorted((PACKAGE / INTEGRATIONS).glob("*.py")):
        write_atomic(package / INTEGRATIONS / source.name, source.read_bytes(), mode=0o644)
    return folder
