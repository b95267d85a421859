"""``sweep launch`` on a real Slurm, as a user who isn't root: exactly N, K kept, nothing left."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.processes import wait_for
from tests.cluster.user import User
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slurm

FROM_OUTPUT = {"metric": "value", "direction": "maximize", "from": {"stdout": "value=([0-9.e-]+)"}}


def train(seconds: float, *more: str) -> list[str]:
    """Return the command of a stand-in for training: it sleeps, and prints its parameter."""
    code = f"import sys, time; time.sleep({seconds}); print('value=' + sys.argv[1])"
    return ["/usr/bin/python3", "-c", code, "{x}", *more]


def train_until(file: Path) -> list[str]:
    """Return the command of a stand-in for training that ends once a file is there."""
    code = (
        "import os, sys, time\n"
        "while not os.path.exists(sys.argv[2]): time.sleep(0.1)\n"
        "print('value=' + sys.argv[1])"
    )
    return ["/usr/bin/python3", "-c", code, "{x}", str(file)]


def watch(
    user: User, is_over: Callable[[], bool], timeout_s: float, gate: Path | None = None
) -> tuple[int, set[str]]:
    """Sample the queue until something is over.

    Args:
        gate: Made once the queue was looked at: what waits for it cannot be over before.

    Returns:
        How many array elements ran at once, at most, and the ids of all arrays seen.
    """
    most, arrays = 0, set()
    give_up_at = time.monotonic() + max(timeout_s, PATIENCE_S)
    while True:
        elements = [row for row in user.queue() if "_" in row[0]]
        arrays |= {row[0].partition("_")[0] for row in elements}
        # Not those that are completing: Slurm starts the next one while their node tidies up.
        most = max(most, sum(row[2] == "RUNNING" for row in elements))
        if is_over():
            return most, arrays
        if gate is not None:
            gate.touch()
        assert time.monotonic() < give_up_at, user.explain()
        time.sleep(0.5)


def no_elements(user: User) -> Callable[[], bool]:
    return lambda: not any("_" in row[0] or "-end" in row[1] for row in user.queue())


def run_to_its_end(
    user: User,
    path: Path,
    name: str,
    trials: int,
    parallel: int,
    env: dict[str, str] | None = None,
    timeout_s: float = 600,
) -> set[str]:
    """Launch, leave nothing on the login node, and end with exactly N, never more than K at once.

    Returns:
        The arrays that it took.
    """
    done = user.sweep("launch", path, env=env)
    assert f"%{parallel}, slurm)" in done.stdout
    user.check_no_processes()
    most, arrays = watch(user, no_elements(user), timeout_s)
    # A short study can be over before the queue is looked at; its tasks have left their logs.
    logs = (user.runs / name / "logs").glob("[0-9]*_[0-9]*.log")
    arrays |= {path.name.partition("_")[0] for path in logs}
    assert most <= parallel
    print(f"never more than {most} running, in {len(arrays)} arrays")
    status = user.wait_state(name, "finished")
    assert status["counts"]["complete"] == trials == len(user.trials(name))
    return arrays


@pytest.fixture
def user(slurm: Cluster, tmp_path: Path) -> Iterator[User]:
    """The cluster's user, in a folder of his own; his jobs are cancelled afterwards."""
    with User(slurm, slurm.home / f"{tmp_path.name}-{os.getpid()}").leaving_nothing() as someone:
        yield someone


@pytest.fixture
def url(fresh_url: str) -> dict[str, str]:
    """Environment that names a database which is no affair of Slurm's."""
    return {"SWEEP_STORAGE": fresh_url}


def test_from_launch_to_the_winner_run_again(user: User) -> None:
    """The database is a job; 40 trials; ranked; the best again as a job; all of it goes away."""
    path = user.study("first", train(0.5), objective=FROM_OUTPUT, trials=40, max_parallel=6)
    assert len(run_to_its_end(user, path, "first", 40, 6)) == 1
    top = json.loads(user.sweep("collect", "--top", "5", "--format", "json").stdout)
    values = [trial["value"] for trial in top]
    assert len(values) == 5 and values == sorted(values, reverse=True)
    assert all(abs(trial["value"] - trial["params"]["x"]) < 1e-12 for trial in top)
    verdict = json.loads(user.sweep("rerun-best", "--wait", "--json").stdout)
    assert (verdict["verdict"], verdict["relative_difference"]) == ("reproduced", 0)
    user.check_nothing_left()  # the database's job ends by itself within about a minute
    page = user.runs / "first" / "results" / "report.html"  # by the finaliser
    assert "The winner: trial" in page.read_text(encoding="utf-8")
    assert user.status("first")["counts"]["complete"] == 40
    user.check_no_processes()  # the server that status started was brief


