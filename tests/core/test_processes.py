"""Processes are known by pid and start time, start clean, and are ended as a group."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweep.core.system.processes import (
    TOKEN_VARIABLE,
    NotStarted,
    Process,
    _Members,
    boot_id,
    end_child,
    end_group,
    find_process,
    has_ended,
    has_failed,
    is_alive,
    is_stopped,
    live_processes,
    processes_with,
    spawn,
    start_time,
)
from tests.waiting import returns, text_of, wait_for

DEAF = "trap '' TERM; echo ready; while true; do sleep 0.02; done"
PROJECT = Path(__file__).parents[2]


def processes_of(token: str) -> list[int]:
    """Return the pids of our live processes that carry an attempt's token."""
    return [found.pid for found in processes_with(TOKEN_VARIABLE, token)]


def group_alive(group: int, token: str, *, leader_start: int | None = None) -> bool:
    """Tell whether there is anything that ``end_group`` would end."""
    return bool(_Members(group, token, leader_start).find())


@pytest.fixture
def token() -> Iterator[str]:
    """A token of this test's own; whoever still carries it at the end is killed."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    for process in processes_with(TOKEN_VARIABLE, name):
        process.signal(signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path, token: str) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a shell script under the token, with its output in ``log``."""

    def start_script(script: str, **changes: Any) -> subprocess.Popen[bytes]:
        given: dict[str, Any] = {
            "cwd": tmp_path,
            "env": {"PATH": os.environ["PATH"], "SWEEP_TOKEN": token},
            "stdout": tmp_path / "log",
        }
        return spawn(["sh", "-c", script], **given | changes)

    return start_script


def wait_until(what: Callable[[], Any]) -> None:
    wait_for(what, "what a process was to do", pause_s=0.01)


def wait_ready(tmp_path: Path, times: int = 1) -> None:
    wait_until(lambda: text_of(tmp_path / "log").count("ready") >= times)


def test_a_boot_has_one_name() -> None:
    """The boot's name does not change while the machine runs."""
    assert boot_id() == boot_id() != ""


def test_a_process_is_known_by_its_start_time() -> None:
    """Alive is who has this pid and this start time; nobody else."""
    me = os.getpid()
    start = start_time(me)
    assert start is not None
    assert [is_alive(me, s) for s in (start, start + 1, None)] == [True, False, False]
    assert find_process(me) == Process(me, start, os.getpgrp())
    assert start_time(2**22 + 1) is None
    assert not is_alive(2**22 + 1, start)


def test_a_name_with_spaces_and_parentheses_is_no_trouble(tmp_path: Path) -> None:
    """The start time is right for a program called ``a) R 1 (b``."""
    program = tmp_path / "a) R 1 (b"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "60"]) as odd, subprocess.Popen(["sleep", "60"]) as plain:
        times = [start_time(odd.pid), start_time(plain.pid)]
        alive = is_alive(odd.pid, times[0])
        odd.kill()
        plain.kill()
    assert alive
    assert times[0] is not None and times[1] is not None
    assert 0 <= times[1] - times[0] < 6000  # ticks: a minute, on a busy machine


def test_a_zombie_is_not_alive() -> None:
    """A process that has ended but was not collected is not alive, though its pid is taken."""
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    start = start_time(child.pid)
    assert start is not None
    assert not is_alive(child.pid, start)
    assert find_process(child.pid) is None
    assert child.pid not in {process.pid for process in live_processes()}
    child.wait()
    assert find_process(child.pid) is None


