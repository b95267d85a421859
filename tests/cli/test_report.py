"""``sweep report`` of a study in a real database: its numbers are collect's, a browser shows it."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sweep import load
from sweep.control.open_study import Opened
from sweep.core.files import make_private, write_atomic
from sweep.core.paths import Runs
from sweep.core.space import Parameter, Space
from sweep.core.study import Resources
from sweep.results.page import accounts, views, write
from sweep.storage import access
from tests.needs import require
from tests.postgres_fixture import database_url, postgres_server, shared_database  # noqa: F401
from tests.study_rows import Row, Tried, fill, make_study

pytest.importorskip("vl_convert", reason="vl-convert-python (extra: report)")

SPACE = Space(
    (
        Parameter("lr", "float", low=1e-4, high=1.0, log=True),
        Parameter("layers", "int", low=1, high=4),
        Parameter("optimizer", "categorical", choices=("sgd", "adamw")),
        Parameter("momentum", "float", low=0.0, high=0.99, when={"optimizer": ("sgd",)}),
    )
)
TRIALS = 60


def trial(number: int, dice: random.Random) -> Row:
    """Return one of the study's trials: complete, pruned, failed, killed and resumed."""
    params: dict[str, Any] = {
        "lr": 10 ** dice.uniform(-4, 0),
        "layers": dice.randint(1, 4),
        "optimizer": dice.choice(["sgd", "adamw"]),
    }
    if params["optimizer"] == "sgd":
        params["momentum"] = dice.uniform(0.0, 0.99)
    top = dice.uniform(0.5, 1.0)
    steps = [(step, "acc", top * (1 - 0.5 ** (step + 1))) for step in range(8)]
    if number % 10 == 7:
        end = {"state": "failed", "outcome": "error", "reason": "exit code 1: boom"}
        return Row("FAIL", (), params, [Tried("error", "exit code 1: boom", 20.0)], end)
    if number % 3 == 1:
        end = {"state": "pruned", "reason": "pruned"}
        return Row("PRUNED", [steps[2][2]], params, [Tried(reports=steps[:3], took_s=25.0)], end)
    tried = [Tried(reports=steps, took_s=80.0)]
    if number % 6 == 2:
        tried = [
            Tried("killed", "by SIGKILL", 30.0, steps[:3]),
            Tried(reports=steps[3:], took_s=50.0),
        ]
    return Row("COMPLETE", [steps[-1][2]], params, tried)


@pytest.fixture
def opened(database_url: str, tmp_path: Path) -> Opened:  # noqa: F811
    """A study with literal trials, as a command opens it."""
    dice = random.Random(0)
    study = make_study(SPACE, trials=TRIALS, executor="local", resources=Resources(gpus=2))
    ledger = fill(database_url, study, [trial(number, dice) for number in range(TRIALS)])
    runs = Runs(tmp_path / "runs")
    folder = runs.study(study.name)
    make_private(folder.root)
    write_atomic(folder.study, study.to_json())
    access.remember(folder, database_url, runs)
    return Opened(folder, study, ledger)


def written(opened: Opened) -> Path:
    """Write a study's page and return it."""
    [path] = write.report(opened)
    return path


def test_every_figure_is_collects(opened: Opened) -> None:
    """Tiles, charts and tables hold what ``sweep collect`` and its frames hold."""
    found = write.contents(opened)
    with load("digits", opened.folder.root.parent) as loaded:
        frame, steps = loaded.trials(metrics=False), loaded.metrics("acc")
    assert [row["trial"] for row in found.trials] == list(frame.trial[:20])
    assert [row["value"] for row in found.trials] == list(frame.value[:20])
    assert found.source.best is not None
    assert found.source.best.number == frame.trial[0]
    assert found.source.counts == {
        state: int((frame.state == state).sum()) for state in found.source.counts
    }
    # Hours.
    spent, lost = found.cost.spent, found.cost.lost
    assert spent.training_s == pytest.approx(frame.duration_s.sum())
    assert spent.gpu_hours == pytest.approx(frame.gpu_hours.sum())
    failed = frame[frame.state == "failed"]
    assert lost.training_s == pytest.approx(failed.duration_s.sum() + _restarted_s(frame))
    # The course.
    shown = {cell["trial"]: cell["value"] for cell in views.results(found.source).cells}
    known = frame[frame.value.notna()].set_index("trial").value
    assert set(shown) == set(known.index)
    assert all(shown[number] == views.short(known[number]) for number in shown)
    best = views.best_so_far(found.source).cells[-1]
    assert (best["trial"], best["value"]) == (frame.trial[0], views.short(frame.value[0]))
    levels = found.cost.levels
    assert levels[-1].value == frame.value[0] and levels[-1].ended <= len(known)
    assert found.levels[-1][0] == f"{frame.value[0]:.6g}"
    # The curves: each point is one of the long frame.
    points = {(row.trial, row.step): views.short(row.value) for row in steps.itertuples()}
    drawn = {
        (cell["trial"], cell["step"]): cell["value"] for cell in views.curves(found.source).cells
    }
    assert drawn == points
    assert accounts.interruptions(found.source).total == int((frame.attempts - 1).sum())


