"""The command lines and variables by which the ranks of a trial start and meet."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import InputError, StudyFileError, SweepError
from sweep.core.study import Ddp, Environment, Objective, Resources, Slurm, Study
from sweep.studyfile import loads
from sweep.studyfile.tree import parse
from sweep.training.command import launchers
from sweep.training.command.assembly import build
from sweep.training.command.first_failure import FirstFailure, find
from sweep.training.command.launchers import choose, network, reader
from sweep.training.command.rendezvous import Rendezvous, check_interface, first_host, is_free, meet
from tests.training.test_command import BASE, VALUES, make_study

MEETING = Rendezvous("n7", 20042)
TRAIN = ["python", "train.py", "--lr={lr}"]
RUN = ["python", "train.py", "--lr=1e-05"]
TORCHRUN = [
    "--rdzv-backend=static",
    "--master-addr=n7",
    "--master-port=20042",
    "--rdzv-conf=timeout=50",
    "--max-restarts=0",
    "--tee=3",
    "--log-dir=/r/t/a 1/ranks",
    "--no-python",
]
SRUN = [
    "--cpu-bind=cores",
    "--distribution=block:block",
    "--kill-on-bad-exit=1",
    "--mpi=none",
    "--export=ALL",
    "--label",
]


def make(launcher: str, nodes: int, gpus: int, **more: Any) -> Study:
    given = {"executor": "slurm", "command": TRAIN, "cpus": None, **more}
    command, cpus = given.pop("command"), given.pop("cpus")
    resources = Resources(nodes=nodes, gpus=gpus, cpus=cpus)
    return make_study(command, launcher=launcher, resources=resources, **given)


@pytest.mark.parametrize(
    ("study", "argv"),
    [
        (make("auto", 1, 0), RUN),
        (make("auto", 1, 1), RUN),
        (make("python", 1, 4), RUN),
        (
            make("auto", 1, 4, cpus=8),
            [
                "python",
                "-m",
                "torch.distributed.run",
                "--nnodes=1",
                "--nproc-per-node=4",
                "--node-rank=0",
                *TORCHRUN,
                *RUN,
            ],
        ),
        (
            make("auto", 1, 0, ddp=Ddp(ranks_per_node=2), executor="local"),
            [
                "python",
                "-m",
                "torch.distributed.run",
                "--nnodes=1",
                "--nproc-per-node=2",
                "--node-rank=0",
                *TORCHRUN,
                *RUN,
            ],
        ),
        (
            make("torchrun", 1, 0, command=["./train.sh"]),
            [
                "python",
                "-m",
                "torch.distributed.run",
                "--nnodes=1",
                "--nproc-per-node=1",
                "--node-rank=0",
                *TORCHRUN,
                "./train.sh",
            ],
        ),
        (
            make("torchrun", 1, 2, command=["/v/bin/python3.11", "-O", "-m", "my.train"]),
            [
                "/v/bin/python3.11",
                "-m",
                "torch.distributed.run",
                "--nnodes=1",
                "--nproc-per-node=2",
                "--node-rank=0",
                *TORCHRUN,
                "/v/bin/python3.11",
                "-O",
                "-m",
                "my.train",
            ],
        ),
        (
            make("auto", 2, 4, cpus=32),
            [
                "srun",
                "--nodes=2",
                "--ntasks=8",
                "--ntasks-per-node=4",
                "--cpus-per-task=8",
                *SRUN,
                *RUN,
            ],
        ),
        (
            make("srun", 1, 2),
            [
                "srun",
                "--nodes=1",
                "--ntasks=2",
                "--ntasks-per-node=2",
                "--cpus-per-task=1",
                *SRUN,
                *RUN,
            ],
        ),
        (
            make("torchrun", 3, 0, ddp=Ddp(ranks_per_node=2), cpus=5),
            [
                "srun",
                "--nodes=3",
                "--ntasks=3",
                "--ntasks-per-node=1",
                "--cpus-per-task=5",
                *SRUN,
                "python",
                "-c",
                "import os, runpy; os.environ['PET_NODE_RANK'] = "
                "os.environ['SLURM_NODEID']; runpy.run_module('torch.distributed.run', "
                "run_name='__main__', alter_sys=True)",
                "--nnodes=3",
                "--nproc-per-node=2",
                *TORCHRUN,
                *RUN,
            ],
        ),
        (
            make("auto", 1, 2, command=["torchrun", "--standalone", "train.py"]),
            ["torchrun", "--standalone", "train.py"],
        ),
        (
            make("auto", 1, 2, command=["python", "-m", "torch.distributed.run", "train.py"]),
            ["python", "-m", "torch.distributed.run", "train.py"],
        ),
        (
            make("auto", 1, 2, command=["uv", "run", "--extra", "gpu", "train.py", "--lr={lr}"]),
            [
                "uv",
                "run",
                "--extra",
                "gpu",
                "python",
                "-m",
                "torch.distributed.run",
                "--nnodes=1",
                "--nproc-per-node=2",
                "--node-rank=0",
                *TORCHRUN,
                *RUN,
            ],
        ),
        (
            make("auto", 2, 1, command=["nice", "-n", "5", "python", "train.py"]),
            [
                "srun",
                "--nodes=2",
                "--ntasks=2",
                "--ntasks-per-node=1",
                "--cpus-per-task=1",
                *SRUN,
                "nice",
                "-n",
                "5",
                "python",
                "train.py",
            ],
        ),
        (
            make("auto", 1, 2, command=["env", "A=1", "accelerate", "launch", "train.py"]),
            ["env", "A=1", "accelerate", "launch", "train.py"],
        ),
        (make("auto", 2, 2, command=["bash", "train.sh"]), ["bash", "train.sh"]),
    ],
)
def test_argv(study: Study, argv: list[str]) -> None:
    """Each launcher's whole command line."""
    assert build(study, VALUES, BASE, Path("/p"), MEETING)[0] == argv


