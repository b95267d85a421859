"""What sites, their wrappers and logins print beside Slurm's commands is no answer of Slurm's.

The texts are those of real sites: seen in the trackers of the tools named beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from sweep.core.errors import CouldNotAsk, OverLimit, SchedulerError
from sweep.core.paths import StudyFolder
from sweep.core.scheduler import JobFate
from sweep.schedulers.slurm.ask import Answer, Asker
from sweep.schedulers.slurm.scheduler import SlurmScheduler
from sweep.schedulers.slurm.text.accounting import read_sacct
from sweep.schedulers.slurm.text.answers import did_not_answer, own_errors, raise_for_answer
from sweep.schedulers.slurm.text.queue import read_squeue
from sweep.schedulers.slurm.text.scontrol import check_update
from sweep.schedulers.slurm.text.submit import ArrayRequest, parse_sbatch
from tests.schedulers.scripted_slurm import ScriptedSlurm
from tests.study_rows import make_study

KERBEROS = "Your Kerberos credential expires in 2 days; run kinit.\n"
# batchspawner, issue 148
AUKS = (
    "Sun Jul  7 03:08:22 2019 [INFO4] [euid=5534,pid=5818] auks_krb5_cred: kerberos context "
    "successfully initialized\nSun Jul  7 03:08:23 2019 [INFO4] [euid=5534,pid=5818] auks_api: "
    "auks cred added using default file\n"
)
# snakemake-executor-plugin-slurm, issue 157
SNELLIUS = (
    "sbatch: Single-node jobs run on a shared node by default. Add --exclusive if you want to use "
    "a node exclusively.\nsbatch: A full node consists of 128 CPU cores, 229376 MiB of memory and "
    "0 GPUs and can be shared by up to 8 jobs.\nsbatch: You will be charged for 16 CPUs, based on "
    "the number of CPUs and the amount memory that you've requested.\n"
)
# batchtools, pull request 314
UNITY = (
    "sbatch: INFO: Note that 128 GB per node will require a node with more than 128 GB memory\n"
    "because of overhead. Check https://docs.unity.rc.umass.edu/nodes for an appropriate limit.\n"
)
# easybuild-framework, issue 4061
CINECA = "sbatch: no partition specified, using default partition m100_all_serial\n"
# jetstream, issue 18
IGNORED = 'sbatch: error: "SBATCH_EXCLUSIVE=true" -- invalid value, ignoring...\n'
OTHERS = (
    "ldap: error: authentication timed out, using the cache\n"
    "ssh-agent: fatal: connection refused\nMunge will be restarted at 6 pm\n"
)
PLUGIN = "squeue: error: _parse_next_key: Parsing error at unrecognized key: SlurmctldHost2\n"
CHATTER = [KERBEROS, AUKS, SNELLIUS, UNITY, CINECA, IGNORED, OTHERS, PLUGIN]
# maestrowf, issue 441: on stdout
TACC = (
    "\n-----------------------------------------------------------------\n"
    "          Welcome to the Stampede3 Supercomputer\n"
    "-----------------------------------------------------------------\n\n"
    "No reservation for this job\n--> Verifying valid submit host (login4)...OK\n"
    "--> Checking available allocation (TG-AST090040)...OK\n"
)
ROW = "7|0|8|RUNNING|1:00|N/A|N/A|n1|None\n"
ACCOUNTED = "19|19|COMPLETED|0:0|0:0|1|n2|2026-11-28T00:31:54|2026-11-28T00:31:54|Unknown|None\n"


@pytest.mark.parametrize("said", CHATTER)
def test_words_beside_an_answer_are_no_errors(said: str) -> None:
    """With rc 0 and none of the command's own errors, the answer counts, also an empty one."""
    assert own_errors(said) == []
    assert not did_not_answer(said, 0)
    assert [task.own_id for task in read_squeue(ROW, said, 0)] == ["8"]
    assert read_squeue("", said, 0) == []
    assert [run.state for run in read_sacct(ACCOUNTED, said, 0)] == ["COMPLETED"]
    assert parse_sbatch("5\n", said, 0).job == "5"
    for command in ("scancel", "scontrol"):
        check_update(command, "", said, 0)
    raise_for_answer("sacct", "", said, 0)


