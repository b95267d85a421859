"""Numbers and names as nobody would type them: each is answered by what is wrong with it."""

from __future__ import annotations

import pytest

from tests.conftest import Sweep

LONG = "n" * 300  # a file system takes 255


@pytest.mark.parametrize("number", ["²", "1_0", "9" * 5000])
def test_no_trials_number(finished: Sweep, number: str) -> None:
    """What Python's isdigit or int would take, and what is no number at all."""
    ran = finished("logs", number)
    assert (ran.code, ran.out) == (2, "")
    assert "TRIAL must be a trial's number" in ran.err


def test_a_number_beyond_all_trials(finished: Sweep) -> None:
    ran = finished("logs", str(2**31))
    assert ran.code == 2
    assert f"toy has no trial {2**31}. Its trials are 0 to 4." in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("status", LONG),
        ("status", "é" * 200),
        ("status", "~nosuch"),
        ("status", ".."),
        ("collect", LONG),
        ("clean", LONG),
    ],
)
def test_no_studys_name(finished: Sweep, command: str, name: str) -> None:
    """A study that is not there, whatever it is called; also where no file could be called so."""
    ran = finished(command, name)
    assert (ran.code, ran.out) == (2, "")
    assert f"There is no study '{name}' in" in ran.err.replace("\n", "")


@pytest.mark.parametrize("name", [LONG, ".."])
def test_nothing_of_such_a_name_is_removed(finished: Sweep, name: str) -> None:
    ran = finished("remove", name, "--yes")
    assert (ran.code, ran.out) == (2, "")
    assert "is no study's name" in ran.err
