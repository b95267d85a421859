"""sweep from a notebook, by a real kernel: what was imported is launched, what was typed is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sweep import load
from tests.cli.test_handle import TRAIN
from tests.conftest import ROOT
from tests.frameworks.scene import LIMIT_S, need

LAUNCH = """\
import sweep
from its_function import train

keys = dict(
    objective="loss", direction="minimize", trials=3, max_parallel=2, executor="local",
    space={"x": {"type": "float", "low": -1, "high": 1}}, fixed={"folder": FOLDER},
)
study = sweep.launch(train, name="noted", **keys)
for trial in study:
    print("ended", trial["trial"], trial["state"])
"""
STEER = """\
print(study.rerun_best().verdict, study.add([{"x": 0.0}]))
study = sweep.launch(train, name="noted", wait=True, **keys)
print(study.status().state, study.best["trial"], study.best["value"])
"""
TYPED = """\
def typed(config):
    return config["x"] ** 2

try:
    sweep.launch(typed, name="typed", **keys)
except sweep.core.errors.InputError as error:
    print(error.message, error.hint)
"""


def test_a_notebook_launches_what_it_imports(tmp_path: Path, runs: Path, monkeypatch: Any) -> None:
    """Killed, gone on with, iterated, run again, added to; a function that was typed in is refused
    with what to do, and leaves nothing."""
    need("ipykernel", "nbclient", "nbformat")
    import nbformat
    from nbclient import NotebookClient

    (tmp_path / "its_function.py").write_text(TRAIN)
    for name, value in {"SWEEP_RUNS": str(runs), "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [LAUNCH.replace("FOLDER", repr(str(tmp_path))), STEER, TYPED]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(book, timeout=int(LIMIT_S), kernel_name="python3")
    client.execute(cwd=str(tmp_path), env={**os.environ})
    printed = [
        "".join(out["text"] for out in cell["outputs"] if out.get("name") == "stdout")
        for cell in book["cells"]
    ]
    assert sorted(printed[0].splitlines()) == [f"ended {number} complete" for number in range(3)]
    assert printed[1].splitlines() == ["reproduced [3]", "finished 3 0.0"]
    assert "typed was typed in (a notebook, a console)" in printed[2]
    assert "from train import typed" in printed[2]
    assert not (runs / "typed.yaml").exists()
    with load("noted", runs) as study:
        assert list(study.trials().set_index("trial")["attempts"].sort_index()) == [2, 1, 1, 1]
