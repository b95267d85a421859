"""The tests' own rules, tried on tests that break them: skips, crash files, leaks, the report."""

from __future__ import annotations

import ast
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import WITH_CGROUPS
from tests.conftest import REAL_FOLDERS, ROOT, find_room, fork_server, sweep_environment
from tests.fork_server import Forked, ForkServer, refuse
from tests.processes import find_processes
from tests.waiting import PATIENCE_S, text_of, wait_for

pytestmark = pytest.mark.real

HEAD = "import os, pathlib, subprocess, sys, time\nimport pytest\nfrom tests.needs import *\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of its own, in git, with the rules of this one."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tests.conftest"]\n')
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers -p no:cacheprovider\nmarkers =\n"
        "    long: l\n    slurm: s\n    real: r\n    crashes: c\n"
    )
    (tmp_path / ".gitignore").write_text("test-*.json\n__pycache__\nbase\n*.mark\n")
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "test_it.py").write_text(HEAD + text)


def commit(folder: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)


def environment(require: str = "") -> dict[str, str]:
    outer = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return {**outer, "PYTHONPATH": str(ROOT), "SWEEP_TEST_REQUIRE": require}


def pytest_in(folder: Path, *arguments: str) -> list[str]:
    return ["pytest", "--basetemp", str(folder / "base"), *arguments]


def start(
    folder: Path, *arguments: str, prepare: Callable[[], Any] | None = None
) -> subprocess.Popen[str]:
    """Start pytest, to be signalled or to inherit what is ignored."""
    return subprocess.Popen(
        [sys.executable, "-m", *pytest_in(folder, *arguments)],
        cwd=folder,
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=prepare,
    )


def run(folder: Path, *arguments: str, require: str = "") -> tuple[int, str]:
    """Run pytest; return its exit code and what it printed."""
    server = fork_server("pytest", environment(), ["pytest", "sweep.schedulers", "psycopg2"])
    argv, environ = pytest_in(folder, *arguments), environment(require)
    assert server.can_serve(environ)
    forked = server.start(argv, cwd=str(folder), environ=environ)
    out, err = forked.communicate(timeout=PATIENCE_S)
    assert forked.returncode is not None
    return forked.returncode, out + err


