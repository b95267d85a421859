"""The command: ``python -m trainer.train --data digits --lr 0.1``; see ``--help``.

Exit codes: 0 the run ended (also when pruned, asked to leave, or diverged: those are results); 1 it
could not go on (a full disk, a rank that died); 2 the input is wrong; 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from . import config
from .failures import RanksError

if TYPE_CHECKING:
    from .loop import Result
    from .ranks import Ranks


def say(line: str) -> None:
    """Print a line at once: a log that is followed must not lag behind."""
    print(line, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    ranks: Ranks | None = None
    try:
        options = config.parse(sys.argv[1:] if argv is None else argv)
        # Imported only now: torch takes seconds, and mistakes and --help should not.
        from sweep.report import Reporter

        from . import loop

        ranks = loop.meet(options)
        tell = say if ranks.rank == 0 else _say_nothing
        result = loop.train(options, Reporter(), tell, ranks)
        if ranks.rank == 0:
            finish(result, options, say)
        ranks.leave()
    except config.InputError as error:
        return fail(str(error), 2, ranks)
    except RanksError as error:
        return fail(str(error), 1, ranks)
    except OSError as error:
        return fail(
            f"{error.filename or 'file'}: {error.strerror or error}. Free some space or "
            "mend the folder, then run again: it goes on from the last checkpoint.",
            1,
            ranks,
        )
    except KeyboardInterrupt:
        return fail("interrupted", 130, ranks)
    except Exception as error:
        if ranks is None or ranks.pulse is None:
            raise
        return explain(error, ranks)
    return 0


def _say_nothing(line: str) -> None:
    """What all ranks know, rank 0 says."""


def fail(text: str, code: int, ranks: Ranks | None = None) -> int:
    """Print what went wrong, end the other ranks, and return the exit code."""
    several = ranks is not None and ranks.world > 1
    prefix = f"[rank {ranks.rank}] " if several and ranks else ""
    print(f"{prefix}trainer: {text}", file=sys.stderr, flush=True)
    if ranks and ranks.pulse:
        ranks.pulse.fail(text.splitlines()[0])
        leave_hard(code)
    return code


def explain(error: Exception, ranks: Ranks) -> int:
    """Say what an error of one of several ranks means, and which other rank caused it."""
    from . import connection
    from .ranks import read_timeout_s

    if not connection.is_of_ranks(error) or ranks.pulse is None:
        traceback.print_exc()
        return fail(f"{type(error).__name__}: {error}", 1, ranks)
    text = connection.explain(error, os.environ, read_timeout_s(os.environ))
    culprits = ranks.pulse.fail(text)
    print(
        f"[rank {ranks.rank}] trainer: {culprits} {text}".replace("  ", " "),
        file=sys.stderr,
        flush=True,
    )
    return leave_hard(1)


def leave_hard(code: int) -> int:
    """End without cleaning up: torch would wait for ranks that will never answer."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def finish(result: Result, options: config.Options, say: Callable[[str], object]) -> None:
    """Print the last lines, and write ``result.json`` if the test set was asked for."""
    if result.ended in ("pruned", "checkpoint"):
        say(f"stopped ({result.ended}) after epoch {result.epochs}")
    if result.best_epoch:
        say(f"best val_accuracy={result.best_accuracy:.4f} (epoch {result.best_epoch})")
    if result.test_accuracy is None:
        return
    say(f"test_accuracy={result.test_accuracy:.4f} test_loss={result.test_loss:.4f}")
    folder = options.output or os.environ.get("SWEEP_TRIAL_DIR")
    if folder:
        part = Path(folder) / f".result.{os.getpid()}.tmp"
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(dataclasses.asdict(result)) + "\n", encoding="utf-8")
        os.replace(part, part.with_name("result.json"))


if __name__ == "__main__":
    sys.exit(main())
