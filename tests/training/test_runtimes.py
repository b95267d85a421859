"""How each runtime wraps a command: golden command lines, owned options, ends told apart."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from sweep.core.errors import InputError
from sweep.core.space import Space
from sweep.core.study import Environment, Objective, Resources, Slurm, Study
from sweep.training.command import apptainer, enroot
from sweep.training.command.assembly import build
from sweep.training.command.environment import TrialValues
from sweep.training.command.runtime_failure import explain
from sweep.training.images import needs_build
from tests.needs import skip_or_fail

GOLDEN = Path(__file__).parent / "runtimes.txt"
TRIAL = Path("/w/runs/s/trials/00007")
VALUES = TrialValues(
    number=7,
    attempt=1,
    seed=42,
    params={},
    config=TRIAL / "config.yaml",
    trial_dir=TRIAL / "attempts/1",
    checkpoint_dir=TRIAL / "attempts/1/checkpoints",
    resume=None,
    metrics=TRIAL / "attempts/1/metrics.jsonl",
    control=TRIAL / "attempts/1/control.json",
    token="t0ken",
)
BASE = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/h",
    "SLURM_JOB_ID": "5",
    "PYTHONPATH": "/w/src:/other",
    "CUDA_VISIBLE_DEVICES": "1",
    "XDG_RUNTIME_DIR": "/run/user/7",
    "ENROOT_DATA_PATH": "/d",
    "ENROOT_CACHE_PATH": "/c",
}


def study(runtime: str, image: str = "/i/a.sqsh", **more: object) -> Study:
    names = {field.name for field in dataclasses.fields(Environment)}
    inner = {name: more.pop(name) for name in list(more) if name in names}
    given = Environment(runtime, image, **inner)  # type: ignore[arg-type]
    rest = {"workdir": "/w", "executor": "slurm", **more}
    argv = ("python", "train.py", "a b")
    return Study("s", argv, (Objective("m"),), Space(()), environment=given, **rest)  # type: ignore[arg-type]


TWO = Resources(nodes=2, gpus=2, cpus=4)
ONE = Resources(gpus=1)
SPECS = {
    "enroot": study("enroot"),
    "enroot binds": study("enroot", binds=("/data", "/src:/dst", "rel:/x:ro", "/q:/q:rw")),
    "enroot root": study("enroot", remap_root=True),
    "enroot name": study("enroot", name="train"),
    "enroot gpu": study("enroot", resources=ONE),
    "enroot no gpu": study("enroot", resources=ONE, gpu="none"),
    "enroot rocm": study("enroot", gpu="rocm"),
    "enroot env": study("enroot", env={"A": "$(id), x", "HOME": None}),
    "enroot setup": study("enroot", setup=("export A=1",)),
    "enroot options": study("enroot", options=("--rw",)),
    "enroot built": study(
        "enroot", "docker://ubuntu", built="/w/runs/.images/ubuntu-1.sqsh", name="train"
    ),
    "enroot torchrun": study("enroot", resources=Resources(gpus=2, cpus=4)),
    "enroot srun": study("enroot", resources=TWO),
    "enroot srun torchrun": study("enroot", resources=TWO, launcher="torchrun"),
    "pyxis": study("pyxis"),
    "pyxis registry": study("pyxis", "nvcr.io#nvidia/pytorch:24.05-py3"),
    "pyxis built": study("pyxis", "ubuntu", built="/w/runs/.images/ubuntu-1.sqsh"),
    "pyxis binds": study("pyxis", binds=("/data", "/src:/dst", "rel:/x:ro")),
    "pyxis root": study("pyxis", remap_root=True),
    "pyxis name": study("pyxis", name="train"),
    "pyxis prepared": study("pyxis", "", name="train"),
    "pyxis gpu": study("pyxis", resources=ONE),
    "pyxis no gpu": study("pyxis", resources=ONE, gpu="none"),
    "pyxis env": study("pyxis", env={"A": "$(id), x", "B": "1"}),
    "pyxis setup": study("pyxis", setup=("export A=1", "cd x")),
    "pyxis options": study("pyxis", options=("--container-writable", "--no-container-mount-home")),
    "pyxis torchrun": study("pyxis", resources=Resources(gpus=2, cpus=4)),
    "pyxis srun": study("pyxis", resources=TWO),
    "pyxis srun torchrun": study("pyxis", resources=TWO, launcher="torchrun"),
    "pyxis python on nodes": study("pyxis", resources=TWO, launcher="python"),
    "apptainer": study("apptainer", "/i/a.sif"),
    "apptainer binds": study("apptainer", "/i/a.sif", binds=("/a,b:/c:ro", "/data:/data:ro", "x")),
    "apptainer gpu": study("apptainer", "/i/a.sif", resources=ONE),
    "apptainer contained": study("apptainer", "/i/a.sif", options=("--containall",)),
    "apptainer srun": study("apptainer", "/i/a.sif", resources=TWO),
    "apptainer cleaned srun": study("apptainer", "/i/a.sif", options=("-e",), resources=TWO),
    "apptainer setup": study("apptainer", "/i/a.sif", setup=("ulimit -n 9",)),
    "singularity": study("singularity", "/i/a.sif", gpu="rocm", env={"A": "1"}),
    "modules": study("modules", "", setup=("module load x",)),
}
SPECS["enroot workdir"] = dataclasses.replace(
    SPECS["enroot"], environment=dataclasses.replace(SPECS["enroot"].environment, workdir="/opt")
)
SPECS["pyxis workdir"] = dataclasses.replace(
    SPECS["pyxis"], environment=dataclasses.replace(SPECS["pyxis"].environment, workdir="/opt")
)
_SHOWN = ("APPTAINERENV_", "SINGULARITYENV_", "NVIDIA_", "ENROOT_")


def write(name: str) -> str:
    """Return one entry of the golden file: arguments line by line, and the variables that count."""
    argv, env = build(SPECS[name], VALUES, BASE, Path("/w/runs/s/python"))
    shown = [f"{key}={value}" for key, value in sorted(env.items()) if key.startswith(_SHOWN)]
    return "\n".join([f"=== {name}", *argv, *(f"  {line}" for line in shown)]) + "\n"


def test_command_lines() -> None:
    """What is started for each of these; renew with: python -m tests.training.test_runtimes."""
    assert len([name for name in SPECS if name.startswith(("enroot", "pyxis"))]) >= 30
    assert "\n".join(write(name) for name in SPECS) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SPECS)
def test_no_value_stands_on_a_command_line(name: str) -> None:
    """Variables travel by the environment: others see command lines, and shells evaluate some."""
    argv, _ = build(SPECS[name], VALUES, BASE | {"SECRET_KEY": "s3cret"}, Path("/p"))
    assert not [element for element in argv if "$(id)" in element or "s3cret" in element]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (study("apptainer", options=("--bind", "/x")), "--bind is sweep's own"),
        (study("apptainer", options=("-B/x",)), "-B is sweep's own"),
        (study("apptainer", options=("--env=A=1",)), "--env is sweep's own"),
        (study("apptainer", options=("--home /x",)), "passed as one argument"),
        (study("apptainer", name="x"), "environment.name: has no meaning"),
        (study("apptainer", remap_root=True), "environment.remap_root: has no meaning"),
        (study("enroot", options=("-e", "A")), "-e is sweep's own"),
        (study("enroot", options=("--mount=/a:/b",)), "--mount is sweep's own"),
        (study("enroot", binds=("/a b",)), "enroot cannot bind '/a b'"),
        (study("enroot", env={"A": "x\ny"}), "cannot pass a value with a line break"),
        (study("pyxis", options=("--container-mou=/a",)), "--container-mou is sweep's own"),
        (study("pyxis", options=("--gres=gpu",)), "is no option of Pyxis"),
        (study("pyxis", binds=("/a,b",)), "Pyxis cannot bind '/a,b'"),
        (study("pyxis", executor="local"), "pyxis needs Slurm"),
        (study("pyxis", slurm=Slurm(slots=2), trials=4), "each slot"),
        (study("apptainer", binds=("/a:b",)), "is no absolute path"),
        (study("modules", ""), "environment.setup: is missing"),
        (study("conda", "/nowhere/env"), "no conda environment at /nowhere/env"),
        (study("conda", "no-such-name"), "there is no conda environment 'no-such-name'"),
    ],
)
def test_what_no_runtime_can_do_is_refused(given: Study, message: str) -> None:
    """Each names the key, what was found, and what to do."""
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        build(given, VALUES, BASE, Path("/p"))


def test_pythonpath_keeps_what_is_visible() -> None:
    """Entries that the container does not see are another Python's; the reporter is the last."""
    _, env = build(SPECS["apptainer"], VALUES, BASE, Path("/w/runs/s/python"))
    assert env["APPTAINERENV_PYTHONPATH"] == "/w/src:/w/runs/s/python"
    assert env["PYTHONPATH"] == env["APPTAINERENV_PYTHONPATH"]


