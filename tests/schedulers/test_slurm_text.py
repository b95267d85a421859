"""Slurm's command lines and answers, on literal text that Slurm 22.05 printed."""

from __future__ import annotations

import pytest

from sweep.core.durations import format_time
from sweep.core.errors import CouldNotAsk, InputError, SchedulerError
from sweep.core.hostlist import expand_nodes
from sweep.core.scheduler import Limits
from sweep.core.secrets import ask_environment, clean_environment
from sweep.schedulers.slurm.text.accounting import (
    Step,
    TaskRun,
    find_latest_runs,
    parse_sacct,
    read_sacct,
    sacct_argv,
)
from sweep.schedulers.slurm.text.extra import OWNED, check_extra, excluded_by
from sweep.schedulers.slurm.text.limits import (
    Association,
    Config,
    Partition,
    Preemption,
    Qos,
    associations_argv,
    config_argv,
    find_limits,
    find_preemption,
    parse_associations,
    parse_config,
    parse_partitions,
    parse_qos,
    partitions_argv,
    qos_argv,
)
from sweep.schedulers.slurm.text.notation import compress_indices, expand_indices, parse_time
from sweep.schedulers.slurm.text.queue import (
    QueuedTask,
    collect_tasks,
    parse_squeue,
    read_squeue,
    squeue_argv,
    time_left_argv,
)
from sweep.schedulers.slurm.text.reasons import explain_reason
from sweep.schedulers.slurm.text.scontrol import (
    cancel_argv,
    check_update,
    exclude_argv,
    excluded_argv,
    hurry_argv,
    parse_excluded,
    release_argv,
    throttle_argv,
)
from sweep.schedulers.slurm.text.states import classify_state, split_state
from sweep.schedulers.slurm.text.submit import (
    ArrayRequest,
    SbatchAnswer,
    explain_refusal,
    parse_sbatch,
    sbatch_argv,
    srun_argv,
)

# ---------------------------------------------------------------- times and indices


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [
        ("0:58", 58),
        ("30:00", 1800),
        ("00:02:00", 120),
        ("1:00:00", 3600),
        ("1-00:00:00", 86400),
        ("2-03:04:05", 183845),
        ("2-3", 183600),
        ("2-03:04", 183840),
        ("5", 300),
        ("00:30.120", 30),
        ("UNLIMITED", None),
        ("infinite", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("NONE", None),
        ("N/A", None),
        ("", None),
    ],
)
def test_parse_time(printed: str, seconds: int | None) -> None:
    """Every notation of a duration is read."""
    assert parse_time(printed) == seconds


@pytest.mark.parametrize("printed", ["soon", "1:2:3:4", "-5", "1-", "1-2-3", "1:-2"])
def test_parse_time_refuses(printed: str) -> None:
    """What is no duration is an error, never a number."""
    with pytest.raises(ValueError, match="not a Slurm duration"):
        parse_time(printed)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [(0, "00:00:00"), (90, "00:01:30"), (86399, "23:59:59"), (183845, "2-03:04:05")],
)
def test_format_time(seconds: int, written: str) -> None:
    """A duration is written as sbatch takes it, and reads back equal."""
    assert format_time(seconds) == written
    assert parse_time(written) == seconds


@pytest.mark.parametrize(
    ("printed", "indices"),
    [
        ("9", (9,)),
        ("9-12%4", (9, 10, 11, 12)),
        ("[1,3,7-9]", (1, 3, 7, 8, 9)),
        ("0-8:4", (0, 4, 8)),
        ("0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42...%7", None),
    ],
)
def test_expand_indices(printed: str, indices: tuple[int, ...] | None) -> None:
    """A list of indices is expanded, and a shortened one is not guessed."""
    assert expand_indices(printed) == indices


@pytest.mark.parametrize("printed", ["", "x", "1-", "1--2", "1:2", "0-4:0"])
def test_expand_indices_refuses(printed: str) -> None:
    """What is no list of indices is an error."""
    with pytest.raises(ValueError, match="not a list of array indices"):
        expand_indices(printed)


def test_compress_indices() -> None:
    """Indices are written in runs, whatever their order."""
    assert compress_indices([9, 1, 3, 8, 7, 3]) == "1,3,7-9"
    assert compress_indices(range(10000)) == "0-9999"


# ---------------------------------------------------------------- sbatch


def test_sbatch_argv_of_a_wave() -> None:
    """A wave asks for all that the study file says, the array on the command line."""
    request = ArrayRequest(
        "sweep-digits-3f9a",
        "/r/digits/task.sh",
        "/r/digits/logs/%A_%a.log",
        size=200,
        throttle=20,
        time_limit_s=5400,
        grace_s=60,
        dependency="after:17",
        partition="main,gpu",
        account="proj1",
        qos="normal",
        nodes=2,
        tasks_per_node=4,
        gpus="a100:4",
        cpus=8,
        memory_mb=64000,
        constraint="ib&a100",
        reservation="class",
        exclusive=True,
        exclude=["n3"],
        nodelist=["n1", "n2"],
        extra=["--nice=5", "--mail-type END"],
    )
    assert sbatch_argv(request) == [
        "sbatch",
        "--parsable",
        "--job-name=sweep-digits-3f9a",
        "--array=0-199%20",
        "--output=/r/digits/logs/%A_%a.log",
        "--open-mode=append",
        "--requeue",
        "--time=01:30:00",
        "--signal=B:USR1@60",
        "--dependency=after:17",
        "--partition=main,gpu",
        "--account=proj1",
        "--qos=normal",
        "--constraint=ib&a100",
        "--reservation=class",
        "--nodelist=n1,n2",
        "--nodes=2",
        "--ntasks=8",
        "--ntasks-per-node=4",
        "--cpus-per-task=8",
        "--mem=64000M",
        "--gres=gpu:a100:4",
        "--exclusive",
        "--nice=5",
        "--mail-type",
        "END",
        "--exclude=n3",
        "/r/digits/task.sh",
    ]


@pytest.mark.parametrize(
    ("mail", "options"),
    [
        (False, []),
        (True, ["--mail-type=END,FAIL"]),
        ("me@example.org", ["--mail-type=END,FAIL", "--mail-user=me@example.org"]),
    ],
)
def test_sbatch_argv_of_a_job_that_sends_mail(mail: bool | str, options: list[str]) -> None:
    """To its user, or to an address; the user's own options follow, and win."""
    argv = sbatch_argv(ArrayRequest("t", "s", "l", mail=mail, extra=["--mail-type=NONE"]))
    assert [word for word in argv if "mail" in word] == [*options, "--mail-type=NONE"]


