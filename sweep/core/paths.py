"""The only place that knows file names, and how a file is written so that nobody sees half of it.

runs/
  .last                         the study last launched from here
  .postgres/                    the embedded server's data
  .images/                      what `sweep build` made, its logs, its caches
  .aside/<study>/               a study's folder that a launch has moved out of its way
  .removing/<study>.<identity>/ a study's folder that `sweep remove` is at
  <study>/
    study.json                  the study, resolved
    storage.json                how to reach the database (0600)
    identity.json               which study it is: its row in the database says the same
    script.sh                   the batch script (Slurm)
    manifest.json               what made it: code, environment, data, execution
    code/<id>/                  the code as it was at a launch
    environment.json            secrets that training needs (Slurm; 0600)
    optunahub/<commit>/         a sampler or pruner of OptunaHub's registry
    data/<key>.json             hashes of what nodes have copied
    inside/<key>.json           Python and packages within a container
    logs/<job>_<index>.log      one a task
    local/<job>/                the local executor's arrays
    cards/<host>-<gpu>/         who trains on a GPU that trials share (resources.share)
    cards/levels.json           how many did so best
    cards/<host>-<gpu>.course.jsonl  its memory and how busy it was, over time
    trials/00007/config.yaml
    trials/00007/attempts/1/    attempt.json metrics.jsonl control.json answer.jsonl exit.json
                                log.txt manifest.json checkpoints/
                                profile.json profile/ (with profile)
    trials/00007/attempts/aside/1/  what stood where a new attempt's folder was to be made
    reruns/1/                   the same files as an attempt
    tracking/ wandb/ tensorboard/ mlruns/ csv/  the trackers' logs; what they keep in files
    profiles/00007/             what `sweep profile` saw of a trial's values, as an attempt's files
    scaling/strong-2/           a small study's folder for each case of a scaling study
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]  # the folder of sweep itself
RUNS_VARIABLE = "SWEEP_RUNS"
RUNS_OWN = _POSTGRES, _IMAGES, _CRASHES, _ASIDE, _REMOVING = (
    ".postgres",
    ".images",
    ".crashes",
    ".aside",
    ".removing",
)


def runs_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the runs folder, absolute: the given one, else $SWEEP_RUNS, else ./runs."""
    # The home of a user who does not exist stays as it is written, unlike with Path.expanduser.
    return Path(os.path.expanduser(given or os.environ.get(RUNS_VARIABLE) or "runs")).absolute()


@dataclass(frozen=True)
class Runs:
    """The runs folder of a user."""

    root: Path

    @property
    def postgres(self) -> Path:
        return self.root / _POSTGRES

    @property
    def images(self) -> Path:
        """Images and environments that were built, by the digest of what they were built from."""
        return self.root / _IMAGES

    @property
    def last(self) -> Path:
        return self.root / ".last"

    @property
    def crashes(self) -> Path:
        return self.root / _CRASHES

    @property
    def aside(self) -> Path:
        """Folders of studies that a launch has moved out of its way."""
        return self.root / _ASIDE

    @property
    def removing(self) -> Path:
        """Folders of studies that are being removed."""
        return self.root / _REMOVING

    def study(self, name: str) -> StudyFolder:
        return StudyFolder(self.root / name)

    def studies(self) -> list[str]:
        """Return the names of the studies that have a folder here."""
        if not self.root.is_dir():
            return []
        return sorted(path.parent.name for path in self.root.glob("*/study.json"))


@dataclass(frozen=True)
class StudyFolder:
    """Everything of one study."""

    root: Path

    @property
    def study(self) -> Path:
        return self.root / "study.json"

    @property
    def storage(self) -> Path:
        return self.root / "storage.json"

    @property
    def identity(self) -> Path:
        """Which study it is: a name may be used again, in another database or after its end."""
        return self.root / "identity.json"

    @property
    def secrets(self) -> Path:
        """What training needs of the launching shell's secrets (0600)."""
        return self.root / "environment.json"

    @property
    def script(self) -> Path:
        return self.root / "script.sh"

    @property
    def provenance(self) -> Path:
        """What made the study: its four axes."""
        return self.root / "manifest.json"

    @property
    def code(self) -> Path:
        """The frozen code: a folder for each snapshot."""
        return self.root / "code"

    @property
    def hub(self) -> Path:
        """The frozen samplers and pruners of OptunaHub's registry."""
        return self.root / "optunahub"

    @property
    def data(self) -> Path:
        """Hashes of what nodes have copied of data, and archives that no node could unpack."""
        return self.root / "data"

    @property
    def inside(self) -> Path:
        """What containers hold, a file for each image and launch."""
        return self.root / "inside"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def local(self) -> Path:
        return self.root / "local"

    @property
    def cards(self) -> Path:
        """What is known of the GPUs that trials share, a folder each."""
        return self.root / "cards"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def report(self) -> Path:
        """The page that ``sweep report`` writes."""
        return self.results / "report.html"

    @property
    def tracking(self) -> Path:
        """What the trackers' processes say."""
        return self.root / "tracking"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's events, one folder a trial."""
        return self.root / "tensorboard"

    @property
    def csv(self) -> Path:
        """The files of ``track: [csv]``, one folder a trial."""
        return self.root / "csv"

    @property
    def profiles(self) -> Path:
        """What `sweep profile` saw, a folder for each trial."""
        return self.root / "profiles"

    @property
    def python_path(self) -> Path:
        """A folder with nothing but the reporter, to be put on PYTHONPATH."""
        return self.root / "python"

    def trial(self, number: int) -> Path:
        return self.root / "trials" / f"{number:05d}"

    def config(self, number: int) -> Path:
        return self.trial(number) / "config.yaml"

    def attempt(self, number: int, attempt: int) -> AttemptFolder:
        return AttemptFolder(self.trial(number) / "attempts" / str(attempt))

    def rerun(self, k: int) -> AttemptFolder:
        return AttemptFolder(self.root / "reruns" / str(k))


@dataclass(frozen=True)
class AttemptFolder:
    """All that one attempt writes."""

    root: Path

    @property
    def mark(self) -> Path:
        """Whose it is: the token of the attempt that made it."""
        return self.root / "attempt.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def control(self) -> Path:
        return self.root / "control.json"

    @property
    def answer(self) -> Path:
        """What the reporter says training made of what it was told."""
        return self.root / "answer.jsonl"

    @property
    def exit(self) -> Path:
        return self.root / "exit.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def provenance(self) -> Path:
        """Where the attempt's four axes differ from the study's."""
        return self.root / "manifest.json"

    @property
    def profile(self) -> Path:
        """What was seen of it with ``profile: true``, and what holds it back."""
        return self.root / "profile.json"

    @property
    def profiles(self) -> Path:
        """What profilers that were asked for have written: py-spy's, torch's, nsys's."""
        return self.root / "profile"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def work(self) -> Path:
        """Where training starts, with ``workdir: trial``."""
        return self.root / "work"

    @property
    def best(self) -> Path:
        """The best step's checkpoint, and of which step it is."""
        return self.root / "best"

    @property
    def carried(self) -> Path:
        """What is becoming ``checkpoints`` while an earlier attempt's is copied."""
        return self.root / ".checkpoints"