def _restarted_s(frame: Any) -> float:
    """Return what killed attempts lost: their reports are all dated 1970, so all of the time."""
    return 30.0 * int((frame.attempts > 1).sum())


def test_a_browser_shows_it(opened: Opened, tmp_path: Path) -> None:
    """Every chart is drawn, nothing is said on the console, at three widths, light and dark."""
    require("chromium")
    path = written(opened)
    charts = len(write.contents(opened).charts)
    assert charts >= 10
    for width, scheme in ((390, "0"), (820, "1"), (1400, "0")):
        done = subprocess.run(
            [
                shutil.which("chromium") or "chromium",
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--user-data-dir={tmp_path / str(width)}",
                "--enable-logging=stderr",
                f"--window-size={width},1000",
                f"--blink-settings=preferredColorScheme={scheme}",
                "--virtual-time-budget=20000",
                "--dump-dom",
                path.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        assert re.findall(r".*:CONSOLE.*", done.stderr) == []
        drawn = re.search(r'data-drawn="(\d+)"', done.stdout)
        assert drawn is not None and int(drawn[1]) == charts
        assert done.stdout.count("<canvas") == charts


def test_pictures(opened: Opened, tmp_path: Path) -> None:
    """--figures writes each chart as a picture that others read."""
    import matplotlib.image

    folder = tmp_path / "figures"
    paths = write.report(opened, tmp_path / "page.html", folder, ("png",))
    keys = {chart.key for chart in write.contents(opened).charts}
    assert {path.stem for path in paths[1:]} == keys
    height, width, _ = matplotlib.image.imread(folder / "history.png").shape
    assert width > 1000 and height > 400
    write.pictures.draw(write.contents(opened).charts[:1], folder, ("svg",))
    assert "<svg" in (folder / "history.svg").read_text()


def test_a_page_never_fails_a_study(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the drawing library, or without room for the file, the end of a study says so."""
    said: list[str] = []
    opened.folder.results.mkdir()
    opened.folder.report.mkdir()  # a folder where the page would be
    write.at_the_end(opened, said.append)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    write.at_the_end(opened, said.append)
    assert [text.partition(":")[0] for text in said] == ["no report was made"] * 2
    assert "pip install 'sweep-hpo[report]'" in said[1]


def test_a_removed_study_is_not_brought_back_by_its_page(opened: Opened) -> None:
    """A removal renames the folder while a finaliser draws: nothing is made where it was."""
    said: list[str] = []
    opened.folder.root.rename(opened.folder.root.with_name("renamed"))
    write.at_the_end(opened, said.append)
    assert not opened.folder.root.exists()
    assert said[0].startswith("no report was made: The study's folder") and "is gone" in said[0]


def test_data_are_in_the_page(opened: Opened) -> None:
    """The page holds every chart's data, Vega once, and its size is that of Vega."""
    text = written(opened).read_text()
    specs = re.search(r'<script type="application/json" id="specs">(.*?)</script>', text)
    assert specs is not None
    drawn = {chart.key for chart in write.contents(opened).charts}
    assert set(json.loads(specs[1])) == drawn - {"parallel"}  # which a script of ours draws
    assert 500_000 < len(text) < 2_000_000
