"""The Slurm scheduler over scripted answers: what it asks, and what it makes of them."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sweep.core.errors import CouldNotAsk, InputError, OverLimit, SchedulerError, SubmitUnclear
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import (
    ENDED,
    PENDING,
    RUNNING,
    ArrayJob,
    Beside,
    JobFate,
    Limits,
    TaskState,
)
from sweep.core.study import DataSet, Resources, Service, Slurm, Storage
from sweep.schedulers.slurm import ask
from sweep.schedulers.slurm import scheduler as slurm
from sweep.schedulers.slurm.ask import Answer
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.schedulers.slurm.small_jobs import BUILD, FETCH
from tests.schedulers.scripted_slurm import CONFIG, SILENCE, ScriptedSlurm
from tests.study_rows import make_study

TIMED_OUT = Answer("", "sbatch: error: Batch job submission failed: Socket timed out", 1)


def scheduler(tmp_path: Path, run: ScriptedSlurm, **changes: Any) -> SlurmScheduler:
    """Return a scheduler that asks the script, and whose pauses are noted and not made."""
    environ = changes.pop("environ", {"HOME": "/home/me", "SBATCH_QOS": "x", "API_KEY": "canary"})
    made = SlurmScheduler(
        StudyFolder(tmp_path / "study"),
        make_study(**changes),
        environ,
        run,
        say=said.append,
        sleep=pauses.append,
    )
    pauses.clear()
    said.clear()
    return made


pauses: list[float] = []
said: list[str] = []


def job(tmp_path: Path, **changes: Any) -> ArrayJob:
    argv = ["/usr/bin/python3", "-m", "sweep.task", str(tmp_path / "study")]
    given: dict[str, Any] = {
        "token": "sweep-digits-1f",
        "size": 6,
        "throttle": 2,
        "argv": argv,
        "cwd": tmp_path,
        "log_pattern": f"{tmp_path}/100%/{{job}}_{{index}}.log",
        "time_limit_s": 600,
        "after": [*argv, "--finalise", "sweep-digits-1f"],
    }
    return ArrayJob(**(given | changes))


GONE = Answer("", "slurm_load_jobs error: Invalid job id specified\n", 1)


def row(
    index: str, state: str, reason: str = "None", of: str = "7", name: str | None = None
) -> str:
    """Return one of squeue's rows, where it was asked for with the job's name before it."""
    named = "" if name is None else f"{name}|"
    return f"{named}{of}|{index}|70|{state}|10:00|N/A|2026-03-01T12:00:00|n1|{reason}\n"


def account(index: str, state: str, code: str = "0:0", nodes: str = "n1", step: str = "") -> str:
    """Return one of sacct's rows."""
    name = f"7_{index}{step}"
    return (
        f"{name}|{name}|{state}|{code}|0:0|5|{nodes}|2026-03-01T12:00:00|2026-03-01T12:00:01|"
        "2026-03-01T12:00:06|None\n"
    )


def test_an_array_and_its_finaliser_are_submitted(tmp_path: Path) -> None:
    """Two command lines, one script for both that only its owner reads, and no secret."""
    run = ScriptedSlurm(sbatch=["7\n", "8;cluster\n"])
    assert scheduler(tmp_path, run).submit(job(tmp_path)) == "7"
    array, end = run.of("sbatch")
    assert "--array=0-5%2" in array and "--job-name=sweep-digits-1f" in array
    assert f"--output={tmp_path}/100%%/%A_%a.log" in array
    assert not any(option.startswith(("--dependency", "--exclude")) for option in array)
    assert "--dependency=afterany:7" in end and "--job-name=sweep-digits-1f-end" in end
    script = StudyFolder(tmp_path / "study").script
    assert array[-1] == str(script)
    assert end[-3:] == [str(script), "--finalise", "sweep-digits-1f"]
    assert script.stat().st_mode & 0o777 == 0o700
    for argv, environ in zip(run.asked, run.environs, strict=True):
        if argv[0] == "sbatch":
            assert environ == {"HOME": "/home/me"}