@pytest.mark.parametrize(
    ("runtime", "code", "lines", "why"),
    [
        ("apptainer", 255, ["FATAL:   could not open image /x: no such file"], "could not open"),
        ("apptainer", 255, ["loss 0.3"], None),
        ("apptainer", 1, ["FATAL:   could not open image"], None),
        ("singularity", 255, ["FATAL:   While checking image"], "While checking image"),
        ("enroot", 1, ["[ERROR] No such file or directory: a.sqsh"], "No such file"),
        ("enroot", 1, ["ValueError: x"], None),
        ("enroot", 127, ["[ERROR] Command not found: x"], "Command not found"),
        ("pyxis", 1, ["slurmstepd: error: pyxis: failed to import image"], "failed to import"),
        ("pyxis", 2, ["slurmstepd: error: pyxis: no such file: x"], "no such file"),
        (
            "pyxis",
            1,
            [
                'slurmstepd: error: pyxis: error: a container with name "pyxis_7_mine" does not '
                "exist, and --container-image is not set"
            ],
            "container_scope=job",
        ),
        ("pyxis", 255, ["srun: unrecognized option '--container-image=/x'"], "has no Pyxis"),
        ("pyxis", 1, ["ValueError: x"], None),
        ("conda", 1, ["oops", "sweep: a line of environment.setup failed"], "failed: oops"),
        ("apptainer", 0, ["FATAL:   x"], None),
        ("none", 255, ["FATAL:   x"], None),
    ],
)
def test_whose_failure_it_was(runtime: str, code: int, lines: list[str], why: str | None) -> None:
    """A code and the runtime's own words make it the runtime's; a code alone is the command's."""
    found = explain(runtime, code, lines)
    assert (found is None) == (why is None) and (why or "") in (found or "")


