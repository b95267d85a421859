"""A pytest plugin: durations, the long form's report, going on after an interruption, loud skips.

How long each test took is in ``test-durations.json``, whatever was run; the slowest are printed.

``--long`` also runs the tests marked ``long`` and writes ``test-report.json`` while they run, whole
at any moment. ``--resume`` leaves out what that file says has passed, as long as the code is the
same: commit, uncommitted changes and Python. A part of the tests may be run in between.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests import needs

REPORT = "test-report.json"
DURATIONS = "test-durations.json"
SLOWEST = 20  # tests are printed at the end
# Tests shorter than this share a write of the file; SIGKILL loses no more than the last such.
WRITE_EVERY_S = 1.0
NOTE_EVERY_S = 10.0  # of the durations, which are written in every run
LONG_REASON = "long: runs with `make test-all` (--long)"
LOG_LIMIT = 4000  # characters of a failure's text


def git(root: Path, *arguments: str) -> bytes | None:
    """Return what git prints, or None where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def read_state(root: Path) -> dict[str, Any]:
    """Return what makes two runs comparable: commit, a digest of uncommitted changes, Python.

    The digest covers changes of tracked files and the content of untracked ones that git does not
    ignore; it is empty for a clean tree. Without git the commit is None, and nothing is resumed.
    """
    commit = git(root, "rev-parse", "HEAD")
    changes = b""
    if commit is not None:
        changes = git(root, "diff", "HEAD", "--binary") or b""
        names = git(root, "ls-files", "--others", "--exclude-standard", "-z") or b""
        for name in sorted(filter(None, names.split(b"\0"))):
            path = root / name.decode("utf-8", "surrogateescape")
            if path.is_file():
                changes += name + b"\0" + hashlib.sha256(path.read_bytes()).digest()
    return {
        "commit": commit.decode().strip() if commit else None,
        "dirty": hashlib.sha256(changes).hexdigest() if changes else "",
        "python": platform.python_version(),
    }


def read_report(path: Path) -> dict[str, Any]:
    """Return the last report; empty where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read_selection(config: pytest.Config) -> str:
    """Return which tests were asked for, as on the command line."""
    option = config.option
    narrower = {"-k": option.keyword, "-m": option.markexpr}
    words = [f"{key} {text}" for key, text in narrower.items() if text]
    return " ".join([*map(str, config.args), *words])


def passed_before(report: dict[str, Any], state: dict[str, Any], selection: str) -> dict[str, Any]:
    """Return the entries of the tests that need not run again, by their ids.

    There are none where the code differs, or where the last run was whole: then a new one begins. A
    run of a part, whole or not, does not make an interrupted run of more begin again.
    """
    same = state["commit"] is not None and all(report.get(key) == state[key] for key in state)
    if not same or (report.get("complete") and report.get("selection") == selection):
        return {}
    return {name: entry for name, entry in report["tests"].items() if entry["outcome"] == "passed"}


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file of JSON, whole or not at all."""
    from sweep.core.files import write_atomic

    write_atomic(path, json.dumps(content, indent=1) + "\n", mode=0o644)


class RunReport:
    """What one session of pytest found, written as it goes.

    Args:
        path: Of the report; None writes none.
        state: See ``read_state``.
        selection: See ``read_selection``.
        earlier: Entries taken over from the interrupted run.
    """

    def __init__(
        self, path: Path | None, state: dict[str, Any], selection: str, earlier: dict[str, Any]
    ) -> None:
        self.path = path
        self.earlier = earlier
        self.content: dict[str, Any] = {
            **state,
            "selection": selection,
            "started": now(),
            "ended": None,
            "complete": False,
            "totals": {},
            "tests": {name: {**e, "earlier": True} for name, e in self.earlier.items()},
        }
        self._written = 0.0

    def add(self, report: pytest.TestReport) -> None:
        """Take one phase (setup, call, teardown) of a test."""
        tests = self.content["tests"]
        entry = tests.get(report.nodeid)
        if report.when == "setup" or entry is None:
            entry = tests[report.nodeid] = {"outcome": "running", "duration_s": 0.0}
        entry["duration_s"] = round(entry["duration_s"] + report.duration, 3)
        if report.failed:
            entry["outcome"] = "failed" if report.when == "call" else "error"
            entry["reason"] = report.longreprtext[-LOG_LIMIT:]
        elif report.skipped:
            entry["outcome"] = "skipped"
            entry["reason"] = skip_reason(report)
        elif report.when == "call":
            entry["outcome"] = "passed"
        if report.when == "teardown" and (
            entry["duration_s"] > WRITE_EVERY_S or time.monotonic() - self._written > WRITE_EVERY_S
        ):
            self.write()

    def end(self, complete: bool) -> None:
        """Note the end.

        Args:
            complete: Every test of the selection has run, and none failed.
        """
        self.content["ended"] = now()
        self.content["complete"] = complete
        self.write()

    def write(self) -> None:
        """Write the file, whole or not at all."""
        if self.path is None:
            return
        totals: dict[str, int] = {}
        for entry in self.content["tests"].values():
            totals[entry["outcome"]] = totals.get(entry["outcome"], 0) + 1
        self.content["totals"] = totals
        write_json(self.path, self.content)
        self._written = time.monotonic()