def test_an_array_waits_behind_another_and_stays_away_from_nodes(tmp_path: Path) -> None:
    """A chain of waves, and the sick nodes beside those that the user excludes."""
    run = ScriptedSlurm(sbatch="7\n")
    asked = scheduler(tmp_path, run, slurm=Slurm(extra=("--exclude=n4",)))
    asked.submit(job(tmp_path, behind="5", exclude=("n2",)))
    argv = run.of("sbatch")[0]
    assert "--dependency=afterany:5" in argv
    assert [option for option in argv if option.startswith("--exclude")] == [
        "--exclude=n4",
        "--exclude=n2,n4",
    ]


def test_data_are_fetched_by_a_job_before_the_array(tmp_path: Path) -> None:
    """The array waits until it has ended well, and is cancelled where it has not; one that waits
    or runs already is not submitted again."""
    data = {"birds": DataSet("/data/birds", fetch=("get", "{target}"))}
    run = ScriptedSlurm(sbatch=["6\n", "7\n", "8\n"])
    asked = scheduler(tmp_path, run, datasets=data, slurm=Slurm(service=Service(partition="cpu")))
    assert asked.submit(job(tmp_path, fetches=True, behind="5")) == "7"
    fetch, array, end = run.of("sbatch")
    token = asked.first_token(FETCH)
    assert f"--job-name={token}" in fetch and fetch[-1] == "--fetch"
    assert "--partition=cpu" in fetch and not any("--gres" in word for word in fetch)
    assert "--dependency=afterok:6,afterany:5" in array
    assert "--kill-on-invalid-dep=yes" in array
    assert not any(word.startswith("--kill") for word in [*fetch, *end])
    queue = row("N/A", "RUNNING", of="6", name=token)
    asked.run = run = ScriptedSlurm(sbatch=["9\n", "10\n"], squeue=queue)
    asked.submit(job(tmp_path, fetches=True))
    array, _ = run.of("sbatch")
    assert "--dependency=afterok:6" in array
    assert asked.beside(["sweep-digits-1f"]).fetches == "job 6 runs"


def test_an_image_is_built_by_a_job_before_the_array(tmp_path: Path) -> None:
    """Beside one that fetches data; where the array is refused, what was submitted for it goes."""
    run = ScriptedSlurm(sbatch=["5\n", "6\n", "7\n", "8\n"])
    asked = scheduler(tmp_path, run)
    assert asked.submit(job(tmp_path, fetches=True, builds=True)) == "7"
    _, build, array, _ = run.of("sbatch")
    token = asked.first_token(BUILD)
    assert f"--job-name={token}" in build and build[-1] == "--image"
    assert "--dependency=afterok:5,afterok:6" in array
    assert "--kill-on-invalid-dep=yes" in array
    queue = row("N/A", "PENDING", of="6", name=token)
    asked.run = ScriptedSlurm(squeue=queue)
    beside = asked.beside(["sweep-digits-1f"])
    assert beside.builds.startswith("job 6 waits: ") and not beside.fetches


def test_not_all_nodes_are_excluded(tmp_path: Path) -> None:
    """Where too few would be left none is, or the array would wait for ever."""
    run = ScriptedSlurm(sbatch="7\n")
    scheduler(tmp_path, run, resources=Resources(nodes=2)).submit(
        job(tmp_path, exclude=("n1", "n2", "n3"))
    )
    assert not any(option.startswith("--exclude") for option in run.of("sbatch")[0])
    assert said == ["too few nodes are left without n1, n2, n3: none is excluded"]