def test_editing_after_launch_changes_no_trial(user: User, url: dict[str, str]) -> None:
    """The script is edited while jobs wait in the queue: trials and the re-run keep the old one."""
    may_end = user.folder / "may-end"
    user.write("train.py", train_until(may_end)[2])
    path = user.study(
        "edited",
        ["/usr/bin/python3", "train.py", "{x}", str(may_end)],
        objective=FROM_OUTPUT,
        trials=4,
        max_parallel=1,
    )
    user.sweep("launch", path, env=url)
    user.write("train.py", "print('value=99')\n")
    assert user.queue(), "nothing waited any more when the script was edited"
    watch(user, no_elements(user), 300, may_end)
    assert user.wait_state("edited", "finished")["counts"]["complete"] == 4
    assert all(trial["value"] == trial["params"]["x"] for trial in user.trials("edited"))
    verdict = json.loads(user.sweep("rerun-best", "--wait", "--json", env=url).stdout)
    assert (verdict["verdict"], verdict["relative_difference"]) == ("reproduced", 0)


def test_two_launches_at_once(user: User, url: dict[str, str]) -> None:
    """One wins, the other says so; there is one array."""
    gate = user.folder / "gate"
    command = train_until(gate)
    path = user.study("twice", command, objective=FROM_OUTPUT, trials=6, max_parallel=3)
    started = [user.start("launch", path, env=url) for _ in range(2)]
    ended = [(*child.communicate(timeout=2 * PATIENCE_S), child.returncode) for child in started]
    arrays = watch(user, no_elements(user), 120, gate)[1]
    assert sorted(code for *_, code in ended) in ([0, 0], [0, 1])
    said = [out + err for out, err, _ in ended]
    assert sum("submitted" in text for text in said) == 1
    assert any("Another launch" in text or "runs already" in text for text in said)
    assert len(arrays) == 1
    assert user.wait_state("twice", "finished")["counts"]["complete"] == 6


# sbatch wrappers: what becomes of the first submission of an array.
UNCLEAR = {"got in, but the answer was lost": '"$real" "$@" >/dev/null', "did not get in": ":"}


def wrap_sbatch(user: User, body: str) -> dict[str, str]:
    """Return an environment with an sbatch of ours first on its PATH."""
    folder = user.make(user.folder / "wrapped")
    real = user.cluster.run(["which", "sbatch"], check=True).stdout.strip()
    user.write("wrapped/sbatch", f"#!/bin/bash\nreal={real}\n{body}\n", 0o755)
    return {"PATH": f"{folder}:{user.env()['PATH']}"}


@pytest.mark.parametrize("kind", UNCLEAR)
def test_an_unclear_answer_of_sbatch_is_settled(user: User, url: dict[str, str], kind: str) -> None:
    """sbatch says "Socket timed out" and leaves with 1: one array, neither two nor none."""
    body = f"""
if [[ "$*" == *--array=* && "$*" != *--test-only* && ! -e {user.folder}/lost ]]; then
    touch {user.folder}/lost
    {UNCLEAR[kind]}
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv" >&2
    exit 1
fi
exec "$real" "$@"
"""
    env = url | wrap_sbatch(user, body)
    name = f"unclear-{secrets.token_hex(3)}"
    path = user.study(name, train(0.1), objective=FROM_OUTPUT, trials=4, max_parallel=2)
    done = user.sweep("launch", path, env=env)
    assert "sbatch gave no clear answer" in done.stderr
    arrays = watch(user, no_elements(user), 120)[1]
    assert user.wait_state(name, "finished")["counts"]["complete"] == 4
    assert len(arrays) <= 1 and (user.folder / "lost").exists()
    assert len(array_jobs(user, f"sweep-{name}")) == 1


