"""The ledger on a real PostgreSQL: who owns a trial, what is refused, what a repeat does."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import psycopg2
import pytest

from sweep.core import outcomes
from sweep.core.errors import DatabaseUnavailable, StaleAttempt
from sweep.core.space import Parameter, Space
from sweep.core.study import Choice, Constraint, Objective, Retry, Study
from sweep.core.trial import End, Place, Report
from sweep.storage import records, studies, trial_rows
from sweep.storage.connection import Database
from sweep.storage.ledger import Ledger
from sweep.storage.series import Summary, read_series, read_summaries
from sweep.storage.studies import StudyState
from tests.storage.ledgers import do, make

PLACE = Place("job", 0, "node1", "boot")
STUDY = Study(
    name="s",
    command=("python", "train.py"),
    objectives=(Objective("loss", "minimize"),),
    space=Space((Parameter("lr", "float", low=0.1, high=1.0),)),
    trials=4,
    sampler=Choice("random"),
    max_parallel=3,
)
OK = End("finished")


def report(step: int, **metrics: float) -> Report:
    return Report(step, 1.0, metrics)


@pytest.fixture
def db(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def ledger(db: Database) -> Ledger:
    return make(db, STUDY)


def claim(ledger: Ledger, token: str) -> Any:
    return do(ledger, lambda: ledger.claim(token, PLACE))


def leave(ledger: Ledger, token: str, outcome: str = "interrupted", checkpoint: Any = None) -> None:
    do(ledger, lambda: ledger.leave(token, End(outcome, "why"), checkpoint))


def metrics(ledger: Ledger) -> list[tuple[Any, ...]]:
    return ledger.db.execute(
        "SELECT t.number, m.attempt, m.name, m.step, m.value FROM sweep_metric m JOIN trials t "
        "USING (trial_id) ORDER BY 1, 2, 3, 4"
    )


def steps(ledger: Ledger) -> list[tuple[Any, ...]]:
    return ledger.db.execute(
        "SELECT t.number, i.step, i.intermediate_value, i.intermediate_value_type::text "
        "FROM trial_intermediate_values i JOIN trials t USING (trial_id) ORDER BY 1, 2"
    )


def states(ledger: Ledger) -> list[str]:
    found = records.read_trials(ledger.db, ledger.study_id, ledger.study)
    return [record.state for record in found]


class TestClaim:
    def test_takes_waiting_trials_by_number(self, ledger: Ledger) -> None:
        """Each claim gets the next trial, with its parameters, and the last finds none."""
        found = [claim(ledger, f"t{n}") for n in range(5)]
        assert [c and (c.number, c.attempt, c.sampled, set(c.params)) for c in found] == [
            *((n, 1, True, {"lr"}) for n in range(4)),
            None,
        ]

    def test_a_repeat_gives_the_same_trial(self, ledger: Ledger) -> None:
        """The token finds its claim again: the answer may have been lost."""
        assert claim(ledger, "t") == claim(ledger, "t")
        assert ledger.count_attempts() == 1

    def test_a_token_whose_attempt_has_ended_claims_nothing(self, ledger: Ledger) -> None:
        """A claim that others found dead meanwhile is stale."""
        claim(ledger, "t")
        leave(ledger, "t")
        with pytest.raises(StaleAttempt):
            claim(ledger, "t")

    @pytest.mark.parametrize(
        "outcome",
        [
            "interrupted",
            "timeout",
            "killed",
            "out of memory",
            "node failed",
            "lost",
            "stalled",
            "given back",
            "halted",
        ],
    )
    def test_a_trial_that_can_go_on_comes_first(self, ledger: Ledger, outcome: str) -> None:
        """It is claimed again as its next attempt, before those that wait."""
        claim(ledger, "a")
        claim(ledger, "b")
        leave(ledger, "a", outcome)
        again = claim(ledger, "c")
        assert (again.number, again.attempt) == (0, 2)

    @pytest.mark.parametrize("outcome", ["error", "no metric", "not started"])
    def test_an_open_failure_is_not_claimed(self, ledger: Ledger, outcome: str) -> None:
        """A failure of the user's code waits for launch to give it back."""
        claim(ledger, "a")
        leave(ledger, "a", outcome)
        assert claim(ledger, "b").number == 1

    @pytest.mark.parametrize("word", ["held", "stopped", "draining"])
    def test_a_study_that_rests_gives_none(self, ledger: Ledger, word: str) -> None:
        """No trial is pulled from a study that is held, stopped or draining."""
        studies.write_state(ledger.db, ledger.study_id, StudyState(word))
        assert claim(ledger, "t") is None

    def test_a_notebooks_running_trial_is_left_alone(self, ledger: Ledger) -> None:
        """A trial that runs without an attempt of ours is somebody's ``ask()``."""
        ledger.db.execute("UPDATE trials SET state = 'RUNNING' WHERE number = 0")
        assert claim(ledger, "t").number == 1

    def test_used_time_counts_ended_attempts(self, ledger: Ledger) -> None:
        """The seconds of earlier attempts come with the claim."""
        claim(ledger, "a")
        leave(ledger, "a")
        ledger.db.execute("UPDATE sweep_attempt SET ended = claimed + interval '90 s'")
        assert claim(ledger, "b").used_s == 90.0

    def test_a_dead_attempt_ends_at_its_last_sign(self, ledger: Ledger) -> None:
        """Hours between a death and its discovery are not time that the trial used."""
        claim(ledger, "a")
        ledger.db.execute(
            "UPDATE sweep_attempt SET claimed = claimed - interval '5 h', "
            "seen = claimed - interval '4 h'"
        )
        seen = ledger.all_attempts()[0].seen
        leave(ledger, "a", "lost")
        do(ledger, lambda: ledger.backdate("a", seen, seen.timestamp() + 60))
        assert round(claim(ledger, "c").used_s) == 3600 + 60

    def test_an_earlier_try_that_commits_late_is_found(
        self, ledger: Ledger, database_url: str
    ) -> None:
        """The COMMIT of a lost connection comes while its repeat is under way."""
        late = psycopg2.connect(database_url)
        cursor = late.cursor()
        trial_id = ledger.db.execute("SELECT MIN(trial_id) FROM trials")[0][0]
        cursor.execute("UPDATE trials SET state = 'RUNNING' WHERE trial_id = %s", (trial_id,))
        cursor.execute(
            "INSERT INTO sweep_attempt (trial_id, number, token, host) VALUES (%s, 1, 't', 'n')",
            (trial_id,),
        )
        timer = threading.Timer(0.3, late.commit)
        timer.start()
        found = claim(ledger, "t")
        timer.join()
        late.close()
        assert (found.number, found.attempt, ledger.count_attempts()) == (0, 1, 1)


