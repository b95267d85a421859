"""The words that bash makes of a job script's lists and commands before anything runs.

Braces and ``seq`` are expanded; an element of several words that is used without quotes is as many
arguments; a command that is kept in a variable, or given to another shell, is one as any other.
"""

from __future__ import annotations

import math
import re
import shlex
from itertools import pairwise
from typing import Any

from sweep.core.placeholders import EDIT
from sweep.core.shell_text import split_words
from sweep.studyfile.starter.sbatch_indexes import TASK, Picks

_MOST_VALUES = 10_000
RAW_WORD = re.compile(r"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\s\"'\\])+")
_SEQ = re.compile(r"\$\(\s*seq\s+((?:-?\d+\s*){1,3})\)|`\s*seq\s+((?:-?\d+\s*){1,3})`")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LIST = re.compile(
    r"^[ \t]*(?:export\s+|local\s+|readonly\s+|declare\s+-a\s+)?"
    r"(\w+)=\(((?:[^()]|\$\([^()]*\))*)\)",
    re.M,
)
_ELEMENT = re.compile(r"\$\{(\w+)\[([^\]@*]*)\]\}")
_SHELL = re.compile(
    r"^([ \t]*(?:srun\s[^\"'\n]*?)?)(?:bash|sh)[ \t]+-l?c[ \t]+\"((?:\\.|[^\"\\\n])*)\"[ \t]*$",
    re.M,
)
WRAPPED = re.compile(
    r"^([ \t]*)sbatch\b[^\"'\n]*?--wrap[= \t]+(?:\"((?:\\.|[^\"\\\n])*)\"|'([^'\n]*)')[^\n]*$", re.M
)
_EVAL = re.compile(r"^([ \t]*)eval[ \t]+(\"(?:\\.|[^\"\\\n])*\"|\w[^\n]*)$", re.M)
_KEPT = (
    r"^([ \t]*(?:(?:eval|exec|srun(?:[ \t]+-\S+)*)[ \t]+)?)"
    r"\"?\$\{?NAME(?:\[[@*]\])?\}?\"?(?=[ \t]|$)"
)
_STRING = re.compile(
    r"^[ \t]*(?:export\s+|local\s+)?(\w+)=\"([\w.~/-]+[ \t](?:\\.|[^\"\\\n])*)\"", re.M
)
_WHOLE = re.compile(
    r"^(?P<before>[ \t]*)(?:(?:eval|(?:bash|sh)[ \t]+-l?c)[ \t]+)?"
    r"\"?\$\{(?P<name>\w+)\[(?P<index>[^\]@*]*)\]\}\"?[ \t]*$",
    re.M,
)
_READ = re.compile(
    r"^(?P<before>[ \t]*)(?:IFS=(?P<ifs>\$?'[^']*'|\"[^\"]*\"|\S+)[ \t]+)?read(?:[ \t]+-r)*[ \t]+"
    r"(?P<names>[A-Za-z_][\w \t]*?)[ \t]*<<<[ \t]*\"?"
    r"(?:\$\{(?P<name>\w+)\[(?P<index>[^\]@*]*)\]\}|\$\{?(?P<of>\w+)\}?)\"?[ \t]*$",
    re.M,
)
_IS_SET = r"(?:^|[\s;]){}(?:\[[^\]]*\])?\+?="
_CONTAINER = re.compile(r"\b(?:singularity|apptainer|docker|podman|enroot)\b")


def expand_braces(word: str) -> list[str]:
    """Return what bash makes of a word without quotes: ``1e-{1..3}``, ``{a,b}``, ``{0..9..3}``."""
    found = next((m for m in _BRACES.finditer(word) if _alternatives(m[1])), None)
    if found is None:
        return [word]
    before, after = word[: found.start()], word[found.end() :]
    return [before + one + rest for one in _alternatives(found[1]) for rest in expand_braces(after)]


def _alternatives(text: str) -> list[str]:
    counted = _RANGE.fullmatch(text)
    letters = re.fullmatch(r"([A-Za-z])\.\.([A-Za-z])", text)
    if letters:
        first, last = map(ord, letters.groups())
        codes = range(first, last + 1) if first <= last else range(first, last - 1, -1)
        return [chr(code) for code in codes]
    if counted is None:
        return text.split(",") if "," in text else []
    first, last, step = int(counted[1]), int(counted[2]), abs(int(counted[3] or 1)) or 1
    if abs(last - first) // step >= _MOST_VALUES:
        return []
    padded = any(re.match(r"-?0\d", end) for end in counted.groups()[:2])
    width = max(len(counted[1]), len(counted[2])) if padded else 0
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" for number in numbers]


def list_words(text: str) -> list[str] | None:
    """Return the words of ``(…)`` or ``for x in …`` as bash makes them; None where only a run of
    the script would tell."""
    words: list[str] = []
    text = _SEQ.sub(lambda found: " ".join(_count_up(found[1] or found[2])), text)
    for raw in RAW_WORD.findall(text):
        if re.search(r"[$`]", re.sub(r"'[^']*'|\\.", "", raw)):
            return None
        if re.search(r"[\"'\\]", raw):
            words += split_words(raw)
        elif re.search(r"[*?]|^\[", raw):
            return None
        else:
            words += expand_braces(raw)
    return words


