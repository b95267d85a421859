"""The local executor keeps the schedulers' contract, and outlives what may happen to a laptop."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep.core.errors import CouldNotAsk, SchedulerError
from sweep.core.scheduler import ENDED, PENDING, RUNNING, Limits
from sweep.core.system.gpus import GpuPool, find_gpus
from sweep.core.system.own_folder import own_folder
from sweep.core.system.processes import is_alive, processes_with
from sweep.schedulers.local.job import JobFolder, RunnerRecord
from sweep.schedulers.local.scheduler import LocalScheduler
from tests.schedulers.scheduler_contract import BRIEF, SIGNALS, WAIT, SchedulerContract, wait_for
from tests.waiting import PATIENCE_S, text_of

pytestmark = pytest.mark.real

LAUNCHER = """
import sys
from pathlib import Path
from sweep.schedulers.local.scheduler import LocalScheduler
from sweep.core.scheduler import ArrayJob
root, folder, token, size, script = sys.argv[1:]
sys.stdin.readline()
job = ArrayJob(token=token, size=int(size), throttle=1, argv=["sh", "-c", script],
               cwd=Path(folder), log_pattern=folder + "/{index}.log")
print(LocalScheduler(Path(root)).submit(job), flush=True)
"""
PROJECT = Path(__file__).parents[2]
IGNORES_TERM = "trap '' TERM; touch ready; while true; do sleep 0.05; done"


def runner_has_ended(local: LocalScheduler, job: str) -> bool:
    record = RunnerRecord.read(JobFolder(local.root / job))
    return record is not None and not is_alive(record.pid, record.start)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    return place


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[LocalScheduler]:
    """A local executor; whatever it started must be gone, or go when cancelled."""
    local = LocalScheduler(tmp_path / "runs" / "study" / "local")
    yield local
    jobs = [path.parent.name for path in local.root.glob("*/runner.json")]
    for job in jobs:
        local.cancel(job)
    for job in jobs:
        wait_for(lambda job=job: runner_has_ended(local, job), PATIENCE_S)  # type: ignore[misc]
        assert processes_with("SWEEP_JOB", job) == []


def heed_hangups() -> None:
    """Let a child end by SIGHUP also where the tests run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class TestLocal(SchedulerContract):
    """The contract, with processes of this machine."""

    python = sys.executable


