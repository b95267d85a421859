"""What answers for the user's own sampler and pruner in a task: the code as it was frozen last."""

from __future__ import annotations

from sweep.core.paths import StudyFolder
from sweep.core.study import Study
from sweep.provenance.record import choose_snapshot
from sweep.provenance.snapshot import frozen_workdir
from sweep.search.own import Asked


class OwnCode:
    """Keeps the process that answers; another one where the code was frozen anew.

    Args:
        folder: The study's.
    """

    def __init__(self, study: Study, folder: StudyFolder) -> None:
        self.study = study
        self._folder = folder
        self._asked: Asked | None = None

    def asked(self) -> Asked | None:
        """Return what answers; None where the study has no sampler or pruner of its own.

        Raises:
            InputError: The code is gone.
        """
        if not (self.study.sampler.is_own or self.study.pruner.is_own):
            return None
        snapshot = choose_snapshot(self._folder, None, keep=False)
        workdir = frozen_workdir(self.study, self._folder, snapshot)
        if self._asked is None or self._asked.workdir != workdir:
            self.close()
            self._asked = Asked(workdir, {"the study's folder": self._folder.hub})
        return self._asked

    def close(self) -> None:
        """End the process."""
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.close()
