"""``sweep serve`` on real studies: what it shows is what collect says, in a real browser, live."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from sweep.cli.serve import ssh_line
from sweep.control.open_study import Opened
from sweep.control.scheduler_view import SchedulerView
from sweep.core.paths import Runs
from sweep.results.live_page.feeds import StudyFeed
from sweep.results.live_page.web_server import Pages, WebServer
from sweep.results.page import html
from sweep.schedulers.choose import scheduler_of
from tests.browser import Browser, browser
from tests.conftest import Sweep, sweep_environment
from tests.needs import require
from tests.toys import TRAINING, write_toy
from tests.waiting import text_of, wait_for

pytest.importorskip("vl_convert", reason="vl-convert-python (extra: report)")

# Each trial waits for a gate of its own.
GATED = (
    TRAINING.replace("flags.gate and", "gate and")
    .replace("exists(flags.gate)", "exists(gate)")
    .replace(
        "reporter = Reporter()",
        "reporter = Reporter()\ngate = flags.gate + os.environ['SWEEP_TRIAL']",
    )
)


def look(opened: Opened) -> dict[str, object]:
    schedule = scheduler_of(opened.folder, opened.study)
    return dict(SchedulerView(opened, schedule, only_looks=True).ask())


@contextlib.contextmanager
def serving(runs: Path, study: str | None) -> Iterator[WebServer]:
    server = WebServer(Pages(Runs(runs), study, look, html.script(html.cache_folder())))
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.idle_s = -1.0
        thread.join()


def numbers(sweep: Sweep, *options: str) -> dict[int, float]:
    """Return what ``sweep collect`` says of the ranked trials."""
    rows = json.loads(sweep("collect", *options, "--format", "json").out)
    return {row["trial"]: row["value"] for row in rows if row["rank"] is not None}


def test_a_feed_says_what_collect_says(finished: Sweep, runs: Path, tmp_path: Path) -> None:
    """All trials are there; of a study at which nothing happens no session stays open, and it is
    read again when its folder says that something was done."""
    where = Runs(Path(finished.keywords["runs"]))  # type: ignore[attr-defined]
    feed = StudyFeed(where, "toy", look)
    feed.look(0.0)
    assert feed.problem == "" and feed.contents is not None
    columns = feed.contents.columns
    found = dict(zip(columns["trial"], columns["value"], strict=True))
    wanted = numbers(finished)
    assert found == {trial: pytest.approx(value, rel=1e-5) for trial, value in wanted.items()}
    assert not feed.is_open
    news = feed.news.since(0)
    assert news is not None and "finished" in news["parts"]["now"]
    assert set(news["specs"]) >= {"history", "curves", "timeline"}
    assert news["specs"].get("running") is None
    before = feed.contents
    feed.look(1.0)
    assert feed.contents is before
    os.utime(where.study("toy").study)
    feed.look(2.0)
    assert feed.contents is not before and not feed.is_open


def test_a_browser_follows_a_study(
    sweep: Sweep, runs: Path, tmp_path: Path, fresh_url: str
) -> None:
    """Trials appear as they begin, a log grows as it is written, and at the end the page holds the
    numbers of collect. Nothing is said on the console, so the page's policy holds."""
    require("chromedriver")
    gate = tmp_path / "gate"
    command = f"[python, train.py, '{{params}}', --gate, {gate}]"
    file = write_toy(tmp_path, trials=3, parallel=1, command=command, training=GATED)
    assert sweep("launch", file).code == 0
    with serving(runs, "toy") as server, browser(tmp_path) as window:
        window.open(server.gate.address)
        assert window.run("return location.search") == ""  # the token is gone from the address
        wait_for(lambda: is_there(window, "[data-running='0'] button"), "trial 0 to be shown")
        wait_for(lambda: is_there(window, "#chart-running canvas"), "its curve to be drawn")
        window.click("[data-running='0'] button")
        wait_for(lambda: "starts at step 0" in window.text("#log-text"), "its log")
        assert "done" not in window.text("#log-text")
        Path(f"{gate}0").touch()
        wait_for(lambda: "done" in window.text("#log-text"), "its log to grow")
        window.click("#log-close")
        wait_for(lambda: is_there(window, "[data-running='1']"), "the next trial to be shown")
        for number in (1, 2):
            Path(f"{gate}{number}").touch()
        wait_for(lambda: "finished" in window.text("#part-now"), "the end to be shown")
        wait_for(lambda: len(shown(window)) == 3, "all trials to be in the table")
        wanted = {trial: f"{value:.6g}" for trial, value in numbers(sweep).items()}
        assert shown(window) == wanted
        assert window.text("#part-rest .tile b") == next(iter(wanted.values()))
        wait_for(lambda: is_there(window, "#chart-history canvas"), "the best so far")
        # Two are compared, with the curves that were read.
        window.click("#part-rest input[data-trial='0']")
        window.click("#part-rest input[data-trial='2']")
        window.click("#to-compared")
        wait_for(lambda: is_there(window, "#chart-compare canvas"), "the compared curves")
        assert "trial 0" in window.text("#compared") and "trial 2" in window.text("#compared")
        assert window.console() == []
        # The server ends: the page stays, and says so.
        server.idle_s = -1.0
        wait_for(lambda: "does not answer" in window.text("#problem"), "the page to say so")
        assert shown(window) == wanted


def is_there(window: Browser, selector: str) -> bool:
    return bool(window.run("return !!document.querySelector(arguments[0])", selector))


def shown(window: Browser) -> dict[int, str]:
    """Return the trials and values of the table of the best."""
    script = """
    const boxes = [...document.querySelectorAll("#part-rest input[data-trial]")];
    return boxes.map((box) => box.closest("tr")).map((row) =>
      [row.cells[2].textContent, row.cells[3].textContent]);
    """
    return {int(trial): value for trial, value in window.run(script)}


def test_the_command(finished: Sweep) -> None:
    """It prints an address that opens the page, ends with Ctrl-C, and says no more."""
    runs = Path(finished.keywords["runs"])  # type: ignore[attr-defined]
    env = finished.keywords["env"]  # type: ignore[attr-defined]
    log = runs.parent / "serve.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "sweep", "serve", "--all"],
            cwd=runs.parent,
            env=sweep_environment(runs, env),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for(lambda: "Ctrl-C ends it" in text_of(log), "the address")
        address = text_of(log).split("All studies: ")[1].split()[0]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        with opener.open(address) as answer:
            assert "Studies" in answer.read().decode()
        port = address.split(":")[2].partition("/")[0]
        assert f"ssh -L {port}:127.0.0.1:{port}" in text_of(log)
        with opener.open(f"http://127.0.0.1:{port}/?study=toy") as answer:
            assert "toy" in answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert text_of(log).count("\n") == 5 and "It has ended." in text_of(log)
    assert finished("serve", "toy", "--all").code == 2
    assert "no study" in finished("serve", "another").err


def test_the_line_for_ssh() -> None:
    """Within a job it leads over the machine that the job was submitted from."""
    host = os.uname().nodename
    assert ssh_line(8899, {"USER": "me"}) == f"ssh -L 8899:127.0.0.1:8899 me@{host}"
    job = {"USER": "me", "SLURM_JOB_ID": "7", "SLURM_SUBMIT_HOST": "login1"}
    assert ssh_line(8899, job) == f"ssh -L 8899:127.0.0.1:8899 -J me@login1 me@{host}"
    assert "-J" not in ssh_line(8899, {**job, "SLURM_SUBMIT_HOST": host})
