"""A training that costs next to nothing: it sleeps, prints a value, and notes when and beside whom.

    python -I -S stand_in.py DURATIONS NOTES [INDEX]

Runs without site-packages and imports three built-in modules, so that what a benchmark measures is
not this. DURATIONS is a text file of seconds, one for each trial; INDEX, or else $SWEEP_TRIAL, says
which one is slept. To NOTES it appends one line: index, its parent's pid, its parent's CPU seconds
when it began, its first and last moment (epoch seconds).
"""

import os
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")


def parent_cpu_s(pid: int) -> float:
    """Return the CPU seconds (user and system) that a process itself has used."""
    with open(f"/proc/{pid}/stat", "rb") as stream:
        fields = stream.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    """Sleep for this trial's time, print, and append the note."""
    began, parent = time.time(), os.getppid()
    cpu_s = parent_cpu_s(parent)
    with open(sys.argv[1], encoding="ascii") as stream:
        durations = stream.read().split()
    index = int(sys.argv[3] if len(sys.argv) > 3 else os.environ["SWEEP_TRIAL"])
    time.sleep(float(durations[index]))
    print(f"value={index / len(durations)}", flush=True)
    note = f"{index} {parent} {cpu_s:.2f} {began:.6f} {time.time():.6f}\n"
    notes = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(notes, note.encode())
    os._exit(0)


if __name__ == "__main__":
    main()
