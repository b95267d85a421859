"""What the end of a training means: tables of literal cases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from sweep.control.settle import brought_checkpoint, give_up, settle
from sweep.core.study import Retry
from sweep.core.trial import Attempt, End, Place, Report
from sweep.storage import records, studies
from sweep.storage.ledger import Ledger
from sweep.training.exit_reason import classify
from tests.storage.ledgers import do
from tests.study_rows import Row, fill, make_study

LOG = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'nope'", "")

# exit code, signal, told -> outcome, reason, exit code and signal kept
ENDS = [
    (0, None, "", ("finished", "", 0, None)),
    (1, None, "", ("error", "exit code 1: ModuleNotFoundError: No module named 'nope'", 1, None)),
    (2, None, "", ("error", "exit code 2: ModuleNotFoundError: No module named 'nope'", 2, None)),
    (
        128,
        None,
        "",
        ("error", "exit code 128: ModuleNotFoundError: No module named 'nope'", 128, None),
    ),
    (
        255,
        None,
        "",
        ("error", "exit code 255: ModuleNotFoundError: No module named 'nope'", 255, None),
    ),
    (
        None,
        9,
        "",
        ("killed", "killed by SIGKILL; by the system when memory ran out, or by hand", None, 9),
    ),
    (
        137,
        None,
        "",
        ("killed", "killed by SIGKILL; by the system when memory ran out, or by hand", 137, 9),
    ),
    (None, 15, "", ("killed", "ended by SIGTERM that sweep did not send", None, 15)),
    (143, None, "", ("killed", "ended by SIGTERM that sweep did not send", 143, 15)),
    (
        None,
        11,
        "",
        ("error", "crashed with signal 11: ModuleNotFoundError: No module named 'nope'", None, 11),
    ),
    (
        134,
        None,
        "",
        ("error", "crashed with signal 6: ModuleNotFoundError: No module named 'nope'", 134, 6),
    ),
    (
        192,
        None,
        "",
        ("error", "crashed with signal 64: ModuleNotFoundError: No module named 'nope'", 192, 64),
    ),
    (
        193,
        None,
        "",
        ("error", "exit code 193: ModuleNotFoundError: No module named 'nope'", 193, None),
    ),
    (0, None, "checkpoint", ("interrupted", "asked to leave", 0, None)),
    (1, None, "checkpoint", ("interrupted", "asked to leave", 1, None)),
    (None, 9, "checkpoint", ("interrupted", "asked to leave", None, 9)),
    (0, None, "timeout", ("timeout", "asked to leave before its time limit", 0, None)),
    (None, 15, "timeout", ("timeout", "asked to leave before its time limit", None, 15)),
    (0, None, "halted", ("halted", "the study was stopped", 0, None)),
    (None, 15, "stalled", ("stalled", "no report and no output for too long", None, 15)),
    (0, None, "pruned", ("finished", "pruned", 0, None)),
    (None, 15, "pruned", ("finished", "pruned", None, 15)),
    (1, None, "pruned", ("finished", "pruned", 1, None)),
    (0, None, "too long", ("finished", "too long", 0, None)),
    (None, 9, "too long", ("finished", "too long", None, 9)),
    (None, None, "", ("lost", "nobody noted how it ended", None, None)),
]


@pytest.mark.parametrize(("code", "signal", "told", "expected"), ENDS)
def test_classify(
    code: int | None, signal: int | None, told: str, expected: tuple[str, str, int | None, int]
) -> None:
    """Exit code, signal and what it was told decide how a training ended."""
    end = classify(code, signal, told, LOG)
    assert (end.outcome, end.reason, end.exit_code, end.signal) == expected


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ((), "exit code 1, and no output"),
        (("", "  ", "\t"), "exit code 1, and no output"),
        (("first", "  last  ", ""), "exit code 1: last"),
        (("x" * 400,), "exit code 1: " + "x" * 300),
        (("ünïcode \N{SNOWMAN}",), "exit code 1: ünïcode \N{SNOWMAN}"),
    ],
)
def test_the_logs_last_line_is_the_cause(log: tuple[str, ...], expected: str) -> None:
    """The last line that says something names the cause, cut to a length that tables bear."""
    assert classify(1, None, "", log).reason == expected


TRACE = ("Traceback (most recent call last):", '  File "a.py", line 1', "    f()")


@pytest.mark.parametrize(
    ("code", "log", "expected"),
    [
        (1, (*TRACE, "ValueError: no"), "exit code 1: ValueError: no"),
        (1, ("a", *TRACE, "ValueError: no", "printed, not flushed"), "exit code 1: ValueError: no"),
        (1, (*TRACE, "KeyError: 1", "", *TRACE, "B: two", "more"), "exit code 1: B: two"),
        (1, TRACE, "exit code 1: f()"),
        (3, (*TRACE, "ValueError: caught", "disk full"), "exit code 3: disk full"),
    ],
)
def test_an_exception_is_the_cause(code: int, log: tuple[str, ...], expected: str) -> None:
    """Python leaves with 1 then; what was printed and not flushed comes after its traceback."""
    assert classify(code, None, "", log).reason == expected


def attempt(
    number: int, outcome: str | None, checkpoint: str | None = None, host: str = "node"
) -> Attempt:
    moment = datetime(2026, 3, 1, tzinfo=timezone.utc)
    return Attempt(
        1,
        0,
        number,
        f"t{number}",
        "job",
        0,
        host,
        None,
        moment,
        moment,
        outcome=outcome,
        reason="why",
        checkpoint=checkpoint,
    )


BARREN = (
    "its time limit came twice without a new checkpoint; it needs a longer resources.time, "
    "or checkpoints"
)
NODES = "3 nodes failed under it: n1, n2, n3"

# outcomes with "+" for a checkpoint and "@" for a host -> why it is given up, at three attempts
HISTORIES = [
    (["timeout"], None),
    (["timeout", "timeout"], BARREN),
    (["timeout+", "timeout"], None),
    (["timeout", "timeout+"], None),
    (["timeout+"] * 50, None),
    (["timeout", "timeout+", "timeout"], None),
    (["timeout+", "timeout", "timeout"], BARREN),
    # What lies between the two neither counts nor begins anew.
    (["timeout", "interrupted", "halted", "node failed", "killed", "timeout"], BARREN),
    (["timeout", "interrupted+", "timeout"], None),
    (["timeout", "timeout", "interrupted"], None),
    (["timeout", "given back", "timeout"], None),
    (["timeout", "given back", "timeout", "timeout"], BARREN),
    # Preemption and our own stop are nobody's failure, however often they come.
    (["interrupted"] * 50, None),
    (["interrupted", "timeout"], None),
    (["terminated"] * 50, None),
    (["halted", "halted", "halted", "halted"], None),
    (["halted", "interrupted"], None),
    (["given back", "given back", "interrupted"], None),
    # Nodes fail; but not three of them under one trial.
    (["node failed@n1"] * 50, None),
    (["node failed@n1", "node failed@n2", "node failed@n1"], None),
    (["node failed+@n3", "node failed@n1", "interrupted@n4", "node failed+@n2"], NODES),
    (["node failed@n1", "node failed@n2", "node failed@n3", "interrupted@n1"], None),
    # A retry of the user's begins the count anew.
    (["node failed@n1", "node failed@n2", "retried@n3", "node failed@n1"], None),
    (["node failed@n4", "taken back@n5", "node failed@n1"], None),
    (["retried@n4", "node failed@n1", "node failed@n2", "node failed@n3"], NODES),
    (["node failed", "timeout"], None),
    (["killed"], None),
    (["killed", "killed"], None),
    (["killed", "killed", "killed"], "3 attempts ended in a fault, the last: why"),
    (["killed+", "lost+", "stalled+"], "3 attempts ended in a fault, the last: why"),
    (
        ["killed", "interrupted+", "lost", "interrupted+", "out of memory+"],
        "3 attempts ended in a fault, the last: why",
    ),
    (["out of memory"], None),
    (["out of memory", "out of memory"], "2 attempts ended so, the last: why"),
    (["out of memory+", "interrupted+", "out of memory+"], "2 attempts ended so, the last: why"),
    (["out of memory", "killed", "interrupted+"], None),
    # What others on its GPU took says nothing of the trial.
    (["out of shared memory"] * 4, None),
    (["killed", "out of shared memory", "killed", "out of shared memory"], None),
    (["out of shared memory", "out of memory"], None),
    (["killed", "killed", "timeout+"], None),
    (["killed", "interrupted", "killed"], None),
    (["interrupted", "killed", "interrupted"], None),
]


@pytest.mark.parametrize(("outcomes", "expected"), HISTORIES)
def test_give_up(outcomes: list[str], expected: str | None) -> None:
    """Faults count; of what interrupts, time limits without a checkpoint, and different nodes."""
    attempts = []
    for number, text in enumerate(outcomes, 1):
        words, _, host = text.partition("@")
        checkpoint = f"ck{number}" if words.endswith("+") else None
        attempts.append(attempt(number, words.rstrip("+"), checkpoint, host or "node"))
    assert give_up(attempts, Retry(max_attempts=3)) == expected


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_the_limit_of_faults_is_the_studys(limit: int) -> None:
    """``retry.max_attempts`` faults are the end, one fewer is not."""
    attempts = [attempt(number, "lost") for number in range(1, limit + 1)]
    assert give_up(attempts[:-1] or [attempt(1, "finished")], Retry(limit)) is None
    assert give_up(attempts, Retry(limit)) == (f"{limit} attempts ended in a fault, the last: why")


def test_a_checkpoint_that_it_started_from_is_not_its_own() -> None:
    """An attempt that left what it was given has brought nothing."""
    moment = datetime(2026, 3, 1, tzinfo=timezone.utc)
    made = Attempt(
        1, 0, 2, "t", None, None, "n", None, moment, moment, checkpoint="a", resumed_from="a"
    )
    assert not brought_checkpoint(made)


def test_a_copy_of_what_it_started_from_is_not_its_own(ledger: Ledger) -> None:
    """With ``resume: folder`` it lies in the attempt's own folder, and was not saved by it."""
    for token, newest in (("t1", ("/1/c", "a")), ("t2", ("/2/c", "a")), ("t3", ("/3/c", "b"))):
        claim = do(ledger, lambda token=token: ledger.claim(token, Place("job", 0, "node", "boot")))
        do(ledger, lambda token=token: ledger.started(token, 1, ("/1/c", "a")))
        end = End("interrupted", "why")
        do(
            ledger,
            lambda token=token, end=end, newest=newest, claim=claim: settle(
                ledger, token, claim.trial_id, end, newest
            ),
        )
    found = ledger.attempts(claim.trial_id)
    assert [a.checkpoint for a in found] == ["/1/c", "/1/c", "/3/c"]
    assert [brought_checkpoint(a) for a in found] == [False, False, True]


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    study = replace(make_study(), max_parallel=1, trials=20, retry=Retry(max_attempts=3))
    found = fill(database_url, study, [Row("WAITING", attempts=()) for _ in range(20)])
    yield found
    found.db.close()


