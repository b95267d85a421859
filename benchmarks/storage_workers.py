"""Workers that run light trials on one storage, as fast as it lets them.

    python -m benchmarks.storage_workers KIND URL STUDY WORKERS SECONDS WARM_S

One process loads what it needs, then forks the workers, so that 128 of them fit into memory; each
opens connections of its own. A light trial is 15 operations: claim (or ask), 3 parameters, 10
reports with a verdict each (the median pruner; what it says is not obeyed), and the finish. What
is done before all have been forked, and WARM_S longer, is not counted. Printed: one JSON object.

Kinds: ``sweep`` is what sweep's own worker does (claims, attempts, fenced writes): what a training
reports within half a second is one statement, sent with the trial's end at the latest; ``each`` is
the same with every report stored by itself, before its verdict. The others run one and the same
loop of Optuna's ``ask``, ``report``, ``should_prune`` and ``tell``: ``ours`` on
``sweep.storage.PostgresStorage``, ``rdb`` on ``RDBStorage``, ``grpc`` on its proxy, ``journal`` on
a ``JournalStorage`` in a file. ``claims`` only claims, ``paced`` does so once a second (as workers
that train between), and ``pops`` only asks.
"""

from __future__ import annotations

import gc
import json
import math
import mmap
import os
import random
import secrets
import select
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

from benchmarks.storage_rows import SPACE, STEPS

OPERATIONS = 3 + 2 + STEPS
FIRST_LOOK_S = 0.05  # of sweep's worker at what a training that has just started reports
GIVE_UP_S = 240.0  # after the end, for an operation that is still at it

Trial = Iterator[int]  # each step of a trial yields how many operations it was


def sweep_trials(
    url: str, name: str, only_claim: bool = False, pause_s: float = 0.0, forward_s: float = 0.0
) -> Callable[[], Any]:
    """Return what makes a worker's trials, by sweep's own way.

    Args:
        forward_s: Seconds between two statements that store what was reported since.
    """
    import numpy  # noqa: F401  (loaded before the workers are forked)
    import optuna  # noqa: F401

    from sweep.core.trial import End, Place, Report
    from sweep.search import pruning
    from sweep.storage import studies
    from sweep.storage.connection import Database
    from sweep.storage.ledger import Ledger
    from sweep.storage.optuna_storage import PostgresStorage

    db = Database(url)
    study_id = studies.find_study(db, name)
    assert study_id is not None
    study = studies.read_specification(db, study_id)
    assert study is not None
    ledger = Ledger(db, study_id, study)
    storage = PostgresStorage(db)
    if not only_claim:
        storage.get_all_trials(study_id, deepcopy=False)
        pruning.curves_of(storage, study_id)
    db.close()
    distributions = {p.name: (p, p.distribution()) for p in SPACE}
    place = Place("bench", 0, "node")

    def ask(statement: Callable[[], Any]) -> Any:
        return db.retry(lambda _: statement(), patience_s=60.0, transaction=False)

    def trial() -> Trial:
        token = secrets.token_hex(16)
        claim = ask(lambda: ledger.claim(token, place))
        if claim is None:
            raise RuntimeError("the benchmark has run out of waiting trials")
        yield 1
        if only_claim:  # the finish is not timed: see ``work``
            ask(lambda: ledger.finish(token, End("finished"), "complete", [0.0]))
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            return
        storage.token = token
        values = {
            "lr": random.uniform(1e-5, 1e-1),
            "layers": random.randint(1, 8),
            "optimizer": random.randrange(3),
        }
        storage.set_trial_params(
            claim.trial_id,
            {n: (float(values[n]), distribution) for n, (_, distribution) in distributions.items()},
            study_id,
        )
        yield 3
        x, y = random.random(), random.random()
        steps: dict[int, float] = {}
        unsent: list[Report] = []
        forward_at = time.monotonic() + min(forward_s, FIRST_LOOK_S)
        for step in range(STEPS):
            unsent.append(Report(step, time.time(), {"loss": x + y / (1 + step)}))
            steps.update(ledger.objective_steps(token, unsent[-1:]))
            if time.monotonic() >= forward_at:
                ask(lambda: ledger.record(token, unsent))
                unsent.clear()
                forward_at = time.monotonic() + forward_s
            pruning.should_prune(study, storage, study_id, claim.trial_id, steps)
            yield 1

        def end(_: object) -> None:
            if unsent:
                ledger.record(token, unsent)
            ledger.finish(token, End("finished"), "complete", [x + y / STEPS])

        db.retry(end, patience_s=60.0, transaction=bool(unsent))
        yield 1

    return trial


