"""Who failed first, by what launchers print that the user's own command has started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.training.command.foreign_failure import find
from sweep.training.exit_reason import classify, read_end
from tests.needs import require
from tests.training.test_command import make_study

# As they printed it where they were run, or as public reports show it (PRRTE, Intel MPI, MPICH 3.3,
# Composer, Horovod, CUDA).
LOGS = dict(
    part.split("\n", 1)
    for part in Path(__file__)
    .with_name("launcher_logs.txt")
    .read_text(encoding="utf-8")
    .split("##### ")[1:]
)
KILLED = "killed by SIGKILL; by the system when memory ran out, or by hand"
ENDS = [
    ("Open MPI 4.1, killed", "rank 1 on vm (mpirun)", "killed", KILLED),
    ("Open MPI 4.1 --tag-output, an error", "rank 1 (mpirun)", "error", "1: ValueError: boom"),
    ("Open MPI 4.1, exit code 3", "rank 1 (mpirun)", "error", "exit code 3"),
    ("MPICH 4.0, killed", "a process on vm (mpiexec)", "killed", KILLED),
    ("DeepSpeed 0.18, killed", "rank 1 (deepspeed)", "killed", KILLED),
    ("DeepSpeed 0.18, an error", "rank 1 (deepspeed)", "error", "exit code 1: ValueError: boom"),
    ("mp.spawn of torch 2.13, killed", "rank 1 (mp.spawn)", "killed", KILLED),
    ("mp.spawn of torch 2.13, exit code 3", "rank 1 (mp.spawn)", "error", "exit code 3"),
    ("mp.spawn of torch 2.13, an error", "rank 1 (mp.spawn)", "error", "1: ValueError: boom"),
    ("fabric run of Lightning 2.6, killed", "rank 1 (torchrun)", "killed", KILLED),
    ("Lightning 2.6's own ddp, killed", "rank 1 (Lightning)", "killed", KILLED),
    ("Lightning 2.6's own ddp, an error", "rank 1 (Lightning)", "error", "1: ValueError: boom"),
    ("Open MPI 5 (PRRTE), killed", "rank 3 on n2 (mpirun)", "killed", KILLED),
    ("Open MPI 5 (PRRTE), exit code 3", "rank 2 (mpirun)", "error", "exit code 3: epoch 1"),
    ("Intel MPI 2021, killed", "rank 1 on n1 (mpiexec)", "killed", KILLED),
    (
        "MPICH 3.3, a segmentation fault with a core",
        "a process on n1 (mpiexec)",
        "error",
        "crashed with signal 11: epoch 1",
    ),
    ("Composer 0.32, killed", "rank 1 (composer)", "killed", KILLED),
    ("Horovod 0.28, killed", "rank 1 (horovodrun)", "killed", KILLED),
    ("srun within a script, killed", "rank 1 on n2 (srun)", "killed", KILLED),
    ("accelerate launch of one process, killed", "a process (subprocess)", "killed", KILLED),
    ("Dask 2026.8 with XGBoost, killed", "a process (Dask)", "killed", KILLED),
    (
        "Dask 2026.8, a worker took more memory than it may",
        "a process (Dask)",
        "out of memory",
        "memory ran out",
    ),
    ("joblib 1.5, killed", "a process (joblib)", "killed", KILLED),
    (
        "torchrun 2.13 of which a rank ran out of the GPU's memory",
        "rank 1 on n1 (torchrun)",
        "out of memory",
        "memory ran out on the GPU (PyTorch)",
    ),
]


@pytest.mark.parametrize(("title", "place", "outcome", "reason"), ENDS)
def test_the_process_that_failed_first(title: str, place: str, outcome: str, reason: str) -> None:
    """Named, with its own end: being killed is a fault, and an error the code's own."""
    found = find(LOGS[title].splitlines())
    assert found is not None and found.place == place
    end = classify(found.exit_code, found.signal, "", found.cause)
    assert end.outcome == outcome and reason in end.reason


def test_what_no_launcher_says_is_no_launchers() -> None:
    """Every kind of log is tried above, and words like theirs are not theirs."""
    assert find(LOGS["none"].splitlines()) is None
    assert {title for title, *_ in ENDS} | {"none"} == set(LOGS)