class Deaf(Database):
    """A database whose connection breaks right after the n-th COMMIT was sent: no answer comes."""

    def __init__(self, url: str, break_at: int) -> None:
        super().__init__(url)
        self.break_at = break_at

    def _run(self, connection: Any, sql: str, params: Any = None, deadline: Any = None) -> Any:
        found = super()._run(connection, sql, params, deadline)
        if sql == "COMMIT":
            self.break_at -= 1
            if self.break_at == 0:
                self._drop()
                raise DatabaseUnavailable("the connection broke")
        return found


class TestLostAnswers:
    """Whatever is repeated after a COMMIT whose answer was lost takes place once."""

    def make(self, url: str, ledger: Ledger) -> Ledger:
        return Ledger(Deaf(url, 1), ledger.study_id, ledger.study)

    def test_claim(self, ledger: Ledger, database_url: str) -> None:
        """A claim is found again by its token."""
        deaf = self.make(database_url, ledger)
        found = deaf.db.retry(lambda _: deaf.claim("t", PLACE), patience_s=10.0)
        assert (found.number, ledger.count_attempts()) == (0, 1)
        deaf.db.close()

    def test_record(self, ledger: Ledger, database_url: str) -> None:
        """Reports are upserts."""
        claim(ledger, "t")
        deaf = self.make(database_url, ledger)
        deaf.db.retry(lambda _: deaf.record("t", [report(0, loss=1.0)]), patience_s=10.0)
        assert metrics(ledger) == [(0, 1, "loss", 0, 1.0)]
        deaf.db.close()

    def test_finish(self, ledger: Ledger, database_url: str) -> None:
        """An end that was written is recognised."""
        claim(ledger, "t")
        deaf = self.make(database_url, ledger)
        deaf.db.retry(lambda _: deaf.finish("t", OK, "complete", [1.0]), patience_s=10.0)
        assert states(ledger)[0] == "complete"
        deaf.db.close()

    def test_leave(self, ledger: Ledger, database_url: str) -> None:
        """So is an interruption."""
        claim(ledger, "t")
        deaf = self.make(database_url, ledger)
        deaf.db.retry(lambda _: deaf.leave("t", End("interrupted"), None), patience_s=10.0)
        assert states(ledger)[0] == "waiting"
        deaf.db.close()


