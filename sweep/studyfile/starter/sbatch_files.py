"""What each task of a job array reads from a file: line N by sed, head or awk, and columns of it.

Bash is not run: the pipelines that people write for it are read. Each thing that a task takes is a
list of the values of all tasks, as a bash array would be.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweep.core.shell_text import split_words
from sweep.studyfile.starter.sbatch_indexes import TASK, pick
from sweep.studyfile.starter.sbatch_text import put_in
from sweep.studyfile.starter.sbatch_words import read_shell_word

_MOST_BYTES = 1_000_000
_MOST_LINES = 10_000
_INSIDE = r"[^()]*(?:\$(?:\([^()]*\)|\(\([^()]*\)\))[^()]*)*"
_SUBSTITUTED = rf"\$\((?P<call>{_INSIDE})\)|`(?P<ticks>[^`]*)`"
_VALUE = rf"(?:{_SUBSTITUTED}|\$\{{?(?P<of>\w+)\}}?)"
_SET = re.compile(
    r"^[ \t]*(?:export\s+|local\s+)?(?P<name>[A-Za-z_]\w*)="
    rf"\"?(?:{_SUBSTITUTED})\"?[ \t]*(?:\|\|.*)?$",
    re.M,
)
_READ = re.compile(
    r"^[ \t]*(?:IFS=(?P<ifs>\$?'[^']*'|\"[^\"]*\"|\S*)[ \t]+)?read(?:[ \t]+-\w+)*[ \t]+"
    rf"(?P<names>[A-Za-z_][\w \t]*?)[ \t]*(?:<<<[ \t]*\"?{_VALUE}\"?"
    rf"|<[ \t]*<\((?P<process>{_INSIDE})\))[ \t]*$",
    re.M,
)
_POSITIONAL = re.compile(rf"^[ \t]*set[ \t]+--?[ \t]+{_VALUE}[ \t]*$", re.M)
_WHOLE = re.compile(r"^[ \t]*(?:eval|bash[ \t]+-l?c)[ \t]+(\"?)\$(\{?)(\w+)(\}?)\1[ \t]*$", re.M)
_ASSIGNED = r"^[ \t]*(?:export\s+|local\s+)?{}=(.*)$"


class NotRead(ValueError):
    """A pipeline that is not known without running it, or a file that is not there."""


@dataclass(frozen=True)
class Lines:
    """The lines of a file, or one of them for each task.

    Attributes:
        index: The expression that says which, from 0, a task takes; "" for all of them.
        ends_at: The number of lines up to which ``head`` has cut, which ``tail`` makes the index.
    """

    lines: tuple[str, ...]
    index: str = ""
    ends_at: str = ""

    def columns(self, of: str, number: int, until: int | None = None) -> Lines:
        """Return one column of each line, from 1, or several; ``of`` divides, "" for spaces."""
        cut = [line.split(of) if of else line.split() for line in self.lines]
        chosen = [row[number - 1 : until or number] for row in cut]
        return replace(self, lines=tuple((of or " ").join(row) for row in chosen))


@dataclass
class FromFiles:
    """A job script without what it reads from files.

    Attributes:
        body: The script; what a task takes is ``${LIST[INDEX]}`` in it.
        lists: The values by list.
        tasks: The tasks that find a line, where the script does not say which there are.
        unread: In words, what was not understood.
    """

    body: str
    lists: dict[str, list[Any]] = field(default_factory=dict)
    tasks: list[int] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def read_files(body: str, folder: Path, scalars: dict[str, str], tasks: list[int]) -> FromFiles:
    """Read the files of which each task of a job array takes a line.

    Args:
        body: A script as ``sbatch_text.straighten`` returns it.
        folder: Where relative paths begin.
        scalars: Its variables.
        tasks: Those of the array; empty where the script does not say.
    """
    if TASK not in body:
        return FromFiles(body)
    return _TaskLines(body, folder, scalars, tasks).read()


class _TaskLines:
    def __init__(self, body: str, folder: Path, scalars: dict[str, str], tasks: list[int]) -> None:
        self._found = FromFiles(body)
        self._folder = folder
        self._scalars = scalars
        self._tasks = tasks
        self._known: dict[str, Lines] = {}

    def read(self) -> FromFiles:
        found = self._found
        for match in [*_SET.finditer(found.body)]:
            name = match["name"]
            if not _reads(match[0]) and not self._names_known(match[0]):
                continue
            if len(re.findall(_ASSIGNED.format(name), found.body, re.M)) != 1:
                continue
            lines = self._try(match["call"] or match["ticks"] or "")
            if lines is not None:
                self._known[name] = lines
                found.body = found.body.replace(match[0], "", 1)
        for match in [*_READ.finditer(found.body)]:
            source = self._source(match, match["process"] or match["call"] or match["ticks"])
            if source is None:
                continue
            names, of = match["names"].split(), _divider(match["ifs"])
            for number, name in enumerate(names, 1):
                until = 1000 if number == len(names) else None  # the last one takes the rest
                self._known[name] = source.columns(of, number, until)
            found.body = found.body.replace(match[0], "", 1)
        for match in [*_POSITIONAL.finditer(found.body)]:
            source = self._source(match, match["call"] or match["ticks"])
            if source is None:
                continue
            found.body = found.body.replace(match[0], "", 1)
            for number in range(1, 10):
                self._known[f"arg{number}"] = source.columns("", number)
                found.body = re.sub(
                    rf"\$(?:{number}\b|\{{{number}\}})", f"${{arg{number}}}", found.body
                )
        self._put_in()
        return found

    def _source(self, match: re.Match[str], pipeline: str | None) -> Lines | None:
        if match["of"]:
            return self._known.get(match["of"])
        return self._try(pipeline or "") if _reads(match[0]) else None

    def _names_known(self, text: str) -> bool:
        return any(re.search(rf"\$\{{?{name}\b", text) for name in self._known)

    def _try(self, pipeline: str) -> Lines | None:
        try:
            lines = self._run(pipeline)
            if not lines.index:
                raise NotRead(f"{pipeline.strip()}: takes no line by the task's number")
            return lines
        except NotRead as error:
            if str(error) not in self._found.unread:
                self._found.unread.append(str(error))
            return None

    def _run(self, pipeline: str) -> Lines:
        lines: Lines | None = None
        for stage in re.split(r"\|(?=(?:[^'\"]|'[^']*'|\"[^\"]*\")*$)", pipeline):
            lines = self._stage(stage.strip(), lines)
        if lines is None:
            raise NotRead(pipeline)
        return lines

    def _stage(self, stage: str, given: Lines | None) -> Lines:
        stage, _, here = stage.partition("<<<")
        stage, _, file = stage.partition("<")
        try:
            words = split_words(stage.strip())
        except ValueError:
            raise NotRead(stage) from None
        program, rest = words[0] if words else "", words[1:]
        if here:
            given = self._variable(here)
        elif file:
            given = self._file(file)
        if program in ("cat", "echo", "printf", "xargs", "tr") or not program:
            return self._passed(program, rest, given, stage)
        options, others = _options(rest, _TAKES.get(program, ""))
        if program in ("sed", "awk", "gawk") and others:
            code, *others = others
        elif program in ("head", "tail", "cut"):
            code = ""
        else:
            raise NotRead(f"{stage}: is not known without running it")
        if given is None:
            given = self._file(others[0] if others else "")
        if program == "head":
            return replace(given, ends_at=_count(options))
        if program == "tail":
            return _tail(given, _count(options), stage)
        if program == "cut":
            return _cut(given, options, stage)
        return _sed(given, code, stage) if program == "sed" else _awk(given, code, options, stage)

    def _passed(self, program: str, words: list[str], given: Lines | None, stage: str) -> Lines:
        """Return what a program passes on as it is, or with other signs (``tr ',' ' '``)."""
        if program == "cat" and words:
            return self._file(words[0])
        if program in ("echo", "printf"):
            texts = [word for word in words if word not in ("-n", "-e", "%s", "%s\\n")]
            given = self._variable(" ".join(texts))
        if given is None or (program == "xargs" and words):
            raise NotRead(f"{stage}: is not known without running it")
        return _tr(given, words, stage) if program == "tr" else given

    def _variable(self, text: str) -> Lines:
        name = text.strip(' \t"${}')
        if name not in self._known:
            raise NotRead(f"{text.strip()}: is not known without running the script")
        return self._known[name]

    def _file(self, word: str) -> Lines:
        text = put_in(word.strip(" \t\"'"), self._scalars)
        text = re.sub(r"^\$\{?(?:SLURM_SUBMIT_DIR|PWD)\}?/", "", text)
        path = self._folder / Path(text).expanduser()
        if not text or "$" in text or not path.is_file():
            raise NotRead(f"{text or word}: each task reads a line of it, and it is not here")
        if path.stat().st_size > _MOST_BYTES:
            raise NotRead(f"{text}: has more than {_MOST_BYTES:,} bytes")
        lines = path.read_text("utf-8", "replace").splitlines()
        if len(lines) > _MOST_LINES:
            raise NotRead(f"{text}: has more than {_MOST_LINES:,} lines")
        return Lines(tuple(lines))

    def _put_in(self) -> None:
        """Write what each task takes into the places where it is used."""
        body = self._found.body
        for match in [*_WHOLE.finditer(body)]:  # eval "$command"
            name = match[3]
            set_to = re.findall(_ASSIGNED.format(name), body, re.M)
            if name in self._known:
                body = body.replace(match[0], f"${{{name}}}", 1)
            elif len(set_to) == 1 and self._names_known(set_to[0]):
                body = body.replace(match[0], set_to[0].strip().strip("\"'"), 1)
        for name, lines in self._known.items():
            body = self._put(body, name, lines)
        self._found.body = body

    def _put(self, body: str, name: str, lines: Lines) -> str:
        if not re.search(rf"\$(?:\{{{name}\b|{name}\b)", body):
            return body
        values = self._values(lines)
        if not values:
            self._found.unread.append(f"{name}: no task finds a line")
            return body
        one = self._list(name, list(lines.lines), lines.index, values)
        body = re.sub(rf"\"\$(?:\{{{name}\}}|{name}\b)\"", lambda _: one, body)
        several = self._words(name, lines, values)
        return re.sub(rf"\$(?:\{{{name}\}}|{name}\b)", lambda _: several or one, body)

    def _values(self, lines: Lines) -> list[str]:
        """Return the lines that tasks take."""
        places = []
        tasks = self._tasks or range(len(lines.lines) + 1)
        for task in tasks:
            try:
                place = pick(lines.index, self._scalars, {}, task)
            except ValueError:
                return []
            if 0 <= place < len(lines.lines) and lines.lines[place].strip():
                places.append((task, place))
        if not self._tasks:
            self._found.tasks = [task for task, _ in places]
        return [lines.lines[place] for _, place in places]

    def _words(self, name: str, lines: Lines, values: list[str]) -> str:
        """Return a line as the words of which it is made, each its own list; "" for one word."""
        try:
            rows = [split_words(line) for line in values]
            every = [split_words(line) if line in values else [] for line in lines.lines]
        except ValueError:
            return ""
        width = len(rows[0])
        if width < 2:
            return ""
        if any(len(row) != width for row in rows):
            self._found.unread.append(f"{name}: its lines have unlike numbers of words")
            return ""
        found = []
        for i in range(width):
            column = [row[i] if row else "" for row in every]
            used = [row[i] for row in rows]
            option = re.match(r"-{0,2}[\w.]+=", used[0])
            before = option[0] if option and all(one.startswith(option[0]) for one in used) else ""
            column = [one[len(before) :] for one in column]
            rest = [one[len(before) :] for one in used]
            found.append(before + self._list(f"{name}_{i + 1}", column, lines.index, rest))
        return " ".join(found)

    def _list(self, name: str, column: list[str], index: str, used: list[str]) -> str:
        """Return how a task's value of a column is written."""
        if len(set(used)) == 1:
            return shlex.quote(used[0])
        self._found.lists[name] = [read_shell_word(value.strip()) for value in column]
        return f"${{{name}[{index}]}}"


