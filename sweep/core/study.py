"""The study: what to run, what to vary, what to optimise and what it may use, as plain data.

Frozen dataclasses with a JSON form, and no import beyond the standard library. Types and defaults
are told here and nowhere else. Reading and checking the YAML that a user writes is ``studyfile``'s
job: ``studyfile.keys`` says what each field means, and how one is added. Told here is only what the
values in a field are, where that is not what the user writes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.core.errors import DamagedFile
from sweep.core.files import read_text
from sweep.core.json_classes import build
from sweep.core.space import Space


@dataclass(frozen=True)
class Objective:
    """One thing to optimise.

    Attributes:
        pattern: Regular expression that finds the metric in the output, or None when training
            reports it (``from: {stdout: …}`` in the file).
        step_pattern: The same for the step that it belongs to; None where each match is one more.
    """

    metric: str
    direction: str = "minimize"
    at: str = "best"
    pattern: str | None = None
    step_pattern: str | None = None


@dataclass(frozen=True)
class Constraint:
    """What the last report of a metric must keep to for a trial to be feasible."""

    metric: str
    max: float | None = None
    min: float | None = None

    @property
    def limits(self) -> str:
        """The bounds in words."""
        bounds = (("<=", self.max), (">=", self.min))
        return " and ".join(f"{sign} {limit:g}" for sign, limit in bounds if limit is not None)


HUB = "optunahub:"


@dataclass(frozen=True)
class Choice:
    """A sampler, a pruner or a terminator: its name and its options.

    A user's own class is named package.module:Class; its options are ``arguments`` and
    ``time_limit_s``. One of OptunaHub's registry is named optunahub:name, and has ``registry``,
    ``revision``, ``class`` and, once it was fetched, ``pinned`` (a commit) as well.
    """

    type: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        return ":" in self.type

    @property
    def is_hub(self) -> bool:
        return self.type.startswith(HUB)


@dataclass(frozen=True)
class Retry:
    """How often a trial may be tried; ``max_attempts`` does not count the user's own failures."""

    max_attempts: int = 3
    max_user_failures: int | None = None


ENDED, HELD, STUCK = NOTICES = ("ended", "held", "stuck")  # of what a user may be told


@dataclass(frozen=True)
class Notify:
    """Who is told what becomes of the study.

    Attributes:
        email: Whether Slurm sends a mail to its user; an address: to that one.
        command: Run once for each event, with what happened as JSON on its standard input.
        on: The events that run it, of NOTICES.
    """

    email: bool | str = False
    command: tuple[str, ...] = ()
    on: tuple[str, ...] = NOTICES


@dataclass(frozen=True)
class Replicates:
    """How many trainings with different seeds make a trial: ``min``, and up to ``max`` while it may
    be the best."""

    min: int = 1
    max: int = 1


@dataclass(frozen=True)
class Share:
    """How many trials share a GPU.

    Attributes:
        max: Trials on one GPU at most.
        memory_mb: GPU memory of a trial, in MiB, where the user knows it; else it is measured.
        mps: Whether CUDA's MPS serves them: "auto" (where it may be started), "on" or "off".
        measured: Whether how many is found by measurement; else ``max`` from the start.
    """

    max: int = 16
    memory_mb: int | None = None
    mps: str = "auto"
    measured: bool = True


@dataclass(frozen=True)
class Resources:
    """What one trial needs, on each of its nodes.

    Attributes:
        time_limit_s: Limit of a task, which may serve several trials.
        gpus: Count, or "type:count"; 0 for none.
        memory_mb: In MiB, as Slurm counts.
        share: Where several trials share a GPU; None where each has its own.
    """

    time_limit_s: int | None = None
    nodes: int = 1
    gpus: int | str = 0
    shard: int | None = None
    mps: int | None = None
    cpus: int | None = None
    memory_mb: int | None = None
    share: Share | None = None

    @property
    def of_memory(self) -> str:
        """What decides how much memory a trial has, as text to be compared."""
        parts = (self.nodes, self.gpus, self.shard, self.mps, self.cpus, self.memory_mb)
        return json.dumps(parts)

    @property
    def most_on_gpu(self) -> int:
        """Trials that a GPU serves at once, at most."""
        return self.share.max if self.share is not None else 1

    @property
    def gpu_count(self) -> int:
        """GPUs per node."""
        if isinstance(self.gpus, int):
            return self.gpus
        return int(self.gpus.rsplit(":", 1)[1])

    def so_many_gpus(self, count: int) -> int | str:
        """Return a request for another number of GPUs per node, of the same type."""
        if isinstance(self.gpus, int):
            return count
        return f"{self.gpus.rsplit(':', 1)[0]}:{count}"

    @property
    def gpus_used(self) -> float | None:
        """GPUs that a trial holds on all its nodes; None where it is not known: ``shard`` does not
        say of how many shares."""
        if self.shard is not None:
            return None
        return (self.mps / 100 if self.mps is not None else float(self.gpu_count)) * self.nodes

    def gpu_hours(self, duration_s: float | None) -> float | None:
        """Return what a training of this length uses, in GPU-hours: 0 without GPUs, None where
        that is not known."""
        gpus = self.gpus_used
        return None if duration_s is None or gpus is None else duration_s / 3600 * gpus


