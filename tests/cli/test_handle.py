"""sweep from Python: launch, look, steer; a function as what is trained."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sweep as python
from sweep.core.errors import InputError, StudyFileError
from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep
from tests.studyfile.test_given_function import KEYS, top
from tests.waiting import PATIENCE_S, wait_for

TRAIN = """\
import os
import signal
import sys
import time
from pathlib import Path

from sweep import launch  # what a script that launches itself imports; training must stand it


def train(config, reporter):
    assert config["seed"] == reporter.seed
    start = int(Path(reporter.resume).read_text()) if reporter.resume else 0
    print("trained from", start, "on", sys.argv[0].rpartition("/")[2], flush=True)
    for step in range(start, 3):
        reporter.log(step, loss=config["x"] ** 2 + 1.0)
        saved = Path(reporter.checkpoint_dir, "step.pt")
        saved.with_suffix(".tmp").write_text(str(step + 1))
        saved.with_suffix(".tmp").replace(saved)
        killed = Path(config["folder"], "killed")
        if step == 1 and os.environ["SWEEP_TRIAL"] == "0" and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    while config["x"] == HELD and not reporter.should_stop():
        time.sleep(0.02)
    return config["x"] ** 2


HELD = 0.5
"""


def test_a_file_that_no_import_can_name(tmp_path: Path) -> None:
    """A script called by a name with a dash says so."""
    script = tmp_path / "my-train.py"
    script.write_text(
        "import sweep\ndef train(c): return 1.0\n"
        "sweep.launch(train, objective='loss', direction='minimize', space={}, trials=1)\n"
    )
    ran = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "my-train.py is no name that Python can import" in ran.stderr
    assert not (tmp_path / "runs").exists()


def test_a_training_launches_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script that launches itself, without the guard, is told so instead of doing it again."""
    monkeypatch.setenv("SWEEP_TRIAL", "3")
    with pytest.raises(InputError, match="within a training") as caught:
        python.launch(top, runs=tmp_path / "runs", **KEYS)
    assert "__main__" in caught.value.hint
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("study", "keys", "said"),
    [
        ({"command": "x"}, {}, "needs a name"),
        ({"name": "../x"}, {}, "needs a name"),
        (7, {}, "A study is a path"),
        (top, {"command": "x", "objective": "loss"}, "A function and a command"),
        (top, {}, "not said what the function's number is"),
        ({"name": "a", "space": {1, 2}}, {}, "hold what a file cannot"),
    ],
)
def test_what_is_no_study(tmp_path: Path, study: Any, keys: dict[str, Any], said: str) -> None:
    """It is said what is missing, and nothing is made."""
    with pytest.raises(InputError, match=said):
        python.launch(study, runs=tmp_path / "runs", **keys)
    assert not list(tmp_path.glob("runs/*.yaml"))


def test_its_problems_are_all_said(tmp_path: Path) -> None:
    """As those of a file are."""
    keys = KEYS | {"trials": "many", "max_parallel": -1}
    with pytest.raises(StudyFileError) as caught:
        python.launch(top, runs=tmp_path / "runs", **keys)
    assert [problem.path for problem in caught.value.problems] == ["trials", "max_parallel"]


def test_from_launch_to_the_winner_run_again(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function from a file: launched, killed, iterated, read, added to, run again, stopped."""
    keys = KEYS | {"name": "api", "runs": tmp_path / "runs", "fixed": {"folder": str(tmp_path)}}
    (tmp_path / "its_function.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("its_function")
    monkeypatch.setitem(sys.modules, "its_function", module)
    with python.launch(module.train, **keys) as study:
        assert study.launched is not None
        assert study.launched.created
        ended = list(study)
        assert sorted(trial["trial"] for trial in ended) == [0, 1, 2]
        assert all(t["value"] == pytest.approx(t["params"]["x"] ** 2) for t in ended)
        status = study.wait(timeout_s=PATIENCE_S)
        assert (status.state, status.counts["complete"]) == ("finished", 3)
        assert study.best is not None
        assert study.best["value"] == min(trial["value"] for trial in ended)
        assert list(study.trials()["value"]) == sorted(trial["value"] for trial in ended)
        # Trial 0 was killed at its second step, and has gone on.
        told = [line for line in study.logs(0).splitlines() if line.startswith("trained")]
        assert told == [f"trained from {start} on function.py" for start in (0, 2)]
        assert list(study.trials().set_index("trial")["attempts"].sort_index()) == [2, 1, 1]
        with pytest.raises(InputError, match="no trial 9"):
            study.logs(9)
        assert study.rerun_best().verdict == "reproduced"
        wait_for_runners(tmp_path / "runs/api")
        with pytest.warns(
            UserWarning, match=r"No task is there to run trial 3 of api: sweep\.launch"
        ):
            assert study.add([{"x": 0.0}]) == [3]
    with python.launch(module.train, wait=True, **keys) as again:
        assert again.best == {"trial": 3, "value": 0.0, "params": {"x": 0.0}}
        assert again.study.trials == 4
        wait_for_runners(tmp_path / "runs/api")
        with pytest.warns(UserWarning, match="No task is there"):
            assert again.add([{"x": 0.5}]) == [4]  # which waits until it is told to leave
    with python.launch(module.train, **keys) as again:
        wait_for(lambda: again.status().counts["running"], "the added trial")
        again.stop()
        status = again.wait()
        assert (status.state, status.counts["complete"]) == ("stopped", 4)
        assert again.stop(4) == ["trial 4: cancelled"]
        assert [trial["state"] for trial in again if trial["trial"] == 4] == ["cancelled"]
    assert "5 of 5 trials have ended" in sweep("status", "api").out