_TAKES = {"cut": "dfc", "head": "n", "tail": "n", "awk": "Fv", "gawk": "Fv"}


def _reads(text: str) -> bool:
    return TASK in text and re.search(r"\b(?:sed|awk|gawk|head)\b", text) is not None


def _divider(ifs: str | None) -> str:
    """Return what divides columns for ``IFS=… read``; "" for spaces."""
    text = (ifs or "").lstrip("$").strip("'\"").replace("\\t", "\t")
    return "" if not text.strip(" ") else text[0]


def _options(words: list[str], take: str) -> tuple[dict[str, str], list[str]]:
    """Return the options of a program, of which some take a value, and its other words."""
    options: dict[str, str] = {}
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            others.append(word)
        elif word[1:2] in take and take:
            options[word[1]] = word[2:] or next(rest, "")
        else:
            options[word[1:]] = ""
    return options, others


def _count(options: dict[str, str]) -> str:
    """Return the number of lines of ``head -n 3``, ``-3``."""
    return options.get("n") or next((key for key, value in options.items() if not value), "10")


def _bare(text: str) -> str:
    """Return a number's expression as it stands within ``$((…))``."""
    bare = re.sub(r"^\$\(\((.*)\)\)$|^\$\{?(\w+)\}?$", r"\1\2", text.strip())
    return f"({bare})"


