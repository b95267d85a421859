"""The supervisor holds no more than some thousand reports, however long the database is away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sweep.core.errors import DatabaseUnavailable
from sweep.core.paths import AttemptFolder
from sweep.core.trial import Reading, Report
from sweep.training import supervisor as supervising
from sweep.training.journal import MOST_REPORTS, Journal
from sweep.training.supervisor import Channel, Leave, Supervisor
from tests.study_rows import make_study

MANY = 3 * MOST_REPORTS + 7


class Away(Channel):
    """A database that is away at first."""

    def __init__(self) -> None:
        self.is_away = True
        self.parts: list[list[int]] = []
        self.positions: list[str] = []

    def record(self, reports: Sequence[Report], reading: Reading) -> None:
        if self.is_away:
            raise DatabaseUnavailable("away")
        self.parts.append([report.step for report in reports])
        self.positions.append(reading.position)

    def touch(self) -> bool:
        return False


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def test_what_it_holds_is_bounded(
    tmp_path: Path, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWAY_PAUSE_S", "FORWARD_EVERY_S"):
        monkeypatch.setattr(supervising, name, 0.0)
    folder = AttemptFolder(tmp_path)
    lines = (f'{{"step": {step}, "metrics": {{"loss": 1.0}}}}\n' for step in range(MANY))
    folder.metrics.write_text("".join(lines))
    channel, journal = Away(), Journal(folder)
    watch = Supervisor(child, "token", folder, make_study(), journal, channel, Leave(4.0, 30.0))
    for _ in range(5):
        watch.step()
        assert len(watch.unsent) == MOST_REPORTS
    channel.is_away = False
    for _ in range(5):
        watch.step()
    assert [len(part) for part in channel.parts] == [MOST_REPORTS] * 3 + [7]
    assert [step for part in channel.parts for step in part] == list(range(MANY))
    # Each part is stored with up to where it reaches: whoever goes on from there reads the rest.
    last_part = Journal(folder, position=channel.positions[2]).read()
    assert [report.step for report in last_part] == channel.parts[3]
