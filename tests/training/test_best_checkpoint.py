"""Which save is of which step, and that the best step's stays."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Objective
from sweep.core.trial import Report
from sweep.training.best_checkpoint import BestKeeper, ReportedStep, find_best, step_of
from sweep.training.save_names import parse
from sweep.training.saves import Save
from tests.waiting import returns, wait_for

# Steps with the time of their report, ten seconds apart: 1 at 10 s, 2 at 20 s, 3 at 30 s.
STEPS = [ReportedStep(step, 10.0 * step, 0.0) for step in (1, 2, 3)]

# name, when it was saved -> its step
SAVES = [
    ("epoch_2.pt", 20.5, 2),  # reported, then saved
    ("epoch_2.pt", 19.9, 2),  # saved, then reported
    ("checkpoint-1", 20.5, None),  # an earlier one, written again
    ("epoch_3.pt", 20.5, 2),  # counted from 1 where steps are from 0
    ("epoch_3.pt", 30.2, 3),
    ("epoch_4.pt", 30.2, 3),
    ("epoch=2-step=640.ckpt", 20.5, 2),
    ("epoch=7-step=640.ckpt", 20.5, 2),  # neither number is a step that was reported
    ("last.pt", 20.5, 2),
    ("last.pt", 19.9, 2),
    ("last.pt", 27.0, None),  # by the clock, in the middle of the next step
    ("last.pt", 33.0, 3),
    ("last.pt", 39.0, None),
    ("last.pt", 5.0, None),  # before anything was reported
    ("epoch-0002.000120-0123456789abcdef.pt", 27.0, None),  # 120 batches after epoch 2
    ("epoch-0002-0123456789abcdef.pt", 20.5, 2),
]


@pytest.mark.parametrize(("name", "saved_s", "expected"), SAVES)
def test_of_which_step(name: str, saved_s: float, expected: int | None) -> None:
    save = Save(Path(name), (Path(name),), parse(name), int(saved_s * 1e9))
    found = step_of(save, STEPS)
    assert (found and found.step) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("last.pt", None), ("epoch_2.pt", 2), ("epoch_7.pt", None)]
)
def test_of_which_of_several_at_once(name: str, expected: int | None) -> None:
    """Steps of 30 ms: the clock of a file system may be that far from the training's."""
    steps = [ReportedStep(step, 10 + 0.03 * step, 0.0) for step in range(5)]
    save = Save(Path(name), (Path(name),), parse(name), int(10.07 * 1e9))
    found = step_of(save, steps)
    assert (found and found.step) == expected


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    found = AttemptFolder(tmp_path / "1")
    found.checkpoints.mkdir(parents=True)
    return found


def report(step: int, value: float) -> Report:
    """Return a report, ten seconds after that of the step before."""
    return Report(step, 1e9 + 10.0 * step, {"acc": value, "loss": 1.0})


def save(folder: AttemptFolder, path: Path, text: str, reported: Report) -> None:
    """Save as a training does right after a report, however long it takes here."""
    made, saved_s = folder.root.parent / "made", reported.time_s + 0.01
    made.write_text(text)
    os.utime(made, (saved_s, saved_s))
    made.replace(path)


def kept(folder: AttemptFolder) -> str:
    note = folder.best / "best.json"
    return str(json.loads(note.read_text())["path"]) if note.exists() else ""


@pytest.mark.parametrize("name", ["epoch-{}.pt", "step-{}/model.pt", "last.pt"])
def test_it_stays_while_its_training_removes_it(folder: AttemptFolder, name: str) -> None:
    """Also where the name has no number: then it is a copy, for the file is written again."""
    keeper = BestKeeper(folder, Objective("acc", "maximize"))
    keeper.start()
    before: Path | None = None
    for step, value in ((1, 0.5), (2, 0.9), (3, 0.7), (4, 0.8)):
        reported = report(step, value)
        keeper.see([reported])
        path = folder.checkpoints / name.format(step)
        path.parent.mkdir(exist_ok=True)
        save(folder, path, f"weights of {step}", reported)
        if step <= 2:
            wait_for(lambda value=value: find_best(folder, value), f"the save of {step}")
        if before is not None and before != path:
            before.unlink()
        before = path
    keeper.finish()
    found = find_best(folder, 0.9)
    assert found is not None
    assert found == folder.best / name.format(2).partition("/")[0]
    assert (found / "model.pt" if found.is_dir() else found).read_text() == "weights of 2"
    assert find_best(folder, 0.5) is None
    assert sorted(os.listdir(folder.root)) == ["best", "checkpoints"]