def test_a_later_finaliser_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Behind the array while that lives, else at once; every such name is looked for."""
    end = row("N/A", "PENDING", of="9", name="sweep-digits-1f-end2")
    run = ScriptedSlurm(sbatch="9\n", squeue=end)
    asked = scheduler(tmp_path, run)
    assert asked.submit_finaliser(job(tmp_path), None, 2) == "9"
    argv = run.of("sbatch")[0]
    assert "--job-name=sweep-digits-1f-end2" in argv
    assert not any(option.startswith("--dependency") for option in argv)
    assert asked.beside(["sweep-digits-0e", "sweep-digits-1f"]) == Beside(finalisers=("9",))
    (argv,) = run.of("squeue")
    names = argv[argv.index("-n") + 1].split(",")
    assert names[:4] == [
        "sweep-digits-0e",
        "sweep-digits-1f",
        "sweep-digits-1f-end",
        "sweep-digits-1f-end1",
    ]


def test_what_a_crash_left_held_is_released(tmp_path: Path) -> None:
    """Elements, a finaliser and the database's job; not what its user holds, nor what waits."""
    failed = "launch failed requeued held"
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "storage.json").write_text(json.dumps({"embedded": str(tmp_path / "pg")}))
    asked = scheduler(tmp_path, ScriptedSlurm(), storage=Storage(embedded="job"))
    service, token = asked.service_token(), "sweep-digits-1f"
    assert service is not None
    queue = (
        row("2", "PENDING", failed, name=token)
        + row("3", "PENDING", "JobHeldUser", name=token)
        + row("4", "RUNNING", name=token)
        + row("5", "PENDING", "Resources", name=token)
        + row("N/A", "PENDING", failed, "8", f"{token}-end")
        + row("N/A", "PENDING", failed, "9", service)
    )
    asked.run = run = ScriptedSlurm(squeue=queue)
    found = asked.beside([token])
    assert (found.held, found.finalisers) == (("7_2", "8", "9"), ("8",))
    assert found.service_waits.startswith("a node could not start it, so Slurm holds it")
    asked.release(found.held)
    assert run.of("scontrol") == [["release", "7_2,8,9"]]
    assert len(run.of("squeue")) == 1
    # A task that finds no database cannot look for the others: it releases that job.
    asked.run = run = ScriptedSlurm(squeue=row("N/A", "PENDING", failed, "9", service))
    assert asked.ensure_service(tmp_path) == "9"
    assert run.of("scontrol") == [["release", "9"]]
    asked.release([])
    assert len(run.of("scontrol")) == 1


def test_a_job_that_is_completing_finalises_no_more(tmp_path: Path) -> None:
    token = "sweep-digits-1f"
    run = ScriptedSlurm(squeue=row("N/A", "COMPLETING", of="9", name=f"{token}-end"))
    assert scheduler(tmp_path, run).beside([token]) == Beside()


def test_a_lost_finaliser_does_not_undo_the_array(tmp_path: Path) -> None:
    """The array is in, and does its work; what happened is said."""
    run = ScriptedSlurm(sbatch=["7\n", Answer("", "sbatch: error: QOSMaxSubmitJobPerUserLimit", 1)])
    assert scheduler(tmp_path, run).submit(job(tmp_path)) == "7"
    assert said[0].startswith("The finaliser was not submitted. Slurm refused the job: ")


def test_an_unclear_submission_is_adopted(tmp_path: Path) -> None:
    """sbatch timed out, and the job got in: it is found by its name, and not submitted again."""
    run = ScriptedSlurm(sbatch=TIMED_OUT, squeue=["", row("0", "PENDING")])
    assert scheduler(tmp_path, run).submit(job(tmp_path, after=())) == "7"
    assert len(run.of("sbatch")) == 1
    assert run.of("squeue")[-1][-2:] == ["-n", "sweep-digits-1f"]


def test_an_unclear_submission_that_sacct_knows_is_adopted(tmp_path: Path) -> None:
    """It can have ended before anybody looked."""
    run = ScriptedSlurm(sbatch=TIMED_OUT, sacct=account("0", "COMPLETED"))
    assert scheduler(tmp_path, run).submit(job(tmp_path, after=())) == "7"
    assert len(run.of("sbatch")) == 1