def test_srun_argv_asks_for_the_same() -> None:
    """Of what a wave asks for, what says where it runs and what it holds there; and a terminal."""
    request = ArrayRequest(
        "sweep-digits-3f9a",
        "/r/digits/task.sh",
        "/r/digits/logs/%A_%a.log",
        size=200,
        time_limit_s=5400,
        grace_s=60,
        partition="gpu",
        account="proj1",
        gpus=1,
        cpus=8,
        memory_mb=64000,
        extra=["--nice=5"],
        mail=True,
    )
    argv = [
        "srun",
        "--job-name=sweep-digits-3f9a",
        "--time=01:30:00",
        "--partition=gpu",
        "--account=proj1",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=8",
        "--mem=64000M",
        "--gres=gpu:1",
        "--nice=5",
    ]
    assert srun_argv(request, is_terminal=False) == argv
    assert srun_argv(request, is_terminal=True) == [*argv, "--pty"]


def test_sbatch_argv_of_a_plain_job() -> None:
    """The finaliser is one job, without an array, and need not come back after a fault."""
    request = ArrayRequest(
        "sweep-end-1", "/r/end.sh", "/r/end.%j.log", requeue=False, arguments=["a b;$(c)"]
    )
    assert sbatch_argv(request, "/opt/wrap/sbatch") == [
        "/opt/wrap/sbatch",
        "--parsable",
        "--job-name=sweep-end-1",
        "--output=/r/end.%j.log",
        "--open-mode=append",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        "/r/end.sh",
        "a b;$(c)",
    ]


@pytest.mark.parametrize(
    ("resources", "gres"),
    [
        ({}, None),
        ({"gpus": 0}, None),
        ({"gpus": 2}, "gpu:2"),
        ({"gpus": "2"}, "gpu:2"),
        ({"gpus": "a100:2"}, "gpu:a100:2"),
        ({"gpus": "a100"}, "gpu:a100:1"),
        ({"gpus": "1g.10gb:2"}, "gpu:1g.10gb:2"),
        ({"gpus": "2080ti:2"}, "gpu:2080ti:2"),
        ({"gpus": "3090:1"}, "gpu:3090:1"),
        ({"gpus": "1g.5gb:1"}, "gpu:1g.5gb:1"),
        ({"gpus": "1g.5gb"}, "gpu:1g.5gb:1"),
        ({"gpus": "a100_3g.20gb:2"}, "gpu:a100_3g.20gb:2"),
        ({"gpus": "nvidia_h100_80gb_hbm3_1g.10gb:1"}, "gpu:nvidia_h100_80gb_hbm3_1g.10gb:1"),
        ({"shard": 16}, "shard:16"),
        ({"mps": 50}, "mps:50"),
    ],
)
def test_gpu_requests(resources: dict[str, object], gres: str | None) -> None:
    """Each kind of GPU becomes Slurm's generic resource."""
    argv = sbatch_argv(ArrayRequest("t", "s", "l", **resources))  # type: ignore[arg-type]
    assert [part for part in argv if part.startswith("--gres")] == (
        [f"--gres={gres}"] if gres else []
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"gpus": "a100:two"},
        {"gpus": "a100:1,x:1"},
        {"gpus": "-1"},
        {"size": 0},
        {"size": 3, "throttle": 0},
        {"token": "a b"},
        {"token": "a,b"},
        {"token": ""},
        {"token": "a\n"},
    ],
)
def test_sbatch_argv_refuses(fields: dict[str, object]) -> None:
    """Values that Slurm would misread are refused: %0 is no cap, an empty array is none."""
    values = {"token": "t", "script": "s", "log_pattern": "l", **fields}
    with pytest.raises(InputError):
        sbatch_argv(ArrayRequest(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stdout", "stderr", "code", "job", "cluster"),
    [
        ("123\n", "", 0, "123", ""),
        ("123;hpc2\n", "", 0, "123", "hpc2"),
        ("Submitted batch job 6\n", "", 0, "6", ""),
        ("Submitted batch job 6 on cluster hpc2\n", "", 0, "6", "hpc2"),
        ("*** Welcome to HPC ***\n2 news\n\n  123\nBalance: 99 h\n", "", 0, "123", ""),
        ("12\nSubmitted batch job 6\n", "", 0, "6", ""),
        ("7\n", "sbatch: slurm controller is busy, retrying\n", 0, "7", ""),
        ("7\n", "sbatch: error: Socket timed out, retrying\n", 0, "7", ""),
    ],
)
def test_sbatch_submitted(stdout: str, stderr: str, code: int, job: str, cluster: str) -> None:
    """The job's id is found behind banners and wrappers."""
    assert parse_sbatch(stdout, stderr, code) == SbatchAnswer("submitted", job, cluster)


@pytest.mark.parametrize(
    ("stderr", "code", "words", "over_limit"),
    [
        (
            "sbatch: error: invalid partition specified: nono\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
            1,
            "invalid partition specified: nono; "
            "Batch job submission failed: Invalid partition name specified",
            False,
        ),
        (
            "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission "
            "failed: Job violates accounting/QOS policy (job submit limit, user's size and/or "
            "time limits)\n",
            1,
            "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job violates accounting/QOS"
            " policy (job submit limit, user's size and/or time limits)",
            True,
        ),
        (
            "Loading sbatch wrapper 2.1\n"
            "sbatch: error: Batch job submission failed: Invalid job array specification\n",
            1,
            "Batch job submission failed: Invalid job array specification",
            False,
        ),
        (
            "sbatch: unrecognized option '--frob'\nTry \"sbatch --help\" for more information\n",
            255,
            "sbatch: unrecognized option '--frob'",
            False,
        ),
        (
            "sbatch: error: cli_filter plugin terminated with error\n",
            1,
            "cli_filter plugin terminated with error",
            False,
        ),
        ("bash: sbatch: command not found\n", 127, "bash: sbatch: command not found", False),
    ],
)
def test_sbatch_refused(stderr: str, code: int, words: str, over_limit: bool) -> None:
    """A refusal is told in Slurm's own words, and one for a limit can be told apart."""
    expected = SbatchAnswer("refused", words=words, over_limit=over_limit)
    assert parse_sbatch("", stderr, code) == expected


@pytest.mark.parametrize(
    ("stdout", "stderr", "code"),
    [
        (
            "",
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n",
            1,
        ),
        (
            "",
            "sbatch: error: Batch job submission failed: "
            "Unable to contact slurm controller (connect failure)\n",
            1,
        ),
        (
            "",
            "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received\n",
            1,
        ),
        (
            "",
            "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode\n",
            1,
        ),
        ("", "", -9),
        ("", "", 137),
        ("", "", 0),
        ("Thank you for submitting!\n", "", 0),
        ("12\n13\n", "", 0),
        ("123\n", "wrapper: accounting hook failed\n", 1),
        ("", "wrapper: quota script crashed\n", 3),
    ],
)
def test_sbatch_unclear(stdout: str, stderr: str, code: int) -> None:
    """Where the job may or may not be in, the answer is neither yes nor no."""
    answer = parse_sbatch(stdout, stderr, code)
    assert (answer.kind, answer.job) == ("unclear", "")
    assert answer.words


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("Batch job submission failed: Invalid qos specification", "Choose slurm.qos"),
        ("invalid partition specified: nono", "Choose slurm.partition"),
        ("Invalid account or account/partition combination specified", "Choose slurm.account"),
        ("Invalid feature specification", "Choose slurm.constraint"),
        ("Memory specification can not be satisfied", "Ask for less in resources.memory"),
        ("Requested node configuration is not available", "No node has all of it"),
        ("Invalid generic resource (gres) specification", "Compare resources.gpus"),
        ("Requested reservation is invalid", "Compare slurm.reservation"),
        ("Unspecified error", ""),
    ],
)
def test_explain_refusal(words: str, start: str) -> None:
    """A refusal comes with what to do about it."""
    advice = explain_refusal(words)
    assert advice.startswith(start)
    assert bool(advice) == bool(start)