def ignore_interrupts() -> None:
    """What a shell does to a command that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "test-report.json").read_text())
    return found


def outcomes(folder: Path) -> dict[str, str]:
    return {
        name.partition("::")[2]: entry["outcome"] for name, entry in report(folder)["tests"].items()
    }


def test_skips_are_listed_and_can_be_forbidden(folder: Path) -> None:
    """A skip is shown with its reason; where its need is required it is a failure."""
    write(
        folder,
        "def test_a(): skip_or_fail('apptainer', 'not installed')\n"
        "@pytest.mark.slurm\ndef test_b(): pytest.skip('no cluster')\n"
        "@pytest.mark.long\ndef test_c(): pass\n"
        "def test_d(): pass\n",
    )
    code, text = run(folder)
    assert code == 0
    assert "3 skipped" in text and "1 passed" in text
    for line in (
        "NOT RUN: 3 tests",
        "NOT RUN: apptainer: not installed",
        "NOT RUN: no cluster",
        "NOT RUN: long: runs with `make test-all` (--long)",
        "    test_it.py::test_c",
    ):
        assert line in text
    assert not (folder / "test-report.json").exists()
    code, text = run(folder, require="slurm,apptainer")
    assert code == 1
    assert "2 failed" in text and "1 passed" in text and "1 skipped" in text
    assert "apptainer: not installed (required by SWEEP_TEST_REQUIRE)" in text
    assert "skipped (no cluster), but slurm is required by SWEEP_TEST_REQUIRE" in text
    code, text = run(folder, require="slrum")
    assert code == 4
    assert "SWEEP_TEST_REQUIRE: unknown: slrum" in text


@pytest.mark.crashes
def test_crash_file_fails_a_test(folder: Path) -> None:
    """A test that leaves a crash file fails with its text, unless it provokes the crash.

    What a test sets or removes in the environment is as it was in the next one.
    """
    body = (
        "    path = tmp_path / 'deep' / 'runs' / '.crashes'\n    path.mkdir(parents=True)\n"
        "    (path / 'crash-1.txt').write_text('ValueError: boom')\n"
    )
    write(
        folder,
        f"def test_a(tmp_path):\n{body}\n@pytest.mark.crashes\ndef test_b(tmp_path):\n{body}"
        "def test_c():\n    os.environ['MINE'] = '1'\n    del os.environ['PATH']\n"
        "def test_d(): assert 'MINE' not in os.environ and os.environ['PATH']\n",
    )
    code, text = run(folder)
    assert code == 1
    assert "4 passed, 1 error" in text
    assert "crash files of sweep's:" in text and "ValueError: boom" in text


def test_leaked_process_fails_the_session(folder: Path) -> None:
    """A process that outlives its test is named, ended, and fails the session."""
    (folder / "conftest.py").write_text(
        'pytest_plugins = ["tests.conftest"]\n\n'
        "def pytest_configure(config):\n"
        "    from tests import conftest\n"
        "    conftest.LEAK_WAIT_S = 1.0  # it would not end by itself\n"
    )
    write(
        folder,
        "def test_a(tmp_path):\n"
        "    argv = [sys.executable, '-c', 'import time; time.sleep(300)', str(tmp_path)]\n"
        "    child = subprocess.Popen(argv, start_new_session=True)\n"
        "    pathlib.Path('pid.mark').write_text(str(child.pid))\n",
    )
    code, text = run(folder, "-q", "-p", "no:unraisableexception")
    assert code == 1
    assert "LEAKED PROCESSES" in text and "time.sleep(300)" in text
    pid = (folder / "pid.mark").read_text()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the leaked process to be ended")


@pytest.mark.parametrize(
    "workers",
    [pytest.param((), id="alone", marks=pytest.mark.long), pytest.param(("-n", "2"), id="workers")],
)
def test_durations_are_recorded_and_the_slowest_printed(
    folder: Path, workers: tuple[str, ...]
) -> None:
    """Setup and teardown count, failures too; what an earlier run noted of other tests stays."""
    write(
        folder,
        "@pytest.fixture\ndef slow():\n    time.sleep(0.2)\n    yield\n    time.sleep(0.2)\n"
        "def test_a(slow): pass\n"
        "def test_b(): assert not time.sleep(0.2)\n"
        "def test_c(): pytest.skip('not here')\n"
        "@pytest.mark.parametrize('n', range(30))\ndef test_many(n): pass\n",
    )
    _, text = run(folder, "-q", *workers)
    _, _, table = text.partition("= slowest 20 of 32 tests =")
    lines = [line.split(" s  ") for line in table.splitlines()[1:21]]
    took = {name: float(seconds) for seconds, name in lines}
    assert len(took) == 20 and all(name.startswith("test_it.py::") for name in took), text
    assert [*took.values()] == sorted(took.values(), reverse=True)

    noted = json.loads((folder / "test-durations.json").read_text())
    assert len(noted) == 32
    assert noted["test_it.py::test_a"] >= 0.4 and noted["test_it.py::test_b"] >= 0.2
    # On a busy machine one that does nothing may take as long as those.
    others = [seconds for name, seconds in noted.items() if name not in took]
    assert max(others) <= min(took.values()) + 0.005  # as it is printed
    run(folder, "-k", "test_b", *workers)
    later = json.loads((folder / "test-durations.json").read_text())
    assert later.pop("test_it.py::test_b") >= 0.2
    assert later == {name: took for name, took in noted.items() if "test_b" not in name}


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "workers"])
def test_started_in_the_background_children_can_be_interrupted(
    folder: Path, workers: tuple[str, ...]
) -> None:
    """Where a shell has the tests ignore SIGINT, what they start does not."""
    write(
        folder,
        "def test_a():\n"
        "    code = 'import signal; signal.raise_signal(signal.SIGINT)'\n"
        "    child = subprocess.run([sys.executable, '-c', code], stderr=subprocess.PIPE)\n"
        "    assert b'KeyboardInterrupt' in child.stderr\n",
    )
    text, _ = start(folder, *workers, prepare=ignore_interrupts).communicate(timeout=PATIENCE_S)
    assert "1 passed" in text, text


@pytest.mark.long  # it is of the long form
def test_report_survives_a_kill_and_is_resumed(folder: Path) -> None:
    """After SIGKILL the report holds what has ended; --resume runs the rest, and only that."""
    write(
        folder,
        "def note(name):\n    open('ran.mark', 'a').write(name)\n"
        "def test_a():\n    note('a'); time.sleep(1.1)\n"
        "def test_b():\n    note('b'); time.sleep(1.1)\n    assert os.path.exists('mended.mark')\n"
        "@pytest.mark.long\ndef test_c():\n    note('c')\n"
        "    if not os.path.exists('mended.mark'): time.sleep(300)\n"
        "def test_d(): skip_or_fail('git', 'for no reason')\n",
    )
    commit(folder)
    process = start(folder, "--long")
    wait_for(lambda: "c" in ran(folder), "the third test")
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert outcomes(folder) == {"test_a": "passed", "test_b": "failed"}
    assert (report(folder)["ended"], report(folder)["complete"]) == (None, False)

    (folder / "mended.mark").touch()  # ignored by git: the code is the same
    code, text = run(folder, "--long", "--resume")
    assert code == 0, text
    assert "resume: 1 tests have passed already with this code" in text
    assert ran(folder) == "abcbc"
    found = report(folder)
    assert outcomes(folder) == {
        "test_a": "passed",
        "test_b": "passed",
        "test_c": "passed",
        "test_d": "skipped",
    }
    assert found["totals"] == {"passed": 3, "skipped": 1}
    assert found["complete"] is True and found["ended"] >= found["started"]
    assert found["tests"]["test_it.py::test_a"]["earlier"] is True
    assert found["tests"]["test_it.py::test_d"]["reason"] == "git: for no reason"
    assert found["tests"]["test_it.py::test_b"]["duration_s"] >= 1.1

    # Neither a run of a part nor a mere list of the tests is a run of all.
    assert run(folder, "--long", "--collect-only")[0] == 0
    assert report(folder) == found
    (folder / "test-report.json").write_text(json.dumps({**found, "complete": False}))
    assert run(folder, "--long", "--resume", "-k", "test_d")[0] == 0
    assert (report(folder)["complete"], len(outcomes(folder))) == (True, 4)
    assert run(folder, "--long", "--resume")[0] == 0
    assert (report(folder)["complete"], ran(folder)) == (True, "abcbc")

    code, text = run(folder, "--long", "--resume")  # whole: so a new run begins
    assert (code, ran(folder)) == (0, "abcbcabc")


def test_a_worker_that_dies_costs_one_test(folder: Path) -> None:
    """Side by side too: a test that kills its worker fails alone, and the rest is resumed."""
    write(
        folder,
        "def note(name):\n    open('ran.mark', 'a').write(name)\n"
        "def test_a():\n    note('a'); time.sleep(1.1)\n"
        "def test_b():\n    note('b')\n    if not os.path.exists('mended.mark'): os._exit(9)\n"
        # It ends once the other worker's second test has begun, and that is known.
        "def test_c():\n    note('c')\n"
        "    while not os.path.exists('begun.mark'): time.sleep(0.01)\n    time.sleep(1.1)\n",
    )
    (folder / "test_other.py").write_text(
        HEAD + "def test_d():\n    time.sleep(0.5)\n"
        "def test_e():\n    pathlib.Path('begun.mark').touch()\n"
        "    if not os.path.exists('mended.mark'): time.sleep(300)\n"
        "def test_f(): pass\n"
    )
    commit(folder)
    beside = ("-n", "2", "--dist", "loadscope", "--long", "--resume")
    process = start(folder, *beside)
    path = folder / "test-report.json"
    wait_for(lambda: path.exists() and outcomes(folder).get("test_c") == "passed", "its third test")
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, text
    assert outcomes(folder) == {
        "test_a": "passed",
        "test_b": "error",
        "test_c": "passed",
        "test_d": "passed",
        "test_e": "running",
    }
    reason = report(folder)["tests"]["test_it.py::test_b"]["reason"]
    assert "crashed while running 'test_it.py::test_b'" in reason

    (folder / "mended.mark").touch()
    code, text = run(folder, *beside)
    assert code == 0, text
    assert ran(folder) == "abcb"
    assert report(folder)["totals"] == {"passed": 6} and report(folder)["complete"] is True


def test_changed_code_is_not_resumed(folder: Path) -> None:
    """A change, committed or not, of a known or a new file, makes all tests run again."""
    text = "def test_a():\n    open('ran.mark', 'a').write('a')\ndef test_b(): assert False\n"
    write(folder, text)
    commit(folder)
    assert run(folder, "--long")[0] == 1
    (folder / "new.py").write_text("")
    run(folder, "--long", "--resume")
    assert ran(folder) == "aa"
    write(folder, text + "# changed\n")
    run(folder, "--long", "--resume")
    assert ran(folder) == "aaa"
    commit(folder)
    run(folder, "--long", "--resume")
    assert ran(folder) == "aaaa"
    run(folder, "--long", "--resume")
    assert ran(folder) == "aaaa"


def ran(folder: Path) -> str:
    return text_of(folder / "ran.mark")


READS = {"read_text", "read_bytes", "open", "stat", "iterdir"}
# What a condition says that asks first, that takes the absence, or asks of a child not waited for.
GUARDS = (".exists()", "FileNotFoundError", "OSError", "/proc/")


def find_hasty_reads(source: str) -> list[int]:
    """Return the lines on which a wait's condition opens a file that may not be there yet."""
    nodes, lines = list(ast.walk(ast.parse(source))), source.splitlines()
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    found = set()
    for call in nodes:
        if not (isinstance(call, ast.Call) and name_of(call).startswith("wait") and call.args):
            continue
        condition = call.args[0]
        if not isinstance(condition, ast.Lambda | ast.Name):
            continue
        names = {condition.id} if isinstance(condition, ast.Name) else set()
        names |= {name_of(node) for node in ast.walk(condition) if isinstance(node, ast.Call)}
        asked = [condition, *(functions[name] for name in sorted(names & functions.keys()))]
        text = "".join("".join(lines[node.lineno - 1 : node.end_lineno]) for node in asked)
        if not any(guard in text for guard in GUARDS):
            calls = [n for one in asked for n in ast.walk(one) if isinstance(n, ast.Call)]
            found |= {node.lineno for node in calls if name_of(node) in READS}
    return sorted(found)