def test_a_process_whose_first_thread_has_ended_is_alive(tmp_path: Path) -> None:
    """Its state looks like a zombie's, but other threads of it still run."""
    code = (
        "import ctypes, threading, time;"
        "threading.Thread(target=time.sleep, args=(60,)).start();"
        "print('ready', flush=True);"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = spawn(
        [sys.executable, "-c", code], cwd=tmp_path, env=os.environ, stdout=tmp_path / "log"
    )
    wait_ready(tmp_path)
    started = start_time(child.pid)

    def looks_dead() -> bool:
        return Path(f"/proc/{child.pid}/stat").read_text().split()[2] == "Z"

    wait_until(looks_dead)
    assert is_alive(child.pid, started)
    child.kill()
    child.wait()


def test_spawn_starts_a_clean_process(tmp_path: Path) -> None:
    """Own session, no stdin, no inherited files, default signals, both outputs in a private log."""
    code = (
        "import os, sys; status = open('/proc/self/status').read();"
        "own = ~(3 << 31);"  # 32 and 33 are the C library's
        "print(['%016x' % (int(status.split(name)[1].split()[0], 16) & own)"
        " for name in ('SigBlk:', 'SigIgn:')],"
        " os.getpgrp() == os.getsid(0) == os.getpid(), os.readlink('/proc/self/fd/0'),"
        " len(os.listdir('/proc/self/fd')), os.environ['COLOUR'], os.getcwd() == sys.argv[1]);"
        "sys.stdout.flush(); print('error', file=sys.stderr)"
    )
    log = tmp_path / "log"
    log.write_text("before\n")
    log.chmod(0o600)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        argv = [sys.executable, "-S", "-c", code, str(tmp_path)]
        child = spawn(argv, cwd=tmp_path, env={"COLOUR": "red"}, stdout=log)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask | {signal.SIGTERM}
    finally:
        signal.signal(signal.SIGINT, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(inherited)
    assert child.wait() == 0
    # Python itself ignores SIGPIPE and SIGXFSZ; listdir opens the fourth file.
    masks = "['0000000000000000', '0000000001001000']"
    assert log.read_text() == f"before\n{masks} True /dev/null 4 red True\nerror\n"


def test_spawn_writes_to_a_descriptor_or_makes_a_private_log(tmp_path: Path, start: Any) -> None:
    """A log that spawn makes can be read by its owner alone; a descriptor is used as it is."""
    assert start("echo made").wait() == 0
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    with (tmp_path / "other").open("wb") as other:
        assert start("echo given", stdout=other.fileno()).wait() == 0
    assert [(tmp_path / name).read_text() for name in ("log", "other")] == ["made\n", "given\n"]


@pytest.mark.parametrize(
    ("dies", "number", "noted"),
    [(True, signal.SIGKILL, ""), (True, signal.SIGTERM, "told\n"), (False, signal.SIGKILL, "")],
)
def test_a_child_dies_with_its_parent_if_asked(
    tmp_path: Path, token: str, dies: bool, number: int, noted: str
) -> None:
    """The kernel sends the signal when the parent is killed, however hard."""
    script = "trap 'echo told; exit' TERM; touch up; while true; do sleep 0.02; done"
    code = (
        "import os, sys, time; from pathlib import Path;"
        "from sweep.core.system.processes import spawn;"
        f"spawn(['sh', '-c', {script!r}], cwd='.', env=os.environ, stdout=Path('log'),"
        f" die_with_parent={dies}, death_signal={int(number)}); time.sleep(60)"
    )
    env = {**os.environ, "PYTHONPATH": str(PROJECT), "SWEEP_TOKEN": token}
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=env)
    wait_until((tmp_path / "up").exists)
    parent.kill()
    parent.wait()
    if dies:
        wait_until(lambda: processes_of(token) == [])
    else:
        time.sleep(0.2)  # for a child that was killed after all to be gone
        assert processes_of(token) != []
    assert (tmp_path / "log").read_text() == noted


@pytest.mark.parametrize(
    ("argv", "message", "code"),
    [
        (["no-such-command"], "Command not found: no-such-command.", 127),
        (["./no-such-file"], "Command not found: {cwd}/no-such-file.", 127),
        (["./plain"], "Not executable: {cwd}/plain.", 126),
        (["./bad-shebang"], "{cwd}/bad-shebang needs an interpreter that does not exist.", 127),
        (["./no-program"], "Not a program: {cwd}/no-program.", 126),
        (["./"], "Not executable: {cwd}.", 126),
        (["sh", "a\0b"], "'sh' cannot be started: embedded null byte.", 126),
        (["sh", "x" * 3_000_000], "sh cannot be started: Argument list too long.", 126),
    ],
)
def test_what_cannot_start_says_why(
    tmp_path: Path, argv: list[str], message: str, code: int
) -> None:
    """The message names the path and what is wrong with it."""
    for name, content, mode in [
        ("plain", "echo\n", 0o644),
        ("bad-shebang", "#!/no/such/interpreter\n", 0o755),
        ("no-program", "\x01\x02\x03", 0o755),
    ]:
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    env = {"PATH": os.environ["PATH"]}
    with pytest.raises(NotStarted) as failure:
        spawn(argv, cwd=tmp_path, env=env, stdout=tmp_path / "log")
    assert failure.value.message == message.format(cwd=tmp_path)
    assert (failure.value.exit_code_of_shell, failure.value.passing) == (code, False)


def test_a_missing_folder_or_log_says_so(tmp_path: Path, start: Any) -> None:
    """The folder or the log is named, not the command."""
    with pytest.raises(NotStarted, match=f"The folder {tmp_path}/gone does not exist"):
        start("true", cwd=tmp_path / "gone")
    with pytest.raises(NotStarted, match=f"The log {tmp_path}/gone/log cannot be opened"):
        start("true", stdout=tmp_path / "gone" / "log")


def test_carriers_of_a_token_are_found(tmp_path: Path, token: str, start: Any) -> None:
    """Children carry the token, in whatever session; others do not."""
    assert processes_of(token) == []
    child = start("setsid sleep 60 & echo ready; exec sleep 60")
    wait_ready(tmp_path)
    wait_until(lambda: len(processes_of(token)) == 2)
    assert child.pid in processes_of(token)
    assert processes_of(token[:-1]) == []
    assert end_group(child.pid, token, grace_s=5)
    child.wait()


@pytest.mark.parametrize(
    "script",
    [
        "echo ready; exec sleep 60",
        "sleep 60 & sleep 60 & echo ready; wait",
        "setsid sh -c 'echo ready; exec sleep 60' & wait",
        "sh -c 'echo ready; kill -STOP $$; sleep 60' & wait",
        "env -i sh -c 'echo ready; while true; do sleep 0.02; done' & wait",
        "(trap 'sh -c \"while true; do sleep 0.02; done\" & exit' TERM; echo ready;"
        " while true; do sleep 0.02; done) & wait",
        DEAF,
        f'(setsid sh -c "{DEAF}" &) ; exec sleep 60',
    ],
    ids=["one", "group", "setsid", "stopped", "no-env", "forks-at-term", "deaf", "deaf-setsid"],
)
def test_a_group_is_ended_with_all_that_left_it(
    tmp_path: Path, token: str, start: Any, script: str
) -> None:
    """Nothing of it is alive afterwards, whatever it does about SIGTERM."""
    child = start(script)
    wait_ready(tmp_path)
    carriers = processes_of(token)
    members = {p for p in live_processes() if p.group == child.pid or p.pid in carriers}
    assert group_alive(child.pid, token)
    assert end_group(child.pid, token, grace_s=0.3)
    assert not group_alive(child.pid, token)
    assert not any(is_alive(process.pid, process.start) for process in members)
    child.wait()


def test_ending_leaves_time_to_save(tmp_path: Path, token: str, start: Any) -> None:
    """A process that leaves within the grace is not killed, and the answer does not wait longer."""
    child = start("trap 'echo saved; exit 7' TERM; echo ready; while true; do sleep 0.02; done")
    wait_ready(tmp_path)
    assert returns(lambda: end_group(child.pid, token, grace_s=3600))
    assert child.wait() == 7
    lines = (tmp_path / "log").read_text().splitlines()
    assert [lines[0], lines[-1]] == ["ready", "saved"]  # shells also tell of their child's end


def test_a_foreign_group_is_left_alone(tmp_path: Path, token: str, start: Any) -> None:
    """A group whose number is another's by now gets no signal, and does not count as alive."""
    child = start("echo ready; exec sleep 60")
    wait_ready(tmp_path)
    other = f"{token}-other"
    assert not group_alive(child.pid, other)
    assert end_group(child.pid, other, grace_s=0)
    assert not group_alive(child.pid, other, leader_start=1)
    assert is_alive(child.pid, start_time(child.pid))
    assert group_alive(child.pid, other, leader_start=start_time(child.pid))
    assert end_group(child.pid, other, grace_s=5, leader_start=start_time(child.pid))
    assert child.wait() == -signal.SIGTERM


def test_the_callers_own_group_is_never_ended(token: str) -> None:
    """Asked to end its own group under its own start time, a process leaves it alone."""
    leader = os.getpgrp()
    assert end_group(leader, token, grace_s=0, leader_start=start_time(leader))


ADOPTER = """
import os, signal, sys
from pathlib import Path
from sweep.core.system import processes as process

process.adopt_orphans()
folder, token = Path(sys.argv[1]), sys.argv[2]
env = {"PATH": "/usr/bin:/bin", process.TOKEN_VARIABLE: token}

def train(script):
    child = process.spawn(["sh", "-c", script], cwd=folder, env=env, stdout=folder / "log")
    assert child.wait() == 0
    return child

train("true")
print("left nothing:", process.reap_orphans())
child = train("(setsid sh -c 'echo ready > started; exec sleep 60' > /dev/null &) ; "
              "while [ ! -e started ]; do sleep 0.01; done")
print("left a daemon:", process.reap_orphans())
print("ended:", process.end_group(child.pid, token, grace_s=0.0))
print("left nothing:", process.reap_orphans())
train("(setsid true &)")
os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
print("left a zombie:", process.reap_orphans())
"""


def test_descendants_that_outlive_their_training_are_known(tmp_path: Path, token: str) -> None:
    """A process that adopts orphans needs no look at /proc to know that none is left."""
    done = subprocess.run(
        [sys.executable, "-c", ADOPTER, str(tmp_path), token],
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )
    assert done.stdout.splitlines() == [
        "left nothing: False",
        "left a daemon: True",
        "ended: True",
        "left nothing: False",
        "left a zombie: False",
    ], done.stderr
    assert processes_of(token) == []


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_a_child_without_its_environment_is_ended(
    tmp_path: Path, token: str, start: Any, grace_s: float
) -> None:
    """As a long process title leaves it: no token is to be seen, but it is ours."""
    child = start("exec env -i sh -c 'echo ready; while true; do sleep 0.02; done'")
    wait_ready(tmp_path)
    wait_until(lambda: processes_of(token) == [])
    assert not has_ended(child)
    assert end_child(child, token, grace_s=grace_s)
    assert has_ended(child) and has_failed(child)
    assert not is_alive(child.pid, start_time(child.pid))
    assert child.wait() < 0


def test_what_an_ended_child_left_is_known_until_it_is_waited_for(
    tmp_path: Path, token: str, start: Any
) -> None:
    """Without a token in it; its group's number is its own as long as its leader is a zombie."""
    child = start("env -i sh -c 'echo ready; exec sleep 60' & while [ ! -s log ]; do :; done")
    wait_ready(tmp_path)
    wait_until(lambda: has_ended(child))
    assert not has_failed(child)
    (left,) = [found for found in live_processes() if found.group == child.pid]
    assert end_child(child, token, grace_s=0.0)
    assert not is_alive(left.pid, left.start)
    assert child.wait() == 0
    assert has_ended(child) and not has_failed(child)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_how_a_child_ended(start: Any, number: int) -> None:
    """By a signal or by a code, told before it has been waited for."""
    for script, failed in ((f"kill -{number:d} $$", True), ("exit 3", True), ("exit 0", False)):
        child = start(script)
        wait_until(lambda child=child: has_ended(child))  # type: ignore[misc]
        assert has_failed(child) is failed
        child.wait()
        assert has_ended(child) and has_failed(child) is failed


def test_a_stopped_descendant(tmp_path: Path, start: Any) -> None:
    """Training stands still where any process of it is stopped."""
    child = start("sh -c 'echo $$ > inner; echo ready; while true; do sleep 0.02; done' & wait")
    wait_ready(tmp_path)
    inner = int((tmp_path / "inner").read_text())
    assert not is_stopped(child.pid)
    for pid in (inner, child.pid):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(child.pid))
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not is_stopped(child.pid))
    assert end_group(child.pid, "none", grace_s=0.0, leader_start=start_time(child.pid))
    child.wait()
    assert not is_stopped(child.pid)
