"""What all tests share: options, isolation from the user's settings, and the fixtures.

Two laws hold in every test: a crash file of sweep's fails it, and no process outlives the session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sweep.schedulers
from sweep.core import masking
from tests import apptainer, run_report
from tests.cluster import WITH_CGROUPS, is_daily
from tests.cluster.fixture import clean_slurm, slurm, slurm_cgroup
from tests.fork_server import ForkServer
from tests.needs import ensure_apptainer, point_at_data
from tests.postgres_fixture import (
    database_url,
    empty_url,
    fresh_url,
    postgres_server,
    shared_database,
    template_database,
)
from tests.processes import end_processes, wait_until_gone

__all__ = [
    "clean_slurm",
    "database_url",
    "empty_url",
    "fresh_url",
    "postgres_server",
    "shared_database",
    "slurm",
    "slurm_cgroup",
    "template_database",
]

ROOT = Path(__file__).parents[1]
EXIT_FAULT = 70
LEAK_WAIT_S = 60.0  # for processes that are ending, on a busy machine
KEPT = ("SWEEP_TEST_REQUIRE", "SWEEP_TEST_MLFLOW", "SWEEP_PG_BIN", "SWEEP_DATA")
NOT_WALKED = {".postgres", "trials", "reruns", "local", "logs"}
# What makes a test real: its folder, or a fixture that starts what it needs. Files that start
# servers or trainings by themselves carry the marker. All others are the unit tests.
REAL_FOLDERS = ("e2e", "cluster", "chaos", "frameworks")
REAL_FIXTURES = {"sweep", "postgres_server", "slurm", "images"}
# Unit tests that wait for most of their time, which others can compute in: they begin early.
WAITING_FILES = ("tests/training/test_supervisor.py", "tests/training/profiling/")

_leaked = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    run_report.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    stop_ignoring_interrupts()
    if config.getoption("--long"):
        _as_users_do.append(True)
    # The user's own settings must not reach the tests, nor the tests the user's runs.
    for name in list(os.environ):
        if name.startswith(("SWEEP_", "PG", "OPTUNA_")) and name not in KEPT:
            del os.environ[name]
    # Each of the many Pythons that tests start would compile sweep anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Set to nothing: neither this machine's defaults and templates nor the user's.
    os.environ |= {"SWEEP_SITE_CONFIG": "", "SWEEP_USER_CONFIG": ""}
    point_at_data()
    config.pluginmanager.register(run_report.Plugin(config), "sweep-run-report")


def stop_ignoring_interrupts() -> None:
    """Let children start as from a terminal.

    A shell that starts the tests in the background has them ignore SIGINT, and a program inherits
    what is ignored: no command that a test starts could then be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """No process of a test may be left; those that are fail the session, and are ended."""
    factory = getattr(session.config, "_tmp_path_factory", None)
    base = getattr(factory, "_basetemp", None)
    if base is None:
        return  # no test used a temporary folder
    left = wait_until_gone(base, LEAK_WAIT_S)
    end_processes(base)
    session.config.stash[_leaked] = [f"{p.pid} {p.command[:300]} ({p.why})" for p in left]
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: object, config: pytest.Config) -> None:
    leaked = config.stash.get(_leaked, [])
    if leaked:
        terminalreporter.section("LEAKED PROCESSES", red=True)  # type: ignore[attr-defined]
        for line in leaked:
            terminalreporter.write_line(line)  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)  # -m chooses by the marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the real tests, and put the slowest first, lest a worker is left with one at the end."""
    for item in items:
        if find_folder(item) in REAL_FOLDERS or REAL_FIXTURES.intersection(fixtures_of(item)):
            item.add_marker(pytest.mark.real)
        if find_folder(item) == "cluster" and not is_daily(item.nodeid):
            item.add_marker(pytest.mark.cluster)
        if find_folder(item) == "frameworks":
            item.add_marker(pytest.mark.frameworks)
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=rank)


