"""What an attempt's end means where it shared its GPU."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweep.core.paths import AttemptFolder
from sweep.core.study import Environment
from sweep.core.system.seats import CardNotice, Seat, SeatState, Use, read_seat
from sweep.core.trial import Claim, End, Report
from sweep.tasks.turn import LeftBeforeTurn, Turn, small_at_first
from tests.study_rows import make_study

GPU_SHORT = "memory ran out on the GPU (PyTorch): CUDA out of memory."
INIT = ["RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`"]


def make_turn(folder: Path, most: int, *, is_lost: bool = False, **more: Any) -> Turn:
    seat = Seat(folder / "seat-3.json")
    seat.ask(SeatState(token="t", trial=0, attempt=1))
    notice = CardNotice(let_in=["t"], used={"t": Use(most=most)}, is_lost=is_lost, **more)
    seat.card.write_text(notice.to_json())
    ledger: Any = SimpleNamespace()
    turn = Turn(seat, ledger, Claim(1, 0, 1, "t"))
    assert turn.variables() == more.get("mps", {})
    seat.begin(1)
    return turn


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


SERVED = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
FAULT = ["RuntimeError: CUDA error: an illegal memory access was encountered", "Compile with"]
LET_DOWN = ["RuntimeError: CUDA error: MPS client failed to connect to the MPS control daemon"]


@pytest.mark.parametrize(
    ("most", "log", "faulted", "outcome", "said"),
    [
        (2, FAULT, False, "fault on a shared GPU", "fault"),
        (1, FAULT, False, "error", ""),
        (2, ["ValueError: no"], False, "error", ""),
        (2, ["exit"], True, "fault on a shared GPU", ""),  # as another says that it faulted
        (1, ["exit"], True, "error", ""),
        (2, LET_DOWN, False, "interrupted", "mps"),
        (1, LET_DOWN, False, "interrupted", "mps"),
    ],
)
def test_an_end_under_mps(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    log: list[str],
    faulted: bool,
    outcome: str,
    said: str,
) -> None:
    """MPS names no culprit: each goes on alone, and what faults alone has failed. What MPS itself
    did is no trial's fault."""
    monkeypatch.setattr("sweep.tasks.turn.FAULT_LAG_S", 0.0)
    turn = make_turn(tmp_path, most, mps=SERVED, faulted_s=time.time() if faulted else 0.0)
    assert turn.read_end(End("error", "exit code 1"), log).outcome == outcome
    turn.end()
    seat = read_seat(turn.seat.path)
    assert seat is not None and seat.ran_out == said


@pytest.mark.parametrize(("most", "outcome"), [(1, "error"), (2, "error")])
def test_a_fault_without_mps_is_the_trials_own(tmp_path: Path, most: int, outcome: str) -> None:
    assert make_turn(tmp_path, most).read_end(End("error", "1"), FAULT).outcome == outcome


def test_an_end_with_a_server_that_was_renewed(tmp_path: Path) -> None:
    turn = make_turn(tmp_path, 1, mps=SERVED)
    turn.seat.card.write_text(CardNotice(mps=SERVED, generation=1).to_json())
    assert turn.read_end(End("error", "exit code 1"), FAULT).outcome == "interrupted"
    assert turn.read_end(End("finished"), []).outcome == "finished"


@pytest.mark.parametrize("served", [{}, SERVED])
def test_what_mps_did_not_serve_and_went_on(tmp_path: Path, served: dict[str, str]) -> None:
    """It has ended well, and its note says that it may have had no GPU; MPS is looked at."""
    turn = make_turn(tmp_path, 2, mps=served)
    folder = AttemptFolder(tmp_path / "1")
    folder.root.mkdir()
    folder.log.write_text("".join(f"{line}\n" for line in ["begin", *LET_DOWN, *["epoch"] * 500]))
    turn.begin(1, folder)
    assert turn.read_end(End("finished"), ["epoch"]).outcome == "finished"
    turn.end()
    seat = read_seat(turn.seat.path)
    assert seat is not None and seat.is_complete
    assert seat.ran_out == ("mps" if served else "")
    note = f"may have trained without the GPU, as MPS did not serve it: {LET_DOWN[0]}"
    assert turn.notes == ([note] if served else [])


def test_a_training_that_mps_does_not_let_go(tmp_path: Path) -> None:
    """Whoever packs the card is told, and sees to the server."""
    turn = make_turn(tmp_path, 2, mps=SERVED)
    turn.let_go()
    turn.end()
    seat = read_seat(turn.seat.path)
    assert seat is not None and seat.ran_out == "stuck"
    turn = make_turn(tmp_path, 2)
    turn.let_go()  # nothing serves it
    turn.end()
    seat = read_seat(turn.seat.path)
    assert seat is not None and seat.ran_out == ""


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


def test_what_training_says_of_its_memory(tmp_path: Path) -> None:
    """It is passed on with its reports, and stays where a later report says nothing of it."""
    turn, folder = make_turn(tmp_path, 2), AttemptFolder(tmp_path / "1")
    folder.root.mkdir()
    turn.begin(1, folder)
    for text in ('{"gpu_bytes": 5000}\n', ""):
        folder.answer.write_text(text)
        turn.seat._written = 0.0
        turn.report([Report(1, 2.0, {"loss": 1.0})])
        said = read_seat(turn.seat.path)
        assert said is not None and said.allocator_bytes == 5000
