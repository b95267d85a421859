"""GPU-seconds of attempts that share GPUs: noted, summed in budgets, and told of each trial."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sweep.core.attributes import GPU_SECONDS
from sweep.core.outcomes import STATES
from sweep.core.study import Resources, Share
from sweep.results import ranking
from sweep.storage import budgets, gpu_shares, records
from tests.study_rows import Row, Tried, fill, make_study

STUDY = replace(
    make_study(trials=3), gpu_hours=10.0, resources=Resources(gpus=1, share=Share(max=4))
)


def test_parts_of_a_gpu_are_summed(database_url: str) -> None:
    """Two attempts that shared a card count by their parts, one with its own by its length."""
    rows = [
        Row("COMPLETE", [0.5], attempts=[Tried("interrupted", took_s=60.0), Tried(took_s=30.0)]),
        Row("COMPLETE", [0.6], attempts=[Tried(took_s=100.0)]),
    ]
    ledger = fill(database_url, STUDY, rows)
    db = ledger.db
    tokens = {(one.trial, one.number): one.token for one in ledger.all_attempts()}
    for token, gpu_s in ((tokens[0, 1], 20.0), (tokens[1, 1], 25.0)):
        db.execute("UPDATE sweep_attempt SET outcome = NULL WHERE token = %s", (token,))
        gpu_shares.note(db, token, 1.0)
        gpu_shares.note(db, token, gpu_s)
        db.execute("UPDATE sweep_attempt SET outcome = 'finished' WHERE token = %s", (token,))
    gpu_shares.note(db, tokens[0, 2], 5.0)  # it lives no more: nothing is noted
    assert budgets.read_spent(ledger).trial_s == pytest.approx(20 + 30 + 25)
    found = records.read_trials(db, ledger.study_id, STUDY)
    assert [record.held_s for record in found] == [pytest.approx(50.0), pytest.approx(25.0)]
    told = {row["trial"]: row for row in ranking.rows(found, STUDY, states=STATES)}
    assert told[1]["gpu_hours"] == pytest.approx(25 / 3600)
    assert told[1]["duration_s"] == pytest.approx(100.0)
    lengths = {
        round(one.took_s): one.at_once for one in gpu_shares.read_lengths(db, ledger.study_id)
    }
    assert lengths == pytest.approx({90: 90 / 50, 100: 4.0})


@pytest.mark.parametrize("text", ["[1]", '"x"', '{"1": "many"}', "null"])
def test_what_a_notebook_has_put_there(database_url: str, text: str) -> None:
    """It is no part of a GPU; the attempt's length counts."""
    ledger = fill(database_url, STUDY, [Row("COMPLETE", [0.5], attempts=[Tried(took_s=60.0)])])
    ledger.db.execute(
        "INSERT INTO trial_user_attributes (trial_id, key, value_json) "
        "SELECT trial_id, %s, %s FROM trials",
        (GPU_SECONDS, text),
    )
    assert budgets.read_spent(ledger).trial_s == pytest.approx(60.0)
    (record,) = records.read_trials(ledger.db, ledger.study_id, STUDY)
    assert record.held_s == pytest.approx(60.0)