def optuna_trials(storage: Any, name: str, only_ask: bool = False) -> Callable[[], Any]:
    """Return what makes a worker's trials, by Optuna's own loop."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    study = optuna.load_study(
        study_name=name,
        storage=storage,
        sampler=optuna.samplers.RandomSampler(),
        pruner=optuna.pruners.MedianPruner(),
    )
    if not only_ask:
        study.get_trials(deepcopy=False)

    def trial() -> Trial:
        found = study.ask()
        yield 1
        if only_ask:
            return
        found.suggest_float("lr", 1e-5, 1e-1, log=True)
        yield 1
        found.suggest_int("layers", 1, 8)
        yield 1
        found.suggest_categorical("optimizer", ["sgd", "adamw", "lion"])
        yield 1
        x, y = random.random(), random.random()
        for step in range(STEPS):
            found.report(x + y / (1 + step), step)
            found.should_prune()
            yield 1
        study.tell(found, x + y / STEPS)
        yield 1

    return trial


def prepare(kind: str, url: str, name: str) -> Callable[[], Any]:
    """Load a kind's history, close its connections, and return what makes its trials."""
    if kind in ("sweep", "each"):
        from sweep.training.supervisor import FORWARD_EVERY_S

        return sweep_trials(url, name, forward_s=FORWARD_EVERY_S if kind == "sweep" else 0.0)
    if kind in ("claims", "paced"):
        return sweep_trials(url, name, only_claim=True, pause_s=1.0 if kind == "paced" else 0.0)
    import optuna

    if kind == "ours":
        from sweep.storage import PostgresStorage

        storage: Any = PostgresStorage(url)
        made = optuna_trials(storage, name)
        storage.database.close()
        return made
    if kind in ("rdb", "pops"):
        storage = optuna.storages.RDBStorage(url)
        made = optuna_trials(storage, name, kind == "pops")
        storage.remove_session()
        storage.engine.dispose()
        return made
    if kind == "journal":
        from optuna.storages.journal import JournalFileBackend

        journal = optuna.storages.JournalStorage(JournalFileBackend(url))
        found = optuna_trials(journal, name)

        of = os.getpid()

        def own() -> Iterator[int]:
            nonlocal of
            if of != os.getpid():  # forked: what it writes would be taken for the others'
                of, prefix = os.getpid(), f"{secrets.token_hex(16)}-"
                journal._worker_id_prefix = journal._replay_result._worker_id_prefix = prefix
            return cast(Trial, found())

        return own
    if kind == "grpc":
        loaded: Callable[[], Any] | None = None

        # gRPC does not live through a fork: each worker opens its own, and loads its own history.
        def late() -> Iterator[int]:
            nonlocal loaded
            if loaded is None:
                host, _, port = url.partition(":")
                proxy = optuna.storages.GrpcStorageProxy(host=host, port=int(port))
                loaded = optuna_trials(proxy, name, only_ask=False)
            return cast(Trial, loaded())

        return late
    raise SystemExit(f"unknown kind {kind}")


class Clock:
    """From when until when operations count, on the wall clock; shared by all workers.

    Workers begin before it is set: what is loaded or connected once is not counted.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)

    def set(self, counted: float, end: float) -> None:
        self._memory[:] = struct.pack("dd", counted, end)

    def read(self) -> tuple[float, float]:
        counted, end = struct.unpack("dd", self._memory[:])
        return (counted, end) if end else (math.inf, math.inf)


def work(trial: Callable[[], Any], clock: Clock) -> dict[str, Any]:
    """Run trials until the clock's end; return what was done while it counted."""
    operations, errors, said = 0, 0, ""
    latencies: list[float] = []
    while time.time() < clock.read()[1]:
        began, took = time.time(), 0.0
        try:
            for done in trial():
                now = time.time()
                counted, end = clock.read()
                if now >= end:
                    break
                took = now - began
                operations += done if now >= counted else 0
            else:
                if began >= clock.read()[0]:
                    latencies.append(took)
        except Exception as error:
            errors += 1
            said = f"{type(error).__name__}: {error}"[:200]
            time.sleep(0.1)
    used = os.times()
    return {
        "operations": operations,
        "latencies": latencies,
        "errors": errors,
        "said": said,
        "cpu_s": used.user + used.system,
    }


def fork(trial: Callable[[], Any], clock: Clock) -> tuple[int, int]:
    """Start a worker; return its pid and the pipe that it answers on."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    random.seed()
    answer = json.dumps(work(trial, clock)).encode()
    while answer:
        answer = answer[os.write(writer, answer) :]
    os._exit(0)


def main(arguments: list[str]) -> int:
    """Run the workers and print what they did."""
    kind, url, name, workers, seconds, warm_s = arguments
    trial = prepare(kind, url, name)
    gc.collect()
    gc.freeze()  # or a collection in each worker would copy what they share
    clock = Clock()
    started = [fork(trial, clock) for _ in range(int(workers))]
    counted = time.time() + float(warm_s)
    end = counted + float(seconds)
    clock.set(counted, end)
    answers = []
    for pid, reader in started:
        chunks = []
        while select.select([reader], [], [], max(1.0, end + GIVE_UP_S - time.time()))[0]:
            chunk = os.read(reader, 65536)
            if not chunk:
                break
            chunks.append(chunk)
        if chunks:
            answers.append(json.loads(b"".join(chunks)))
        else:
            os.kill(pid, 9)
        os.waitpid(pid, 0)
    latencies = sorted(x for answer in answers for x in answer["latencies"])
    print(
        json.dumps(
            {
                "operations": sum(answer["operations"] for answer in answers),
                "seconds": float(seconds),
                "errors": sum(answer["errors"] for answer in answers),
                "stuck": int(workers) - len(answers),
                "said": next((a["said"] for a in answers if a["said"]), ""),
                "cpu_s": sum(answer["cpu_s"] for answer in answers),
                "p50_s": latencies[len(latencies) // 2] if latencies else None,
                "p95_s": latencies[int(len(latencies) * 0.95)] if latencies else None,
                "ended": len(latencies),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