@dataclass(frozen=True)
class Service:
    """The small job that holds the database and the finaliser on a cluster."""

    partition: str | None = None
    time_limit_s: int | None = None
    extra: tuple[str, ...] = ()
    qos: str | None = None


@dataclass(frozen=True)
class Slurm:
    """What only Slurm understands.

    Attributes:
        slots: Trials that one task serves side by side; see ``executors.slots_of``.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool = False
    setup: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    slots: int = 1
    service: Service = Service()


@dataclass(frozen=True)
class Ddp:
    """How the ranks of a trial that has several are started and find each other.

    Attributes:
        timeout_s: None for the training's own limit (the reference trainer's is 50).
        written: Whether the study's own file has the section, and not only a file of defaults.
    """

    ranks_per_node: int | None = None
    port_range: tuple[int, ...] = (20000, 29999)
    interface: str | None = None
    ib: str | None = None
    debug: str = "off"
    timeout_s: int | None = None
    written: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Environment:
    """Where the training's software comes from.

    Attributes:
        image: Image, environment folder or environment name, as the runtime means it.
        env: Variables set for training; a value of None passes the launching shell's.
        built: The file or folder that ``sweep build`` made of ``image``; None where ``image`` is
            what is started.
        make_binds: Whether the folders of binds that are not there are made.
    """

    runtime: str = "none"
    image: str | None = None
    unpack: bool = False
    build: str = "auto"
    built: str | None = None
    binds: tuple[str, ...] = ()
    workdir: str | None = None
    gpu: str = "auto"
    env: Mapping[str, str | None] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    remap_root: bool = False
    name: str | None = None
    make_binds: bool = False

    @property
    def is_prepared(self) -> bool:
        """Whether the container is one of Pyxis's that the user made, known by its name alone."""
        return self.runtime == "pyxis" and bool(self.name) and not self.image


# Variables with SWEEP_ in front that a user sets for training: where the reference trainer finds
# its data, and how long its ranks wait for each other.
FOR_TRAINING = ("SWEEP_DATA", "SWEEP_DDP_TIMEOUT_S")


@dataclass(frozen=True)
class ConfigFile:
    """What the file of ``{config}`` is like.

    Attributes:
        seed: Whether the trial's seed is in it.
        nested: Whether a name with dots is a value within mappings.
    """

    seed: bool = True
    nested: bool = False
    format: str = "yaml"


@dataclass(frozen=True)
class Storage:
    """Where the study's rows live; ``url`` is None for the embedded server.

    Attributes:
        embedded: ``job`` or ``here``: where that runs on a cluster.
        listen: The interface or address that it listens on, and on nothing else.
    """

    url: str | None = None
    embedded: str = "job"
    listen: str | None = None


@dataclass(frozen=True)
class DataSet:
    """Data that training is told of by a name: ``{data.NAME}`` and ``$SWEEP_DATA_NAME``.

    Attributes:
        path: A file or a folder that all nodes see, as the study file has it.
        stage: "none" has training read it there; "node" has each node copy it once.
        wait: Whether a training waits while another copies; else it reads the shared path.
        unpack: Whether an archive is unpacked where it is staged.
        fetch: What brings it: a command's arguments, or addresses of files; or nothing.
    """

    path: str
    stage: str = "none"
    wait: bool = True
    unpack: bool = True
    fetch: tuple[str, ...] = ()


@dataclass(frozen=True)
class Staging:
    """Where nodes keep copies of data, for all studies of a user.

    Attributes:
        place: A folder of the node; None for the first of the usual ones that will do.
        quota_mb: What all copies in a place take at most, in MiB; None for half of its disk.
    """

    place: str | None = None
    quota_mb: int | None = None