class Durations:
    """How long each test took when it last ran, whatever was asked for and however it ended.

    Args:
        path: Of the file, which keeps what other runs noted; None writes none.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.noted: dict[str, float] = {}
        self._written = time.monotonic()

    def note(self, name: str, duration_s: float) -> None:
        """Take a test that has ended."""
        self.noted[name] = duration_s
        if time.monotonic() - self._written > NOTE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Write the file; tests whose files are gone leave it."""
        if self.path is None or not self.noted:
            return
        known = {**read_report(self.path), **self.noted}
        folder = self.path.parent
        files = {name.partition("::")[0] for name in known}
        there = {file for file in files if (folder / file).is_file()}
        kept = {name: took for name, took in known.items() if name.partition("::")[0] in there}
        write_json(self.path, kept)
        self._written = time.monotonic()

    def slowest(self) -> list[tuple[float, str]]:
        """Return the slowest tests of this run, the longest first."""
        return sorted(((took, name) for name, took in self.noted.items()), reverse=True)[:SLOWEST]


def skip_reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


class Plugin:
    """The hooks."""

    def __init__(self, config: pytest.Config) -> None:
        self.long = bool(config.getoption("--long"))
        self.resume = bool(config.getoption("--resume"))
        root = config.rootpath
        state: dict[str, Any] = {}
        selection = read_selection(config)
        # Under pytest-xdist the workers' results reach the controller, which alone reads and writes
        # the report: a worker that replaces a dead one must leave out what the others do.
        worker = getattr(config, "workerinput", None)
        if worker is not None:
            earlier = {name: {} for name in worker["passed_before"]}
        else:
            state = read_state(root) if self.long or self.resume else {}
            earlier = {}
            if self.resume:
                earlier = passed_before(read_report(root / REPORT), state, selection)
        runs = worker is None and not config.option.collectonly
        writes = self.long and runs
        self.report = RunReport(root / REPORT if writes else None, state, selection, earlier)
        self.durations = Durations(root / DURATIONS if runs else None)
        self.left_out = 0
        self.skipped: dict[str, list[str]] = {}

    def pytest_report_header(self) -> list[str]:
        lines = [f"required: {', '.join(sorted(needs.required())) or 'nothing'}"]
        if self.resume:
            known = len(self.report.earlier)
            lines.append(f"resume: {known} tests have passed already with this code")
        return lines

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["passed_before"] = list(self.report.earlier)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        if not self.long:
            for item in items:
                if item.get_closest_marker("long"):
                    item.add_marker(pytest.mark.skip(reason=LONG_REASON))
        known = [item for item in items if item.nodeid in self.report.earlier]
        if known:
            self.left_out = len(known)
            config.hook.pytest_deselected(items=known)
            items[:] = [item for item in items if item.nodeid not in self.report.earlier]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[assignment]
        if report.skipped and not hasattr(report, "wasxfail"):
            # A marker is as good as a call of skip_or_fail.
            lacking = [need for need in needs.required() if item.get_closest_marker(need)]
            is_long = skip_reason(report) == LONG_REASON
            if lacking and not is_long:
                report.outcome = "failed"
                report.longrepr = (
                    f"skipped ({skip_reason(report)}), but {', '.join(lacking)} is required by "
                    f"{needs.VARIABLE}"
                )
        return report  # type: ignore[return-value]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.setdefault(skip_reason(report), []).append(report.nodeid)
        self.report.add(report)
        entry = self.report.content["tests"][report.nodeid]
        if report.when == "teardown" and entry["outcome"] != "skipped":
            self.durations.note(report.nodeid, entry["duration_s"])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:  # a whole module, by importorskip
            self.skipped.setdefault(skip_reason(report), []).append(report.nodeid)  # type: ignore[arg-type]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.left_out and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = exitstatus = pytest.ExitCode.OK  # all the rest had passed before
        self.report.end(complete=exitstatus == pytest.ExitCode.OK)
        self.durations.write()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write = terminalreporter.write_line
        slowest = self.durations.slowest()
        if slowest:
            terminalreporter.section(f"slowest {len(slowest)} of {len(self.durations.noted)} tests")
            for took_s, name in slowest:
                write(f"{took_s:8.2f} s  {name}")
        if self.left_out:
            terminalreporter.section("passed before")
            write(f"{self.left_out} tests were left out: they passed with this code (--resume)")
        if not self.skipped:
            return
        terminalreporter.section(f"NOT RUN: {sum(map(len, self.skipped.values()))} tests")
        for reason, names in sorted(self.skipped.items()):
            write(f"NOT RUN: {reason}", yellow=True)
            for name in sorted(names):
                write(f"    {name}")


def add_options(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("sweep")
    group.addoption("--long", action="store_true", help="also run the tests that take minutes")
    group.addoption(
        "--resume", action="store_true", help=f"leave out what passed, according to {REPORT}"
    )