@pytest.mark.parametrize("launcher", ["torchrun", "srun"])
def test_a_launcher_around_a_launcher_is_refused(launcher: str) -> None:
    """torchrun of torchrun would start the square of the ranks."""
    study = make(launcher, 1, 2, command=["torchrun", "train.py"])
    with pytest.raises(InputError, match="starts its processes itself"):
        build(study, VALUES, BASE, Path("/p"), MEETING)


def test_one_process_of_ddp_has_a_launcher() -> None:
    """Where the study's own file says ddp: its training meets other ranks, be there none; a site's
    network for all studies does not say so."""
    site, problems = parse("ddp: {interface: ib0}", "/etc/sweep.yaml")
    assert site is not None and not problems

    def launcher(text: str, overrides: list[str] | None = None) -> str:
        study = loads(f"{HEAD}executor: local\n{text}", "s.yaml", overrides or [], [site])
        return choose(study)

    assert launcher("") == "python"
    assert launcher("ddp: {}") == launcher("ddp: {timeout_s: 60}") == "torchrun"
    assert launcher("", ["ddp.ranks_per_node=1"]) == launcher("ddp: {debug: info}") == "torchrun"
    assert launcher("ddp: {}\nlauncher: python") == "python"


DDP_VARIABLES: list[tuple[Ddp, dict[str, str]]] = [
    (Ddp(), {}),
    (Ddp(interface="ib0"), {"GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "=ib0"}),
    (Ddp(ib="off"), {"NCCL_IB_DISABLE": "1"}),
    (Ddp(ib="on"), {"NCCL_IB_DISABLE": "0"}),
    (
        Ddp(debug="detail"),
        {"NCCL_DEBUG": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    ),
    (
        Ddp(timeout_s=30),
        {
            "SWEEP_DDP_TIMEOUT_S": "30",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "30",
        },
    ),
]


@pytest.mark.parametrize(("ddp", "variables"), DDP_VARIABLES)
def test_the_section_ddp_as_variables(ddp: Ddp, variables: dict[str, str]) -> None:
    """What NCCL, gloo and torch read."""
    assert network(ddp) == variables


def test_the_environment_of_ranks() -> None:
    """They get their address and their share of CPUs; nothing of another run's around sweep."""
    around = BASE | {"RANK": "3", "WORLD_SIZE": "9", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
    study = make("auto", 1, 4, cpus=9)
    env = build(study, VALUES, around, Path("/p"), MEETING)[1]
    names = (
        "RANK",
        "WORLD_SIZE",
        "TORCHELASTIC_RUN_ID",
        "MASTER_ADDR",
        "MASTER_PORT",
        "OMP_NUM_THREADS",
        "SWEEP_CPUS",
    )
    assert [env.get(name) for name in names] == [None, None, None, "n7", "20042", "2", "2"]
    alone = build(make("auto", 1, 1), VALUES, around, Path("/p"))[1]
    assert [alone.get(name) for name in names] == [None] * 7
    wide = BASE | {"SLURM_TRES_PER_TASK": "cpu=8", "SLURM_CONF": "/c"}
    env = build(make("auto", 2, 4, cpus=8), VALUES, wide, Path("/p"), MEETING)[1]
    assert "SLURM_TRES_PER_TASK" not in env and env["SLURM_CONF"] == "/c"
    tuned = dataclasses.replace(
        study, environment=Environment(env={"OMP_NUM_THREADS": "7", "MASTER_PORT": "5"})
    )
    env = build(tuned, VALUES, around, Path("/p"), MEETING)[1]
    assert (env["OMP_NUM_THREADS"], env["MASTER_PORT"]) == ("7", "5")


@pytest.mark.parametrize(
    ("environ", "host"),
    [
        ({}, "127.0.0.1"),
        ({"SLURM_JOB_NODELIST": "n[3-4]"}, "127.0.0.1"),
        ({"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n[03-04,9]"}, "n03"),
        ({"SLURM_JOB_ID": "5", "SLURM_NODELIST": "login"}, "login"),
    ],
)
def test_the_first_host(environ: dict[str, str], host: str) -> None:
    """Of Slurm's allocation, in the order of ``scontrol show hostnames``; of a study that runs on
    this machine, also from within a job of Slurm's, this machine."""
    assert first_host(make("auto", 1, 2), environ) == host
    assert first_host(make("auto", 1, 2, executor="local"), environ) == "127.0.0.1"


def test_ranks_of_one_node_meet_there(tmp_path: Path) -> None:
    """At an address that needs no name: a host's may not resolve on itself."""
    environ = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n[3-4]"}
    found = [meet(make("auto", n, 2), environ, "5", 0, None, tmp_path / str(n)) for n in (1, 2)]
    assert [one.host for one in found if one] == ["127.0.0.1", "n3"]


def test_a_torchrun_of_the_commands_own_has_a_port_of_its_own(tmp_path: Path) -> None:
    """By its own variable, which its --master-port beats: two at once would take the same port."""
    for command in (["torchrun", "t.py"], ["bash", "t.sh"], ["uv", "run", "torchrun", "t.py"]):
        study = make("auto", 1, 2, command=command, executor="local")
        meeting = launchers.meet(study, {}, "77", 0, None)
        assert meeting is not None
        env = build(study, VALUES, BASE | {"PET_MASTER_PORT": "1"}, Path("/p"), meeting)[1]
        assert env["PET_MASTER_PORT"] == str(meeting.port) and "MASTER_PORT" not in env
        meeting.close()
    for study in (make("auto", 1, 1), make("auto", 1, 1, command=["bash", "t.sh"])):
        assert launchers.meet(study, {}, "77", 0, None) is None


def test_jax_has_a_port_of_its_own(tmp_path: Path) -> None:
    """It takes one by the host's name, which two can bind: their ranks would mix. Where each rank
    of several nodes works it out and may not be given a variable, it is left to them."""
    for nodes, command, expected in (
        (1, ["mpirun", "-n", "2", "python", "t.py"], True),
        (1, ["bash", "t.sh"], True),
        (2, ["mpirun", "-n", "2", "python", "t.py"], False),
        (2, ["python", "t.py"], True),  # sweep's own launcher, which gives it to all
    ):
        study = make("auto", nodes, 2, command=command)
        meeting = Rendezvous("n7", 20042)
        env = build(study, VALUES, BASE | {"JAX_COORDINATOR_PORT": "1"}, Path("/p"), meeting)[1]
        assert env.get("JAX_COORDINATOR_PORT") == ("20042" if expected else None)


def test_neighbours_have_ports_of_their_own(tmp_path: Path) -> None:
    """All elements and slots of an array differ; what is held or taken is passed over."""
    study = make("auto", 1, 2, executor="local", slurm=Slurm(slots=2))
    found = [meet(study, {}, "77", index, slot, tmp_path) for index in range(20) for slot in (0, 1)]
    ports = [each.port for each in found if each]
    assert len(set(ports)) == 40 and all(20000 <= port <= 29999 for port in ports)
    again = meet(study, {}, "77", 0, 0, tmp_path)  # another task with the same place: held
    assert again is not None and again.port not in ports
    found[0].close()  # type: ignore[union-attr]
    once_more = meet(study, {}, "77", 0, 0, tmp_path)
    assert once_more is not None and once_more.port == ports[0]
    with socket.socket() as taken:
        once_more.close()
        taken.bind(("0.0.0.0", ports[0]))
        taken.listen()
        assert not is_free(ports[0])
        other = meet(study, {}, "77", 0, 0, tmp_path)
        assert other is not None and other.port not in ports


def test_a_full_range_is_said(tmp_path: Path) -> None:
    """No port is better than a stranger's."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        study = make("auto", 1, 2, executor="local", ddp=Ddp(port_range=(port, port)))
        with pytest.raises(SweepError, match=f"no port from {port} to {port} is free"):
            meet(study, {}, "77", 0, None, tmp_path)


def test_a_wrong_interface_is_named() -> None:
    """With what the host has, and the key to set."""
    check_interface("lo")
    check_interface("eth0,ib0", ["lo", "eth0", "ib0"])
    with pytest.raises(InputError) as caught:
        check_interface("eth9", ["lo", "eth0"])
    assert "has no network interface eth9; it has lo, eth0.\nSet ddp.interface to" in str(
        caught.value
    )
    study = make("auto", 1, 2, executor="local", ddp=Ddp(interface="eth99"))
    with pytest.raises(InputError, match="eth99"):
        launchers.meet(study, {}, "1", 0, None)


HEAD = (
    "name: s\ncommand: python train.py\nobjective: {metric: a, direction: maximize}\ntrials: 1\n"
    "space: {}\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ddp: {port_range: [5, 10]}", "ddp.port_range: must be two ports from 1024 to 65535"),
        ("ddp: {port_range: 29500}", "ddp.port_range: must be two ports"),
        ("ddp: {interface: 'a b'}", "ddp.interface: must be the name of a network interface"),
        ("ddp: {ib: true}", "ddp.ib: must be off or on"),
        ("ddp: {timeout: 30}", "ddp.timeout: is not a key of ddp. Did you mean timeout_s?"),
        ("ddp: {ranks_per_node: 2}\nresources: {gpus: 4}", "must be the number of GPUs of a node"),
        ("resources: {gpus: 4, cpus: 2}", "must not be below the number of processes of a node, 4"),
        ("launcher: srun\nslurm: {slots: 2}", "must not be srun where a task has several slots"),
    ],
)
def test_what_a_study_file_must_not_say(text: str, message: str) -> None:
    """Refused when it is read."""
    with pytest.raises(StudyFileError) as caught:
        loads(HEAD + text, "s.yaml")
    assert message in str(caught.value)


def test_the_section_is_read_and_stored() -> None:
    """All its keys, and back from JSON."""
    study = loads(
        HEAD + "ddp: {ranks_per_node: 2, port_range: [30000, 30100], interface: ib0, "
        "ib: off, debug: info, timeout_s: 60}",
        "s.yaml",
    )
    assert study.ddp == Ddp(2, (30000, 30100), "ib0", "off", "info", 60)
    assert Study.from_json(study.to_json()) == study
    assert study.world == 2
    assert choose(dataclasses.replace(study, executor="local")) == "torchrun"


# As torchrun 2.13 prints it.
TORCHRUN_LOG = """\
[rank0]: epoch 1
[rank1]: Traceback (most recent call last):
[rank1]: ValueError: boom
W1128 04:06:08 4676 api.py:1028] Sending process 4749 closing signal SIGTERM
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
t.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_04:06:09
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 4749)  (SIGTERM)
  error_file: <N/A>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_04:06:08
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 4750)
  error_file: <N/A>
============================================================
"""
# As srun 22.05 prints it.
SRUN_LOG = """\
0: epoch 1
3: ValueError: boom
srun: error: n2: task 3: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=5.0
slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-28T04:06:08 ***
srun: error: n1: tasks 0-1: Killed
"""
BOOM = ["Traceback (most recent call last):", "ValueError: boom"]


@pytest.mark.parametrize(
    ("text", "labels", "found"),
    [
        (TORCHRUN_LOG.format(code=1), "torchrun", FirstFailure(1, "n1", 1, None, None, BOOM, BOOM)),
        (
            TORCHRUN_LOG.format(code=-9),
            "torchrun",
            FirstFailure(1, "n1", None, 9, None, BOOM, BOOM),
        ),
        (SRUN_LOG, "srun", FirstFailure(3, "n2", 1, None, None, BOOM[1:], BOOM[1:])),
        (
            "1: x\nsrun: error: n2: task 1: Killed\nsrun: error: n1: task 0: Killed\n",
            "srun",
            FirstFailure(1, "n2", None, 9, None, ["x"], ["x"]),
        ),
        (
            "".join(f"1: {line}\n" for line in TORCHRUN_LOG.format(code=3).splitlines())
            + "srun: error: n2: task 1: Exited with exit code 1\n",
            "both",
            FirstFailure(1, "n1", 3, None, None, BOOM, BOOM),
        ),
        (
            "1: at step 7\n0: trainer: rank 1 hangs; its last place was epoch 2.\n"
            "srun: error: n1: task 0: Exited with exit code 1\n",
            "srun",
            FirstFailure(
                0,
                "n1",
                1,
                None,
                1,
                ["at step 7"],
                ["trainer: rank 1 hangs; its last place was epoch 2."],
            ),
        ),
        (
            "SignalException: Process 5 got signal: 15\n",
            "torchrun",
            FirstFailure(None, "", None, 15),
        ),
        ("epoch 1\n", "torchrun", None),
        ("3: epoch 1\n", "srun", None),
    ],
)
def test_the_rank_that_failed_first(text: str, labels: str, found: FirstFailure | None) -> None:
    """Not the one that the launcher ended, nor the launcher's own exit code."""
    got = find(text.splitlines(), labels)
    if got is not None and got.rank is None:
        got = dataclasses.replace(got, lines=(), cause=())
    assert got == found


def test_a_taken_port_is_recognised() -> None:
    """torchrun's words, and those of ranks that met strangers."""
    said = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any "
        "local network address. port: 23457, code: -98, name: EADDRINUSE"
    )
    got = find([said], "torchrun")
    assert got is not None and (got.rank, got.exit_code, got.clash) == (None, 1, True)
    lines = [
        "[rank1]: trainer: another run answers at n1:2: Two runs took one port; nothing …",
        *TORCHRUN_LOG.format(code=1).splitlines(),
    ]
    got = find(lines, "torchrun")
    assert got is not None and got.clash