# ---------------------------------------------------------------- slurm.extra


@pytest.mark.parametrize(
    ("extra", "elements"),
    [
        (["--exclusive"], ["--exclusive"]),
        (["--exclusive=user"], ["--exclusive=user"]),
        (["--mail-type=END", "--mail-user", "a@b.c"], ["--mail-type=END", "--mail-user", "a@b.c"]),
        (["--mail-type END"], ["--mail-type", "END"]),
        (["--comment=a b"], ["--comment=a b"]),
        (["-x", "n3", "-wn1", "-H"], ["-x", "n3", "-wn1", "-H"]),
        (["-w n1"], ["-w", "n1"]),
        (["--licenses=matlab:1", "--gres-flags=enforce-binding"],) * 2,
        (["--mem-per-cpu=2G", "--time-min=10", "--nice"],) * 2,
        ([], []),
    ],
)
def test_extra_passes(extra: list[str], elements: list[str]) -> None:
    """Options that are the user's own go through, in every form of writing."""
    assert check_extra(extra) == elements


@pytest.mark.parametrize(
    ("extra", "named", "advice"),
    [
        (["--array=0-9"], "--array", "trials and max_parallel"),
        (["--array", "0-9"], "--array", "trials and max_parallel"),
        (["--array 0-9"], "--array", "trials and max_parallel"),
        (["--arr=0-9"], "--arr (--array)", "trials and max_parallel"),
        (["-a", "0-9"], "-a (--array)", "trials and max_parallel"),
        (["-a0-9"], "-a (--array)", "trials and max_parallel"),
        (["-Ha0-9"], "-a (--array)", "trials and max_parallel"),
        (["--exclusive", "-J", "x"], "-J (--job-name)", "name"),
        (["-o/tmp/x"], "-o (--output)", "sweep logs"),
        (["--error=x"], "--error", "sweep logs"),
        (["--signal=TERM@5"], "--signal", "grace"),
        (["--open-mode=truncate"], "--open-mode", "sweep logs"),
        (["-d", "afterok:1"], "-d (--dependency)", "chains"),
        (["--no-requeue"], "--no-requeue", "retry.max_attempts"),
        (["--req"], "--req (--requeue)", "retry.max_attempts"),
        (["--parsable"], "--parsable", "sweep sets it"),
        (["--wrap=true"], "--wrap", "command"),
        (["--export=NONE"], "--export", "environment.env"),
        (["-t", "5"], "-t (--time)", "resources.time"),
        (["-N2"], "-N (--nodes)", "resources.nodes"),
        (["--gres=gpu:1"], "--gres", "resources.gpus"),
        (["-G1"], "-G (--gpus)", "resources.gpus"),
        (["--mem=8G"], "--mem", "resources.memory"),
        (["-c4"], "-c (--cpus-per-task)", "resources.cpus"),
        (["-pgpu"], "-p (--partition)", "slurm.partition"),
        (["--account=x"], "--account", "slurm.account"),
        (["-q", "x"], "-q (--qos)", "slurm.qos"),
        (["-Mother"], "-M (--clusters)", "SLURM_CONF"),
        (["-W"], "-W (--wait)", "launch --wait"),
        (["--test-only"], "--test-only", "--dry-run"),
    ],
)
def test_extra_refuses_what_is_ours(extra: list[str], named: str, advice: str) -> None:
    """An option that sweep must own is refused by name, in every form of writing."""
    with pytest.raises(InputError) as caught:
        check_extra(extra)
    assert caught.value.message == (
        f"slurm.extra: {named} belongs to sweep and cannot be given here."
    )
    assert advice in caught.value.hint


@pytest.mark.parametrize("name", sorted(OWNED))
def test_every_owned_option_is_refused(name: str) -> None:
    """Each option in the table is refused, also in the middle of others."""
    with pytest.raises(InputError, match=f"--{name} belongs to sweep"):
        check_extra(["--hold", f"--{name}=1", "--overcommit"])


@pytest.mark.parametrize(
    "extra", [["job.sh"], ["--exclusive", "job.sh"], [":"], ["--"], ["-"], [""], ["-Z"], ["-x\0"]]
)
def test_extra_refuses_what_is_no_option(extra: list[str]) -> None:
    """A stray word would become the script, a colon a second job."""
    with pytest.raises(InputError, match=r"^slurm\.extra: "):
        check_extra(extra)


# ---------------------------------------------------------------- environment


