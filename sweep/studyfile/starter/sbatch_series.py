"""What a script of a shell submits or runs by itself, one command after the other.

Functions are put where they are called, and a job that is handed to sbatch on its standard input,
or written by ``cat`` before, where that happens. Commands that differ in some of their words are
the points of a study; options of sbatch that are the same for all of them are its resources.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.core.shell_text import split_words
from sweep.studyfile.starter.sbatch_indexes import TASK
from sweep.studyfile.starter.sbatch_options import part_options, read_options
from sweep.studyfile.starter.sbatch_words import RAW_WORD, read_shell_word

_MOST_CALLS = 500
_MOST_CHARACTERS = 1_000_000
_JOB = re.compile(
    r"^(?P<before>[ \t]*)(?P<command>sbatch\b[^\n|;&]*?|cat\b[^\n|;&]*?)<<-?[ \t]*"
    r"(?P<quote>[\"']?)(?P<mark>\w+)(?P=quote)(?P<after>[^\n]*)\n"
    r"(?P<text>.*?)^[ \t]*(?P=mark)[ \t]*$",
    re.M | re.S,
)
_SETUP = re.compile(
    r"^[ \t]*(?:(?:module|ml|source|conda\s+activate|micromamba\s+activate|spack|\.|export)\s"
    r"[^$`\n]*|#SBATCH[^$`\n]*)$",
    re.M,
)
_FUNCTION = re.compile(
    r"^\s*(?:function\s+(\w[\w-]*)\s*(?:\(\s*\))?|(\w[\w-]*)\s*\(\s*\))\s*\{?\s*(.*)$"
)
_COUNTED = re.compile(r"\b(?:shift|getopts)\b|\$[#*]|\$\{[#*]|\$\{?@")
_ARGUMENT = re.compile(r"\$(?:(\d)|\{(\d+)(?::?-([^}]*))?\})")
_SBATCH = re.compile(r"^[ \t]*(?:\w+=\$\(\s*)?sbatch\b(?!\s*<<)[ \t]+([^\n|;&]*)", re.M)
_UNUSED = {"wrap", "parsable", "quiet", "wait", "verbose", "hold", "test-only", "export"}
_UNUSED |= {"dependency", "job-name", "output", "error"}


def open_jobs(text: str) -> str:
    """Return a script in which the text of a job, which it hands to sbatch or writes to a file,
    stands where that happens."""

    setup: list[str] = []

    def put(found: re.Match[str]) -> str:
        inner = found["text"]
        is_job = found["command"].startswith("sbatch") or re.match(r"\s*#!.*sh\b", inner)
        if not is_job:
            return found[0]
        if not found["quote"]:  # what the job itself is to read is escaped
            inner = re.sub(r"\\([$`\\])", r"\1", inner)
        # What is the same for all jobs stands once, before the loop that submits them.
        setup.extend(line for line in inner.split("\n") if _SETUP.match(line))
        return _SETUP.sub("", inner).rstrip("\n")

    text = _JOB.sub(put, text)
    first, _, rest = text.partition("\n")
    before = "\n".join(dict.fromkeys(setup))
    return f"{first}\n{before}\n{rest}" if setup else text


def open_functions(body: str) -> str:
    """Return a script in which functions that are called with arguments stand where they are.

    Args:
        body: As ``sbatch_text.straighten`` returns it.
    """
    functions, lines = _take_functions(body.split("\n"))
    called: set[str] = set()
    for _ in range(3):  # functions that call others
        done: list[str] = []
        for line in lines:
            inside = _call(line, functions)
            if inside is None or len(done) > _MOST_CALLS * 20:
                done.append(line)
            else:
                called.add(line.split()[0])
                done += inside
        lines = done
    others = [name for name in functions if name not in called]
    kept = [one for name in others for one in (f"{name}() {{", *functions[name], "}")]
    return "\n".join([*kept, *lines]) if called else body


def _take_functions(lines: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    functions: dict[str, list[str]] = {}
    rest: list[str] = []
    place = 0
    while place < len(lines):
        found = _FUNCTION.match(lines[place])
        end = next((i for i in range(place, len(lines)) if re.match(r"\s*\}", lines[i])), 0)
        inside = [found[3], *lines[place + 1 : end]] if found else []
        plain = re.sub(r"\"\$@\"|\$@|\"\$\{@\}\"", "", "\n".join(inside))
        # What counts its arguments, or has groups of its own, stays where it is.
        if not end or not inside or _COUNTED.search(plain) or re.search(r"\{\s*$", plain, re.M):
            rest.append(lines[place])
            place += 1
            continue
        assert found is not None
        functions[found[1] or found[2]] = [one for one in inside if one.strip() not in ("", "{")]
        place = end + 1
    return functions, rest


def _call(line: str, functions: dict[str, list[str]]) -> list[str] | None:
    """Return the lines of the function that a line calls; None where it calls none that is read."""
    words = line.split()
    inside = functions.get(words[0]) if words else None
    if inside is None:
        return None
    try:
        given = split_words(line, posix=False)[1:]
    except ValueError:
        return None

    def put(found: re.Match[str]) -> str:
        number = int(found[1] or found[2])
        if 0 < number <= len(given):
            return (
                given[number - 1].strip('"')
                if not given[number - 1].startswith("'")
                else given[number - 1].strip("'")
            )
        return found[3] or ""

    own = [re.sub(r"\"\$@\"|\$@|\"\$\{@\}\"", lambda _: " ".join(given), one) for one in inside]
    plain = [_ARGUMENT.sub(put, one) for one in own]
    return [one for one in plain if not re.match(r"\s*return\b", one)]


def read_submitted(body: str, folder: Path, lost: list[str]) -> dict[str, str]:
    """Return the options that a script gives to sbatch, by their long names: those in the job
    scripts that it submits, and those on its command lines, which go before.

    Args:
        body: As ``sbatch_text.straighten`` returns it, with known values in place.
        folder: Where the scripts that it submits lie.
        lost: Gets what is not the same for all.
    """
    rows: list[dict[str, str]] = []
    scripts: list[str] = []
    for found in _SBATCH.finditer(body):
        try:
            words = split_words(found[1])
        except ValueError:
            continue
        options, place = part_options(words)
        rows.append(options)
        scripts += [words[place]] if place < len(words) else []
    options = {}
    for script in dict.fromkeys(scripts):
        try:
            with (folder / script).open(encoding="utf-8", errors="replace") as file:
                own = read_options(file.read(_MOST_CHARACTERS))
        except (OSError, ValueError):
            lost.append(
                f"sbatch: {script} is not there to be read; its #SBATCH lines belong into "
                "resources and slurm"
            )
            continue
        for name, value in own.items():
            if options.setdefault(name, value) != value:
                lost.append(f"sbatch: --{name}={value} of {script}: another script has another")
    for name in dict.fromkeys(name for row in rows for name in row):
        values = list(dict.fromkeys(row.get(name, "") for row in rows))
        if name in _UNUSED:
            continue
        if len(values) > 1 or "$" in values[0]:
            lost.append(f"sbatch --{name}: is not the same for all jobs; was left out")
            options.pop(name, None)
        else:
            options[name] = values[0]
    if "array" in options:
        lost.append(
            f"sbatch --array={options.pop('array')}: each job was an array of its own; where its "
            f"script reads {TASK}, give it the number as an argument, or see replicates"
        )
    return options


def leave_options(line: str) -> str:
    """Return a command line of sbatch without its options, but for what it gives to the job's
    environment; any other line as it is."""
    words = RAW_WORD.findall(line)
    if words[:1] != ["sbatch"]:
        return line
    options, place = part_options(words[1:])
    kept = [f"--export={options['export']}"] if options.get("export") else []
    return " ".join(["sbatch", *kept, *words[place + 1 :]])


def split_commands(commands: list[str]) -> list[list[str]]:
    """Return the words of commands; none of one that is not known."""
    rows = []
    for command in commands:
        try:
            rows.append(split_words(command))
        except ValueError:
            rows.append([])
    return rows


def are_alike(rows: list[list[str]]) -> bool:
    """Tell whether commands are the same but for some of their arguments."""
    begins = _begins(rows[0])
    return all(
        len(row) == len(rows[0]) and _shape(row, begins) == _shape(rows[0], begins) for row in rows
    )


def join_alike(
    commands: list[list[str]], taken: int, lists: dict[str, list[Any]], lost: list[str]
) -> tuple[str, list[int], list[int]]:
    """Return the commands that are like one, but for some of their words, as one of an array.

    Args:
        commands: Their words, with known values in place.
        taken: Which of them trains.
        lists: Get the words in which they differ.
        lost: Gets those that are not known.

    Returns:
        The command, a task for each, and which commands it stands for; the second and third are
        empty where no other is like it.
    """
    rows = {place: row for place, row in enumerate(commands) if row}
    own = rows.get(taken)
    if own is None:
        return EDIT, [], []
    begins = _begins(own)
    alike = {
        place: row
        for place, row in rows.items()
        if len(row) == len(own) and _shape(row, begins) == _shape(own, begins)
    }
    different = list(dict.fromkeys(map(tuple, alike.values())))
    if len(different) < 2 or len(own) <= begins:
        return " ".join(map(_quoted, own)), [], []
    words = []
    for number, column in enumerate(zip(*different, strict=True)):
        if len(set(column)) == 1:
            words.append(_quoted(column[0]))
            continue
        option = re.match(r"-{0,2}[\w.]+=", column[0])
        before = option[0] if option and all(w.startswith(option[0]) for w in column) else ""
        values = [word[len(before) :] for word in column]
        if any(re.search(r"[$`]", value) for value in values):
            shown = next(value for value in values if re.search(r"[$`]", value))
            lost.append(f"command: {shown} is not known without running it; replace {EDIT}")
            words.append(before + EDIT)
            continue
        key = re.sub(r"\W+", "_", before.strip("-+~=")) if not before.startswith("-") else ""
        name = key if key and key not in lists else f"argument_{number - begins + 1}"
        lists[name] = [read_shell_word(value) for value in values]
        words.append(f'{before}"${{{name}[${TASK}]}}"')
    return " ".join(words), list(range(len(different))), list(alike)


def _begins(row: list[str]) -> int:
    """Return where the arguments of a command begin: behind the script that it runs."""
    return next((i for i, word in enumerate(row) if re.search(r"\.\w+$", word)), 0) + 1


def _quoted(word: str) -> str:
    return f'"{word}"' if "$" in word else shlex.quote(word)


def _shape(row: list[str], begins: int) -> list[str]:
    """Return what commands have in common that are alike: the script, and their options."""
    return row[:begins] + [
        word.partition("=")[0] if word.startswith("-") and not _is_number(word) else ""
        for word in row[begins:]
    ]


def _is_number(word: str) -> bool:
    return re.fullmatch(r"-[\d.]+(?:[eE][-+]?\d+)?", word) is not None
