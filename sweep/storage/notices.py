"""Who tells the user of an event of a study, and what came of it: a row for each event.

The row is written before anything is done. Whoever finds it there leaves the event alone: it is
told once at most, also where its teller was killed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from sweep.core.attributes import NOTICE, RETRIES
from sweep.storage import studies
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger


@dataclass(frozen=True)
class Event:
    """What has become of a study.

    Attributes:
        word: ended, held or stuck.
        reason: In a sentence.
        key: Its own, and the same for whoever finds it. A study that a launch takes up again may
            end again, or be held again: that is another event.
    """

    word: str
    reason: str
    key: str


@dataclass(frozen=True)
class Notice:
    """What was done about an event.

    Attributes:
        token: Of whoever has it.
        host: Where it was done; time: when it was begun, epoch seconds of the database's clock.
        result: What came of it, in words; "" while it is being done, and for ever where whoever
            did it was killed. is_well: Whether that was well.
        log: Path of what the command printed.
    """

    token: str
    host: str
    time: float
    result: str = ""
    is_well: bool = False
    log: str = ""


def read_event(ledger: Ledger, stuck: str = "") -> Event | None:
    """Return what there is to be told of a study at present; inside ``db.retry``.

    Args:
        stuck: Why nothing of the study runs any more, where the caller has found that.
    """
    db, study_id = ledger.db, ledger.study_id
    state = studies.read_state(db, study_id)
    if ledger.unfinished() == 0:
        trials = sum(ledger.count_states().values())
        again = studies.read_attribute(db, study_id, RETRIES) or 0
        reason = state.reason if state.word == studies.ENDED else "all trials are final"
        return Event("ended", reason, f"ended-{trials}-{again}")
    launch = f"{state.since:.0f}"
    if state.word == studies.HELD:
        return Event("held", state.reason, f"held-{launch}")
    if state.word == studies.RUNNING and stuck:
        return Event("stuck", stuck, f"stuck-{launch}")
    return None


def claim(db: Database, study_id: int, event: Event, token: str, host: str) -> Notice | None:
    """Take an event to tell the user of it; None where somebody has it. In a transaction."""
    mine = Notice(token, host, studies.read_clock(db))
    found = studies.write_attribute_once(db, study_id, NOTICE + event.key, asdict(mine))
    return mine if found["token"] == token else None


def finish(
    db: Database, study_id: int, event: Event, notice: Notice, result: str, is_well: bool, log: str
) -> None:
    """Note what came of telling."""
    done = replace(notice, result=result, is_well=is_well, log=log)
    studies.write_attribute(db, study_id, NOTICE + event.key, asdict(done))


def read_notices(db: Database, study_id: int) -> dict[str, Notice]:
    """Return the study's notices by their events' keys."""
    known = {field.name for field in fields(Notice)}
    return {
        key: Notice(**{name: value for name, value in row.items() if name in known})
        for key, row in studies.read_attributes(db, study_id, NOTICE).items()
    }