def test_clean_environment() -> None:
    """No secret and nothing that changes Slurm's answers reaches sbatch; SLURM_CONF does."""
    environ = {
        "PATH": "/bin",
        "HOME": "/home/a",
        "SLURM_CONF": "/etc/slurm.conf",
        "SBATCH_ARRAY_INX": "0-9",
        "SBATCH_ACCOUNT": "x",
        "SLURM_JOB_ID": "1",
        "SLURM_TIME_FORMAT": "relative",
        "SQUEUE_FORMAT": "%i",
        "SQUEUE_FORMAT2": "JobID",
        "SACCT_FORMAT": "JobID",
        "SINFO_FORMAT": "%P",
        "SWEEP_STORAGE": "postgresql://h/d",
        "SWEEP_RUNS": "/r",
        "PGPASSWORD": "x",
        "PGPASSFILE": "x",
        "WANDB_API_KEY": "x",
        "wandb_api_key": "x",
        "HF_TOKEN": "x",
        "DB_PASSWD": "x",
        "My_Secret": "x",
        "GOOGLE_APPLICATION_CREDENTIALS": "x",
        "DATABASE_URL": "postgresql://me:hunter2@db/x",
        "PLAIN_URL": "https://example.org/a?b=c:d@e",
        "NEWLINE": "a\nb",
    }
    assert clean_environment(environ) == {
        "PATH": "/bin",
        "HOME": "/home/a",
        "SLURM_CONF": "/etc/slurm.conf",
        "SWEEP_RUNS": "/r",
        "PLAIN_URL": "https://example.org/a?b=c:d@e",
        "NEWLINE": "a\nb",
    }


def test_ask_environment() -> None:
    """Questions are answered in English and in full."""
    assert ask_environment({"LC_ALL": "de_DE", "SQUEUE_SORT": "i"}) == {
        "LC_ALL": "C.UTF-8",
        "SLURM_BITSTR_LEN": "0",
    }


# ---------------------------------------------------------------- squeue

SQUEUE = """\
44|N/A|44|PENDING|30:00|2026-11-28T00:33:49|2026-11-28T00:33:41||Resources
30|0|37|PENDING|30:00|2026-11-28T00:33:52|2026-11-28T00:33:41||BeginTime
33|4|33|PENDING|30:00|N/A|2026-11-28T00:33:38||QOSMaxJobsPerUserLimit
36|N/A|36|PENDING|30:00|N/A|2026-11-28T00:33:38||Nodes required for job are DOWN, DRAINED or \
reserved for jobs in higher priority partitions
30|2|46|RUNNING|29:52|2026-11-28T00:33:41|2026-11-28T00:33:38|n2|None
6|N/A|6|RUNNING|0:58|2026-11-28T00:31:00|2026-11-28T00:30:59|n[1-2]|None
21|1|24|COMPLETING|29:55|2026-11-28T00:31:54|2026-11-28T00:31:54|n3|None
12|N/A|12|OUT_OF_MEMORY|29:59|2026-11-28T00:31:54|2026-11-28T00:31:54|n2|OutOfMemory
18|N/A|18|FAILED|30:00|2026-11-28T00:31:54|2026-11-28T00:31:54|n2|JobLaunchFailure
29|N/A|29|PREEMPTED|29:42|2026-11-28T00:33:38|2026-11-28T00:33:37|n3|None
"""


def test_squeue_rows() -> None:
    """Each row is a task with its phase, as squeue printed them."""
    tasks = parse_squeue(SQUEUE)
    assert [(task.job, task.indices, task.state, task.phase) for task in tasks] == [
        ("44", (), "PENDING", "pending"),
        ("30", (0,), "PENDING", "pending"),
        ("33", (4,), "PENDING", "pending"),
        ("36", (), "PENDING", "pending"),
        ("30", (2,), "RUNNING", "running"),
        ("6", (), "RUNNING", "running"),
        ("21", (1,), "COMPLETING", "running"),
        ("12", (), "OUT_OF_MEMORY", "ended"),
        ("18", (), "FAILED", "ended"),
        ("29", (), "PREEMPTED", "ended"),
    ]
    assert tasks[4] == QueuedTask(
        "30",
        (2,),
        "46",
        "RUNNING",
        "running",
        1792,
        "2026-11-28T00:33:41",
        "2026-11-28T00:33:38",
        "n2",
        "",
    )
    assert (tasks[3].started, tasks[3].reason[:12]) == ("", "Nodes requir")


def test_squeue_unexpanded_arrays() -> None:
    """Foreign throttled arrays in one row count as all of their indices."""
    printed = (
        "1|9-12%4|1|PENDING|30:00|N/A|2026-11-28T00:30:59||JobArrayTaskLimit\n"
        "2|1,3,7-9|2|PENDING|30:00|N/A|2026-11-28T00:30:59||JobHeldUser\n"
        "1|5|8|RUNNING|29:58|2026-11-28T00:31:00|2026-11-28T00:30:59|n1|None\n"
    )
    tasks = collect_tasks(parse_squeue(printed))
    assert sorted(tasks) == [
        *(("1", index) for index in (5, 9, 10, 11, 12)),
        *(("2", index) for index in (1, 3, 7, 8, 9)),
    ]
    assert tasks["1", 5].state == "RUNNING"


def test_squeue_shortened_list_is_no_answer() -> None:
    """A list that squeue cut leaves tasks unknown, which is not "gone"."""
    row = "4|0,2,4,6,8,10,12,14...%7|4|PENDING|30:00|N/A|2026-11-28T00:30:59||JobHeldUser\n"
    with pytest.raises(CouldNotAsk, match="shortened the indices of array 4"):
        parse_squeue(row)


def test_squeue_rest_of_a_cancelled_array() -> None:
    """What was cancelled before it started has no index; a live row of an index counts most."""
    printed = (
        "55|N/A|55|CANCELLED|30:00|2026-11-28T00:45:40|2026-11-28T00:45:33||JobArrayTaskLimit\n"
        "55|1|59|RUNNING|29:51|2026-11-28T00:45:33|2026-11-28T00:45:33|n1|None\n"
        "55|1|59|NODE_FAIL|29:53|2026-11-28T00:45:33|2026-11-28T00:45:33|n1|None\n"
    )
    tasks = collect_tasks(parse_squeue(printed))
    assert {place: task.state for place, task in tasks.items()} == {("55", 1): "RUNNING"}


def test_squeue_passes_over_what_is_no_row() -> None:
    """Banners and the torn rows of odd job names are no tasks."""
    printed = (
        "Maintenance on Monday | see the wiki\n"
        "d é,%|x|y|z\n"
        "7|0; rm -rf /|7|RUNNING|1:00|N/A|N/A|n1|None\n"
        "1|x|2|3|4|5|6|7|8\n"
        "7|0|8|RUNNING|INVALID|Unknown|N/A|(null)|None\n"
    )
    tasks = parse_squeue(printed)
    assert tasks == [QueuedTask("7", (0,), "8", "RUNNING", "running")]


