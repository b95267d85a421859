"""Slurm's mail at the end of a study, and the study's own command, from a node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.faulty import Faulty, studying
from tests.cluster.processes import wait_for
from tests.waiting import text_of

pytestmark = pytest.mark.slurm

KEEP = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + chr(10))"
TRAINS = "from sweep.report import Reporter; Reporter().log(step=1, value=1.0)"


@pytest.fixture
def faulty(clean_slurm: Cluster, fresh_url: str) -> Iterator[Faulty]:
    """A study on a cluster that is made whole afterwards."""
    with studying(clean_slurm, fresh_url) as study:
        yield study


def test_mail_and_command(faulty: Faulty) -> None:
    """The finaliser's end sends the one mail; the command is told once of the end."""
    python, told = str(faulty.user.bin / "python"), faulty.user.folder / "told"
    faulty.launch(
        command=[python, "-c", TRAINS],
        trials=4,
        max_parallel=2,
        notify={"email": "me@example.org", "command": [python, "-c", KEEP, str(told)]},
    )
    faulty.wait_end(180)
    wait_for(lambda: text_of(told).endswith("\n"), 120, "the command to run")
    mails = faulty.cluster.root / "log" / "mail"
    wait_for(lambda: "to me@example.org" in text_of(mails), 120, "Slurm's mail")
    (mail,) = [line for line in text_of(mails).splitlines() if "example.org" in line]
    assert "-end" in mail and "Ended" in mail  # the finaliser's name token
    (event,) = [json.loads(line) for line in text_of(told).splitlines()]
    assert (event["event"], event["counts"]["complete"]) == ("ended", 4)
    assert not [note for note in faulty.user.status(faulty.name)["notes"] if "notify" in note]