class TestRunner:
    """What is particular to processes of this machine."""

    contract = TestLocal()

    def record(self, scheduler: LocalScheduler, job: str) -> RunnerRecord:
        record = RunnerRecord.read(JobFolder(scheduler.root / job))
        assert record is not None
        return record

    def launch(
        self,
        scheduler: LocalScheduler,
        folder: Path,
        token: str,
        size: int,
        script: str,
        *,
        submits: bool = True,
    ) -> subprocess.Popen[bytes]:
        """Start a process that submits an array, or never comes to that."""
        launcher = subprocess.Popen(
            [
                sys.executable,
                "-c",
                LAUNCHER,
                str(scheduler.root),
                str(folder),
                token,
                str(size),
                script,
            ],
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=heed_hangups,
        )
        assert launcher.stdin is not None
        if submits:
            launcher.stdin.write(b"\n")
            launcher.stdin.flush()
        return launcher

    def test_it_has_no_limits(self, scheduler: LocalScheduler) -> None:
        """Nothing limits a local array."""
        assert (scheduler.name, scheduler.limits()) == ("local", Limits())

    def test_hurry_reaches_those_that_run(self, scheduler: LocalScheduler, folder: Path) -> None:
        """SIGUSR2 to each, and no more: they go on. One that has ended is no trouble."""
        script = "trap 'echo x >> hurried' USR2; touch ready-$SWEEP_ARRAY_INDEX; " + (
            "while [ ! -e go ]; do sleep 0.05; done"
        )
        job = scheduler.submit(self.contract.job(folder, script, size=3, throttle=2))
        wait_for(lambda: len(list(folder.glob("ready-*"))) == 2, PATIENCE_S)
        scheduler.hurry(job)
        hurried = folder / "hurried"
        wait_for(lambda: text_of(hurried) == "x\nx\n", PATIENCE_S)
        (folder / "go").touch()
        wait_for(lambda: runner_has_ended(scheduler, job), PATIENCE_S)
        assert {task.word for task in scheduler.poll([job]).values()} == {"COMPLETED"}
        scheduler.hurry(job)

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
    def test_it_outlives_the_command_that_submitted_it(
        self, scheduler: LocalScheduler, folder: Path, number: int
    ) -> None:
        """No pipe is kept open, and no signal to the launcher's group reaches an element."""
        launcher = self.launch(scheduler, folder, "job-1", 1, WAIT)
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == b"job-1\n"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(launcher.pid, number)
        assert (
            launcher.communicate(timeout=PATIENCE_S)[0] == b""
        )  # end of file: nobody holds the pipe
        self.contract.wait_states(scheduler, "job-1", {0: RUNNING})
        (folder / "go").touch()
        self.contract.wait_states(scheduler, "job-1", {0: "COMPLETED"})

    def test_a_killed_submitter_leaves_a_job_or_none(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """Wherever submit is killed, find tells for good whether there is a job."""
        answers = set()
        random.seed(7)
        for turn in range(12):
            token = f"job-{turn}"
            # However slow we are, one is killed before it has made anything.
            launcher = self.launch(
                scheduler, folder, token, 1, f"touch ran-{token}", submits=turn > 0
            )
            place = JobFolder(scheduler.root / token)
            moment = (None, place.request, place.lock, place.runner)[turn % 4]
            if moment is not None:
                wait_for(moment.exists, PATIENCE_S)
            if turn > 3:
                time.sleep(random.uniform(0, 0.1))
            launcher.kill()
            launcher.communicate()
            time.sleep(random.choice([0, 0, 0.1]))
            found = scheduler.find(token)
            answers.add(bool(found))
            if found:
                self.contract.wait_states(scheduler, token, {0: "COMPLETED"})
            else:
                time.sleep(0.3)
                assert scheduler.find(token) == []
                assert scheduler.poll([token]) == {}
            assert (folder / f"ran-{token}").exists() == bool(found)
        assert answers == {True, False}

    def test_a_request_without_a_runner_is_not_a_job(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """Given up by find, it is not run by a runner that comes late; it can be submitted anew."""
        job = self.contract.job(folder, "echo ran >> ran")
        place = JobFolder(scheduler.root / job.token)
        place.root.mkdir(parents=True)
        place.write_request(job, [])
        assert scheduler.find(job.token) == []
        late = [sys.executable, "-m", "sweep.schedulers.local.runner", str(place.root)]
        assert subprocess.run(late, cwd=PROJECT).returncode == 1
        assert scheduler.find(job.token) == []
        assert scheduler.submit(job) == job.token
        self.contract.wait_states(scheduler, job.token, {0: "COMPLETED"})
        assert subprocess.run(late, cwd=PROJECT).returncode == 1
        assert (folder / "ran").read_text() == "ran\n"

    def test_a_runner_that_was_started_ahead(self, scheduler: LocalScheduler, folder: Path) -> None:
        """It takes the next array; one that gets none ends, at the latest with its starter."""
        scheduler.prepare()
        ahead = scheduler._ahead
        assert ahead is not None
        job = scheduler.submit(self.contract.job(folder, "touch ran"))
        assert ahead.returncode == 0  # its child is the runner
        self.contract.wait_states(scheduler, job, {0: "COMPLETED"})
        scheduler.prepare()
        ahead = scheduler._ahead
        assert ahead is not None
        assert ahead.stdin is not None
        ahead.stdin.close()  # as the kernel does where the starter is killed
        assert ahead.wait(PATIENCE_S) == 1
        scheduler.submit(self.contract.job(folder, "touch again", token="job-2"))
        self.contract.wait_states(scheduler, "job-2", {0: "COMPLETED"})
        scheduler.prepare()
        scheduler.close()
        assert scheduler._ahead is None

    def test_a_token_is_submitted_once(self, scheduler: LocalScheduler, folder: Path) -> None:
        """A second submission of a token is refused."""
        job = self.contract.job(folder, "true")
        scheduler.submit(job)
        with pytest.raises(SchedulerError, match=f"A job {job.token} exists already"):
            scheduler.submit(job)

    @pytest.mark.parametrize("token", ["", "..", "a/b", "-x", "a b", "x" * 201])
    def test_bad_names_are_refused(
        self, scheduler: LocalScheduler, folder: Path, token: str
    ) -> None:
        """A token that is no plain file name is refused, and nothing is made."""
        with pytest.raises(SchedulerError, match="cannot be the name of a job"):
            scheduler.submit(self.contract.job(folder, "true", token=token))
        assert list(scheduler.root.glob("*/*")) == []

    @pytest.mark.parametrize("changes", [{"size": 0}, {"throttle": 0}, {"argv": []}])
    def test_what_can_never_run_is_refused(
        self, scheduler: LocalScheduler, folder: Path, changes: dict[str, object]
    ) -> None:
        """An empty array, a throttle of 0 or no command is refused, and nothing is made."""
        with pytest.raises(SchedulerError):
            scheduler.submit(self.contract.job(folder, "true", **changes))
        assert not scheduler.root.exists()

    def test_an_unknown_job_is_gone(self, scheduler: LocalScheduler) -> None:
        """A job nobody knows is missing from the answer; it cannot be throttled."""
        assert scheduler.poll(["job-x"]) == {}
        scheduler.cancel("job-x")
        with pytest.raises(SchedulerError, match="no live array job-x"):
            scheduler.set_throttle("job-x", 2)

    def test_a_killed_runner_takes_its_elements_along(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """They get SIGTERM and are NODE_FAIL; pending ones are gone; nothing is finalised."""
        argv = [sys.executable, "-c", SIGNALS, "leave"]
        job = scheduler.submit(
            self.contract.job(folder, argv, size=3, after=["touch", "finalised"])
        )
        wait_for((folder / "ready").exists, PATIENCE_S)
        os.kill(self.record(scheduler, job).pid, signal.SIGKILL)
        self.contract.wait_states(scheduler, job, {0: "NODE_FAIL"})
        assert (folder / "signals").read_text() == "SIGTERM\n"
        assert "has died" in self.contract.states(scheduler, job)[0].reason
        with pytest.raises(SchedulerError, match="no live array"):
            scheduler.set_throttle(job, 2)
        assert not (folder / "finalised").exists()

    def test_survivors_of_a_killed_runner_can_be_cancelled(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """An element that ignores SIGTERM stays RUNNING until it is cancelled."""
        job = scheduler.submit(self.contract.job(folder, IGNORES_TERM, size=2))
        wait_for((folder / "ready").exists, PATIENCE_S)
        os.kill(self.record(scheduler, job).pid, signal.SIGKILL)
        wait_for(lambda: runner_has_ended(scheduler, job), PATIENCE_S)
        self.contract.wait_states(scheduler, job, {0: RUNNING})
        scheduler.cancel(job)
        state = self.contract.states(scheduler, job)[0]
        assert (state.word, state.cancelled_by) == ("CANCELLED", os.getuid())
        assert processes_with("SWEEP_JOB", job) == []

    def test_an_element_whose_start_was_not_recorded_counts(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """A runner killed between starting an element and writing it down loses nothing."""
        job = scheduler.submit(self.contract.job(folder, IGNORES_TERM, size=2))
        wait_for((folder / "ready").exists, PATIENCE_S)
        os.kill(self.record(scheduler, job).pid, signal.SIGKILL)
        wait_for(lambda: runner_has_ended(scheduler, job), PATIENCE_S)
        (scheduler.root / job / "events.jsonl").write_text("")
        self.contract.wait_states(scheduler, job, {0: RUNNING})
        for process in processes_with("SWEEP_JOB", job):
            process.signal(signal.SIGKILL)
        self.contract.wait_states(scheduler, job, {})

    def test_a_runner_told_to_end_ends_its_elements(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """SIGTERM to the runner, as at a shutdown: elements end as NODE_FAIL, none follows."""
        job = scheduler.submit(self.contract.job(folder, WAIT, size=3, after=["touch", "done"]))
        self.contract.wait_states(scheduler, job, {0: RUNNING, 1: PENDING, 2: PENDING})
        os.kill(self.record(scheduler, job).pid, signal.SIGTERM)
        self.contract.wait_states(scheduler, job, {0: "NODE_FAIL"})
        assert not (folder / "done").exists()

    def test_a_restarted_machine_has_ended_everything(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """A record of an earlier boot is of dead processes, even where a pid is in use again."""
        job = scheduler.submit(self.contract.job(folder, WAIT, size=2))
        self.contract.wait_states(scheduler, job, {0: RUNNING, 1: PENDING})
        path = scheduler.root / job / "runner.json"
        record = path.read_text()
        path.write_text(json.dumps(json.loads(record) | {"boot": "another"}))
        self.contract.wait_states(scheduler, job, {0: "NODE_FAIL"})
        path.write_text(record)

    def test_another_machine_cannot_tell(self, scheduler: LocalScheduler, folder: Path) -> None:
        """Asked on another host, the answer is "ask there", never "gone"."""
        job = scheduler.submit(self.contract.job(folder, WAIT))
        self.contract.wait_states(scheduler, job, {0: RUNNING})
        path = scheduler.root / job / "runner.json"
        record = path.read_text()
        path.write_text(json.dumps(json.loads(record) | {"host": "elsewhere"}))
        for ask in (lambda: scheduler.poll([job]), lambda: scheduler.cancel(job)):
            with pytest.raises(CouldNotAsk, match="started on elsewhere"):
                ask()
        path.write_text(record)

    def test_a_cancelled_element_leaves_no_process(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """Children in other sessions, deaf to SIGTERM or stopped, are ended too."""
        script = """
        setsid sh -c "trap '' TERM; touch ready-0; while true; do sleep 0.05; done" &
        sh -c 'touch ready-1; kill -STOP $$; sleep 1000' &
        wait
        """
        job = scheduler.submit(self.contract.job(folder, script))
        wait_for(lambda: len(list(folder.glob("ready-*"))) == 2, PATIENCE_S)
        scheduler.cancel(job)
        self.contract.wait_states(scheduler, job, {0: "CANCELLED"})
        assert processes_with("SWEEP_JOB", job) == []

    @pytest.mark.parametrize("code", [0, 1])
    def test_nothing_outlives_an_element_that_ended(
        self, scheduler: LocalScheduler, folder: Path, code: int
    ) -> None:
        """Background processes of an element end with it."""
        job = scheduler.submit(self.contract.job(folder, f"sleep 1000 & exit {code}"))
        self.contract.wait_states(scheduler, job, {0: "FAILED" if code else "COMPLETED"})
        wait_for(lambda: processes_with("SWEEP_JOB", job) == [], PATIENCE_S)

    def test_an_element_may_save_while_its_shell_has_left(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """SIGTERM leaves KillWait to every process of the element, not to the first alone."""
        script = """
        sh -c "trap 'sleep 1; touch saved; exit' TERM; touch ready; while :; do sleep 0.05; done" &
        wait
        """
        job = scheduler.submit(self.contract.job(folder, script))
        wait_for((folder / "ready").exists, PATIENCE_S)
        scheduler.cancel(job)
        self.contract.wait_states(scheduler, job, {0: "CANCELLED"})
        assert (folder / "saved").exists()

    def test_an_element_starts_clean(self, scheduler: LocalScheduler, folder: Path) -> None:
        """It has three open files, no blocked or ignored signal, and knows its end."""
        code = (
            "import os, time; status = open('/proc/self/status').read();"
            "own = ~(3 << 31);"  # 32 and 33 are the C library's
            "print(['%016x' % (int(status.split(name)[1].split()[0], 16) & own)"
            " for name in ('SigBlk:', 'SigIgn:')],"
            " sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')),"
            " os.getpgrp() == os.getsid(0) == os.getpid(),"
            " round(float(os.environ['SWEEP_END_TIME']) - time.time(), -2))"
        )
        argv = [sys.executable, "-S", "-c", code]
        job = scheduler.submit(self.contract.job(folder, argv, time_limit_s=1000))
        self.contract.wait_states(scheduler, job, {0: "COMPLETED"})
        # Python itself ignores SIGPIPE (0x1000) and SIGXFSZ (0x1000000); listdir opens a fourth.
        ignored = "0000000001001000"
        expected = f"['{'0' * 16}', '{ignored}'] ['0', '1', '2'] 4 True 1000.0\n"
        assert (folder / "logs" / f"{job}_0.log").read_text() == expected

    def test_a_free_slot_is_filled_at_once(self, scheduler: LocalScheduler, folder: Path) -> None:
        """An element starts within half a second of the end of the one before.

        A busy machine may start one late; a runner that waits is late in every array.
        """
        longest: list[float] = []
        while not longest or longest[-1] >= 0.5:
            assert len(longest) < 10, longest
            job = scheduler.submit(self.contract.job(folder, BRIEF, size=6))
            self.contract.wait_states(scheduler, job, dict.fromkeys(range(6), "COMPLETED"))
            notes = [line.split() for line in (folder / "times").read_text().splitlines()]
            (folder / "times").unlink()
            starts = [int(at) for kind, at, _ in notes if kind == "start"]
            ends = [int(at) for kind, at, _ in notes if kind == "end"]
            gaps = [(start - end) / 1e9 for end, start in zip(ends, starts[1:], strict=False)]
            longest.append(max(gaps))

    def test_a_missing_log_folder_is_made(self, scheduler: LocalScheduler, folder: Path) -> None:
        """Logs are private files, in folders made for them."""
        pattern = f"{folder}/new/{{index}}/log.txt"
        job = scheduler.submit(self.contract.job(folder, "echo here", log_pattern=pattern))
        self.contract.wait_states(scheduler, job, {0: "COMPLETED"})
        log = folder / "new" / "0" / "log.txt"
        assert (log.read_text(), log.stat().st_mode & 0o777) == ("here\n", 0o600)

    def test_a_command_that_cannot_start_says_why(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """Reason and log name the path that is missing."""
        job = scheduler.submit(self.contract.job(folder, ["./train.sh"]))
        self.contract.wait_states(scheduler, job, {0: "FAILED"})
        assert self.contract.states(scheduler, job)[0].reason == (
            f"Command not found: {folder}/train.sh."
        )
        assert str(folder / "train.sh") in (folder / "logs" / f"{job}_0.log").read_text()

    def test_the_finaliser_has_a_log(self, scheduler: LocalScheduler, folder: Path) -> None:
        """What the finaliser prints is kept."""
        after = ["sh", "-c", "echo finalised; echo $SWEEP_ARRAY_INDEX"]
        job = scheduler.submit(self.contract.job(folder, "true", after=after))
        log = scheduler.root / job / "finaliser.log"
        wait_for(lambda: text_of(log) == "finalised\n\n", PATIENCE_S)

    def test_a_large_array_is_few_files_and_quick_to_poll(
        self, scheduler: LocalScheduler, folder: Path
    ) -> None:
        """10,000 elements, half of them ended: less than ten files, answered in under 2 s."""
        job = scheduler.submit(self.contract.job(folder, WAIT, size=10_000))
        place = scheduler.root / job
        self.contract.wait_states(
            scheduler, job, {0: RUNNING} | dict.fromkeys(range(1, 10_000), PENDING)
        )
        with (place / "events.jsonl").open("a") as events:
            for index in range(1, 5001):
                start = {"event": "start", "index": index, "pid": 1, "start": 1, "gpus": []}
                end = {
                    "event": "end",
                    "indices": [index],
                    "word": "COMPLETED",
                    "reason": "",
                    "exit_code": 0,
                    "cancelled_by": None,
                }
                events.write(json.dumps(start) + "\n" + json.dumps(end) + "\n")
        before = time.process_time()
        states = scheduler.poll([job])
        assert time.process_time() - before < 2
        assert sum(state.state == ENDED for state in states.values()) == 5000
        assert len(states) == 10_000
        assert len(list(place.iterdir())) < 10
        scheduler.cancel(job)
        states = scheduler.poll([job])
        assert sum(state.word == "CANCELLED" for state in states.values()) >= 4999


class TestGpus:
    """GPUs are handed out, and shared by no two elements."""

    contract = TestLocal()

    @pytest.mark.parametrize(
        ("value", "names"),
        [
            ("0,1", ["0", "1"]),
            ("", []),
            ("-1", []),
            ("2, 3,-1,4", ["2", "3"]),
            ("GPU-8932f937-d72c", ["GPU-8932f937-d72c"]),
            ("NoDevFiles", []),
        ],
    )
    def test_the_variable_is_read_as_cuda_reads_it(self, value: str, names: list[str]) -> None:
        """What follows an invalid device does not count."""
        assert find_gpus({"CUDA_VISIBLE_DEVICES": value}) == names

    def test_nvidia_smi_is_asked_without_the_variable(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without the variable the GPUs are those that nvidia-smi lists, MIG slices aside."""
        program = tmp_path / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\n"
            "echo 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'\n"
            "echo '  MIG 1g.10gb     Device  0: (UUID: MIG-1)'\n"
            "echo 'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)'\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert find_gpus({}) == ["0", "1"]
        program.write_text("#!/bin/sh\necho 'GPU 0: gone'; exit 9\n")
        assert find_gpus({}) == []

    @pytest.mark.parametrize(
        ("has", "words"), [("a,b", "asks for 3 GPU(s); this machine has only 2"), ("", "has none")]
    )
    def test_more_than_there_are_is_refused(
        self,
        scheduler: LocalScheduler,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        has: str,
        words: str,
    ) -> None:
        """The refusal says how many there are."""
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", has)
        with pytest.raises(SchedulerError) as refusal:
            scheduler.submit(self.contract.job(folder, "true", gpus=3))
        assert words in str(refusal.value)

    def test_elements_wait_for_free_gpus(
        self, scheduler: LocalScheduler, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two arrays over three GPUs: each element has its own, and the rest wait and say why."""
        mine = uuid.uuid4().hex  # no other session's
        names = [f"{mine}-{n}" for n in "abc"]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(names))
        script = (
            f'echo "$CUDA_VISIBLE_DEVICES" > gpus-$SWEEP_JOB-$SWEEP_ARRAY_INDEX; {WAIT.strip()}'
        )
        one = scheduler.submit(self.contract.job(folder, script, size=2, throttle=2, gpus=2))
        self.contract.wait_states(scheduler, one, {0: RUNNING, 1: PENDING})
        other = scheduler.submit(self.contract.job(folder, script, size=2, throttle=2, gpus=1))
        self.contract.wait_states(scheduler, other, {0: RUNNING, 1: PENDING})
        notes = [folder / f"gpus-{job}-0" for job in (one, other)]
        wait_for(lambda: all(text_of(note).endswith("\n") for note in notes), PATIENCE_S)
        given = sorted(",".join(note.read_text().strip() for note in notes).split(","))
        assert given == names
        assert sorted(folder.glob("gpus-*")) == sorted(notes)
        reason = scheduler.poll([one])[one, 1].reason
        assert reason == "waiting for 2 free GPU(s) of 3"
        (folder / "go").touch()
        for job in (one, other):
            self.contract.wait_states(scheduler, job, {0: "COMPLETED", 1: "COMPLETED"})
        for name in names:
            (own_folder("gpus") / name).unlink()

    def test_a_pool_takes_all_or_nothing(self, tmp_path: Path) -> None:
        """What one pool holds, no other gets; too few are not taken at all."""
        one, other = (GpuPool(["0", "1", "2"], tmp_path / "locks") for _ in range(2))
        assert one.take(2) == ["0", "1"]
        assert other.take(2) is None
        assert other.take(1) == ["2"]
        one.give(["0"])
        assert other.take(1) == ["0"]
        assert one.take(0) == []
        other.give(["0", "2"])
        one.give(["1"])
