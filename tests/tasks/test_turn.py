"""What an attempt's end means where it shared its GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.study import Environment
from sweep.core.system.seats import CardNotice, Seat, SeatState, Use
from sweep.core.trial import Claim, End
from sweep.tasks.turn import LeftBeforeTurn, Turn, small_at_first
from tests.study_rows import make_study

GPU_SHORT = "memory ran out on the GPU (PyTorch): CUDA out of memory."
INIT = ["RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`"]


def make_turn(folder: Path, most: int, *, is_lost: bool = False) -> Turn:
    seat = Seat(folder / "seat-3.json")
    seat.ask(SeatState(token="t", trial=0, attempt=1))
    notice = CardNotice(let_in=["t"], used={"t": Use(most=most)}, is_lost=is_lost)
    seat.card.write_text(notice.to_json())
    seat.begin(1)
    ledger: Any = SimpleNamespace()
    return Turn(seat, ledger, Claim(1, 0, 1, "t"))


@pytest.mark.parametrize(
    ("most", "end", "log", "outcome"),
    [
        (2, End("out of memory", GPU_SHORT), [], "out of shared memory"),
        (2, End("out of memory", "memory ran out"), [], "out of shared memory"),
        (1, End("out of memory", GPU_SHORT), [], "out of memory"),
        (2, End("error", "exit code 1"), INIT, "out of shared memory"),
        (1, End("error", "exit code 1"), INIT, "error"),
        (2, End("error", "exit code 1"), ["ValueError: no"], "error"),
        (8, End("finished"), [], "finished"),
        (8, End("killed", "SIGKILL"), [], "killed"),
    ],
)
def test_an_end_beside_others(
    tmp_path: Path, most: int, end: End, log: list[str], outcome: str
) -> None:
    """Only what ran out of memory beside others is no fault of its own."""
    found = make_turn(tmp_path, most).read_end(end, log)
    assert found.outcome == outcome
    assert end.reason in found.reason


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [("error", "node failed"), ("killed", "node failed"), ("finished", "finished")],
)
def test_an_end_on_a_gpu_that_failed(tmp_path: Path, outcome: str, expected: str) -> None:
    found = make_turn(tmp_path, 2, is_lost=True).read_end(End(outcome, "why"), [])
    assert found.outcome == expected


def test_a_gpu_that_fails_before_its_turn(tmp_path: Path) -> None:
    """It does not wait for a card that will let nobody in."""
    seat = Seat(tmp_path / "seat-0.json")
    seat.card.write_text(CardNotice(is_lost=True).to_json())
    ledger: Any = SimpleNamespace()
    leave: Any = SimpleNamespace(wanted=False, hurry=False)
    turn = Turn(seat, ledger, Claim(1, 0, 1, "t"))
    with pytest.raises(LeftBeforeTurn, match="its GPU failed"):
        turn.wait({}, leave, lambda: "")


@pytest.mark.parametrize(
    ("env", "environ", "expected"),
    [
        ({}, {}, ("false", "true")),
        ({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, {}, ("true", "true")),
        ({}, {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, ("false", None)),
    ],
)
def test_frameworks_do_not_take_the_whole_card(
    env: dict[str, str], environ: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    """Unless the user wants it so."""
    study = small_at_first(make_study(environment=Environment(env=env)), environ)
    names = ("XLA_PYTHON_CLIENT_PREALLOCATE", "TF_FORCE_GPU_ALLOW_GROWTH")
    assert tuple(study.environment.env.get(name) for name in names) == expected