def _count_up(numbers: str) -> list[str]:
    ends = [int(word) for word in numbers.split()]
    first, step = (1 if len(ends) == 1 else ends[0]), (ends[1] if len(ends) == 3 else 1)
    if not step or not 0 <= (ends[-1] - first) / step < _MOST_VALUES:
        return []
    return [str(one) for one in range(first, ends[-1] + (1 if step > 0 else -1), step)]


def find_lists(body: str) -> dict[str, str]:
    """Return the arrays of a script by name, each as the text within its brackets."""
    return {found[1]: found[2] for found in _LIST.finditer(body)}


def open_commands(body: str) -> str:
    """Return a script in which a command stands where it runs: one that was kept in a variable or
    an array that is set once, or given to ``eval`` or ``bash -c``; and ``${#LIST[@]}`` is its
    number."""
    body = _count_elements(body)
    body = _READ.sub(lambda found: _read_apart(found, body), body)
    kept = {found[1]: found[2] for found in _STRING.finditer(body)}
    for name, text in {**find_lists(body), **kept}.items():
        is_set = re.findall(_IS_SET.format(name), body, re.M)
        place = re.compile(_KEPT.replace("NAME", name), re.M)
        if len(is_set) == 1 and (name in kept or f"{{{name}[" in body):
            plain = text.replace('\\"', '"') if name in kept else text
            body = place.sub(lambda found, plain=plain: found[1] + plain, body)  # type: ignore[misc]
    body = _SHELL.sub(
        lambda found: (
            found[0]
            if _CONTAINER.search(found[1]) or found[2].startswith("$")
            else _within(found[1], found[2])
        ),
        body,
    )
    body = WRAPPED.sub(lambda found: _within(found[1], found[2] or found[3] or ""), body)
    body = _EVAL.sub(lambda found: found[1] + _evaluated(found[2]), body)
    return _WHOLE.sub(lambda found: _begun(found, body), body)


def _count_elements(body: str) -> str:
    for name, text in find_lists(body).items():
        words = list_words(text)
        if words is not None and len(re.findall(_IS_SET.format(name), body, re.M)) == 1:
            body = re.sub(rf"\$\{{#{name}\[[@*]\]\}}", str(len(words)), body)
    return body


def _read_apart(found: re.Match[str], body: str) -> str:
    """Return ``IFS=: read -r A B <<< "${LIST[i]}"`` as an array for each name."""
    name, index = found["name"], found["index"]
    if found["of"]:
        element = r"^[ \t]*{}=\"?\$\{{(\w+)\[([^\]@*]*)\]\}}\"?[ \t]*$".format(found["of"])
        given = re.findall(element, body, re.M)
        if len(given) != 1 or len(re.findall(_IS_SET.format(found["of"]), body, re.M)) != 1:
            return found[0]
        name, index = given[0]
    names = found["names"].split()
    of = (found["ifs"] or "").lstrip("$").strip("'\"").replace("\\t", "\t").strip(" ")
    words = list_words(find_lists(body).get(name, "")) or []
    # The last name takes the rest.
    rows = [word.split(of or None, len(names) - 1) for word in words]
    if len(of) > 1 or not rows or any(len(row) != len(names) for row in rows):
        return found[0]
    lines = []
    for column, own in zip(zip(*rows, strict=True), names, strict=True):
        lines.append(f"{name}_{own}=({' '.join(shlex.quote(word.strip()) for word in column)})")
        lines.append(f"{found['before']}{own}=${{{name}_{own}[{index}]}}")
    return "\n".join(lines)


def _begun(found: re.Match[str], body: str) -> str:
    """Return a line that is an element of an array with the words that all elements begin with,
    and an array of what comes after them."""
    words = list_words(find_lists(body).get(found["name"], ""))
    rows = [word.split() for word in words or []]
    begins = 0
    while rows and begins < min(map(len, rows)) and len({row[begins] for row in rows}) == 1:
        begins += 1
    if not begins:
        return found[0]
    rests = " ".join(shlex.quote(" ".join(row[begins:])) for row in rows)
    rest = f"{found['name']}_rest"
    command = " ".join(rows[0][:begins])
    return f"{rest}=({rests})\n{found['before']}{command} ${{{rest}[{found['index']}]}}"


def _within(before: str, command: str) -> str:
    command = command.replace('\\"', '"')
    *first, last = re.split(r"[ \t]*(?:&&|;)[ \t]*", command)
    return "\n".join([*first, before + last])


def _evaluated(text: str) -> str:
    """Return what ``eval`` runs: its quotes are gone before it reads the command."""
    if text.startswith('"$'):
        return f"eval {text}"
    if text.startswith('"'):
        return text[1:-1].replace('\\"', '"')
    return re.sub(r"\"(\$\{?\w+(?:\[[^\]]*\])?\}?)\"", r"\1", text)