@pytest.mark.parametrize("step", [2**31, 2**63 - 1])
def test_steps_that_optunas_table_cannot_hold(ledger: Ledger, step: int) -> None:
    """Tokens seen, say. They are stored with us, also by an attempt that cuts an earlier one's."""
    for token in ("a", "b"):
        claim(ledger, token)
        do(ledger, lambda token=token: ledger.record(token, [report(step, loss=0.5)]))
        leave(ledger, token, "lost")
    rows = ledger.db.execute("SELECT attempt, step, value FROM sweep_metric ORDER BY attempt")
    assert rows == [(1, step, 0.5), (2, step, 0.5)]


class TestFence:
    """A write under the token of an attempt that is over is refused, and nothing is stored."""

    @pytest.fixture
    def stale(self, ledger: Ledger) -> Ledger:
        """A ledger whose trial 0 is at its second attempt, "new"; "old" is over."""
        claim(ledger, "old")
        do(ledger, lambda: ledger.record("old", [report(0, loss=9.0), report(1, loss=8.0)]))
        leave(ledger, "old", "lost")
        claim(ledger, "new")
        return ledger

    def test_every_write_is_refused(self, stale: Ledger) -> None:
        """started, touch, record, leave, finish and fail."""
        before = (metrics(stale), steps(stale), states(stale), stale.all_attempts())
        end = End("error", "it failed")
        for work in (
            lambda: stale.started("old", 1, None),
            lambda: stale.touch("old"),
            lambda: stale.record("old", [report(2, loss=7.0)]),
            lambda: stale.record("old", []),
            lambda: stale.leave("old", End("interrupted"), None),
            lambda: stale.finish("old", OK, "complete", [1.0]),
            lambda: stale.fail("old", end),
            lambda: stale.touch("never"),
        ):
            with pytest.raises(StaleAttempt):
                do(stale, work)
        assert (metrics(stale), steps(stale), states(stale), stale.all_attempts()) == before

    def test_the_new_one_writes(self, stale: Ledger) -> None:
        """The live attempt's writes go through."""
        do(stale, lambda: stale.record("new", [report(0, loss=5.0)]))
        do(stale, lambda: stale.finish("new", OK, "complete", [5.0]))
        assert states(stale)[0] == "complete"


