"""``sweep init`` and ``sweep launch`` of the scripts that need a package of their own."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.cli.test_init import PLAIN, RUNNING, init_and_launch
from tests.conftest import Sweep, run_sweep
from tests.frameworks.scene import need
from tests.studyfile.test_intake import Case

NEEDS = r"^(?:from|import)\s+(?:argparse, |os\s)?(\w+)"
OWN = ("util", "configurator", "dataclasses", "argparse", "os", "enum", "typing", "exec", "numpy")


@pytest.fixture
def sweep(tmp_path: Path, runs: Path, fresh_url: str) -> Sweep:
    """Run the command line on a database of the test's own."""
    env = {"SWEEP_STORAGE": fresh_url, "CUDA_VISIBLE_DEVICES": ""}
    return partial(run_sweep, runs=runs, cwd=tmp_path, env=env, timeout_s=1200.0)


@pytest.mark.parametrize(
    "case", [case for case in RUNNING if case.name not in PLAIN], ids=lambda case: case.name
)
def test_init_and_launch(case: Case, sweep: Sweep, tmp_path: Path) -> None:
    """As its owner would: each of four trials has values of its own, and its metric is read."""
    files = re.findall(r"^file (\w+)", case.text, re.MULTILINE)
    need(*sorted({*re.findall(NEEDS, case.text, re.MULTILINE)} - {*OWN, *files}))
    init_and_launch(case, sweep, tmp_path)
