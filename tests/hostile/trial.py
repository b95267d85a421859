"""Give a reader many hostile texts, in a child with a bound of memory; count what comes of it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from types import FrameType

from sweep.core import masking
from sweep.core.errors import SweepError
from tests.hostile.mutator import mutate
from tests.hostile.readers import READERS, Reader

HANG_S = 120.0  # for one text, on a busy machine: what takes so long never ends
MEMORY_BYTES = 1 << 30  # beyond what the process has when it starts
MOST_FAULTS = 20


@dataclass
class Found:
    """What came of a reader's texts; times in seconds of CPU, the slowest one's."""

    reader: str
    answers: int = 0
    refusals: int = 0
    slowest_s: float = 0.0
    over_2_s: int = 0
    faults: list[str] = field(default_factory=list)


class Hangs(BaseException):
    """Raised by the alarm; no ``except Exception`` of a reader's takes it for its own."""


def try_reader(reader: Reader, count: int, folder: Path, *, hang_s: float = HANG_S) -> Found:
    """Return what a reader makes of so many texts, the good ones first."""
    report = folder / "found.json"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            found = _try(reader, count, folder, hang_s)
            report.write_text(json.dumps(asdict(found), ensure_ascii=True))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        return Found(reader.name, faults=[f"{reader.name}: the child ended with {status}"])
    return Found(**json.loads(report.read_text()))


def _try(reader: Reader, count: int, folder: Path, hang_s: float) -> Found:
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MEMORY_BYTES, has + MEMORY_BYTES))

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hangs

    signal.signal(signal.SIGALRM, ring)
    chance, found = Random(f"17 {reader.name}"), Found(reader.name)
    for number in range(count):
        good = reader.good[number % len(reader.good)]
        data = good.encode() if number < len(reader.good) else mutate(good, chance)
        own = folder / "own"
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        masking.forget_secrets()
        began = time.process_time()
        signal.setitimer(signal.ITIMER_REAL, hang_s)
        try:
            reader.read(data, own)
            found.answers += 1
        except (SweepError, *reader.refuses):
            found.refusals += 1
        except Hangs:
            found.faults.append(_say(reader, number, data, f"hangs: {traceback.format_exc()}"))
        except BaseException:
            found.faults.append(_say(reader, number, data, traceback.format_exc()))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        took_s = time.process_time() - began
        found.slowest_s = max(found.slowest_s, took_s)
        found.over_2_s += took_s > 2.0
        if took_s > 2.0:
            print(_say(reader, number, data, f"{took_s:.1f} s"), file=sys.stderr)
        if len(found.faults) >= MOST_FAULTS:
            break
    return found


def _say(reader: Reader, number: int, data: bytes, what: str) -> str:
    shown = data if len(data) <= 600 else data[:300] + b" ... " + data[-300:]
    return f"{reader.name}, text {number} of {len(data)} bytes: {shown!r}\n{what[-1800:]}"


def main(arguments: list[str]) -> int:
    """Try all readers with so many texts each; print a table in Markdown."""
    import tempfile

    count, wanted = int(arguments[0]) if arguments else 2000, arguments[1:]
    print("| reader | inputs | answers | refusals | faults | slowest, s of CPU | over 2 s |")
    print("|---|---|---|---|---|---|---|")
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        for reader in READERS:
            if wanted and reader.name not in wanted:
                continue
            found = try_reader(reader, count, Path(folder))
            faults += len(found.faults)
            print("\n\n".join(found.faults[:3]), file=sys.stderr)
            print(
                f"| {reader.name} | {count:,} | {found.answers:,} | {found.refusals:,} "
                f"| {len(found.faults)} | {found.slowest_s:.2f} | {found.over_2_s} |",
                flush=True,
            )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