class TestReports:
    def test_the_first_step_cuts_the_lineage(self, ledger: Ledger) -> None:
        """From the first step of an attempt on, earlier attempts no longer count; both stay."""
        first = claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [report(n, loss=10.0 + n) for n in range(4)]))
        leave(ledger, "a")
        claim(ledger, "b")
        do(ledger, lambda: ledger.record("b", [report(2, loss=22.0)]))
        assert ledger.lineage(first.trial_id, "loss") == [(0, 10.0), (1, 11.0), (2, 22.0)]
        assert [row[1:3] for row in steps(ledger)] == [(0, 10.0), (1, 11.0), (2, 22.0)]
        do(ledger, lambda: ledger.record("b", [report(3, loss=23.0)]))
        leave(ledger, "b")
        claim(ledger, "c")
        do(ledger, lambda: ledger.record("c", [report(0, loss=30.0)]))
        assert ledger.lineage(first.trial_id, "loss") == [(0, 30.0)]
        assert [row[1:3] for row in steps(ledger)] == [(0, 30.0)]
        assert len(metrics(ledger)) == 4 + 2 + 1

    def test_an_attempt_without_a_report_cuts_nothing(self, ledger: Ledger) -> None:
        """What earlier attempts reported counts on."""
        first = claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [report(0, loss=1.0)]))
        leave(ledger, "a")
        claim(ledger, "b")
        do(ledger, lambda: ledger.record("b", []))
        assert ledger.lineage(first.trial_id, "loss") == [(0, 1.0)]
        assert steps(ledger) == [(0, 0, 1.0, "FINITE")]

    def test_the_read_of_whole_studies_cuts_alike(self, ledger: Ledger) -> None:
        """``records`` and the ledger agree on the lineage."""
        first = claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [report(n, loss=1.0 * n, x=2.0) for n in range(5)]))
        leave(ledger, "a")
        claim(ledger, "b")
        do(ledger, lambda: ledger.record("b", [report(3, loss=9.0)]))
        found = records.read_trials(ledger.db, ledger.study_id, ledger.study, metrics=True)[0]
        assert found.metrics["loss"] == ledger.lineage(first.trial_id, "loss")
        assert found.metrics["x"] == [(n, 2.0) for n in range(5)]  # not reported again
        assert found.metrics["x"] == ledger.lineage(first.trial_id, "x")

    def test_a_cut_cuts_what_is_reported_again(self, ledger: Ledger) -> None:
        """Each metric from the first step at which a later attempt reported it; and only that."""
        first = claim(ledger, "a")
        for n in range(5):
            do(ledger, lambda n=n: ledger.record("a", [report(n, loss=1.0 + n, lr=0.1)]))
        leave(ledger, "a")
        claim(ledger, "b")
        do(ledger, lambda: ledger.record("b", [report(2, lr=0.2)]))
        assert [row[1:3] for row in steps(ledger)] == [(n, 1.0 + n) for n in range(5)]
        do(ledger, lambda: ledger.record("b", [report(3, lr=0.2), report(4, lr=0.2, loss=9.0)]))
        do(ledger, lambda: ledger.record("b", [report(3, loss=8.0)]))  # in no order: no hole
        leave(ledger, "b")
        claim(ledger, "c")
        do(ledger, lambda: ledger.record("c", [report(0, other=1.0)]))
        expected = {
            "loss": [(0, 1.0), (1, 2.0), (2, 3.0), (3, 8.0), (4, 9.0)],
            "lr": [(0, 0.1), (1, 0.1), (2, 0.2), (3, 0.2), (4, 0.2)],
            "other": [(0, 1.0)],
        }
        assert [row[1:3] for row in steps(ledger)] == expected["loss"]
        assert {name: ledger.lineage(first.trial_id, name) for name in expected} == expected
        found = records.read_trials(ledger.db, ledger.study_id, ledger.study, metrics=True)[0]
        assert found.metrics == expected
        assert ledger.summary(first.trial_id, "loss", "best", "minimize") == 1.0
        assert ledger.summary(first.trial_id, "lr", "last", "minimize") == 0.2
        series = {s.metric: s for s in read_series(ledger.db, ledger.study_id)}
        assert {n: list(zip(s.steps, s.values, strict=True)) for n, s in series.items()} == expected
        assert list(series["loss"].attempts) == [1, 1, 1, 2, 2]
        summaries = read_summaries(ledger.db, ledger.study_id)[0]
        assert summaries["lr"] == Summary(0.2, 0.1, 0.2)

    def test_a_repeat_changes_nothing_and_a_correction_counts(self, ledger: Ledger) -> None:
        """(attempt, name, step) is the key: the same again is the same, the last word counts."""
        claim(ledger, "a")
        batch = [report(0, loss=1.0), report(1, loss=2.0), report(1, loss=3.0)]
        for _ in range(3):
            do(ledger, lambda: ledger.record("a", batch))
        assert metrics(ledger) == [(0, 1, "loss", 0, 1.0), (0, 1, "loss", 1, 3.0)]
        assert steps(ledger) == [(0, 0, 1.0, "FINITE"), (0, 1, 3.0, "FINITE")]

    def test_numbers_that_json_lacks(self, ledger: Ledger) -> None:
        """NaN and the infinities go through to our table and to Optuna's."""
        first = claim(ledger, "a")
        values = [math.nan, math.inf, -math.inf, 5e-324, 0.1 + 0.2]
        do(ledger, lambda: ledger.record("a", [report(n, loss=v) for n, v in enumerate(values)]))
        found = [value for _, value in ledger.lineage(first.trial_id, "loss")]
        assert list(map(repr, found)) == ["nan", "inf", "-inf", "5e-324", "0.30000000000000004"]
        assert [row[3] for row in steps(ledger)] == [
            "NAN",
            "INF_POS",
            "INF_NEG",
            "FINITE",
            "FINITE",
        ]

    def test_steps_beyond_optunas_stay_ours(self, ledger: Ledger) -> None:
        """Optuna keeps steps in 31 bits; ours holds what a script may count."""
        claim(ledger, "a")
        some = [-1, 2**31 - 1, 2**31, 2**63 - 1]
        do(ledger, lambda: ledger.record("a", [report(n, loss=1.0) for n in some]))
        assert [row[3] for row in metrics(ledger)] == some
        assert [row[1] for row in steps(ledger)] == [2**31 - 1]

    @pytest.mark.parametrize(
        "name",
        [
            "a" * 512,
            "ä" * 512,
            "\N{SNOWMAN}" * 512,
            "\U0001f40d" * 512,
            "val/acc best",
            "",
            "'; DROP TABLE trials; --",
            "%s{}\\",
        ],
    )
    def test_names(self, ledger: Ledger, name: str) -> None:
        """Names of 512 characters in any alphabet, and hostile ones, are kept as they are."""
        first = claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [Report(0, 1.0, {name: 1.0})]))
        assert ledger.lineage(first.trial_id, name) == [(0, 1.0)]