def test_squeue_argv() -> None:
    """All tasks are asked for at once, in a format of ours without the job's name."""
    argv = squeue_argv(["12", "13"], ["tok-1", "tok-2"], "ann")
    assert argv == [
        "squeue",
        "-h",
        "-a",
        "-r",
        "-o",
        "%F|%K|%A|%T|%L|%S|%V|%N|%r",
        "-t",
        "all",
        "-u",
        "ann",
        "-n",
        "tok-1,tok-2",
        "-j",
        "12,13",
    ]
    assert time_left_argv("12_3") == ["squeue", "-h", "-j", "12_3", "-o", "%L"]


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("slurm_load_jobs error: Socket timed out on send/recv operation\n", 1),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", 1),
        ("slurm_load_jobs error: Zero Bytes were transmitted or received\n", 0),
        ('squeue: error: Munge encode failed: Failed to connect to "/run/munge/x"\n', 1),
        ("", -9),
    ],
)
def test_squeue_could_not_ask(stderr: str, code: int) -> None:
    """No answer is an error of its own, never an empty queue."""
    with pytest.raises(CouldNotAsk):
        read_squeue("", stderr, code)


def test_squeue_unknown_job_is_an_empty_answer() -> None:
    """A job that Slurm does not know any more is gone; another refusal is not an answer."""
    assert read_squeue("", "slurm_load_jobs error: Invalid job id specified\n", 1) == []
    assert read_squeue("", "", 0) == []
    with pytest.raises(SchedulerError, match="Invalid user: nobody2"):
        read_squeue("", "squeue: error: Invalid user: nobody2\n", 1)


# ---------------------------------------------------------------- states


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", "pending"),
        ("REQUEUED", "pending"),
        ("REQUEUE_HOLD", "pending"),
        ("SPECIAL_EXIT", "pending"),
        ("CONFIGURING", "running"),
        ("RUNNING", "running"),
        ("COMPLETING", "running"),
        ("SUSPENDED", "running"),
        ("STOPPED", "running"),
        ("SOMETHING_NEW", "running"),
        ("", "running"),
        ("COMPLETED", "ended"),
        ("CANCELLED", "ended"),
        ("CANCELLED by 1000", "ended"),
        ("CANCELLED+", "ended"),
        ("FAILED", "ended"),
        ("TIMEOUT", "ended"),
        ("NODE_FAIL", "ended"),
        ("BOOT_FAIL", "ended"),
        ("DEADLINE", "ended"),
        ("OUT_OF_MEMORY", "ended"),
        ("PREEMPTED", "ended"),
        ("REVOKED", "ended"),
    ],
)
def test_states(state: str, phase: str) -> None:
    """A task is ended only if Slurm says so; an unknown state is no end."""
    assert classify_state(state) == phase


def test_split_state() -> None:
    """A suffix names who cancelled."""
    assert split_state("CANCELLED by 999") == ("CANCELLED", 999)
    assert split_state("TIMEOUT") == ("TIMEOUT", None)


# ---------------------------------------------------------------- sacct

SACCT = """\
12|12|OUT_OF_MEMORY|0:125|0:0|1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|None
12.batch|12.batch|OUT_OF_MEMORY|0:125||1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|\
2026-11-28T00:31:55|
12.extern|12.extern|COMPLETED|0:0||1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|\
2026-11-28T00:31:55|
13|13|FAILED|1:0|0:125|1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|None
13.batch|13.batch|FAILED|1:0||1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|
13.0|13.0|OUT_OF_MEMORY|0:125||1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|
14|14|COMPLETED|0:0|0:125|1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|None
14.batch|14.batch|COMPLETED|0:0||1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|
14.0|14.0|OUT_OF_MEMORY|0:125||1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:55|
16|16|FAILED|3:0|0:0|0|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:54|None
16.batch|16.batch|FAILED|3:0||0|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:54|
18|18|FAILED|0:53|0:0|0|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:54|None
18.batch|18.batch|CANCELLED|0:53||0|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|2026-11-28T00:31:54|
21_0|23|RUNNING|0:0|0:0|11|n3|2026-11-28T00:31:54|2026-11-28T00:31:54|Unknown|None
21_0.batch|23.batch|RUNNING|0:0||11|n3|2026-11-28T00:31:54|2026-11-28T00:31:54|Unknown|
21_1|24|CANCELLED by 999|0:0|0:0|5|n3|2026-11-28T00:31:54|2026-11-28T00:31:54|\
2026-11-28T00:31:59|None
21_1.batch|24.batch|CANCELLED|0:15||6|n3|2026-11-28T00:31:54|2026-11-28T00:31:54|\
2026-11-28T00:32:00|
21_2|25|RUNNING|0:0|0:0|5|n1|2026-11-28T00:31:54|2026-11-28T00:32:00|Unknown|JobArrayTaskLimit
21_[2-3%2]|21|PENDING|0:0|0:0|0|None assigned|2026-11-28T00:31:54|Unknown|Unknown|\
JobArrayTaskLimit
"""


def test_sacct_rows() -> None:
    """Runs come with their steps, states without suffixes, exit codes and who cancelled."""
    runs = parse_sacct(SACCT)
    assert [(run.job, run.indices, run.state, run.phase) for run in runs] == [
        ("12", (), "OUT_OF_MEMORY", "ended"),
        ("13", (), "FAILED", "ended"),
        ("14", (), "COMPLETED", "ended"),
        ("16", (), "FAILED", "ended"),
        ("18", (), "FAILED", "ended"),
        ("21", (0,), "RUNNING", "running"),
        ("21", (1,), "CANCELLED", "ended"),
        ("21", (2,), "RUNNING", "running"),
        ("21", (2, 3), "PENDING", "pending"),
    ]
    assert runs[6] == TaskRun(
        "21",
        (1,),
        "24",
        "CANCELLED",
        "ended",
        999,
        0,
        0,
        0,
        0,
        5,
        "n3",
        "2026-11-28T00:31:54",
        "2026-11-28T00:31:54",
        "2026-11-28T00:31:59",
        "",
        (Step("batch", "CANCELLED", 0, 15),),
    )
    assert (runs[3].exit_code, runs[4].exit_signal) == (3, 53)
    assert (runs[5].ended, runs[8].started, runs[8].nodes) == ("", "", "")


