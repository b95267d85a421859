"""Whether a study's command can be started at all, as far as can be known before it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sweep.core import secret_arguments
from sweep.core.errors import InputError
from sweep.core.executors import kind_of
from sweep.core.paths import AttemptFolder
from sweep.core.study import Study
from sweep.core.trial import trial_seed
from sweep.training import images
from sweep.training.command import assembly, own_ranks
from sweep.training.command.environment import TrialValues

# What to do about what is missing, by the key that its sentence begins with.
_ADVICE = {
    "command": "Correct `command` (or `workdir`) in the study file.",
    "environment.image": "Correct `environment.image`, or put the image there; what it is built "
    "from may be named instead (a definition, docker://…).",
    "environment.runtime": "Install it, bring it with `slurm.setup`, or name another runtime.",
    "environment.binds": "Make it, or correct `environment.binds` in the study file.",
}


def check_command(study: Study, environ: Mapping[str, str]) -> None:
    """Refuse a command whose program or script is not there, as far as can be known now.

    Raises:
        InputError: It cannot be started.
    """
    nowhere = AttemptFolder(Path("/nonexistent"))
    values = TrialValues.within(
        nowhere,
        config=nowhere.root / "config.yaml",
        params={**study.space.first_values(), **study.fixed},
        seed=trial_seed(study.seed, 0),
        token="",
        data=study.data_paths,
    )
    workdir = Path(study.workdir)
    if not os.path.isdir(workdir):
        raise InputError(f"workdir: {workdir} is not a folder.", "Make it, or name another.")
    if (
        study.environment.runtime in ("venv", "conda")
        and not study.environment.built
        and (images.needs_build(study))
    ):
        return  # where its programs will be, building it tells
    check_data(study)
    own_ranks.check(study)
    known = {**secret_arguments.stand_ins(study), **environ}
    missing = assembly.find_missing(study, values, known, workdir)
    if missing:
        raise InputError(missing, _ADVICE.get(missing.partition(":")[0], _ADVICE["command"]))


def check_data(study: Study) -> None:
    """Refuse data sets that are not there, as far as this machine can tell.

    What is to be staged must be seen from here: its listing is recorded at launch, and every copy
    is held against that.

    Raises:
        InputError: One is not there.
    """
    for name, path in study.data_paths.items():
        is_needed = kind_of(study).shares_this_machine or study.datasets[name].stage != "none"
        if not is_needed or os.path.exists(path):
            continue
        if study.datasets[name].fetch and not kind_of(study).shares_this_machine:
            continue  # a job fetches it before any task starts
        if study.datasets[name].fetch:
            raise InputError(
                f"data.{name}: {path} is not fetched yet.",
                f"Fetch it: sweep data fetch {study.source or 'STUDY.yaml'}",
            )
        raise InputError(
            f"data.{name}: {path} does not exist.",
            f"Put the data there, or correct data.{name} in the study file.",
        )