def fixtures_of(item: pytest.Item) -> list[str]:
    """Return the names of all fixtures of a test, also of those that others ask for."""
    return getattr(item, "fixturenames", [])


def find_folder(item: pytest.Item) -> str:
    """Return which folder of tests/ a test lies in."""
    return item.nodeid.removeprefix("tests/").split("/")[0]


def rank(item: pytest.Item) -> int:
    """Return how early a test is to begin: the longest files first, what is not real last."""
    order = ["cluster", "chaos", "tasks", "e2e"]
    if find_folder(item) in order:
        return order.index(find_folder(item))
    if item.nodeid.startswith(WAITING_FILES):
        return order.index("e2e")
    return len(order) if item.get_closest_marker("real") else len(order) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal the tests out to pytest-xdist's workers room by room (with ``--dist loadscope``).

    The Slurm tests wait more than they compute: in `make test` one worker has them all, on one
    cluster, while others compute; `make test-cluster` has a cluster for each worker. A file stays
    on one worker, because its tests may share fixtures. (xdist's own groups do not work with
    pytest 9.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Rooms(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return find_room(nodeid)

        def _reschedule(self, node: Any) -> None:
            if node not in self.registered_collections:
                return  # a replacement that has not collected yet
            super()._reschedule(node)
            if self._pending_of(self.assigned_work[node]) == 1:
                # A worker begins a test when it knows the next one, or that there is none.
                super()._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """Give a dead worker's tests to the others, except for the one that it died in.

            xdist hands that one out as well, so that one test can end every worker.
            """
            units = self.assigned_work.pop(node).items()
            left = {room: [name for name, done in unit.items() if not done] for room, unit in units}
            killer = next((names.pop(0) for names in left.values() if names), None)
            for room, names in left.items():
                if names:
                    self.workqueue[room] = dict.fromkeys(names, False)
            if killer is not None:
                for other in self.assigned_work:
                    self._reschedule(other)
            return killer

    return Rooms(config, log) if config.getvalue("dist") == "loadscope" else None


def find_room(nodeid: str) -> str:
    """Return "slurm" for a test that needs a cluster and runs daily, else its file.

    The nodes' control groups bear the same names in all clusters: one worker has what uses them.
    """
    file, _, name = nodeid.partition("::")
    if not file.startswith("tests/cluster/"):
        return file
    if is_daily(nodeid):
        return "slurm"
    return "slurm with cgroups" if name.partition("[")[0] in WITH_CGROUPS else file


@pytest.fixture(autouse=True)
def no_crash_file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """An unexpected exception leaves a crash file, and counts as a failure in every test."""
    yield
    if request.node.get_closest_marker("crashes"):
        return
    found = find_crash_files(tmp_path)
    if found:
        texts = "\n\n".join(f"{path}\n{path.read_text(errors='replace')}" for path in found)
        pytest.fail(f"crash files of sweep's:\n{texts}", pytrace=False)


def find_crash_files(folder: Path) -> list[Path]:
    """Return the crash files below a folder, without looking into studies and databases."""
    found = []
    for top, folders, files in os.walk(folder):
        if os.path.basename(top) == ".crashes":
            found += [Path(top) / name for name in files]
        folders[:] = [name for name in folders if name not in NOT_WALKED]
    return sorted(found)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """A test's passwords are no secrets of the next one's, nor are its variables set there.

    What has a process of its own may set variables for good (BLAS's threads, MLflow's patience).
    Where a test calls it here, no later command could be forked (``ForkServer.can_serve``).
    """
    masking.forget_secrets()
    before = dict(os.environ)
    yield
    for name in {*before, *os.environ}:
        if name.startswith("PYTEST_"):
            continue  # which test runs: pytest's own
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    """A runs folder; what still runs there is ended, and its embedded server stopped."""
    folder = tmp_path / "runs"
    yield folder
    stop_runs(folder)


def stop_runs(folder: Path) -> None:
    """End all that runs for a runs folder, its embedded server last and in good order."""
    from sweep.storage.embedded import start_stop

    server = folder / ".postgres"
    for study in folder.glob("*/study.json"):
        end_processes(study.parent)
    if server.is_dir():
        start_stop.stop(server)
    end_processes(folder)


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


Sweep = Callable[..., Ran]

# What commands import, late too, and what they compute with.
IMPORTED = ("sweep.schedulers", "optuna", "sqlalchemy", "pandas", "rich.table", "matplotlib.pyplot")
_fork_servers: dict[str, ForkServer] = {}
_fork_lock = threading.Lock()
_as_users_do: list[bool] = []  # with --long: no command is forked


def command_server() -> ForkServer | None:
    """Return what forks commands in this session; None where each is started by itself."""
    if _as_users_do:
        return None
    commands = sorted((ROOT / "sweep/cli").glob("[a-z]*.py"))
    modules = [*IMPORTED, *(f"sweep.cli.{path.stem}" for path in commands)]
    return fork_server("sweep", sweep_environment(ROOT), modules)


def fork_server(name: str, environ: Mapping[str, str], modules: Sequence[str]) -> ForkServer:
    """Return this session's fork server of a name, started once it is asked for."""
    with _fork_lock:
        if name not in _fork_servers:
            _fork_servers[name] = ForkServer(environ, modules)
        return _fork_servers[name]


def pytest_unconfigure() -> None:
    while _fork_servers:
        _fork_servers.popitem()[1].close()


def sweep_environment(
    runs: Path, changes: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """Return the environment in which tests call sweep: this checkout, this Python first."""
    env: dict[str, str] = {
        **os.environ,
        "SWEEP_RUNS": str(runs),
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "COLUMNS": "200",
        "NO_COLOR": "1",
    }
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def run_sweep(
    *args: object,
    runs: Path,
    cwd: Path,
    env: Mapping[str, str | None] | None = None,
    timeout_s: float = 300.0,
) -> Ran:
    """Run the command line in a process of its own; a fault of sweep's fails the test.

    Args:
        env: Changes of the environment; a variable that maps to None is left out.
    """
    words, environ = list(map(str, args)), sweep_environment(runs, env)
    server = command_server()
    if server is not None and server.can_serve(environ):
        forked = server.start(["sweep", *words], cwd=str(cwd), environ=environ)
        try:
            out, err = forked.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            forked.kill()
            raise
        assert forked.returncode is not None
        ran = Ran(forked.returncode, out, err)
    else:
        done = subprocess.run(
            [sys.executable, "-m", "sweep", *words],
            cwd=cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout_s,
            check=False,
        )
        ran = Ran(done.returncode, done.stdout, done.stderr)
    if ran.code == EXIT_FAULT or "Traceback (most recent call last)" in ran.err:
        crashes = "\n".join(p.read_text() for p in find_crash_files(runs))
        pytest.fail(f"sweep {args}: {ran.err}\n{crashes}", pytrace=False)
    return ran


@pytest.fixture
def sweep(tmp_path: Path, runs: Path) -> Sweep:
    """Run the command line: ``sweep(*args, cwd=tmp_path, env={})`` returns (code, out, err)."""
    return partial(run_sweep, runs=runs, cwd=tmp_path)


@pytest.fixture
def no_process_left(tmp_path: Path) -> Iterator[None]:
    """The test leaves no process of its folder behind."""
    yield
    assert [process.command for process in wait_until_gone(tmp_path)] == []


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny.sif and the tree of it, and a shell.sif that has no Python."""
    ensure_apptainer()
    folder = tmp_path_factory.mktemp("images")
    apptainer.make_sif(apptainer.make_tree(folder / "tree"), folder / "tiny.sif")
    shell = apptainer.make_tree(folder / "shell", ("sh", "mv", "sleep"))
    apptainer.make_sif(shell, folder / "shell.sif")
    return folder