def _less_one(text: str) -> str:
    return f"{_bare(text)}-1"


def _tr(given: Lines, words: list[str], stage: str) -> Lines:
    """Read ``tr ',' ' '`` and ``tr -d '\\r'``."""
    signs = [word.replace("\\t", "\t").replace("\\r", "\r").replace("\\n", "\n") for word in words]
    if len(signs) == 2 and signs[0] == "-d" and not re.search(r".-.|\[", signs[1]):
        lines = ["".join(c for c in line if c not in signs[1]) for line in given.lines]
    elif len(signs) == 2 and len(signs[0]) == len(signs[1]) == 1:
        lines = [line.replace(signs[0], signs[1]) for line in given.lines]
    else:
        raise NotRead(f"{stage}: is not known without running it")
    return replace(given, lines=tuple(lines))


def _tail(given: Lines, count: str, stage: str) -> Lines:
    if count == "1" and given.ends_at:
        return replace(given, index=_less_one(given.ends_at), ends_at="")
    if given.index:
        return given
    if count.startswith("+"):
        first = count[1:]
        if first.isdecimal():
            return replace(given, lines=given.lines[int(first) - 1 :])
    raise NotRead(f"{stage}: is not known without running it")


def _cut(given: Lines, options: dict[str, str], stage: str) -> Lines:
    number = options.get("f", "")
    if not number.isdecimal() or number == "0":
        raise NotRead(f"{stage}: is not known without running it")
    return given.columns(options.get("d", "\t") or " ", int(number))