def array_jobs(user: User, prefix: str) -> set[str]:
    """Return the ids of all arrays that Slurm accounts for, by the start of their names."""

    def known() -> set[str]:
        done = user.cluster.run(
            ["sacct", "-nPX", "-S", "now-1hour", "-u", user.cluster.user, "-o", "JobID,JobName"]
        )
        rows = [line.split("|") for line in done.stdout.splitlines()]
        ours = [row[0] for row in rows if row[1].startswith(prefix)]
        return {job.partition("_")[0] for job in ours if "_" in job}

    time.sleep(3)  # sacct lags behind: a second array would be known by then
    wait_for(lambda: bool(known()), 60, "an array in the accounting")
    return known()


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_controller_hangs_during_sbatch(user: User, url: dict[str, str], killed: bool) -> None:
    """slurmctld stopped under sbatch, and launch killed meanwhile or not: one array in the end."""
    go = user.folder / "go"
    body = f"""
if [[ "$*" == *--array=* && "$*" != *--test-only* ]]; then
    touch {user.folder}/asked
    while [ ! -e {go} ]; do sleep 0.1; done
fi
exec "$real" "$@"
"""
    name = f"hangs-{secrets.token_hex(3)}"
    env = url | wrap_sbatch(user, body)
    path = user.study(name, train(0.1), objective=FROM_OUTPUT, trials=4, max_parallel=2)
    child = user.start("launch", path, env=env)
    wait_for((user.folder / "asked").exists, 60, "launch to call sbatch")
    user.cluster.pause_slurmctld()
    try:
        go.touch()
        time.sleep(3 if killed else 14)
        if killed:
            child.send_signal(signal.SIGKILL)
    finally:
        user.cluster.resume_slurmctld()
    out, err = child.communicate(timeout=2 * PATIENCE_S)
    if killed:
        done = user.sweep("launch", path, env=env, code=None)
        assert done.returncode == 0, done.stderr
    else:
        assert child.returncode == 0, (out, err)
    watch(user, no_elements(user), 120)
    assert user.wait_state(name, "finished")["counts"]["complete"] == 4
    assert len(array_jobs(user, f"sweep-{name}")) == 1


def test_more_trials_and_a_wider_cap_in_mid_wave(user: User, url: dict[str, str]) -> None:
    """Raised `trials` and `max_parallel` become rows and a throttle, never a second array."""
    may_end = user.folder / "may-end"
    given = {"objective": FROM_OUTPUT, "trials": 8, "max_parallel": 2}
    path = user.study("grows", train_until(may_end), **given)
    user.sweep("launch", path, env=url)

    def running() -> int:
        return sum(row[2] == "RUNNING" and "_" in row[0] for row in user.queue())

    wait_for(running, 60, "a task")
    more = user.study("grows", train_until(may_end), **{**given, "trials": 20, "max_parallel": 5})
    done = user.sweep("launch", more, env=url)
    assert "12 trials added" in done.stdout and "runs already" in done.stdout
    wait_for(lambda: running() == 5, 60, "five tasks")
    most, arrays = watch(user, no_elements(user), 120, may_end)
    assert most <= 5 and len(arrays) == 1
    assert user.wait_state("grows", "finished")["counts"]["complete"] == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition": "nope"}, "invalid partition specified: nope"),
        ({"account": "nope"}, "Invalid account or account/partition combination specified"),
        ({"qos": "nope"}, "Invalid qos specification"),
        ({"constraint": "nope"}, "Invalid feature specification"),
    ],
)
def test_a_refusal_is_said_at_once_and_leaves_nothing(
    user: User, options: dict[str, str], words: str
) -> None:
    """Slurm's own words, what to do, and neither rows nor a folder."""
    path = user.study("refused", train(0), objective=FROM_OUTPUT, slurm=options)
    done = user.sweep("launch", path, code=1)
    assert words in done.stderr
    assert "Choose slurm." in done.stderr
    assert not user.runs.exists() and user.queue() == []


def test_a_refusal_by_sbatch_itself_leaves_nothing(user: User, url: dict[str, str]) -> None:
    """What only sbatch refuses takes rows and folder back; a correct file then launches."""
    big = {"time": "00:10:00", "memory": "900G"}
    given = {"objective": FROM_OUTPUT, "trials": 2}
    path = user.study("toobig", train(0), resources=big, **given)
    done = user.sweep("launch", path, env=url, code=1)
    assert "Memory specification can not be satisfied" in done.stderr
    assert not (user.runs / "toobig").exists() and user.queue() == []
    path = user.study("toobig", train(0), **given)
    assert "2 trials" in user.sweep("launch", path, env=url).stdout
    assert user.wait_state("toobig", "finished")["counts"]["complete"] == 2


def test_too_long_a_time_is_refused_before_anything_is_made(user: User) -> None:
    """A task's limit above the partition's is named with both."""
    resources = {"time": "00:10:00", "memory": "100M"}
    path = user.study("long", train(0), resources=resources, slurm={"partition": "short"})
    done = user.sweep("launch", path, code=2)
    assert "resources.time is 00:10:00, and Slurm allows 00:02:00 at most" in done.stderr
    assert not user.runs.exists()