def part_elements(line: str, lists: dict[str, list[Any]], picks: Picks, lost: list[str]) -> str:
    """Return a command in which each word of a list's elements stands for itself, where the
    elements have several and no quotes hold them together.

    Args:
        lists: By name; the columns of words become lists of their own here.
        picks: Say which elements tasks take.
        lost: Gets the lists whose elements are of unlike numbers of words.
    """

    def part(found: re.Match[str]) -> str:
        values = lists.get(found[1])
        if values is None or _is_quoted(line, found.start()):
            return found[0]
        # A quote within an element is a sign as any other to bash, which splits at spaces.
        rows = [str(value).split() for value in values]
        used = [rows[place] for place in picks.places(found[2], len(rows))]
        widths = {len(row) for row in used}
        if widths == {1} or not used:
            return found[0]
        if len(widths) > 1:
            shown = re.sub(r"__\d+$", "", found[1])
            lost.append(
                f"{shown}: its elements are of unlike numbers of words, each an argument of its "
                f"own; name what they set under space, and replace {EDIT}"
            )
            return EDIT
        words = []
        for number in range(widths.pop()):
            column = [row[number] if row in used else "" for row in rows]
            words.append(_column(f"{found[1]}_{number + 1}", column, found[2], lists))
        return " ".join(words)

    return _ELEMENT.sub(part, line)


def put_lists(line: str, lists: dict[str, list[Any]]) -> str:
    """Return a command with all elements of a list in the place of ``${LIST[@]}``."""

    def put(found: re.Match[str]) -> str:
        values = lists.get(found[1])
        return " ".join(shlex.quote(str(one)) for one in values) if values else found[0]

    return re.sub(r"\"?\$\{(\w+)\[[@*]\]\}\"?", put, line)


def _column(name: str, column: list[str], index: str, lists: dict[str, list[Any]]) -> str:
    used = [word for word in column if word]
    from_all = re.match(r"-{0,2}[\w.]+=", used[0])
    before = from_all[0] if from_all and all(w.startswith(from_all[0]) for w in used) else ""
    if len(set(used)) == 1:
        return shlex.quote(used[0])
    lists[name] = [read_shell_word(word[len(before) :]) for word in column]
    return f"{before}${{{name}[{index}]}}"


def _is_quoted(line: str, place: int) -> bool:
    """Tell whether a place in a line lies within double quotes."""
    before = re.sub(r"\\.|'[^'\"]*'", "", line[:place])
    return before.count('"') % 2 == 1


def count_loops(
    line: str, loops: dict[str, list[Any]], lists: dict[str, list[Any]], scalars: dict[str, str]
) -> tuple[str, list[int]]:
    """Write loops as the tasks of an array, one for each turn, where their values index lists or
    are of several words: values of one turn belong together.

    Args:
        line: The command within the loops.
        lists: Get the values of the loops that are no plain counts.
        scalars: Get the loops that are, as an expression of the task's number.

    Returns:
        The command, and the tasks; none where the loops are a plain grid.
    """
    texts = [*_ELEMENT.findall(line), *(("", v) for v in scalars.values() if "$(" in v)]
    indexing = {name for name in loops if any(re.search(rf"\b{name}\b", t) for _, t in texts)}
    wordy = {n for n, values in loops.items() if any(len(str(v).split()) != 1 for v in values)}
    total = math.prod(map(len, loops.values()))
    if total > _MOST_VALUES or TASK in line or not (indexing or wordy):
        return line, []
    stride = total
    for name, values in loops.items():
        stride //= len(values)
        index = f"({TASK}/{stride})%{len(values)}"
        step = _step(values)
        if name in indexing and not step:
            return line, []
        if name in indexing:
            scalars[name] = f"$(({values[0]}+{step}*({index})))"
        else:
            lists[name] = values
            line = re.sub(rf"\$(?:\{{{name}\}}|{name}\b)", lambda _: f"${{{name}[{index}]}}", line)  # noqa: B023
    return line, list(range(total))


def _step(values: list[Any]) -> int:
    """Return by how much whole numbers go up, 1 for a single one; 0 where they do not evenly."""
    if not all(isinstance(value, int) for value in values):
        return 0
    steps = {b - a for a, b in pairwise(values)} or {1}
    return steps.pop() if len(steps) == 1 else 0


def read_shell_word(word: str) -> int | float | str:
    """Return a word of a shell as a number where that is passed on as it stands (or is written
    with an exponent), else as text: 01 is the name of a subject, yes no truth."""
    if re.fullmatch(r"-?(?:0|[1-9]\d{0,15})", word):
        return int(word)
    if re.fullmatch(r"-?\d+(?:\.\d*)?[eE][-+]?\d{1,3}", word):
        return float(word)
    if re.fullmatch(r"-?\d+\.\d+", word) and str(float(word)) == word:
        return float(word)
    # Not with an exponent, as Python would write it: 0.00005.
    if re.fullmatch(r"-?0\.0{4,}[1-9]\d*", word):
        return float(word)
    return word
