"""A thread in each rank that says "I live" and looks after the others.

A rank that dies breaks the others' connections at once; one that hangs lets them time out. In both
cases somebody must say which rank it was and end what is left. Each rank writes its place in the
run into the store once a second; a rank that fails writes that too. Those that neither failed nor
are heard are the culprits; a process that hangs is ended by its own thread, with its stack.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile
import threading
import time
from typing import Any, NoReturn

# Seconds between two signs of life.
BEAT_S = 1.0
# How long a rank that failed waits for the others to fail too, before it names the rest.
GRACE_S = 3.0


class Pulse:
    """Signs of life through a store that all ranks share.

    Attributes:
        place: Where the training is, in words; the main thread writes it.
    """

    def __init__(self, store: Any, rank: int, world: int, timeout_s: float) -> None:
        # A connection of its own: the other may be held by a call that waits.
        self._store = store.clone() if hasattr(store, "clone") else store
        self._rank, self._world = rank, world
        # A frozen process (SIGSTOP, a dead host) does not beat; torchrun then needs up to 30 s to
        # kill it. With this part of 50 s the trial still ends within a minute.
        self._silence_s = 0.4 * timeout_s
        self.place = "at the start"
        self._beats = 0
        self._ended = threading.Event()
        self._heard: dict[int, tuple[str, float]] = {}
        self._lost_at = 0.0
        self._beat()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say that this rank ended well, and end the thread."""
        self._ended.set()
        self._thread.join()
        try:
            self._store.set(f"pulse/{self._rank}", "left")
        except Exception:  # rank 0 and its store may be gone already: nobody is left to tell
            return

    def fail(self, reason: str) -> str:
        """Tell the other ranks that this one failed, find out which others did not, end those.

        Args:
            reason: Why, in one line.

        Returns:
            A sentence on the ranks that died or hang; empty where there is none.
        """
        try:
            self._store.set(f"failed/{self._rank}", reason)
            before = self._read_beats()
            silent = [r for r in range(self._world) if r != self._rank]
            deadline = time.monotonic() + GRACE_S
            while silent and time.monotonic() < deadline:
                time.sleep(0.2)
                silent = [r for r in silent if not self._store.check([f"failed/{r}"])]
            after = self._read_beats()
            hung = [r for r in silent if after[r] not in ("left", before[r])]
            self._store.set("hung", ",".join(map(str, hung)))
            self._store.set("abort", f"rank {self._rank}: {reason}")
        except Exception:  # the store went with rank 0
            return "rank 0 is gone (its store does not answer)." if self._rank else ""
        found = []
        for rank in silent:
            place = after[rank].partition(" ")[2]
            if after[rank] == "left":
                continue
            hangs = rank in hung
            verb = "hangs" if hangs else "died or is frozen"
            found.append(f"rank {rank} {verb}; its last place was {place}.")
        if hung:
            # Our store, or a launcher, ends all with us: that rank must hear of it and say where
            # it hangs before.
            time.sleep(3 * BEAT_S)
        return " ".join(found)

    def _read_beats(self) -> dict[int, str]:
        return {
            rank: self._store.get(f"pulse/{rank}").decode()
            if self._store.check([f"pulse/{rank}"])
            else "0 before the start"
            for rank in range(self._world)
        }

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"pulse/{self._rank}", f"{self._beats} {self.place}")

    def _run(self) -> None:
        while not self._ended.wait(BEAT_S):
            try:
                self._beat()
                told = self._store.get("abort").decode() if self._store.check(["abort"]) else ""
                silent = "" if told else self._find_silent()
            except Exception:  # the store is in rank 0 (or its launcher), which may end first
                self._lost_at = self._lost_at or time.monotonic()
                if time.monotonic() - self._lost_at > self._silence_s:
                    self._end("rank 0 is gone (its store does not answer)")
                continue
            if told and self._hangs():
                self._show(f"another rank failed: {told}")
                time.sleep(2 * GRACE_S)  # whoever found out says so first
                os._exit(1)
            if told and not self._ended.wait(2 * GRACE_S):  # let a main thread that failed speak
                self._end(f"another rank failed: {told}")
            if silent:
                self._end(silent)

    def _hangs(self) -> bool:
        """Tell whether another rank found this one's main thread stuck."""
        try:
            found = self._store.get("hung").decode() if self._store.check(["hung"]) else ""
        except Exception:  # rank 0 has ended
            return False
        return str(self._rank) in found.split(",")

    def _find_silent(self) -> str:
        """Return a sentence on a rank that stopped beating; rank 0 watches all, the others it."""
        now = time.monotonic()
        for rank in range(1, self._world) if self._rank == 0 else (0,):
            if not self._store.check([f"pulse/{rank}"]):
                continue
            beat = self._store.get(f"pulse/{rank}").decode()
            last, since = self._heard.get(rank, ("", now))
            if beat != last:
                self._heard[rank] = beat, now
            elif beat != "left" and now - since > self._silence_s:
                place = beat.partition(" ")[2]
                text = (
                    f"rank {rank} has given no sign of life for {now - since:.0f} s; "
                    f"its last place was {place}"
                )
                if self._rank == 0:
                    self._store.set("abort", f"rank 0: {text}")
                return text
        return ""

    def _end(self, reason: str) -> NoReturn:
        """End this process from the thread: its main thread is stuck and cannot."""
        self._show(reason)
        os._exit(1)

    def _show(self, reason: str) -> None:
        # In one piece: a launcher puts the rank's number before whatever comes at once.
        with tempfile.TemporaryFile("w+") as stack:
            faulthandler.dump_traceback(stack, all_threads=True)
            stack.seek(0)
            text = stack.read()
        print(
            f"[rank {self._rank}] trainer: {reason}. This rank was {self.place}; its stack:\n"
            f"{text}",
            file=sys.stderr,
            flush=True,
        )