def name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def test_no_wait_reads_a_file_that_may_not_be_there_yet() -> None:
    """On a busy machine it is asked for before it is written: ``text_of`` is for that."""
    hasty = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line in find_hasty_reads(path.read_text())
    ]
    assert hasty == []
    bad = "def said():\n    return log.read_text()\nwait_for(lambda: 'x' in said(), 'it')\n"
    assert find_hasty_reads(bad) == [2]
    assert find_hasty_reads("wait_for(lambda: 'x' in log.read_text())") == [1]
    assert find_hasty_reads("wait_for(lambda: 'x' in text_of(log))") == []


def test_a_folders_processes_are_its_own(tmp_path: Path) -> None:
    """By what it works in and by its command line; a longer name is another folder."""
    mine, other = tmp_path / "a", tmp_path / "a1"
    for folder in (mine, other):
        folder.mkdir()
    code = "import time; time.sleep(600)"
    here = subprocess.Popen([sys.executable, "-c", code], cwd=other)
    named = subprocess.Popen([sys.executable, "-c", code, f"--to={other}/x"])
    try:
        found = wait_for(lambda: len(find_processes(other)) == 2 and find_processes(other), "both")
        assert {process.pid for process in found} == {here.pid, named.pid}
        assert find_processes(mine) == []
    finally:
        for child in (here, named):
            child.kill()
            child.wait()