@pytest.mark.long
def test_the_controller_is_down_at_launch(user: User, slurm: Cluster) -> None:
    """Launch asks again for a while, says so, and leaves nothing half-made."""
    path = user.study("down", train(0), objective=FROM_OUTPUT)
    slurm.kill_slurmctld()
    try:
        done = user.sweep("launch", path, code=1)
    finally:
        slurm.start_slurmctld()
    assert "got no answer from Slurm; again in 1 s" in done.stderr
    assert "scontrol ping" in done.stderr
    assert not user.runs.exists()
    user.check_no_processes()


def test_what_can_never_run_says_why(user: User, url: dict[str, str]) -> None:
    """Too many CPUs are accepted by Slurm, and wait: status shows the reason in plain words."""
    path = user.study(
        "never",
        train(0),
        objective=FROM_OUTPUT,
        launcher="python",
        resources={"time": "00:10:00", "cpus": 99, "memory": "100M"},
    )
    user.sweep("launch", path, env=url)
    status: dict[str, object] = {}

    def has_reason() -> bool:
        status.update(user.status("never"))
        return "not looked at" not in str(status["reason"])

    wait_for(has_reason, 30, "Slurm to look at it")
    assert status["state"] == "queued"
    assert str(status["reason"]).startswith(
        "the scheduler says: no node of the partition has, or may give, all that it asks for. Lower"
    )
    assert any("wave 1 of 1: job" in note for note in status["notes"])  # type: ignore[attr-defined]


def test_dry_run_shows_all_and_makes_nothing(user: User) -> None:
    """Script, command line, plan and limits; nothing is submitted or made."""
    path = user.study(
        "plan",
        train(0),
        objective=FROM_OUTPUT,
        trials=30,
        max_parallel=4,
        resources={"time": "01:00:00", "gpus": "a100:2", "memory": "1G"},
        launcher="python",
        slurm={"setup": ["module load cuda"]},
    )
    shown = user.sweep("launch", path, "--dry-run").stdout
    for part in (
        "--array=0-29%4",
        "#!/bin/bash",
        "module load cuda",
        "-m sweep.task",
        "--gres=gpu:a100:2",
        "--signal=B:USR1@",
        "--open-mode=append",
        "--dependency=afterany:",
        "60.0 GPU-hours",
        "tasks in an array: 1001",
        "nothing was made or submitted",
    ):
        assert part in shown, shown
    assert not user.runs.exists() and user.queue() == []


@pytest.mark.parametrize(
    "how", ["scancel", *(pytest.param(how, marks=pytest.mark.long) for how in ("requeue", "kill"))]
)
def test_the_job_of_the_database_dies(user: User, how: str) -> None:
    """Tasks wait for it, it comes back at a new address, and no trial is lost."""
    may_end = user.folder / "may-end"
    path = user.study(
        "dbdies", train_until(may_end), objective=FROM_OUTPUT, trials=24, max_parallel=4
    )
    user.sweep("launch", path)
    wait_for(
        lambda: user.status("dbdies")["counts"]["running"] == 4, 120, "four trials", pause_s=0.5
    )
    job = next(row[0] for row in user.queue() if row[1].startswith("sweep-db-"))
    if how == "kill":  # the whole job, and not its server
        assert "serving at" in user.logs("dbdies")
        user.cluster.run(["scancel", "--signal=KILL", "--full", job], check=True)
    else:
        command = ["scancel", job] if how == "scancel" else ["scontrol", "requeue", job]
        user.cluster.run(command, user=user.cluster.user, check=True)
    may_end.touch()
    watch(user, no_elements(user), 240)
    status = user.wait_state("dbdies", "finished")
    assert status["counts"]["complete"] == 24
    assert sorted(trial["attempts"] for trial in user.trials("dbdies")) == [1] * 24


