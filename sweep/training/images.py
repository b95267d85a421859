"""What a study's environment is built from, where it goes, and the commands that build it.

A plan is pure apart from reading the source: its target is named by the source's digest, so that
an edited definition is another image, and an image that is there is never built again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.core.errors import InputError
from sweep.core.files import hash_file
from sweep.core.paths import Runs
from sweep.core.study import Study
from sweep.training.command.apptainer import cache_variables, rights_options
from sweep.training.command.enroot import places
from sweep.training.registry_names import read_registry_name

ARCHIVES = (".tar", ".tar.gz", ".tgz")
REQUIREMENTS = (".txt", ".lock", ".in")
CONDA_FILES = (".yml", ".yaml", ".txt", ".lock")
CONDA_PROGRAMS = ("micromamba", "mamba", "conda")
_SCHEME = r"[a-z][a-z-]*:(//)?.+"


@dataclass(frozen=True)
class BuildPlan:
    """How an environment is built.

    Attributes:
        source: What it is built from: a path, or a registry's name.
        target: The file or folder that it becomes, named by what it is built from.
        commands: To be run one after another in ``cwd``; "{target}" stands for where they write.
        env: Variables beside the environment's own.
        moves: Whether it may be built under another name and be renamed; a virtual environment's
            programs hold its path.
    """

    source: str
    target: Path
    commands: Sequence[Sequence[str]]
    cwd: Path
    env: Mapping[str, str]
    moves: bool = True

    def to_json(self) -> str:
        paths = {"target": str(self.target), "cwd": str(self.cwd)}
        return json.dumps({**dataclasses.asdict(self), **paths})

    @staticmethod
    def from_json(text: str) -> BuildPlan:
        data = json.loads(text)
        return BuildPlan(**{**data, "target": Path(data["target"]), "cwd": Path(data["cwd"])})

    @property
    def record(self) -> Path:
        """What is known of the target; written last, so that it also says that it is whole."""
        return record_of(self.target)

    @property
    def log(self) -> Path:
        return self.target.with_name(self.target.name + ".log")

    @property
    def lock(self) -> Path:
        return self.target.with_name(f".{self.target.name}.lock")


def record_of(target: Path) -> Path:
    """Return where what is known of a built image lies."""
    return target.with_name(target.name + ".json")


def needs_build(study: Study) -> bool:
    """Tell whether the image that a study names is no image or environment yet."""
    given = study.environment
    if not given.image or given.runtime in ("none", "modules"):
        return False
    path = study.at_workdir(given.image)
    if given.runtime == "venv":
        return path.is_file()
    if given.runtime == "conda":
        return path.is_file() and path.name.endswith(CONDA_FILES)
    if given.runtime in ("enroot", "pyxis"):
        return (
            not path.exists()
            and not given.image.startswith(("/", "./", "../"))
            and not (
                given.runtime == "enroot"
                and "://" not in given.image
                and read_registry_name(given.image) is None
            )
        )
    if path.exists():
        return path.name.endswith((".def", *ARCHIVES)) or (given.unpack and path.is_file())
    return bool(re.fullmatch(_SCHEME, given.image) or read_registry_name(given.image))


def plan(study: Study, runs: Runs, environ: Mapping[str, str]) -> BuildPlan:
    """Return how a study's image is built.

    Raises:
        InputError: Its source is not there, or no program here builds it.
    """
    given = study.environment
    image = given.image or ""
    path = study.at_workdir(image)
    if given.runtime == "venv":
        return _plan_venv(path, runs)
    if given.runtime == "conda":
        return _plan_conda(path, runs, environ)
    if given.runtime in ("enroot", "pyxis"):
        return _plan_enroot(study, image, runs, environ)
    return _plan_apptainer(study, image, path, runs)


def _plan_apptainer(study: Study, image: str, path: Path, runs: Runs) -> BuildPlan:
    given = study.environment
    source, content, cwd = image, image, Path(study.workdir)
    scheme, _, rest = image.partition(":")
    if not path.exists() and scheme.endswith("-archive"):
        path = Path(study.workdir, rest.removeprefix("//"))
        if not path.exists():
            raise InputError(f"environment.image: {path} does not exist.")
    if path.exists():
        content, cwd = digest_of(path), path.parent
        source = str(path)
        if path.name.endswith(ARCHIVES) or scheme.endswith("-archive"):
            kind = scheme if scheme.endswith("-archive") else "docker-archive"
            source = f"{kind}:{path}"
    elif name := read_registry_name(image):
        source = content = name.for_docker
    target = _target(runs, image, [content, str(given.unpack)], "" if given.unpack else ".sif")
    sandbox = ["--sandbox"] if given.unpack else []
    rights = rights_options() if path.name.endswith(".def") and path.is_file() else []
    command = [given.runtime, "build", *sandbox, *rights, "{target}", source]
    images = runs.images
    env = cache_variables(given.runtime, str(images / "cache"), str(images / "tmp"))
    return BuildPlan(source, target, [command], cwd, env)


def _plan_enroot(study: Study, image: str, runs: Runs, environ: Mapping[str, str]) -> BuildPlan:
    if image.endswith((".def", *ARCHIVES)):
        raise InputError(
            f"environment.image: {study.environment.runtime} does not build {image!r}.",
            "Give a registry's name (docker://...) or a .sqsh file; apptainer builds .def files.",
        )
    name = read_registry_name(image)
    source = name.for_enroot if name else image if "://" in image else f"docker://{image}"
    target = _target(runs, image, [source], ".sqsh")
    env = dict(places({**environ, "TMPDIR": str(runs.images / "tmp")}))
    env["ENROOT_TEMP_PATH"] = environ.get("ENROOT_TEMP_PATH") or str(runs.images / "tmp")
    env["ENROOT_CACHE_PATH"] = environ.get("ENROOT_CACHE_PATH") or str(runs.images / "cache")
    command = ["enroot", "import", "--output", "{target}", source]
    on_path = shutil.which("enroot", path=environ.get("PATH"))
    if study.environment.runtime == "pyxis" and not on_path:
        # Only the nodes have it: Pyxis imports there, and keeps what it made.
        options = study.slurm
        where = [
            ("partition", options.service.partition or options.partition),
            ("account", options.account),
            ("qos", options.qos),
        ]
        command = [
            "srun",
            "--nodes=1",
            "--ntasks=1",
            *(f"--{k}={v}" for k, v in where if v),
            f"--container-image={source.removeprefix('docker://')}",
            "--container-save={target}",
            "true",
        ]
    return BuildPlan(source, target, [command], Path(study.workdir), env)


def _plan_venv(path: Path, runs: Runs) -> BuildPlan:
    if not path.name.endswith(REQUIREMENTS):
        raise InputError(
            f"environment.image: {path.name} is no list of requirements.",
            "Name a requirements.txt (pip freeze, pip-compile, uv pip compile), or a folder.",
        )
    python = os.path.realpath(sys.executable)
    target = _target(runs, path.stem, [digest_of(path), python], "-venv")
    cache = str(runs.images / "cache")
    return BuildPlan(
        str(path),
        target,
        [
            [python, "-m", "venv", "{target}"],
            [
                "{target}/bin/python",
                "-m",
                "pip",
                "install",
                "--no-input",
                "--disable-pip-version-check",
                "--requirement",
                str(path),
            ],
        ],
        path.parent,
        {
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or cache,
            "TMPDIR": str(runs.images / "tmp"),
        },
        moves=False,
    )


def _plan_conda(path: Path, runs: Runs, environ: Mapping[str, str]) -> BuildPlan:
    found = [name for name in CONDA_PROGRAMS if shutil.which(name, path=environ.get("PATH"))]
    if not found:
        raise InputError(
            f"environment.image: {path.name} is built by one of {', '.join(CONDA_PROGRAMS)}, and "
            "none is on PATH.",
            "Load or install one, or give the folder of an environment.",
        )
    program = found[0]
    is_yaml = path.suffix in (".yml", ".yaml")
    # conda itself has a verb of its own for a list of packages that is no lock file.
    verb = ["env", "create"] if is_yaml and program != "micromamba" else ["create"]
    quiet = ["--yes"] if program == "micromamba" or not is_yaml else []
    target = _target(runs, path.stem, [digest_of(path)], "-conda")
    images = runs.images
    env = {
        "CONDA_PKGS_DIRS": environ.get("CONDA_PKGS_DIRS") or str(images / "cache/conda"),
        "TMPDIR": str(images / "tmp"),
    }
    if program == "micromamba":
        env["MAMBA_ROOT_PREFIX"] = environ.get("MAMBA_ROOT_PREFIX") or str(images / "cache/mamba")
    command = [program, *verb, *quiet, "--prefix", "{target}", "--file", str(path)]
    return BuildPlan(str(path), target, [command], path.parent, env, moves=False)


def _target(runs: Runs, image: str, parts: Sequence[str], ending: str) -> Path:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    stem = re.sub(r"\.(def|sif|tar|tar\.gz|tgz)$", "", image.rstrip("/").rsplit("/", 1)[-1])
    safe = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.") or "image"
    return runs.images / f"{safe[:60]}-{digest}{ending}"


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; of a folder, over its files' names, kinds and sizes."""
    if path.is_file():
        return hash_file(path).hexdigest()
    whole = hashlib.sha256()
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            file = Path(folder, name)
            try:
                status = file.lstat()
            except FileNotFoundError:  # removed since the folder was listed
                continue
            line = f"{file.relative_to(path)}\0{status.st_mode:o}\0{status.st_size}\n"
            whole.update(line.encode("utf-8", "surrogateescape"))
    return whole.hexdigest()