def test_an_attempts_end_is_that_of_its_rank(tmp_path: Path) -> None:
    """Lightning kills itself when a rank of it fails, which is the code's own error all the same; a
    port that is taken is no error of the code's."""
    study = make_study(["python", "train.py"])

    def end(text: str, exit_code: int | None, signal: int | None = None) -> tuple[str, str]:
        folder = AttemptFolder(tmp_path)
        folder.log.write_text(text)
        got = read_end(study, folder, exit_code, signal, "")
        return got.outcome, got.reason

    assert end(LOGS["Lightning 2.6's own ddp, an error"], None, 9) == (
        "error",
        "rank 1 (Lightning): exit code 1: ValueError: boom",
    )
    assert (
        "sweep: rank 1 (Lightning) failed first: exit code 1"
        in AttemptFolder(tmp_path).log.read_text()
    )
    assert end(LOGS["fabric run of Lightning 2.6, killed"], 1)[0] == "killed"
    assert end(LOGS["none"], 1) == ("error", "exit code 1: ValueError: boom")
    said = "DistNetworkError: The server socket has failed to listen … name: EADDRINUSE"
    outcome, reason = end(f"Traceback (most recent call last):\n{said}\n", 1)
    assert outcome == "port clash" and "its port was taken" in reason
    assert end(LOGS["Open MPI 4.1, killed"], 0) == ("finished", "")


GLOO = (
    "RuntimeError: [/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:30087: Connection reset"
)
TRACEBACK = "Traceback (most recent call last):\n  File 'x.py', line 1\n    work.wait()\n"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (TRACEBACK + GLOO, "killed"),
        (f"[rank0]: {TRACEBACK}[rank0]: {GLOO} by peer. GLHF!\n", "killed"),
        (
            TRACEBACK + "torch.distributed.DistBackendError: NCCL error: remote process exited or "
            "there was a network error, NCCL version 2.29\nncclRemoteError: A call failed",
            "killed",
        ),
        # The rank that is gone says why, before or after the one that lost it.
        (f"{TRACEBACK}ValueError: boom\n{TRACEBACK}{GLOO}", "error"),
        (f"[rank0]: {TRACEBACK}[rank0]: {GLOO}\n[rank1]: {TRACEBACK}KeyError: 'x'\n", "error"),
        (TRACEBACK + "ConnectionError: Connection refused\n", "error"),
        (GLOO, "error"),
    ],
)
def test_a_rank_that_lost_another_one_is_no_error_of_the_codes(
    text: str, outcome: str, tmp_path: Path
) -> None:
    """A rank that is killed says nothing; the one that ends by it may end before its launcher."""
    folder = AttemptFolder(tmp_path)
    folder.log.write_text(text)
    end = read_end(make_study(["python", "train.py"]), folder, 1, None, "")
    assert end.outcome == outcome
    assert ("a rank is gone" in end.reason) == (outcome == "killed")


DIE = """\
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
echo "rank $rank"
[ "$rank" = 1 ] && kill -9 $$
exec sleep 60
"""
OPEN_MPI = ("--allow-run-as-root", "--oversubscribe")


@pytest.mark.real
@pytest.mark.parametrize(
    ("program", "options", "place"),
    [("mpirun.openmpi", OPEN_MPI, "rank 1"), ("mpiexec.hydra", (), "a process on ")],
)
def test_a_killed_rank_of_a_real_mpirun(
    program: str, options: tuple[str, ...], place: str, tmp_path: Path
) -> None:
    """What this machine's MPI prints is understood."""
    require("mpi")
    folder = AttemptFolder(tmp_path)
    command = [program, *options, "-n", "2", "sh", "-c", DIE]
    for _ in range(20):  # Open MPI 4.1 sometimes ends before it has said which rank it was
        with folder.log.open("w") as log:
            done = subprocess.run(command, stdout=log, stderr=log, timeout=120, check=False)
        assert done.returncode
        if re.search("noticed that process rank|PID .* RUNNING", folder.log.read_text()):
            break
    code = done.returncode
    end = read_end(
        make_study(command), folder, code if code > 0 else None, -code if code < 0 else None, ""
    )
    assert end.outcome == "killed" and end.reason.startswith(place)


TORCH = """\
import os, signal, sys
print("rank", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "1":
    os.kill(os.getpid(), signal.SIGKILL)
signal.pause()
"""


@pytest.mark.real
@pytest.mark.long
def test_a_killed_rank_of_a_real_torchrun_in_a_script(tmp_path: Path) -> None:
    """Whatever has started it."""
    require("torch")
    (tmp_path / "ranks.py").write_text(TORCH)
    script = tmp_path / "two.sh"
    script.write_text("exec torchrun --standalone --nproc-per-node 2 ranks.py\n")
    folder = AttemptFolder(tmp_path)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    assert shutil.which("torchrun", path=path)
    with folder.log.open("w") as log:
        done = subprocess.run(
            ["bash", "two.sh"],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            stdout=log,
            stderr=log,
            timeout=300,
            check=False,
        )
    end = read_end(make_study(["bash", "two.sh"]), folder, done.returncode, None, "")
    assert end.outcome == "killed" and end.reason.startswith("rank 1 ")