def test_three_faces_of_out_of_memory() -> None:
    """Memory that ran out is found in the job, in a step of a failed and of a completed job."""
    runs = {run.job: run for run in parse_sacct(SACCT)}
    assert [runs[job].is_out_of_memory for job in ("12", "13", "14", "16", "18")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert [runs[job].out_of_memory_steps for job in ("12", "13", "14")] == [
        ("batch",),
        ("0",),
        ("0",),
    ]


def test_sacct_own_row_counts_more_than_the_rest_of_an_array() -> None:
    """sacct lists a started element also among those that have not started, for a while."""
    latest = find_latest_runs(parse_sacct(SACCT))
    assert latest["21", 2].state == "RUNNING"
    assert latest["21", 3].state == "PENDING"


SACCT_ALL_RUNS = """\
26|26|REQUEUED|0:0|0:0|0|n1|2026-11-28T00:33:37|2026-11-28T00:33:41|2026-11-28T00:33:41|None
26.batch|26.batch|CANCELLED|0:15||5|n1|2026-11-28T00:33:37|2026-11-28T00:33:37|\
2026-11-28T00:33:42|
26.0|26.0|CANCELLED|||3|n1|2026-11-28T00:33:38|2026-11-28T00:33:38|2026-11-28T00:33:41|
28|28|PREEMPTED|0:0|0:0|19|n4|2026-11-28T00:33:37|2026-11-28T00:33:37|2026-11-28T00:33:56|None
28.batch|28.batch|CANCELLED|0:15||20|n4|2026-11-28T00:33:37|2026-11-28T00:33:37|\
2026-11-28T00:33:57|
31|31|NODE_FAIL|0:0|0:0|3|n1|2026-11-28T00:33:38|2026-11-28T00:33:38|2026-11-28T00:33:41|None
31.batch|31.batch|CANCELLED|||3|n1|2026-11-28T00:33:38|2026-11-28T00:33:38|2026-11-28T00:33:41|
31|31|RUNNING|0:0|0:0|57|n1|2026-11-28T00:33:41|2026-11-28T00:33:52|Unknown|BeginTime
31.batch|31.batch|RUNNING|0:0||57|n1|2026-11-28T00:33:52|2026-11-28T00:33:52|Unknown|
26|26|PENDING|0:0|0:0|0|None assigned|2026-11-28T00:33:43|Unknown|Unknown|JobHeldUser
28|28|RUNNING|0:0|0:0|21|n4|2026-11-28T00:33:58|2026-11-28T00:34:28|Unknown|BeginTime
28.batch|28.batch|RUNNING|0:0||21|n4|2026-11-28T00:34:28|2026-11-28T00:34:28|Unknown|
"""


def test_sacct_all_runs_of_requeued_tasks() -> None:
    """Each run of a requeued task has its own end and its own steps; the latest one counts."""
    runs = parse_sacct(SACCT_ALL_RUNS)
    assert [
        (run.job, run.state, run.phase, [(step.name, step.state) for step in run.steps])
        for run in runs
    ] == [
        ("26", "REQUEUED", "ended", [("batch", "CANCELLED"), ("0", "CANCELLED")]),
        ("28", "PREEMPTED", "ended", [("batch", "CANCELLED")]),
        ("31", "NODE_FAIL", "ended", [("batch", "CANCELLED")]),
        ("31", "RUNNING", "running", [("batch", "RUNNING")]),
        ("26", "PENDING", "pending", []),
        ("28", "RUNNING", "running", [("batch", "RUNNING")]),
    ]
    latest = find_latest_runs(runs)
    assert {job: run.state for (job, _), run in latest.items()} == {
        "26": "PENDING",
        "28": "RUNNING",
        "31": "RUNNING",
    }


def test_sacct_passes_over_torn_rows() -> None:
    """Rows that an odd job name split in two are no tasks."""
    printed = (
        "19|19|COMPLETED|0:0|0:0|1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|"
        "2026-11-28T00:31:55|None|a|b\nc d|COMPLETED|0:0 é\n\nsacct: some banner\n"
    )
    assert [(run.job, run.state) for run in parse_sacct(printed)] == [("19", "COMPLETED")]


def test_sacct_argv() -> None:
    """Accounting is asked for every run, by id or by name token since a time, without names."""
    fields = (
        "JobID,JobIDRaw,State,ExitCode,DerivedExitCode,ElapsedRaw,NodeList,Submit,Start,End,Reason"
    )
    assert sacct_argv(["12", "13"]) == ["sacct", "-n", "-P", "-D", "-o", fields, "-j", "12,13"]
    assert sacct_argv(names=["tok"], user="ann", since="now-7days", all_runs=False) == [
        "sacct",
        "-n",
        "-P",
        "-o",
        fields,
        "-u",
        "ann",
        "-S",
        "now-7days",
        "--name=tok",
    ]


def test_sacct_could_not_ask() -> None:
    """With slurmdbd down nothing is known; a wrong question is refused in sacct's words."""
    down = (
        "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection "
        "to host:127.0.0.1:29541: Connection refused\nsacct: error: Sending PersistInit msg: "
        "Connection refused\nsacct: error: Problem talking to the database: Connection refused\n"
    )
    with pytest.raises(CouldNotAsk, match="sacct got no answer"):
        read_sacct("", down, 1)
    with pytest.raises(SchedulerError, match="Slurm accounting storage is disabled"):
        read_sacct("", "Slurm accounting storage is disabled\n", 1)
    assert read_sacct("", "", 0) == []


# ---------------------------------------------------------------- reasons


@pytest.mark.parametrize(
    ("reason", "words", "is_stuck"),
    [
        ("Priority", "other jobs come first", False),
        ("(Resources)", "the resources it asks for are in use", False),
        ("JobArrayTaskLimit", "as many as max_parallel are running", False),
        ("QOSMaxJobsPerUserLimit", "as many jobs of yours as the site allows are running", False),
        ("AssocMaxJobsLimit", "as many jobs of yours as the site allows are running", False),
        ("AssocGrpJobsLimit", "as many jobs of your group as the site allows are running", False),
        ("QOSGrpGRES", "your group holds as much as the site allows", False),
        (
            "AssocGrpCPUMinutesLimit",
            "your group's budget of compute time is used up or reserved",
            False,
        ),
        ("QOSMaxGRESPerUser", "your jobs hold as much as the site allows a user", False),
        (
            "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
            "a node that it needs is down, drained or reserved",
            False,
        ),
        (
            "ReqNodeNotAvail, Reserved for maintenance",
            "nodes are reserved for maintenance before it could end",
            False,
        ),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority "
            "partitions",
            "nodes that it needs are down, drained or reserved",
            False,
        ),
        ("PartitionTimeLimit", "its time limit is longer than the partition allows", True),
        ("PartitionNodeLimit", "it asks for more nodes than the partition allows", True),
        ("BadConstraints", "no node has all that it asks for", True),
        ("Dependency", "waits for another job to end", False),
        ("DependencyNeverSatisfied", "waits for a job that can no longer end as needed", True),
        ("JobHeldUser", "held by its user", True),
        ("JobHeldAdmin", "held by an administrator", True),
        ("launch failed requeued held", "a node could not start it, so Slurm holds it", True),
        (
            "QOSMaxWallDurationPerJobLimit",
            "its time limit is longer than the QOS or account allows",
            True,
        ),
        (
            "QOSMaxGRESPerJob",
            "it asks for more (or less) than the QOS or account allows a job",
            True,
        ),
        ("Reservation", "waits for its reservation to begin", False),
        ("Licenses", "waits for a licence", False),
        ("None", "not looked at by Slurm's scheduler yet", False),
        ("Sunspots", "Slurm says Sunspots", False),
    ],
)
def test_explain_reason(reason: str, words: str, is_stuck: bool) -> None:
    """A waiting task's reason is told in plain words, with what to do."""
    explanation = explain_reason(reason)
    assert (explanation.words, explanation.is_stuck) == (words, is_stuck)
    assert explanation.advice.endswith(".")