def test_one_that_is_saved_into_the_folder_itself(folder: AttemptFolder) -> None:
    """Then all of the folder is the checkpoint, and each save writes into it again."""
    keeper = BestKeeper(folder, Objective("acc", "maximize"))
    keeper.start()
    first = report(1, 0.5)
    for name in ("__0_0.distcp", ".metadata"):
        save(folder, folder.checkpoints / name, "step 1", first)
    keeper.see([first])
    wait_for(lambda: find_best(folder, 0.5), "the save of 1")
    second = report(2, 0.4)
    save(folder, folder.checkpoints / "__0_0.distcp", "step 2, which is worse", second)
    keeper.see([second])
    keeper.finish()
    found = find_best(folder, 0.5)
    assert found == folder.best / "checkpoint"
    assert (found / "__0_0.distcp").read_text() == "step 1"


def test_what_is_still_there_is_not_copied(folder: AttemptFolder) -> None:
    """A training that ends at once, or keeps all its checkpoints."""
    keeper = BestKeeper(folder, Objective("loss", "minimize"))
    for step, value in ((1, 0.9), (2, 0.1), (3, 0.3)):
        keeper.see([Report(step, time.time(), {"loss": value})])
        (folder.checkpoints / f"epoch_{step}.pt").write_text(str(step))
    keeper.finish()
    assert find_best(folder, 0.1) == folder.checkpoints / "epoch_2.pt"
    assert os.listdir(folder.best) == ["best.json"]
    (folder.checkpoints / "epoch_2.pt").write_text("written again, longer")
    assert find_best(folder, 0.1) is None


def test_none_is_kept_where_none_is_saved(folder: AttemptFolder) -> None:
    """Its training saves every third step, and the best is another."""
    keeper = BestKeeper(folder, Objective("acc", "maximize"))
    keeper.see([Report(step, 10.0 * step, {"acc": -abs(step - 4.0)}) for step in range(1, 7)])
    for step in (3, 6):
        path = folder.checkpoints / f"epoch_{step}.pt"
        path.write_text("x")
        os.utime(path, (10.0 * step + 1, 10.0 * step + 1))
    keeper.finish()
    assert kept(folder) == "" and not folder.best.exists()


def test_a_training_that_reports_without_end(folder: AttemptFolder) -> None:
    """Millions of steps are not remembered; the best's is, with what tells its save from others."""
    keeper = BestKeeper(folder, Objective("acc", "maximize"))
    for part in range(10):
        steps = range(part * 5000, (part + 1) * 5000)
        keeper.see([Report(s, 10.0 * s, {"acc": -abs(s - 7.0)}) for s in steps])
    assert len(keeper._steps) < 30_000
    path = folder.checkpoints / "step_7.pt"
    path.write_text("x")
    os.utime(path, (71.0, 71.0))
    keeper.finish()
    assert find_best(folder, 0.0) == path


def test_an_end_that_comes_while_it_looks_elsewhere_is_not_missed(
    folder: AttemptFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training ends before the thread waits for news: the task goes on all the same."""
    keeper = BestKeeper(folder, Objective("acc", "maximize"))
    watch = keeper._watch

    def watch_late() -> None:
        wait_for(lambda: keeper._over, "the end")
        watch()

    monkeypatch.setattr(keeper, "_watch", watch_late)
    keeper.start()
    returns(keeper.finish, limit_s=60.0)
    assert keeper._thread is not None and not keeper._thread.is_alive()
