"""``sweep run``: the study's further commands on the best trial's checkpoint, for real."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.commands import wait_for_runners
from tests.conftest import Sweep
from tests.toys import write_toy

ROOT = Path(__file__).parents[2]
MEASURE = """\
import pathlib, sys
from sweep.report import Reporter

step = int(pathlib.Path(sys.argv[1]).read_text())
Reporter().log(step=step, test_score=step * 10.0)
pathlib.Path(sys.argv[2]).write_text("seen")
if len(sys.argv) > 3:
    raise ValueError("no such split")
"""
CALL = "python measure.py '{checkpoint}' '{trial_dir}/out.txt'"
COMMANDS = json.dumps({"measure": CALL, "break": f"{CALL} x"})


def test_a_command_on_the_best_trial(tmp_path: Path, sweep: Sweep, runs: Path) -> None:
    """It gets the best's newest checkpoint; what it reports and writes is kept apart."""
    (tmp_path / "measure.py").write_text(MEASURE)
    write_toy(tmp_path, commands=COMMANDS, keep="1")
    code, out, err = sweep("launch", "study.yaml", "--wait")
    assert code == 0, out + err
    wait_for_runners(runs / "toy")  # a task removes losers' checkpoints after its trial's end
    best = json.loads(sweep("collect", "--top", "1", "--format", "json").out)[0]
    code, out, err = sweep("run", "measure", "--wait", "--json")
    assert code == 0, out + err
    found = json.loads(out)
    folder = runs / "toy/reruns/1"
    assert (found["state"], found["trial"], found["metrics"], found["files"]) == (
        "finished",
        best["trial"],
        {"test_score": 20.0},
        [str(folder / "out.txt")],
    )
    assert found["checkpoint"] == best["checkpoint"]
    shown = sweep("run", "measure", "--report").out
    assert "test_score  20" in shown and "out.txt" in shown
    # A second call runs it again; its rows are no trials of the study, and no re-runs.
    assert json.loads(sweep("run", "measure", "--wait", "--json").out)["k"] == 2
    assert json.loads(sweep("status", "--json").out)["counts"]["complete"] == 4
    assert sweep("rerun-best", "--report").code == 2
    code, out, err = sweep("run", "break", "--wait")
    assert code == 1
    assert "failed: exit code 1: ValueError: no such split" in out
    code, _, err = sweep("run", "mesure")
    assert code == 2 and "Did you mean measure?\nIt has: measure, break." in err
    other = next(n for n in range(4) if n != best["trial"])
    code, _, err = sweep("run", "measure", "--trial", str(other))
    assert code == 2 and f"Trial {other} has no checkpoint." in err


# Best at step 2 of 4. Its one file is written again at each step, once the best's was put away.
PEAK = """\
import json, os, pathlib, time
from sweep.report import Reporter

reporter = Reporter()
for step, value in enumerate([0.1, 0.5, 0.9, 0.4, 0.3]):
    time.sleep(0.3)  # nearer than the slack of clocks nobody can tell of which step a save is
    reported_s = time.time()
    reporter.log(step=step, score=value)
    path = pathlib.Path(reporter.checkpoint_dir, "last.json")
    part = path.with_suffix(".tmp")
    part.write_text(json.dumps({"step": step, "score": value}))
    os.utime(part, (reported_s, reported_s))  # as if this machine never stood still in between
    part.replace(path)
    best = pathlib.Path(os.environ["SWEEP_TRIAL_DIR"], "best/best.json")
    while step == 2 and not (best.exists() and json.loads(best.read_text())["step"] == 2):
        time.sleep(0.05)
"""
SHOW = """\
import json, sys
from sweep.report import Reporter

state = json.load(open(sys.argv[1]))
Reporter().log(step=state["step"], score=state["score"])
"""


def test_the_checkpoint_of_the_best_step(tmp_path: Path, sweep: Sweep, runs: Path) -> None:
    """The number that was reported is the evaluated model's; ``--checkpoint last`` is the other."""
    (tmp_path / "train.py").write_text(PEAK)
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "study.yaml").write_text(
        "name: peak\ncommand: python train.py\nspace: {}\ntrials: 1\nexecutor: local\n"
        "objective: {metric: score, direction: maximize}\n"
        "commands: {show: 'python show.py {checkpoint}'}\n"
    )
    code, out, err = sweep("launch", "study.yaml", "--wait")
    assert code == 0, out + err
    best = json.loads(sweep("collect", "--top", "1", "--format", "json").out)[0]
    attempt = runs / "peak/trials/00000/attempts/1"
    assert best["value"] == 0.9 and best["checkpoint_of"] == "best"
    assert best["checkpoint"] == str(attempt / "best/last.json")
    found = json.loads(sweep("run", "show", "--wait", "--json").out)
    assert (found["metrics"], found["note"]) == ({"score": 0.9}, "")
    found = json.loads(sweep("run", "show", "--checkpoint", "last", "--wait", "--json").out)
    assert (found["metrics"], found["note"]) == ({"score": 0.3}, "")
    assert found["checkpoint"] == str(attempt / "checkpoints/last.json")
    shutil.rmtree(attempt / "best")
    found = json.loads(sweep("run", "show", "--wait", "--json").out)
    assert found["metrics"] == {"score": 0.3}
    assert found["note"].startswith("no checkpoint is known to be of the step whose value counts")


@pytest.mark.parametrize("study", ["digits", pytest.param("mnist", marks=pytest.mark.long)])
def test_the_studies_evaluate_and_export(
    tmp_path: Path, sweep: Sweep, study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the study files have it: the test set's accuracy, a picture, the exported network."""
    pytest.importorskip("torch", reason="the trainer needs torch (extra: trainer)")
    for name in ("studies", "trainer"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    given = ["--set", "trials=1", "--executor", "local"]
    given += ["--set", "fixed.epochs=1"] * (study == "digits")
    given += ["--set", "fixed.train_fraction=0.05", "--set", "pruner=none"] * (study == "mnist")
    code, out, err = sweep("launch", f"studies/{study}.yaml", "--wait", *given, timeout_s=600)
    assert code == 0, out + err
    code, out, err = sweep("run", "evaluate", "--wait", "--json", timeout_s=300)
    assert code == 0, out + err
    found = json.loads(out)
    assert 0.1 < found["metrics"]["test_accuracy"] <= 1
    names = [Path(path).name for path in found["files"]]
    assert names == ["confusion.png", "metrics.json"]
    accuracy = json.loads(Path(found["files"][1]).read_text())["accuracy"]
    assert accuracy == found["metrics"]["test_accuracy"]
    # What was reported is the evaluated network's, also where the last epoch was not the best.
    best = json.loads(sweep("collect", "--top", "1", "--format", "json").out)[0]
    assert (best["checkpoint_of"], best["checkpoint"]) == ("best", found["checkpoint"])
    evaluate = import_module("trainer.evaluate")  # it needs torch
    assert evaluate.main([best["checkpoint"], "--split", "validation"]) == 0
    said = capsys.readouterr().out
    assert f"{best['value']:.4f}" in said, said
    code, out, err = sweep("run", "export", "--wait", "--json", timeout_s=300)
    assert code == 0, out + err
    exported = [Path(path).name for path in json.loads(out)["files"]]
    assert exported == ["model.onnx", "model.pt", "model.pt2"][study == "digits" :]