def test_begin_time_tells_of_the_requeue() -> None:
    """After a requeue Slurm waits, which looks like a fault and is none."""
    assert "after a requeue" in explain_reason("BeginTime").words


# ---------------------------------------------------------------- scancel and scontrol


def test_control_argv() -> None:
    """Jobs are cancelled, requeued, let go and changed, whole or by element."""
    assert cancel_argv("12") == ["scancel", "12"]
    assert hurry_argv("12") == ["scancel", "--state=RUNNING", "--batch", "--signal=USR2", "12"]
    assert cancel_argv("12", [1, 4, 5]) == ["scancel", "12_[1,4-5]"]
    assert cancel_argv("12", pending_only=True, name="tok") == [
        "scancel",
        "--state=PENDING",
        "--name=tok",
        "12",
    ]
    assert release_argv("12") == ["scontrol", "release", "12"]
    assert throttle_argv("12", 7) == ["scontrol", "update", "JobId=12", "ArrayTaskThrottle=7"]
    assert exclude_argv("12", ["n3", "n1", "n3"]) == [
        "scontrol",
        "update",
        "JobId=12",
        "ExcNodeList=n1,n3",
    ]
    argv = ["squeue", "-h", "-a", "-t", "PENDING", "-j", "12", "-o", "avoids=%x"]
    assert excluded_argv("12") == argv


@pytest.mark.parametrize("filters", [{"pending_only": True}, {"name": "tok"}])
def test_cancel_refuses_elements_with_a_filter(filters: dict[str, object]) -> None:
    """With a filter scancel would cancel all that has not started, not these elements."""
    with pytest.raises(ValueError, match="more than these"):
        cancel_argv("12", [3], **filters)  # type: ignore[arg-type]


def test_throttle_of_none_is_refused() -> None:
    """0 would lift the cap."""
    with pytest.raises(ValueError, match="throttle of 0"):
        throttle_argv("12", 0)


@pytest.mark.parametrize(
    ("command", "stderr", "code"),
    [
        ("scancel", "", 0),
        ("scancel", "scancel: error: Kill job error on job id 9: Invalid job id specified\n", 1),
        (
            "scancel",
            "scancel: error: Kill job error on job id 9: Job/step already completing or "
            "completed\n",
            1,
        ),
        ("scontrol update", "30_0,3-9: No error\n30_1-2: Job is no longer pending execution\n", 1),
        (
            "scontrol update",
            "54_0,2: Job is no longer pending execution\n54_4,6,8,10,12,14,16,18,20,22,2...: "
            "No error\n",
            1,
        ),
        ("scontrol update", "Invalid job id specified for job 99999\n", 1),
    ],
)
def test_update_succeeds(command: str, stderr: str, code: int) -> None:
    """What could be changed was changed, and what is over needs no change."""
    check_update(command, "", stderr, code)


@pytest.mark.parametrize(
    ("command", "stderr", "code", "error"),
    [
        (
            "scancel",
            "scancel: error: Kill job error on job id 1: Socket timed out on send/recv operation\n",
            140,
            CouldNotAsk,
        ),
        (
            "scancel",
            "scancel: error: Kill job error on job id 1: Unable to contact slurm controller "
            "(connect failure)\n",
            8,
            CouldNotAsk,
        ),
        (
            "scancel",
            "scancel: error: Kill job error on job id 60: Access/permission denied\n",
            210,
            SchedulerError,
        ),
        ("scontrol requeue", "Access/permission denied for job 60\n", 1, SchedulerError),
        ("scontrol update", "Invalid user id for job 60\n", 1, SchedulerError),
        (
            "scontrol update",
            "30_0: Invalid node name specified\n30_1: No error\n",
            1,
            SchedulerError,
        ),
        (
            "scontrol update",
            "slurm_update error: Unable to contact slurm controller (connect failure)\n",
            1,
            CouldNotAsk,
        ),
    ],
)
def test_update_fails(command: str, stderr: str, code: int, error: type[Exception]) -> None:
    """A refusal is told from no answer."""
    with pytest.raises(error):
        check_update(command, "", stderr, code)


@pytest.mark.parametrize(
    ("hosts", "nodes"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,07],login", ("n1", "n2", "n3", "n07", "login")),
        ("gpu[08-10]", ("gpu08", "gpu09", "gpu10")),
        ("r[1-2]c[3-4]", ("r1c3", "r1c4", "r2c3", "r2c4")),
    ],
)
def test_expand_nodes(hosts: str, nodes: tuple[str, ...]) -> None:
    """A host list is expanded, leading zeros kept."""
    assert expand_nodes(hosts) == nodes


def test_expand_nodes_refuses() -> None:
    """A host list that was cut is an error."""
    with pytest.raises(ValueError, match="host"):
        expand_nodes("n[1-2")


def test_parse_excluded() -> None:
    """The excluded nodes of several waiting parts are merged."""
    assert parse_excluded("avoids=n[2-3]\navoids=(null)\nWelcome\navoids=n[1-2]\n") == (
        "n2",
        "n3",
        "n1",
    )


# ---------------------------------------------------------------- limits