def test_a_submission_that_did_not_get_in_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thrice at most, and each time only after nobody knew of it."""
    monkeypatch.setattr(ask, "FIND_PATIENCE_S", 0.0)
    run = ScriptedSlurm(sbatch=TIMED_OUT)
    with pytest.raises(SchedulerError, match=r"gave no clear answer 3 times: .* Nothing was"):
        scheduler(tmp_path, run).submit(job(tmp_path, after=()))
    assert len(run.of("sbatch")) == 3


def test_nobody_can_say_whether_it_got_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Slurm goes on being silent nothing is submitted twice."""
    monkeypatch.setattr(ask, "SETTLE_S", 0.0)
    run = ScriptedSlurm(sbatch=TIMED_OUT, squeue=SILENCE)
    with pytest.raises(SubmitUnclear):
        scheduler(tmp_path, run).sbatch(scheduler(tmp_path, run).request(job(tmp_path)))
    assert len(run.of("sbatch")) == 1


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("sbatch: error: invalid partition specified: nope", SchedulerError),
        ("sbatch: error: AssocMaxSubmitJobLimit", OverLimit),
    ],
)
def test_a_refusal_is_final(tmp_path: Path, words: str, kind: type[Exception]) -> None:
    """Slurm's own words; and whether fewer would pass."""
    run = ScriptedSlurm(sbatch=Answer("", words, 1))
    with pytest.raises(kind) as caught:
        scheduler(tmp_path, run).submit(job(tmp_path))
    assert isinstance(caught.value, OverLimit) is (kind is OverLimit)
    assert len(run.of("sbatch")) == 1


def test_a_question_is_asked_again_with_longer_pauses(tmp_path: Path) -> None:
    """Four times; then it is said that nothing is known."""
    run = ScriptedSlurm(squeue=[SILENCE, SILENCE, row("0", "RUNNING")])
    assert scheduler(tmp_path, run).poll(["7"])["7", 0].state == RUNNING
    assert pauses == [1.0, 2.0]
    with pytest.raises(CouldNotAsk, match="This says nothing about the jobs"):
        scheduler(tmp_path, ScriptedSlurm(squeue=SILENCE)).poll(["7"])
    assert pauses == [1.0, 2.0, 4.0]