class TestEnds:
    @pytest.mark.parametrize(
        ("reason", "stored"),
        [
            ("\N{SNOWMAN} ünïcode", "\N{SNOWMAN} ünïcode"),
            ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
            ("", ""),
            ("line\nline\t'\"\\%s", "line\nline\t'\"\\%s"),
            ("x" * 100_000, "x" * 100_000),
        ],
    )
    def test_reasons(self, ledger: Ledger, reason: str, stored: str) -> None:
        """Whatever a program printed last can be a reason."""
        first = claim(ledger, "a")
        do(ledger, lambda: ledger.finish("a", End("diverged", reason), "failed"))
        assert ledger.attempts(first.trial_id)[0].reason == stored
        assert records.read_trials(ledger.db, ledger.study_id, ledger.study)[0].reason == (
            stored or "diverged"
        )

    @pytest.mark.parametrize(
        ("state", "values", "optuna", "shown"),
        [
            ("complete", [0.5], "COMPLETE", "complete"),
            ("pruned", [0.5], "PRUNED", "pruned"),
            ("failed", [], "FAIL", "failed"),
            ("cancelled", [], "FAIL", "cancelled"),
        ],
    )
    def test_final_states(
        self, ledger: Ledger, state: str, values: list[float], optuna: str, shown: str
    ) -> None:
        """Each of our final states has its state in Optuna."""
        claim(ledger, "a")
        do(ledger, lambda: ledger.finish("a", OK, state, values))
        assert ledger.db.execute("SELECT state::text FROM trials WHERE number = 0") == [(optuna,)]
        found = records.read_trials(ledger.db, ledger.study_id, ledger.study)[0]
        assert (found.state, found.values) == (shown, tuple(values))
        assert ledger.state_after("a") == (shown if shown != "cancelled" else "failed")

    def test_state_after(self, ledger: Ledger) -> None:
        """A live attempt has none; an interrupted trial runs on; an open failure has failed."""
        claim(ledger, "a")
        assert ledger.state_after("a") is None
        leave(ledger, "a")
        claim(ledger, "b")
        leave(ledger, "b", "error")
        assert [ledger.state_after(token) for token in ("a", "b")] == ["running", "failed"]
        claim(ledger, "c")
        leave(ledger, "c")
        assert ledger.state_after("c") == "running"

    def test_best_numbers(self, ledger: Ledger) -> None:
        """Complete trials alone, best first, ties by number."""
        for number, value in enumerate([3.0, 1.0, 1.0]):
            claim(ledger, f"t{number}")
            finish = (OK, "complete", [value])
            do(ledger, lambda n=number, f=finish: ledger.finish(f"t{n}", *f))
        claim(ledger, "t3")
        do(ledger, lambda: ledger.finish("t3", OK, "pruned", [0.0]))
        assert ledger.best_numbers(9) == [1, 2, 0]
        assert ledger.best_numbers(1) == [1]