@pytest.mark.parametrize(
    ("study", "line", "text"),
    [
        (make("auto", 1, 0), "1: acc=1", "1: acc=1"),
        (make("auto", 1, 2), "[rank0]: acc=1", "acc=1"),
        (make("auto", 1, 2), "[rank1]: acc=1", None),
        (make("auto", 1, 2), "acc=1", "acc=1"),
        (make("auto", 2, 1), "0: acc=1", "acc=1"),
        (make("auto", 2, 1), "1: acc=1", None),
        (make("torchrun", 2, 1), "0: [rank0]: acc=1", "acc=1"),
        (make("torchrun", 2, 1), "0: [rank1]: acc=1", None),
    ],
)
def test_the_first_rank_prints_the_metric(study: Study, line: str, text: str | None) -> None:
    """All ranks may print it; it counts once."""
    assert reader(study)(line) == text


@pytest.mark.parametrize(
    ("command", "line", "text"),
    [
        ("torchrun t.py", "[rank1]: acc=1", None),
        ("torchrun t.py", "[rank0]: acc=1", "acc=1"),
        ("torchrun --tee 3 t.py", "[default1]:acc=1", None),
        ("torchrun --tee 3 t.py", "[default0]:acc=1", "acc=1"),
        ("torchrun t.py", "[rank0]: ac[rank1]: acc=2[rank0]: c=1", "acc=1"),
        ("mpirun -n 2 x", "[1,1]<stdout>:acc=1", None),
        ("mpirun -n 2 x", "[1,0]<stdout>:acc=1", "acc=1"),
        ("horovodrun -np 2 x", "[1]<stdout>:acc=1", None),
        ("mpiexec -l -n 2 x", "[1] acc=1", None),
        ("mpiexec -prepend-rank -n 2 x", "[0] acc=1", "acc=1"),
        ("srun -l -n 2 x", "1: acc=1", None),
        ("srun --label -n 2 x", "0: acc=1", "acc=1"),
        # What only looks so, where nothing labels lines.
        ("Rscript t.R", "[1] 0.25", "[1] 0.25"),
        ("mpirun -n 2 x", "[1] 0.25", "[1] 0.25"),
        ("python t.py", "1: acc=1", "1: acc=1"),
        ("srun -n 2 x", "1: acc=1", "1: acc=1"),
        ("python t.py", "", ""),
    ],
)
def test_what_the_commands_own_launcher_labels(command: str, line: str, text: str | None) -> None:
    """The first rank's lines count there too, without their labels."""
    study = make("auto", 1, 0, command=command.split(), executor="local")
    assert reader(study)(line) == text


def test_a_launcher_of_the_commands_own_is_told_to_label(tmp_path: Path) -> None:
    """Where the metric is read from the output, and only there."""
    printed = (Objective("acc", pattern="acc=(.*)"),)
    for objectives, is_told in ((printed, True), ((Objective("acc"),), False)):
        study = make("auto", 1, 0, command=["torchrun", "t.py"], executor="local")
        study = dataclasses.replace(study, objectives=objectives)
        env = build(study, VALUES, BASE, Path("/p"), MEETING)[1]
        assert (env.get("PET_TEE") == "3") == is_told
        assert ("OMPI_MCA_orte_tag_output" in env) == is_told
        assert env.get("PET_LOG_DIR") == ("/r/t/a 1/ranks" if is_told else None)