@pytest.mark.long
def test_the_job_of_the_database_waits(user: User) -> None:
    """It was put back into the queue and does not start: one of the tasks serves meanwhile."""
    path = user.study("dbwaits", train(4.0), objective=FROM_OUTPUT, trials=12, max_parallel=3)
    user.sweep("launch", path)
    wait_for(lambda: sum(r[2] == "RUNNING" for r in user.queue()) >= 4, 60, "tasks to run")
    time.sleep(2)
    job = next(row[0] for row in user.queue() if row[1].startswith("sweep-db-"))
    user.cluster.run(["scontrol", "requeuehold", job], check=True)
    wait_for(lambda: "serves the database meanwhile" in user.logs("dbwaits"), 150, "a host")
    # The finaliser finds no server either, and serves for itself after more than a minute.
    watch(user, no_elements(user), 400)
    assert [row[0] for row in user.queue()] == [job]
    user.cluster.run(["scontrol", "release", job], check=True)
    wait_for(lambda: user.queue()[0][2] == "RUNNING", 60, "the job to run")
    status = user.wait_state("dbwaits", "finished")
    assert status["counts"]["complete"] == 12
    assert sorted(trial["attempts"] for trial in user.trials("dbwaits")) == [1] * 12


@pytest.mark.parametrize("drain", [False, True])
def test_stop_ends_this_study_only(user: User, url: dict[str, str], drain: bool) -> None:
    """At once, or after the running trials; the user's other jobs go on; launch takes it up."""
    other = user.cluster.submit("sleep 600", "--output=/dev/null", "--job-name=other")
    # No training ends before the stop was said, however slow the machine is.
    may_end = user.folder / "may-end"
    path = user.study(
        "stops", train_until(may_end), objective=FROM_OUTPUT, trials=9, max_parallel=3
    )
    user.sweep("launch", path, env=url)
    wait_for(lambda: user.status("stops")["counts"]["running"] == 3, 60, "three trials to run")
    user.sweep("stop", "stops", *(["--drain"] if drain else []), env=url)
    if drain:
        may_end.touch()
    watch(user, no_elements(user), 60)
    status = user.status("stops")
    assert status["state"] == ("draining" if drain else "stopped")
    assert status["counts"]["complete"] == (3 if drain else 0)
    assert [row[0] for row in user.queue()] == [other]
    may_end.touch()
    user.sweep("launch", path, env=url)
    assert user.wait_state("stops", "finished")["counts"]["complete"] == 9
    user.cluster.run(["scancel", other], check=True)


def test_logs_show_a_trial(user: User, url: dict[str, str]) -> None:
    """What training printed is shown by number."""
    path = user.study("talks", train(0), objective=FROM_OUTPUT, trials=2)
    user.sweep("launch", path, env=url)
    user.wait_state("talks", "finished")
    assert "value=0." in user.sweep("logs", "talks", "1").stdout


HOSTILE = [
    "a space",
    "it's",
    'a"quote',
    "$(touch owned)",
    "semi;colon",
    "pi|pe",
    "com,ma",
    "100%A",
    "größe-数",
]


def test_hostile_names(user: User, url: dict[str, str]) -> None:
    """Names of folders and values of parameters of any kind arrive as they are."""
    folder = user.make(user.folder / " ".join(HOSTILE).replace("/", ""))
    (folder / "line\nbreak").mkdir()
    user.make(folder / "line\nbreak")
    seen = str(folder / "seen")  # the workdir is a copy of that folder
    code = f"import sys; print('value=1'); open({seen!r}, 'a').write(sys.argv[1] + chr(10))"
    space = {"word": {"type": "categorical", "choices": [*HOSTILE, "line\nbreak"]}}
    command = ["/usr/bin/python3", "-c", code, "{word}"]
    path = user.study(
        "hostile",
        command,
        objective=FROM_OUTPUT,
        space=space,
        sampler="grid",
        trials=10,
        workdir=str(folder),
    )
    env = url | {"SWEEP_RUNS": str(folder / "line\nbreak" / "runs")}
    user.sweep("launch", path, env=env)
    wait_for(lambda: no_elements(user)(), 120, "the end")
    status = json.loads(user.sweep("status", "hostile", "--json", env=env).stdout)
    assert status["counts"]["complete"] == 10, user.explain()
    assert sorted(Path(seen).read_text().split("\n")[:-1]) == sorted([*HOSTILE, "line", "break"])
    assert not list(folder.rglob("owned")) and not (user.folder / "owned").exists()


@pytest.mark.parametrize("name", [*HOSTILE, "line\nbreak", "a/b"])
def test_hostile_study_names(user: User, name: str) -> None:
    """A study's name is taken, or refused by the file's check; never misread."""
    path = user.study(name, train(0), objective=FROM_OUTPUT)
    done = user.sweep("launch", path, "--dry-run", code=None)
    assert done.returncode in (0, 2), done.stderr
    assert "name" in done.stderr if done.returncode else "--job-name=sweep-" in done.stdout
    assert os.listdir(user.folder).count("owned") == 0