class TestHold:
    def fail(self, ledger: Ledger, token: str) -> str:
        return str(do(ledger, lambda: ledger.fail(token, End("error", "no module", 1))).word)

    @pytest.mark.parametrize(
        ("parallel", "limit", "expected"),
        [
            (1, None, ["held"]),
            (2, None, ["running", "held"]),
            (3, None, ["running", "running", "held"]),
            (8, None, ["running", "running", "held"]),
            (8, 1, ["held"]),
            (1, 4, ["running", "running", "running", "held"]),
        ],
    )
    def test_the_first_failures_hold_the_study(
        self, db: Database, parallel: int, limit: int | None, expected: list[str]
    ) -> None:
        """min(K, 3) failures before the first metric, or what ``retry`` says."""
        retry = Retry(max_user_failures=limit)
        ledger = make(db, replace(STUDY, trials=8, max_parallel=parallel, retry=retry))
        found = []
        for number in range(len(expected)):
            claim(ledger, f"t{number}")
            found.append(self.fail(ledger, f"t{number}"))
        assert found == expected
        assert claim(ledger, "more") is None
        assert len(ledger.open_failures()) == len(expected)

    def test_what_fails_in_all_slots_of_a_task_counts_once(self, db: Database) -> None:
        """Two tasks of four slots: a node where nothing works does not hold the study alone."""
        ledger = make(db, replace(STUDY, trials=14, max_parallel=8))
        found = []
        for number in range(9):
            task, slot = divmod(number, 4)
            place = Place("7", task % 2, "node", slot=slot)
            do(ledger, lambda n=number, p=place: ledger.claim(f"t{n}", p))
            found.append(self.fail(ledger, f"t{number}"))
        # Each task once, and then one of them for the second time.
        assert found == ["running"] * 8 + ["held"]

    def test_failures_beyond_it_are_given_back(self, ledger: Ledger) -> None:
        """What failed beside those that hold the study counts as not tried."""
        for number in range(4):
            claim(ledger, f"t{number}")
        assert [self.fail(ledger, f"t{n}") for n in range(4)] == [
            "running",
            "running",
            "held",
            "held",
        ]
        assert states(ledger) == ["failed", "failed", "failed", "waiting"]

    def test_launch_gives_failures_back(self, ledger: Ledger) -> None:
        """They are claimed again as attempt 2, and the number of trials stays."""
        for number in range(3):
            claim(ledger, f"t{number}")
            self.fail(ledger, f"t{number}")
        assert do(ledger, ledger.give_back_failures) == 3
        studies.write_state(ledger.db, ledger.study_id, StudyState())
        found = [claim(ledger, f"u{n}") for n in range(4)]
        assert [(c.number, c.attempt) for c in found] == [(0, 2), (1, 2), (2, 2), (3, 1)]
        assert claim(ledger, "none") is None

    def test_after_the_first_metric_a_failure_is_final(self, ledger: Ledger) -> None:
        """The command works, so it is this trial that does not."""
        claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [report(0, loss=1.0)]))
        for number in range(1, 4):
            claim(ledger, f"t{number}")
            assert self.fail(ledger, f"t{number}") == "running"
        assert ledger.count_states() == {"RUNNING": 1, "FAIL": 3}

    def test_another_metric_proves_nothing(self, ledger: Ledger) -> None:
        """The study is proven by its objective."""
        claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [report(0, other=1.0)]))
        assert not ledger.is_proven()
        do(ledger, lambda: ledger.record("a", [report(0, loss=math.nan)]))
        assert ledger.is_proven()

    def test_a_name_that_nobody_reports_holds_the_study(self, db: Database) -> None:
        """An objective of several, or a constraint, that each training ends without: its name is
        wrong. Once one trial has told it, the others have failed by themselves."""
        limits = (Constraint("ms", max=1.0),)
        ledger = make(db, replace(STUDY, name="named", constraints=limits, max_parallel=2))
        lacking = End(outcomes.NO_METRIC, "ended well, but never reported ms")
        for token in ("a", "b"):
            claim(ledger, token)
            do(ledger, lambda token=token: ledger.record(token, [report(0, loss=1.0)]))
            assert ledger.is_proven() == (token == "a")
            state = do(ledger, lambda token=token: ledger.fail(token, lacking)).word
            assert state == ("running" if token == "a" else "held")
        assert do(ledger, ledger.give_back_failures) == 2
        studies.write_state(db, ledger.study_id, StudyState())
        claim(ledger, "c")
        do(ledger, lambda: ledger.record("c", [report(0, loss=1.0, ms=0.5)]))
        assert ledger.is_proven(outcomes.NO_METRIC)
        claim(ledger, "d")
        assert do(ledger, lambda: ledger.fail("d", lacking)).word == "running"
        assert ledger.count_states()["FAIL"] == 1
        assert not studies.is_judged(db, ledger.study_id)
        do(ledger, lambda: ledger.finish("c", End("finished"), "complete", [1.0]))
        assert studies.is_judged(db, ledger.study_id)

    def test_close_failures(self, ledger: Ledger) -> None:
        """Open failures become final once the study is proven, and not before."""
        claim(ledger, "a")
        self.fail(ledger, "a")
        assert do(ledger, ledger.close_failures) == 0
        claim(ledger, "b")
        do(ledger, lambda: ledger.record("b", [report(0, loss=1.0)]))
        assert do(ledger, ledger.close_failures) == 1
        found = records.read_trials(ledger.db, ledger.study_id, ledger.study)
        assert (found[0].state, found[0].reason) == ("failed", "no module")
        assert ledger.count_states() == {"FAIL": 1, "RUNNING": 1, "WAITING": 2}