@pytest.mark.parametrize(
    ("runtime", "image", "is_built"),
    [
        ("apptainer", "docker://python:3.11", True),
        ("apptainer", "oras://x/y", True),
        ("apptainer", "a.def", True),
        ("apptainer", "a.tar", True),
        ("apptainer", "a.sif", False),
        ("apptainer", "tree", False),
        ("apptainer", "docker-archive:x.tar", True),
        ("apptainer", "gone.sif", False),
        ("enroot", "docker://ubuntu", True),
        ("enroot", "nvcr.io#nvidia/pytorch:24.01-py3", True),
        ("enroot", "root-name", False),
        ("enroot", "/i/a.sqsh", False),
        ("pyxis", "ubuntu", True),
        ("pyxis", "", False),
        ("apptainer", "nvcr.io/nvidia/pytorch:24.01-py3", True),
        ("apptainer", "there.io/image", False),
        ("pyxis", "./a.sqsh", False),
        ("venv", "reqs.txt", True),
        ("venv", "tree", False),
        ("conda", "env.yml", True),
        ("conda", "name", False),
        ("none", "a.def", False),
    ],
)
def test_what_is_to_be_built(runtime: str, image: str, is_built: bool, tmp_path: Path) -> None:
    """Images and environments that are there are started as they are."""
    for name in ("a.def", "a.tar", "a.sif", "reqs.txt", "env.yml", "a.sqsh"):
        (tmp_path / name).touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "there.io/image").mkdir(parents=True)
    given = dataclasses.replace(study(runtime, image), workdir=str(tmp_path))
    assert needs_build(given) == is_built


@pytest.mark.parametrize(
    ("rights", "has_all"),
    [
        ("000001ffffffffff", True),
        ("000001fffeffffff", False),
        ("0000000000000000", False),
        ("00000000a80425fb", False),
        ("0000003fffffffff", True),
    ],
)
def test_whether_root_has_all_rights(rights: str, has_all: bool) -> None:
    """Kernels differ in how many there are; docker gives 14 of them."""
    status = f"Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t{rights}\n"
    assert apptainer.has_all_rights(status) is has_all


def test_ranges_of_ids_are_by_name_or_number() -> None:
    """A user whose name begins the same is another."""
    assert apptainer.is_listed("ann:1:2\nroot:100000:65536\n", "root")
    assert apptainer.is_listed("0:100000:65536", "root")
    assert not apptainer.is_listed("rooted:100000:65536\n\n", "root")


if __name__ == "__main__":
    import sweep.schedulers  # noqa: F401  (registers them)

    GOLDEN.write_text("\n".join(write(name) for name in SPECS), encoding="utf-8")


def test_enroot_takes_a_folder_of_its_own_where_anothers_has_the_name(tmp_path: Path) -> None:
    """/tmp is everybody's: what another user has put there, a link or a folder, is passed by."""
    wanted = tmp_path / f"sweep-enroot-{os.geteuid()}"
    env = {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/7"}
    assert enroot.places(env)["ENROOT_DATA_PATH"] == f"{wanted}/data"
    wanted.mkdir()
    assert enroot.places(env)["ENROOT_DATA_PATH"] == f"{wanted}/data"
    second = Path(f"{wanted}-2")
    second.symlink_to(tmp_path)
    try:
        os.chown(wanted, 12345, -1)
        os.lchown(second, 12345, -1)
    except PermissionError:
        skip_or_fail("root", "only root gives folders to others")
    assert enroot.places(env) == {
        "ENROOT_DATA_PATH": f"{wanted}-3/data",
        "ENROOT_CACHE_PATH": f"{wanted}-3/cache",
    }
    given = enroot.places({**env, "ENROOT_CACHE_PATH": "/c"})
    assert given["ENROOT_CACHE_PATH"] == "/c"
