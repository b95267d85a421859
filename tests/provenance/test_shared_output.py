"""Output folders of frameworks in the code that all trials share."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from sweep.core.paths import StudyFolder
from sweep.provenance import shared_output
from sweep.provenance.code_tree import Tree
from tests.training.test_command import make_study


def test_what_mixes_is_said(tmp_path: Path) -> None:
    """What is frozen or linked with the code, and what trials have written into it."""
    (tmp_path / "work").mkdir()
    study = make_study(["python", "t.py"], workdir=str(tmp_path / "work"))
    folder = StudyFolder(tmp_path / "runs/s")
    tree = Tree(tmp_path, ["wandb/x", "work/t.py", "work/outputs/a/b", "work/x/runs/y"])
    assert shared_output.in_tree(study, tree) == ["outputs"]
    linked = dataclasses.replace(tree, links=["work/lightning_logs"])
    (said,) = shared_output.notes(study, folder, linked)
    assert said.startswith("lightning_logs, outputs lie in the code that all trials share")
    assert "workdir: trial" in said
    assert shared_output.notes(study, folder, Tree(tmp_path, ["work/t.py"])) == []
    (folder.code / "abc/work/mlruns").mkdir(parents=True)
    (folder.code / "abc.json").write_text(json.dumps({"workdir": "work"}))
    (folder.code / "gone.json").write_text(json.dumps({"workdir": "work"}))
    (folder.code / "odd.json").write_text("{")
    (said,) = shared_output.notes(study, folder, None)
    assert said.startswith("mlruns lies in the code")
    own = dataclasses.replace(study, own_workdir=True)
    assert shared_output.notes(own, folder, linked) == []