def end_one(
    ledger: Ledger, outcome: str, *, report: bool = False, node: str = "node"
) -> tuple[int, str]:
    """Claim a trial and let its attempt end; return its number and its state then."""
    token = f"t{ledger.count_attempts()}"
    claim = do(ledger, lambda: ledger.claim(token, Place("job", 0, node, "boot")))
    if report:
        do(ledger, lambda: ledger.record(token, [Report(0, 1.0, {"acc": 0.5})]))
    end = End(outcome, f"{outcome}: why", 1)
    return claim.number, do(ledger, lambda: settle(ledger, token, claim.trial_id, end, None))


def read_states(ledger: Ledger) -> dict[str, int]:
    found = records.count_states(ledger.db, ledger.study_id)
    return {state: count for state, count in found.items() if count}


@pytest.mark.parametrize(
    ("outcome", "tries"), [("out of memory", 2), ("killed", 3), ("timeout", 2)]
)
def test_a_space_that_never_fits_is_held(ledger: Ledger, outcome: str, tries: int) -> None:
    """Not all trials of a study are used up in which nothing fits: five are, each with its tries.

    One trial at a time, of which the first failure of the user's own code holds the study.
    """
    for number in range(5):
        assert read_word(ledger) == "running"
        assert [end_one(ledger, outcome) for _ in range(tries)] == [
            *[(number, "running")] * (tries - 1),
            (number, "failed"),
        ]
    assert read_word(ledger) == "held"
    assert read_states(ledger) == {"failed": 5, "waiting": 15}
    assert do(ledger, ledger.give_back_failures) == 5
    assert read_states(ledger) == {"waiting": 20}