class TestReading:
    def test_live_attempts_by_silence(self, ledger: Ledger) -> None:
        """Those that were heard of lately are left out."""
        claim(ledger, "a")
        claim(ledger, "b")
        ledger.db.execute(
            "UPDATE sweep_attempt SET seen = seen - interval '60 s' WHERE token = 'a'"
        )
        assert [a.token for a in ledger.live_attempts(30.0)] == ["a"]
        assert [a.token for a in ledger.live_attempts()] == ["a", "b"]
        leave(ledger, "a")
        assert [a.token for a in ledger.live_attempts()] == ["b"]

    def test_checkpoint_hashes_and_the_last_step(self, ledger: Ledger) -> None:
        """What attempts left is known by its path, and the last that they reported by a time."""
        first = claim(ledger, "a")
        do(ledger, lambda: ledger.record("a", [report(4, loss=1.0)]))
        leave(ledger, "a", checkpoint=("/x/ck 1", "ab" * 32))
        again = claim(ledger, "b")
        do(ledger, lambda: ledger.started("b", 99, ("/x/ck 1", "ab" * 32)))
        assert ledger.checkpoint_hashes(first.trial_id) == {"/x/ck 1": "ab" * 32}
        do(ledger, lambda: ledger.record("b", [Report(3, 2.0, {"loss": 1.0, "x": 1.0})]))
        times = [(0.9, [1, 2]), (1.0, [1, 2]), (1.9, [2]), (9.0, [1]), (9.0, [1, 2])]
        last = [ledger.last_step(again.trial_id, numbers, until) for until, numbers in times]
        assert last == [None, 4, None, 4, 3]
        found = ledger.attempts(first.trial_id)[1]
        assert (found.group, found.resumed_from) == (99, "/x/ck 1")

    def test_unfinished(self, ledger: Ledger) -> None:
        """Waiting and running trials, interrupted ones among them."""
        claim(ledger, "a")
        leave(ledger, "a")
        claim(ledger, "b")
        do(ledger, lambda: ledger.finish("b", OK, "complete", [1.0]))
        assert ledger.unfinished() == 3

    def test_two_studies_do_not_see_each_other(self, db: Database) -> None:
        """All that is asked is asked of one study."""
        one, two = make(db, STUDY), make(db, replace(STUDY, name="other"))
        claim(one, "a")
        do(one, lambda: one.record("a", [report(0, loss=1.0)]))
        assert (two.live_attempts(), two.count_attempts(), two.is_proven()) == ([], 0, False)
        assert (two.unfinished(), claim(two, "b").number) == (4, 0)