def test_questions_are_asked_in_an_environment_of_ours(tmp_path: Path) -> None:
    """A user's formats and filters do not reach squeue and sacct."""
    run = ScriptedSlurm()
    environ = {"SQUEUE_FORMAT": "%i", "SACCT_FORMAT": "User", "SLURM_CONF": "/etc/s.conf"}
    scheduler(tmp_path, run, environ=environ).poll(["7"])
    for given in run.environs:
        assert given == {"SLURM_CONF": "/etc/s.conf", "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}


def test_poll_asks_once_for_all(tmp_path: Path) -> None:
    """One squeue and one sacct, whatever the number of jobs; none for no job."""
    run = ScriptedSlurm()
    assert scheduler(tmp_path, run).poll(["7", "9", "7"]) == {}
    assert [argv[0] for argv in run.asked] == ["squeue", "sacct"]
    assert [argv[-1] for argv in run.asked] == ["7,9", "7,9"]
    run.asked.clear()
    assert scheduler(tmp_path, run).poll([]) == {} and run.asked == []


ME = os.getuid()
ENDED_S = pytest.approx(slurm._epoch_s("2026-03-01T12:00:06"))
POLLS = [
    (
        "waits, for a reason in words",
        row("0", "PENDING", "Priority"),
        "",
        TaskState(PENDING, "PENDING", "other jobs go first"),
    ),
    ("runs", row("0", "RUNNING"), account("0", "RUNNING"), TaskState(RUNNING, "RUNNING")),
    (
        "has ended, and accounting lags",
        row("0", "CANCELLED"),
        account("0", "RUNNING"),
        TaskState(ENDED, "CANCELLED"),
    ),
    (
        "has ended, and accounting says by whom",
        row("0", "CANCELLED"),
        account("0", f"CANCELLED by {ME}", "0:15"),
        TaskState(
            ENDED, "CANCELLED", exit_code=0, cancelled_by=ME, signal=15, ended_s=ENDED_S, nodes="n1"
        ),
    ),
    (
        "squeue has forgotten it",
        "",
        account("0", "TIMEOUT", "0:1"),
        TaskState(ENDED, "TIMEOUT", exit_code=0, signal=1, ended_s=ENDED_S, nodes="n1"),
    ),
    (
        "accounting is away",
        row("0", "RUNNING"),
        Answer("", "sacct: error: Problem talking to the database: Connection refused", 1),
        TaskState(RUNNING, "RUNNING"),
    ),
    (
        "was requeued, and why",
        row("0", "PENDING", "BeginTime"),
        account("0", "NODE_FAIL"),
        TaskState(PENDING, "PENDING", "", before="NODE_FAIL"),
    ),
    (
        "a step ran out of memory",
        "",
        account("0", "FAILED", "1:0") + account("0", "OUT_OF_MEMORY", "0:125", step=".batch"),
        TaskState(ENDED, "OUT_OF_MEMORY", exit_code=1, ended_s=ENDED_S, nodes="n1"),
    ),
    (
        "cancelled before it started",
        "",
        account("0", f"CANCELLED by {ME}", nodes="None assigned"),
        TaskState(ENDED, "CANCELLED", exit_code=0, cancelled_by=ME, started=False, ended_s=ENDED_S),
    ),
]


@pytest.mark.parametrize(
    ("queue", "accounts", "state"), [case[1:] for case in POLLS], ids=[case[0] for case in POLLS]
)
def test_poll(tmp_path: Path, queue: str, accounts: str | Answer, state: TaskState) -> None:
    """squeue says whether a task lives, sacct how it ended."""
    found = scheduler(tmp_path, ScriptedSlurm(squeue=queue, sacct=accounts)).poll(["7"])["7", 0]
    if state.state == PENDING:
        found = dataclasses.replace(found, reason=state.reason)
    assert found == state


def test_without_accounting_a_cancel_is_the_users(tmp_path: Path) -> None:
    """Nothing ever says by whom it was: that is presumed, and not waited for for ever."""
    refused = Answer("", "Slurm accounting storage is disabled", 1)
    config = "AccountingStorageType   = accounting_storage/none\n"
    run = ScriptedSlurm(squeue=row("0", "CANCELLED"), sacct=refused, config=config)
    found = scheduler(tmp_path, run).poll(["7"])["7", 0]
    assert (found.cancelled_by, found.presumed) == (ME, True)


def test_the_database_is_a_job_once(tmp_path: Path) -> None:
    """It is submitted unless it is queued already; with a URL there is none."""
    folder = tmp_path / "study"
    folder.mkdir()
    note = folder / "storage.json"
    note.write_text(json.dumps({"embedded": str(tmp_path / "pg")}))
    asked = scheduler(tmp_path, ScriptedSlurm(), storage=Storage(embedded="job"))
    token = asked.service_token()
    queued = row("N/A", "PENDING", "Resources", of="11", name=token)
    asked.run = run = ScriptedSlurm(sbatch="11\n", squeue=["", queued])
    asked.folder.logs.mkdir()
    assert [asked.ensure_service(tmp_path) for _ in range(2)] == ["11", "11"]
    assert len(run.of("sbatch")) == 1 and run.of("sbatch")[0][-1] == "--serve"
    assert asked.service_jobs(running=True) == []
    assert "resources" in asked.beside(["sweep-digits-1f"]).service_waits
    note.write_text(json.dumps({"url": "postgresql://host/db"}))
    assert asked.ensure_service(tmp_path) is None
    assert asked.beside(["sweep-digits-1f"]).service_waits == ""


def limits_of(qos: str) -> Any:
    """Return sacctmgr's answers where one QOS has a MaxWall of five minutes."""

    def answer(argv: Any) -> str:
        asks = "qos" in argv and any(qos in word.partition("=")[2].split(",") for word in argv)
        return f"{qos}|||||||00:05:00|00:00:00|cluster\n" if asks else ""

    return answer


@pytest.mark.parametrize(
    ("slurm", "sacctmgr", "task", "end", "database"),
    [
        (Slurm(), "", "--time=00:10:00", "--time=00:30:00", None),
        (Slurm(service=Service("short")), "", "--time=00:10:00", "--time=00:02:00", None),
        (
            Slurm(service=Service("short", 3600)),
            "",
            "--time=00:10:00",
            "--time=00:02:00",
            "--time=00:02:00",
        ),
        (
            Slurm(service=Service(None, 3600)),
            "",
            "--time=00:10:00",
            "--time=00:30:00",
            "--time=01:00:00",
        ),
        (
            Slurm(qos="brief"),
            limits_of("brief"),
            "--time=00:05:00",
            "--time=00:05:00",
            "--time=00:05:00",
        ),
        (
            Slurm(qos="gpu", service=Service(None, 3600, qos="brief")),
            limits_of("brief"),
            "--time=00:10:00",
            "--time=00:05:00",
            "--time=00:05:00",
        ),
    ],
)
def test_every_job_of_ours_fits_the_limits(
    tmp_path: Path, slurm: Slurm, sacctmgr: Any, task: str, end: str, database: str | None
) -> None:
    """What asks for more than MaxTime or MaxWall would wait for ever."""
    (tmp_path / "study").mkdir()
    note = {"embedded": str(tmp_path / "pg")}
    (tmp_path / "study/storage.json").write_text(json.dumps(note))
    run = ScriptedSlurm(sbatch="7\n", sacctmgr=sacctmgr)
    made = scheduler(tmp_path, run, slurm=slurm, storage=Storage(embedded="job"))
    made.submit(job(tmp_path))
    times = [
        next((option for option in argv if option.startswith("--time=")), None)
        for argv in run.of("sbatch")
    ]
    assert times == [database, task, end]
    own = slurm.service.qos or slurm.qos
    asked = [[option[6:] for option in argv if "--qos" in option] for argv in run.of("sbatch")]
    assert asked == [[name] if name else [] for name in (own, slurm.qos, own)]


def test_the_small_jobs_take_no_qos_as_an_option(tmp_path: Path) -> None:
    """Nobody would fit them to its limits; the message names the key that does."""
    for option, key in (("--qos=long", "qos"), ("-t 5", "time"), ("--part=x", "partition")):
        made = scheduler(tmp_path, ScriptedSlurm(), slurm=Slurm(service=Service(extra=(option,))))
        with pytest.raises(InputError, match=r"slurm\.service\.extra: -.* belongs to") as caught:
            made.check_options()
        assert f"slurm.service.{key}" in caught.value.hint


TWO_CLUSTERS = """\
proj1|me|||||||normal|normal|proj1|alpha
proj1|me||1|1|||00:01:00|normal|normal|proj1|beta
proj2|me|||2|2||||normal|proj1|beta
"""


def test_only_this_clusters_associations_count(tmp_path: Path) -> None:
    """Several clusters on one slurmdbd: what another allows its users says nothing here."""

    def sacctmgr(argv: Sequence[str]) -> str:
        return "" if "qos" in argv else TWO_CLUSTERS

    def limits(cluster: str) -> Limits:
        run = ScriptedSlurm(config=f"{CONFIG}ClusterName = {cluster}\n", sacctmgr=sacctmgr)
        found = scheduler(tmp_path, run).limits()
        assert f"cluster={cluster}" in run.of("sacctmgr")[0]
        return found

    assert limits("alpha") == Limits(1001, None, 86400, None)
    assert limits("beta") == Limits(1001, 1, 60, 1)
    assert limits("Alpha") == limits("alpha")


def test_where_no_finaliser_fits_the_array_does_its_work(tmp_path: Path) -> None:
    """It is submitted all the same, and what is missing is said."""
    run = ScriptedSlurm(sbatch="7\n")
    made = scheduler(tmp_path, run, slurm=Slurm(service=Service("none")))
    assert made.submit(job(tmp_path)) == "7"
    assert len(run.of("sbatch")) == 1
    assert said == [
        "The finaliser was not submitted. Slurm allows no job of a minute in the partition none."
    ]


def test_why_a_finaliser_will_never_start(tmp_path: Path) -> None:
    """Its array's end is what it waits for; anything else that stays so is told."""
    for reason, told in (("Dependency", False), ("PartitionTimeLimit", True)):
        queue = row("N/A", "PENDING", reason, "9", "sweep-digits-1f-end")
        found = scheduler(tmp_path, ScriptedSlurm(squeue=queue)).beside(["sweep-digits-1f"])
        assert bool(found.finaliser_waits) is told


def test_a_job_of_the_database_that_we_added_goes_with_the_array(tmp_path: Path) -> None:
    """Where the array is refused, nothing of ours stays in the queue."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "storage.json").write_text(json.dumps({"embedded": str(tmp_path / "pg")}))
    refusal = Answer("", "sbatch: error: Memory specification can not be satisfied", 1)
    run = ScriptedSlurm(sbatch=["11\n", refusal])
    with pytest.raises(SchedulerError, match="Memory specification"):
        scheduler(tmp_path, run, storage=Storage(embedded="job")).submit(job(tmp_path))
    assert run.of("scancel") == [["11"]]


@pytest.mark.parametrize(
    ("queue", "nodes", "fate"),
    [
        (row("N/A", "RUNNING", of="7"), "idle", JobFate.LIVES),
        (row("N/A", "COMPLETING", of="7"), "completing", JobFate.LIVES),  # it is being killed
        (row("N/A", "PENDING", of="7"), "idle", JobFate.LIVES),  # it was put back
        (row("N/A", "FAILED", of="7"), "idle\nmixed", JobFate.ENDED),
        (GONE, "allocated", JobFate.ENDED),
        (GONE, "down*", JobFate.UNPROVED),  # its processes may live on behind a lost network
        (GONE, "idle*", JobFate.UNPROVED),  # it does not answer, and is not down yet
        (GONE, "drained", JobFate.UNPROVED),  # as after a process that could not be killed
        (GONE, "idle\ndraining", JobFate.UNPROVED),
        (GONE, "", JobFate.UNPROVED),  # no such node any more
    ],
)
def test_what_became_of_a_job(
    tmp_path: Path, queue: str | Answer, nodes: str, fate: JobFate
) -> None:
    states = "".join(f"state={node}\n" for node in nodes.split())
    asked = scheduler(tmp_path, ScriptedSlurm(squeue=queue, sinfo=states))
    assert asked.job_fate("7", "n1") is fate


def test_our_own_earlier_run_is_never_proved_over(tmp_path: Path) -> None:
    """A requeued job keeps its id, and a controller that crashed may run it twice."""
    asked = scheduler(tmp_path, ScriptedSlurm(squeue=GONE, sinfo="state=idle\n"))
    asked.environ = {**asked.environ, "SLURM_JOB_ID": "7"}
    assert asked.job_fate("7", "n1") is JobFate.UNPROVED
    assert asked.job_fate("8", "") is JobFate.UNPROVED  # nobody knows where it ran


def test_what_became_of_a_job_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(CouldNotAsk):
        scheduler(tmp_path, ScriptedSlurm(squeue=SILENCE)).job_fate("7", "n1")


def test_a_node_is_excluded_beside_others(tmp_path: Path) -> None:
    """What the array avoids already is read first; a refusal says so."""
    run = ScriptedSlurm(squeue="avoids=n[1,3]\n")
    scheduler(tmp_path, run).exclude("7", "n2")
    assert run.of("scontrol") == [["update", "JobId=7", "ExcNodeList=n1,n2,n3"]]
    run = ScriptedSlurm(scontrol=Answer("", "Access/permission denied", 1))
    with pytest.raises(SchedulerError, match="Access/permission denied"):
        scheduler(tmp_path, run).exclude("7", "n2")


@pytest.mark.parametrize(("partition", "may"), [(None, True), ("gpu", False), ("main,gpu", False)])
def test_who_may_submit_from_the_nodes(tmp_path: Path, partition: str | None, may: bool) -> None:
    """A partition's AllocNodes says it; the default partition is looked at where none is named."""
    asked = scheduler(tmp_path, ScriptedSlurm(), slurm=Slurm(partition=partition))
    assert asked.nodes_may_submit() is may


def test_a_time_above_the_partitions_is_refused(tmp_path: Path) -> None:
    """Before anything is made, with both numbers."""
    asked = scheduler(tmp_path, ScriptedSlurm(), resources=Resources(time_limit_s=2 * 86400))
    with pytest.raises(InputError, match=r"2-00:00:00, and Slurm allows 1-00:00:00 at most"):
        asked.check_site(embedded=False)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition", True),
        (
            "sbatch: error: Batch job submission failed: "
            "Requested node configuration is not available",
            False,
        ),
    ],
)
def test_sbatch_is_asked_before_anything_is_made(tmp_path: Path, words: str, refused: bool) -> None:
    """A wrong name is refused; what may wait is left to the queue."""
    run = ScriptedSlurm(sbatch=Answer("", words, 1))
    asked = scheduler(tmp_path, run)
    if refused:
        with pytest.raises(SchedulerError, match="Invalid account"):
            asked.check_site(embedded=False)
    else:
        asked.check_site(embedded=False)
    assert "--test-only" in run.of("sbatch")[0]