CONFIG = """\
Configuration data as of 2026-11-28T00:31:54
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = sweeptest
KillWait                = 5 sec
MailProg                = /bin/mail
MaxArraySize            = 1001
MaxJobCount             = 20000
MaxJobId                = 67043328
MinJobAge               = 60 sec
PowerPlugin             = \n\
SLURM_VERSION           = 22.05.8

Cgroup Support Configuration:
CgroupPlugin            = cgroup/v1

Slurmctld(primary) at vm is UP
"""
PARTITION = """\
PartitionName=short
   AllowGroups=ALL AllowAccounts=proj1,proj2 AllowQos=ALL
   AllocNodes=ALL Default=NO QoS=N/A
   DefaultTime=00:01:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO
   MaxNodes=UNLIMITED MaxTime=00:02:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED
   Nodes=n[1-4]
   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO
   OverTimeLimit=NONE PreemptMode=OFF
   State=UP TotalCPUs=32 TotalNodes=4 SelectTypeParameters=NONE

"""
PARTITIONS = (
    "PartitionName=main AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES QoS=N/A "
    "DefaultTime=00:30:00 GraceTime=0 MaxNodes=8 MaxTime=1-00:00:00 Nodes=n[1-4] PreemptMode=OFF "
    "State=UP TotalCPUs=32 TotalNodes=4\n"
    "PartitionName=preempt AllowAccounts=ALL AllowQos=ALL AllocNodes=login Default=NO QoS=small "
    "DefaultTime=NONE GraceTime=5 MaxNodes=UNLIMITED MaxTime=UNLIMITED Nodes=(null) "
    "PreemptMode=REQUEUE State=DRAIN TotalCPUs=0 TotalNodes=0\n"
)


def test_parse_config() -> None:
    """The site's own limits are read, and a missing one is None."""
    assert parse_config(CONFIG) == Config("sweeptest", "22.05.8", 1001, 20000, 5, True)
    assert parse_config("") == Config()


def test_parse_partitions() -> None:
    """A partition is read in both of scontrol's forms."""
    assert parse_partitions(PARTITION) == [
        Partition("short", "n[1-4]", 120, default_time_s=60, preempt_mode="OFF")
    ]
    assert parse_partitions(PARTITIONS) == [
        Partition("main", "n[1-4]", 86400, True, default_time_s=1800, preempt_mode="OFF"),
        Partition(
            "preempt", "", None, False, "login", "small", preempt_mode="REQUEUE", grace_time_s=5
        ),
    ]
    assert parse_partitions("Partition nono not found\n") == []


def test_parse_accounting_limits() -> None:
    """A user's limits and those of a QOS are read; an empty cell is no limit."""
    assert parse_associations(
        "proj1|sweeper|||||||few,normal,small||proj1|hpc\n"
        "proj2|sweeper||2|20|||1-00:00:00|normal|normal|proj1|hpc\n"
        "||||||||||proj3|\n"
    ) == [
        Association(
            "proj1", "sweeper", qos=("few", "normal", "small"), is_default=True, cluster="hpc"
        ),
        Association(
            "proj2", "sweeper", "", 2, 20, None, None, 86400, ("normal",), "normal", cluster="hpc"
        ),
    ]
    qos = parse_qos(
        "normal||||||||00:00:00|cluster\nsmall||50||||||00:00:00|cluster\n"
        "few|3|||40|||02:00:00|00:00:20|requeue\n"
    )
    assert [(one.name, one.max_jobs, one.max_submit, one.max_time_s) for one in qos] == [
        ("normal", None, None, None),
        ("small", None, 50, None),
        ("few", 3, 40, 7200),
    ]
    assert [(one.grace_time_s, one.preempt_mode) for one in qos] == [
        (0, ""),
        (0, ""),
        (20, "requeue"),
    ]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ("", Preemption()),
        ("PreemptType             = preempt/none", Preemption()),
        ("PreemptType = preempt/partition_prio", Preemption("REQUEUE", 5)),
        (
            "PreemptType = preempt/partition_prio\nSlurmctldParameters = preempt_send_user_signal",
            Preemption("REQUEUE", 5, True),
        ),
        (
            "PreemptType = preempt/qos\nPreemptParameters = reorder_count=1,send_user_signal",
            Preemption("CANCEL", 20, True),
        ),
    ],
)
def test_find_preemption(settings: str, found: Preemption) -> None:
    """By partition or by QOS, and whether its beginning is told: from Slurm's own words."""
    config = parse_config(f"{settings}\nPreemptMode             = GANG,CANCEL\n")
    partitions = parse_partitions(PARTITIONS)
    qos = parse_qos("low||||||||00:00:20|cluster\n")
    assert find_preemption(config, partitions, qos) == found
    assert find_preemption(config, partitions[:1], ()) == Preemption()


def test_elements_cancelled_before_their_start_are_not_element_0() -> None:
    """The row under the array's bare number, as 22.05 prints it, hides no element's own end."""
    rows = [("408_0", "409", "COMPLETED", "n1"), ("408", "408", "CANCELLED by 0", "None assigned")]
    day = "2026-11-28T02:07:28"
    printed = "\n".join(
        f"{job}|{raw}|{state}|0:0|0:0|0|{day}|{day}|{day}|{node}|name"
        for job, raw, state, node in rows
    )
    assert [(run.job, run.indices, run.state) for run in parse_sacct(printed)] == [
        ("408", (0,), "COMPLETED")
    ]


def test_find_limits() -> None:
    """The tightest of all limits holds; of several partitions, the longest time."""
    config = parse_config(CONFIG)
    assert find_limits(config) == Limits(1001, 20000, None)
    main, preempt = parse_partitions(PARTITIONS)
    (short,) = parse_partitions(PARTITION)
    assert find_limits(config, [main, short]).time_s == 86400
    assert find_limits(config, [main, preempt]).time_s is None
    account = Association("p", "u", max_submit=200, max_time_s=3600)
    small = Qos("small", max_submit_per_user=50)
    assert find_limits(config, [main], [account], [small]) == Limits(1001, 50, 3600)


def test_argv_of_questions_about_limits() -> None:
    """What a site allows is asked with formats of ours."""
    assert config_argv() == ["scontrol", "show", "config"]
    assert partitions_argv() == ["scontrol", "show", "partition", "-o"]
    assert partitions_argv("gpu") == ["scontrol", "show", "partition", "gpu", "-o"]
    asked = associations_argv("ann")
    assert asked[:7] == ["sacctmgr", "-nP", "show", "user", "where", "name=ann", "withassoc"]
    assert associations_argv("ann", "hpc")[5:8] == ["name=ann", "cluster=hpc", "withassoc"]
    assert qos_argv(["a", "b"])[4:6] == ["where", "name=a,b"]


@pytest.mark.parametrize(
    ("extra", "nodes"),
    [
        ((), ()),
        (("--exclude=n[1-2],n4",), ("n1", "n2", "n4")),
        (("--nice=5", "--exclude n3"), ("n3",)),
        (("-x", "n1"), ("n1",)),
        (("-xn1,n2",), ("n1", "n2")),
        (("--exclud=n7",), ("n7",)),
        (("--exclusive",), ()),
    ],
)
def test_nodes_that_the_user_excludes(extra: tuple[str, ...], nodes: tuple[str, ...]) -> None:
    """What slurm.extra excludes is known, however it is written."""
    assert excluded_by(extra) == nodes