def test_times_have_a_zone(ledger: Ledger) -> None:
    """Claimed, seen and ended are moments, not wall-clock readings."""
    claim(ledger, "a")
    leave(ledger, "a")
    found = ledger.all_attempts()[0]
    now = datetime.now(timezone.utc)
    assert all(
        m is not None and abs((now - m).total_seconds()) < 600
        for m in (found.claimed, found.seen, found.ended)
    )


class TestNode:
    """What the trainings of an array have met on a node, and giving back what it failed."""

    def test_what_a_node_has_met(self, ledger: Ledger) -> None:
        """Quick failures of the array here; reports here and elsewhere; who runs elsewhere."""
        assert ledger.seen_at("node1", "job", 10.0) == (0, False, False, False)
        claim(ledger, "a")
        leave(ledger, "a", "error")
        claim_on(ledger, "b", "node2")
        assert ledger.seen_at("node1", "job", 10.0) == (1, False, False, True)
        assert ledger.seen_at("node1", "other job", 10.0)[0] == 0
        assert ledger.seen_at("node1", "job", 0.0)[0] == 0
        do(ledger, lambda: ledger.record("b", [report(1, loss=0.5)]))
        assert ledger.seen_at("node1", "job", 10.0) == (1, False, True, True)
        assert ledger.seen_at("node2", "job", 10.0) == (0, True, False, False)

    def test_what_it_failed_at_once_is_given_back(self, ledger: Ledger) -> None:
        """Only there, only of that array, and only what has reported nothing."""
        claim(ledger, "a")
        leave(ledger, "a", "error")
        claim_on(ledger, "b", "node2")
        leave(ledger, "b", "error")
        assert do(ledger, lambda: ledger.give_back_failures_at("node1", "other job")) == 0
        assert do(ledger, lambda: ledger.give_back_failures_at("node1", "job")) == 1
        assert [a.outcome for a in ledger.all_attempts()] == ["given back", "error"]
        assert ledger.seen_at("node1", "job", 10.0)[0] == 1


def claim_on(ledger: Ledger, token: str, node: str) -> Any:
    return do(ledger, lambda: ledger.claim(token, replace(PLACE, host=node)))


def test_a_trial_is_found_by_its_number(ledger: Ledger) -> None:
    """With Optuna's word for its state."""
    first = claim(ledger, "a")
    assert ledger.find_trial(0) == (first.trial_id, "RUNNING")
    assert ledger.find_trial(3) == (first.trial_id + 3, "WAITING")
    assert ledger.find_trial(4) is None


@pytest.mark.parametrize("value", [0.5, math.inf, -math.inf])
def test_values_and_attributes_of_a_trial(ledger: Ledger, value: float) -> None:
    """Values also where they are no finite number; an attribute is overwritten."""
    first = claim(ledger, "a")
    assert trial_rows.read_values(ledger.db, first.trial_id) == []
    do(ledger, lambda: ledger.finish("a", OK, "complete", [value]))
    assert trial_rows.read_values(ledger.db, first.trial_id) == [value]
    ids = [first.trial_id, first.trial_id + 1]
    for found in ("x", {"a": [1, None]}):
        trial_rows.write_attribute(ledger.db, "user", ids, "k", found)
        assert [trial_rows.read_attribute(ledger.db, "user", i, "k") for i in ids] == [found] * 2
    assert trial_rows.read_attribute(ledger.db, "system", ids[0], "k") is None