@dataclass(frozen=True)
class Study:
    """A whole study.

    Attributes:
        command: The user's command, one argument each, with placeholders.
        points: May leave parameters out; the first trials, in this order.
        trials: N.
        where: Relations between parameters, which ``relations`` reads; bounds that name another
            parameter are among them.
        time_s: Budget of the whole study; the limit of one task is in ``resources``.
        max_parallel: K, or None for as many as there are tasks; ``parallel`` is the number.
        tasks: None for as many as trials.
        trials_per_task: Of each of a task's slots.
        workdir: Absolute, as launch resolved it.
        own_workdir: Whether each attempt starts in a folder of its own over that one.
        checkpoint_files: A glob within the checkpoint folder; None for the known layouts.
        resume: "path" tells training where its checkpoint is, "folder" also puts it into the new
            checkpoint folder.
        data, datasets: Paths whose content is recorded; those that training is told of, by name.
        profile: Whether each training is looked at from outside, for what holds it back.
        commands: Further commands by name, which run on a trial's checkpoint.
        share: "group" lets the group of the runs folder read what lies in the study's.
        source: Path of the study file, absolute.
    """

    name: str
    command: tuple[str, ...]
    objectives: tuple[Objective, ...]
    space: Space
    fixed: Mapping[str, Any] = field(default_factory=dict)
    config: ConfigFile = ConfigFile()
    points: tuple[Mapping[str, Any], ...] = ()
    warm_start: str | None = None
    duplicates: str = "keep"
    constraints: tuple[Constraint, ...] = ()
    where: tuple[str, ...] = ()
    trials: int = 1
    replicates: Replicates = Replicates()
    seed: int = 0
    sampler: Choice = Choice("auto")
    pruner: Choice = Choice("none")
    time_s: int | None = None
    gpu_hours: float | None = None
    target: float | None = None
    patience: int | None = None
    terminator: Choice = Choice("none")
    max_parallel: int | None = None
    retry: Retry = Retry()
    resources: Resources = Resources()
    trial_time_s: int | None = None
    stall_time_s: int | None = None
    grace_s: int = 60
    tasks: int | None = None
    trials_per_task: int | None = None
    keep: int = 5
    checkpoint_files: str | None = None
    resume: str = "path"
    executor: str = "auto"
    launcher: str = "auto"
    ddp: Ddp = Ddp()
    slurm: Slurm = Slurm()
    environment: Environment = Environment()
    storage: Storage = Storage()
    workdir: str = "."
    own_workdir: bool = False
    code: str = "frozen"
    data: tuple[str, ...] = ()
    datasets: Mapping[str, DataSet] = field(default_factory=dict)
    staging: Staging = Staging()
    track: tuple[str, ...] = ()
    profile: bool = False
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notify: Notify = Notify()
    share: str = "none"
    source: str = ""

    @property
    def objective(self) -> Objective:
        """The objective of a study that has one."""
        return self.objectives[0]

    @property
    def directions(self) -> tuple[str, ...]:
        return tuple(objective.direction for objective in self.objectives)

    @property
    def is_multi_objective(self) -> bool:
        return len(self.objectives) > 1

    @property
    def is_replicated(self) -> bool:
        """Whether a trial may be several trainings."""
        return self.replicates.max > 1

    @property
    def may_end_early(self) -> bool:
        """Whether something else than the last of its trials can end it."""
        limits = (self.time_s, self.gpu_hours, self.target, self.patience)
        return self.terminator.type != "none" or any(limit is not None for limit in limits)

    def at_workdir(self, path: str) -> Path:
        """Return a path of the study file: a relative one lies in the workdir, ~ is home."""
        return Path(self.workdir, os.path.expanduser(path))

    @property
    def data_paths(self) -> dict[str, Path]:
        """Where all nodes see the data that training is told of, by name."""
        return {name: self.at_workdir(one.path) for name, one in self.datasets.items()}

    @property
    def venv_folder(self) -> Path:
        """The folder of the virtual environment, with runtime venv."""
        given = self.environment
        return self.at_workdir(given.built or given.image or ".venv")

    @property
    def ranks_per_node(self) -> int:
        """Processes that a launcher starts on each node."""
        return self.ddp.ranks_per_node or self.resources.gpu_count or 1

    @property
    def world(self) -> int:
        """Processes of a trial on all its nodes; with ``launcher: python`` there is one."""
        return 1 if self.launcher == "python" else self.resources.nodes * self.ranks_per_node

    @property
    def parallel(self) -> int:
        """K as a number, never above the number of trials."""
        return max(1, min(self.max_parallel or self.trials, self.trials))

    def to_json(self) -> str:
        """Return the study as JSON text that ``from_json`` reads back equal."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False)

    @staticmethod
    def read(path: Path) -> Study:
        """Return the study that a launch wrote to a file.

        Raises:
            DamagedFile: It cannot be read, or holds no study.
        """
        try:
            return Study.from_json(read_text(path))
        except OSError as error:
            raise DamagedFile(
                f"{path} cannot be read: {error.strerror or error}.", REWRITTEN
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedFile(
                f"{path} should hold the study as it was launched, and cannot be understood: "
                f"{error}.",
                REWRITTEN,
            ) from error

    @staticmethod
    def from_json(text: str) -> Study:
        """Read back what ``to_json`` wrote. Raises: ValueError for other text."""
        return typing.cast("Study", build(Study, json.loads(text)))


REWRITTEN = "Launch the study again: `sweep launch STUDY.yaml` writes it anew."