def test_a_third_node_that_fails_under_a_trial_fails_it(ledger: Ledger) -> None:
    """The same node again does not, and the trials beside it go on where they were."""
    for node in ("n1", "n2", "n2", "n1"):
        assert end_one(ledger, "node failed", node=node) == (0, "running")
    assert end_one(ledger, "interrupted", node="n3") == (0, "running")
    assert end_one(ledger, "node failed", node="n3") == (0, "failed")
    end = ledger.db.execute(
        "SELECT u.value_json::json ->> 'outcome', u.value_json::json ->> 'reason' FROM trials t "
        "JOIN trial_user_attributes u USING (trial_id) WHERE t.study_id = %s AND t.number = 0",
        (ledger.study_id,),
    )
    assert end == [("node failed", NODES)]
    assert end_one(ledger, "finished", report=True, node="n1") == (1, "complete")


def read_word(ledger: Ledger) -> str:
    return studies.read_state(ledger.db, ledger.study_id).word


def test_a_report_ends_that(ledger: Ledger) -> None:
    """What failed before the first report is final then, with a reason that samplers know."""
    for number in range(2):
        assert [end_one(ledger, "out of memory")[0] for _ in range(2)] == [number, number]
    assert end_one(ledger, "finished", report=True) == (2, "complete")
    for number in range(3, 9):
        assert [end_one(ledger, "out of memory")[0] for _ in range(2)] == [number, number]
    assert read_word(ledger) == "running"
    assert read_states(ledger) == {"failed": 8, "complete": 1, "waiting": 11}
    ends = ledger.db.execute(
        "SELECT u.value_json::json ->> 'outcome', u.value_json::json ->> 'reason' FROM trials t "
        "JOIN trial_user_attributes u USING (trial_id) WHERE t.study_id = %s ORDER BY t.number",
        (ledger.study_id,),
    )
    reason = "2 attempts ended so, the last: out of memory: why"
    assert ends == [("exhausted", reason)] * 2 + [("out of memory", reason)] * 6


def test_the_users_limit_counts_for_both(ledger: Ledger) -> None:
    """``retry.max_user_failures`` holds the study after as many failures of any kind."""
    retry = Retry(max_attempts=1, max_user_failures=2)
    ledger.study = replace(ledger.study, retry=retry)
    assert end_one(ledger, "out of memory") == (0, "failed")
    assert read_word(ledger) == "running"
    assert end_one(ledger, "error") == (1, "failed")
    assert read_word(ledger) == "held"


def test_time_without_a_report(ledger: Ledger) -> None:
    """A trial that used up its time without a report failed for its configuration, too."""
    token = "t"
    claim = do(ledger, lambda: ledger.claim(token, Place("job", 0, "node", "boot")))
    end = End("finished", "too long", None, 15)
    assert do(ledger, lambda: settle(ledger, token, claim.trial_id, end, None)) == "failed"
    last = ledger.attempts(claim.trial_id)[-1]
    assert (last.outcome, last.reason) == (
        "too long",
        "used up its trial_time without reporting the objective",
    )
    assert read_word(ledger) == "running"