def _sed(given: Lines, code: str, stage: str) -> Lines:
    line = re.fullmatch(r"(.+?)(?:p|q;d|\{p;q;?\}|!d)(?:;.*)?", code.replace(" ", ""))
    if line is None or "/" in line[1]:
        raise NotRead(f"{stage}: is not known without running it")
    return replace(given, index=_less_one(line[1]), ends_at="")


def _awk(given: Lines, code: str, options: dict[str, str], stage: str) -> Lines:
    """Read ``awk -v id=N 'NR==id {print $2}'``, ``'$1==id {print $2}'`` and ``'{print $2}'``."""
    found = re.fullmatch(
        r"\s*(?:(F?NR|\$\d+)\s*==\s*\"?(\$\{\w+\}|\$\(\(.*?\)\)|[^{\"]+?)\"?)?\s*(?:\{\s*print\s*\(?(\$(\d+))?\)?\s*;?\s*\})?\s*",
        code,
    )
    if found is None:
        raise NotRead(f"{stage}: is not known without running it")
    of = options.get("F", "").replace("\\t", "\t")
    name, _, value = options.get("v", "").partition("=")
    if found[1]:
        number = re.sub(r"['\"]", "", value if name and found[2].strip() == name else found[2])
        if found[1].endswith("NR"):
            given = replace(given, index=_less_one(number), ends_at="")
        else:
            given = _by_key(given.columns(of, int(found[1][1:])).lines, given, number, stage)
    column = int(found[4] or 0)
    return given.columns(of, column) if column else given


def _by_key(keys: tuple[str, ...], given: Lines, number: str, stage: str) -> Lines:
    """Return the lines whose key is the task's number, as keys go up one by one."""
    rows = [
        (int(key), line) for key, line in zip(keys, given.lines, strict=True) if key.isdecimal()
    ]
    first = rows[0][0] if rows else 0
    if not rows or [key for key, _ in rows] != list(range(first, first + len(rows))):
        raise NotRead(f"{stage}: the numbers in its file do not go up one by one")
    return Lines(tuple(line for _, line in rows), f"{_bare(number)}-{first}")
