"""What tests of several files here need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studyfile.bash_real import make_stubs


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stubs, which is the scripts' PATH."""
    return make_stubs(tmp_path_factory.mktemp("real") / "stubs")