def test_one_worker_has_all_tests_with_control_groups() -> None:
    """Those that ask for such a cluster, by name: who deals the tests out sees no fixtures."""
    found = {
        node.name
        for path in sorted((ROOT / "tests/cluster").glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        if "slurm_cgroup" in {argument.arg for argument in node.args.args}
    }
    assert found == WITH_CGROUPS
    assert find_room("tests/cluster/test_faults.py::test_out_of_memory[a]") == "slurm with cgroups"
    assert find_room("tests/cluster/test_launch.py::test_x") == "tests/cluster/test_launch.py"
    daily = "tests/cluster/test_launch.py::test_from_launch_to_the_winner_run_again"
    assert find_room(daily) == "slurm"


def test_make_check_passes_over_the_folders_without_a_unit_test() -> None:
    text = (ROOT / "Makefile").read_text()
    assert f"\nWHOLLY_REAL := {' '.join(REAL_FOLDERS)}\n" in text


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer(sweep_environment(ROOT), ["sweep.cli.launch"])
    yield server
    server.close()


@pytest.mark.parametrize(
    "arguments", [["--help"], ["config"], ["status"], ["launch", "gone.yaml"], ["nope", "ü\n"]]
)
def test_a_forked_command_is_as_a_started_one(
    tmp_path: Path, server: ForkServer, arguments: list[str]
) -> None:
    """The same code and texts, in the folder and with the variables that it was given."""
    environ = sweep_environment(tmp_path / "runs", {"SWEEP_RUNS": "elsewhere", "COLUMNS": "70"})
    done = subprocess.run(
        [sys.executable, "-m", "sweep", *arguments],
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    forked = server.start(["sweep", *arguments], cwd=str(tmp_path), environ=environ)
    out, err = forked.communicate(timeout=PATIENCE_S)
    assert (forked.returncode, out, err) == (done.returncode, done.stdout, done.stderr)


def test_what_is_forked_has_the_umask_of_who_asked(tmp_path: Path, server: ForkServer) -> None:
    """As a started one has; the server itself was started under another."""
    before = os.umask(0o027)
    try:
        code = "import os; print(oct(os.umask(0)))"
        given = sweep_environment(tmp_path)
        forked = server.start([], code=code, cwd=str(tmp_path), environ=given)
    finally:
        os.umask(before)
    assert before != 0o027
    assert forked.communicate(timeout=PATIENCE_S) == ("0o27\n", "")


def test_what_cannot_be_forked_says_why() -> None:
    """As where the machine has no memory left for one more process."""
    ours, theirs = socket.socketpair()
    (out, its_out), (err, its_err) = os.pipe(), os.pipe()
    socket.send_fds(ours, [b"0000000000"], [its_out, its_err])
    os.close(its_out)
    os.close(its_err)
    refuse(theirs, OSError("Cannot allocate memory"))
    with pytest.raises(ConnectionError, match="nothing was forked: Cannot allocate memory"):
        Forked(ours, out, err)


def test_what_an_interpreter_reads_when_it_starts_is_not_forked(
    tmp_path: Path, server: ForkServer
) -> None:
    """Then it is started. What is forked can be waited for, signalled, and given code to run."""
    given = sweep_environment(tmp_path / "runs", {"SWEEP_STORAGE": "x", "PATH": "/bin"})
    assert server.can_serve(given)
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "OMP_NUM_THREADS", "HOME"):
        assert not server.can_serve({**given, name: "other"}), name
    assert not server.can_serve({name: text for name, text in given.items() if name != "HOME"})
    code = "import sys, time; print(sys.argv[1], flush=True); time.sleep(600)"
    forked = server.start(["it runs"], code=code, cwd=str(tmp_path), environ=given)
    assert forked.stdout.readline() == "it runs\n"
    with pytest.raises(subprocess.TimeoutExpired):
        forked.communicate(timeout=0.0)
    forked.send_signal(signal.SIGKILL)