@pytest.mark.parametrize(
    ("printed", "left_s"), [("1-00:00:30\n", 86430), ("UNLIMITED\n", None), ("", None)]
)
def test_time_left(tmp_path: Path, printed: str, left_s: int | None) -> None:
    """As squeue prints it; None where there is no limit or nothing is known."""
    run = ScriptedSlurm(squeue=printed)
    assert scheduler(tmp_path, run).time_left_s("7", 3) == left_s
    assert "7_3" in run.of("squeue")[0]


def test_show_submits_nothing(tmp_path: Path) -> None:
    """The script and both command lines, for --dry-run."""
    run = ScriptedSlurm()
    script, commands = scheduler(tmp_path, run).show(job(tmp_path))
    assert script.startswith("#!/bin/bash\n") and len(commands) == 2
    assert "--dependency=afterany:ARRAY" in commands[1]
    assert run.of("sbatch") == [] and not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("answer", "here"),
    [
        (Answer("main*\n", "", 0), True),
        (SILENCE, True),
        (Answer("", "sinfo: fatal: Could not establish a configuration source", 1), False),
    ],
)
def test_is_here(tmp_path: Path, answer: Answer, here: bool) -> None:
    """A controller that is silent is a cluster; programs without a configuration are none."""
    program = tmp_path / "sbatch"
    program.write_text("")
    program.chmod(0o755)
    assert ask.is_here({"PATH": str(tmp_path)}, ScriptedSlurm(sinfo=answer)) is here
    assert ask.is_here({"PATH": "/nonexistent"}, ScriptedSlurm(sinfo=answer)) is False


def test_a_command_that_hangs_is_no_answer() -> None:
    """It is killed at its time, and a missing one is named."""
    assert ask.run_command(["sleep", "10"], {"PATH": os.environ["PATH"]}, 0.1).returncode < 0
    with pytest.raises(SchedulerError, match="no-such-squeue was not found"):
        ask.run_command(["no-such-squeue"], {"PATH": ""}, 1.0)