@pytest.mark.parametrize("said", CHATTER)
def test_words_beside_an_error_change_nothing_of_it(said: str) -> None:
    """A refusal stays one, an unknown job is gone, no answer is none; whatever stands beside it."""
    assert read_squeue("", f"{said}slurm_load_jobs error: Invalid job id specified\n", 1) == []
    with pytest.raises(SchedulerError, match=r"refused by Slurm: Invalid user: nobody2\.$"):
        read_squeue("", f"{said}squeue: error: Invalid user: nobody2\n", 1)
    with pytest.raises(CouldNotAsk):
        read_squeue("", f"{said}slurm_load_jobs error: Socket timed out on send/recv\n", 1)
    gone = "scancel: error: Kill job error on job id 9: Invalid job id specified\n"
    check_update("scancel", "", said + gone, 1)
    denied = "scancel: error: Kill job error on job id 60: Access/permission denied\n"
    with pytest.raises(SchedulerError, match="permission denied"):
        check_update("scancel", "", said + denied, 210)
    updated = "30_0,3-9: No error\n30_1-2: Job is no longer pending execution\n"
    check_update("scontrol", "", said + updated, 1)
    with pytest.raises(SchedulerError):
        check_update("scontrol", "", f"{said}30_0: Invalid node name specified\n", 1)
    refused = parse_sbatch("", f"{said}sbatch: error: invalid partition specified: nono\n", 1)
    assert (refused.kind, refused.over_limit) == ("refused", False)
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n"
    assert parse_sbatch("", said + lost, 1).kind == "unclear"


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_jobs error: Zero Bytes were transmitted or received\n",
        "squeue: error: Munge decode failed: Expired credential\n",
        "/opt/slurm/bin/squeue: error: Protocol authentication error\n",
        "squeue.real: error: Unable to contact slurm controller (connect failure)\n",
        "squeue: fatal: something that nobody has met so far\n",
    ],
)
def test_own_errors_count_with_any_exit_code(said: str) -> None:
    """An empty answer beside an error of squeue's own says nothing: no task is gone by it."""
    for code in (0, 1):
        with pytest.raises((CouldNotAsk, SchedulerError)):
            read_squeue("", said, code)
    with pytest.raises(CouldNotAsk):
        read_squeue("", said, 0)


def test_a_limit_in_chatter_is_no_limit() -> None:
    """That a site tells its MaxSubmit beside a refusal for something else shrinks no wave."""
    said = "sbatch: INFO: MaxSubmitJobs of your QOS is 500\n"
    answer = parse_sbatch("", f"{said}sbatch: error: Invalid qos specification\n", 1)
    assert (answer.kind, answer.over_limit) == ("refused", False)
    assert "MaxSubmitJobs of your QOS is 500" in answer.words  # it may say why


Chatter = Callable[[Sequence[str], Mapping[str, str], float], Answer]


def chattering(script: ScriptedSlurm, said: str, banner: str) -> Chatter:
    """Return what runs Slurm's commands on a site that talks."""

    def run(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> Answer:
        answer = script(argv, env, timeout_s)
        return Answer(banner + answer.stdout, said + answer.stderr, answer.returncode)

    return run


@pytest.mark.parametrize("banner", ["", TACC])
@pytest.mark.parametrize("said", CHATTER)
def test_each_question_on_a_site_that_talks(tmp_path: Path, said: str, banner: str) -> None:
    """Every place that calls a command of Slurm's, with words on stderr and a banner on stdout."""

    def squeue(argv: Sequence[str]) -> str:
        told = argv[argv.index("-o") + 1]
        return {"avoids=%x": "avoids=n2\n", "%L": "12:00\n"}.get(told, ROW)

    script = ScriptedSlurm(
        squeue=squeue,
        sacct="",
        sbatch="123\n",
        sinfo="state=idle\n",
        sacctmgr="",
        scontrol=lambda argv: "JobId=7 TRES=cpu=1,mem=2G,node=1\n" if "job" in argv else "",
    )
    lines: list[str] = []
    folder = StudyFolder(tmp_path / "runs" / "s")
    folder.root.mkdir(parents=True)
    scheduler = SlurmScheduler(
        folder,
        make_study(),
        {"PATH": "/usr/bin"},
        run=chattering(script, said, banner),
        sleep=lambda _: pytest.fail("asked again"),
        say=lines.append,
    )
    assert scheduler.limits().array_size == 1001
    scheduler.check_site(embedded=False)
    assert scheduler.poll(["7"])["7", 0].word == "RUNNING"
    assert scheduler.time_left_s("7", 0) == 720
    assert scheduler.held_memory_mb("7", 0) == 2048
    assert scheduler.find("tok") == ["7"]
    scheduler.cancel("7")
    scheduler.hurry("7")
    scheduler.set_throttle("7", 3)
    scheduler.exclude("7", "n1")
    assert script.of("scontrol")[-1][-1] == "ExcNodeList=n1,n2"
    scheduler.release(["7_0"])
    assert scheduler.energy(["7"]) == []
    assert scheduler.job_fate("7", "n1") is JobFate.LIVES
    script.answers["squeue"] = ""
    assert scheduler.job_fate("7", "n1") is JobFate.ENDED
    assert scheduler.warn_task({"SLURM_JOB_ID": "7"})
    facts = scheduler.commands_from_task({"SLURM_JOB_ID": "7"})
    assert facts is not None and facts.pop("preemption")["kill_wait_s"] == 5
    assert facts == {"scontrol": "", "sbatch": "", "may_submit": True}
    assert lines == []


def test_a_submission_on_a_site_that_talks() -> None:
    """A refusal for too much at once is told as one, in the site's words too."""
    limit = "sbatch: error: QOSMaxSubmitJobPerUserLimit\n"
    script = ScriptedSlurm(sbatch=Answer("", limit, 1))
    asker = Asker({}, run=chattering(script, KERBEROS, ""), say=lambda _: None)
    with pytest.raises(OverLimit):
        asker.sbatch(ArrayRequest("t", "s", "l", size=5))
