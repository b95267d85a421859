"""What a job script sets or runs by the number of its task: ``case $SLURM_ARRAY_TASK_ID in``, and
``if [ $SLURM_ARRAY_TASK_ID -eq 0 ]`` with its ``elif`` and ``else``.

Bash is not run. For each task it is told which branch it takes, and what that sets becomes an array
with one element for each task. A branch that does more than to set names and to run one command is
left as it is.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from sweep.core.shell_text import split_words
from sweep.studyfile.starter.sbatch_indexes import TASK, pick, reads_task
from sweep.studyfile.starter.sbatch_text import put_in

_CASE = re.compile(r"^\s*case\s+(\S.*?)\s+in\b(.*)$")
_IF = re.compile(r"^\s*if\s+(.*)$")
_OPENS = re.compile(r"^\s*(?:if|for|while|until|case|select)\b|\{\s*$")
_CLOSES = re.compile(r"^\s*(?:fi|done|esac)\b|^\s*\}")
_ARM = re.compile(r"^\s*\(?\s*([^()\s][^()]*?)\s*\)(.*)$", re.S)
_SAYS = re.compile(r"(?:echo|printf|date|hostname|true|mkdir|sleep)\b|:(?:\s|$)")
_SETS = re.compile(r"(?:export|local|declare|readonly)\s+(?!-)")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_TEST = re.compile(
    r"(?:\[\[?|test)\s+(?P<left>\S+)\s+(?P<sign>-\w\w|==?|!=)\s+(?P<right>\S+)\s*\]{0,2}"
)
_COUNT = re.compile(
    r"\(\(\s*(?P<left>[^<>=!]+?)\s*(?P<sign>==|!=|<=|>=|<|>)\s*(?P<right>[^<>=!]+?)\s*\)\)"
)
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class _NotKnown(ValueError):
    """A branch, or the test before it, that only a run of the script would tell."""


@dataclass
class _Branch:
    """One branch: what has to hold, and what it does."""

    test: str
    lines: list[str]
    sets: dict[str, str] = field(default_factory=dict)
    command: str = ""
    ends: bool = False


@dataclass
class Branches:
    """A job script in which what its tasks set by their number are arrays.

    Attributes:
        body: The script.
        tasks: Those that take a branch, where the script does not say which there are.
        ended: Those that leave, as ``*) exit 1`` has them do.
    """

    body: str
    tasks: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


def read_branches(body: str, scalars: dict[str, str], tasks: list[int]) -> Branches:
    """Return a script with arrays in the place of its branches by the task.

    Args:
        body: As ``sbatch_text.straighten`` returns it.
        scalars: Its variables, as ``read_scalars`` returns them.
        tasks: Those of its array; empty where the script does not say.
    """
    found = Branches("")
    lines = body.split("\n")
    done: list[str] = []
    place = depth = 0
    while place < len(lines):
        line = lines[place]
        starts = _CASE.match(line) or _IF.match(line)
        end = _end(lines, place) if starts and not depth else 0
        if end:
            try:
                done += _as_arrays(lines[place : end + 1], done, scalars, tasks, found)
                place = end + 1
                continue
            except _NotKnown:
                pass
        if _CLOSES.match(line):
            depth = max(0, depth - 1)
        depth += 1 if _OPENS.search(line) else 0
        done.append(line)
        place += 1
    found.body = "\n".join(done)
    return found


def _end(lines: list[str], begin: int) -> int:
    """Return where a block ends that begins here; 0 where it holds others, or has no end."""
    closes = re.compile(r"^\s*esac\b" if _CASE.match(lines[begin]) else r"^\s*fi\b")
    for place in range(begin + 1, len(lines)):
        if closes.match(lines[place]):
            return place
        arm = _ARM.match(lines[place])
        if _OPENS.search(arm[2] if arm else lines[place]):
            return 0
    return 0


def _as_arrays(
    block: list[str], before: list[str], scalars: dict[str, str], given: list[int], found: Branches
) -> list[str]:
    case = _CASE.match(block[0])
    subject = case[1].strip("\"'") if case else ""
    branches = _arms(block, case[2]) if case else _alternatives(block)
    if not any(reads_task(text, scalars) for text in ([subject] if case else _tests(branches))):
        raise _NotKnown
    tasks = given or found.tasks or _named(subject, branches)
    if not tasks:
        raise _NotKnown
    taken = {task: _take(branches, subject, scalars, task) for task in tasks}
    for branch in branches:
        _read(branch)
    ended = [task for task, branch in taken.items() if branch is not None and branch.ends]
    left = [task for task in tasks if task not in ended]
    if not left:
        raise _NotKnown
    used = [taken[task] for task in left]
    rows = {task: branch for task, branch in taken.items() if task in left}
    commands = [branch.command if branch else "" for branch in used]
    if any(commands) and not all(commands):
        raise _NotKnown
    first = min(left)
    index = f"$(({TASK}-{first}))" if first else f"${TASK}"
    wanted: list[str] = []
    for name in dict.fromkeys(name for branch in used if branch for name in branch.sets):
        earlier = _earlier(name, before)
        values = {
            task: branch.sets[name] if branch and name in branch.sets else earlier
            for task, branch in rows.items()
        }
        known = {
            task: put_in(value, scalars) for task, value in values.items() if value is not None
        }
        if len(known) == len(values) and not any(re.search(r"[$`]", v) for v in known.values()):
            wanted += _array(name, known, f"{name}=", index)
    if any(commands):
        wanted += _array("run", {task: _flat(branch) for task, branch in rows.items()}, "", index)
    if not wanted:
        raise _NotKnown
    if not given:
        found.tasks = left
    found.ended += ended
    return wanted


def _array(name: str, values: dict[int, str], before: str, index: str) -> list[str]:
    """Return the lines of an array of what each task takes, and of the task's own."""
    fill = next(iter(values.values()))
    # Numbers that no task has: what stands there is never taken.
    row = [values.get(task, fill) for task in range(min(values), max(values) + 1)]
    quoted = " ".join(shlex.quote(one) if one else "''" for one in row)
    return [f"{name}_of_task=({quoted})", f"{before}${{{name}_of_task[{index}]}}"]


def _flat(branch: _Branch | None) -> str:
    command = branch.command if branch else ""
    try:
        words = split_words(command)
    except ValueError:
        raise _NotKnown from None
    # An element is split at spaces again, and its quotes would be signs as any others.
    if any(re.search(r"[\s\"'\\]", word) or not word for word in words):
        raise _NotKnown
    return " ".join(words)


def _earlier(name: str, before: list[str]) -> str | None:
    """Return what a name was set to before, where it is plain; None where it is not."""
    setting = re.compile(rf"^(?:export\s+|local\s+)?{name}=(.*)$")
    found = [match[1] for line in before if (match := setting.match(line))]
    if not found:
        return None
    try:
        words = split_words(found[-1])
    except ValueError:
        return None
    return words[0] if len(words) == 1 else None


def _arms(block: list[str], rest: str) -> list[_Branch]:
    branches = []
    for text in "\n".join([rest, *block[1:-1]]).split(";;"):
        found = _ARM.match(text)
        if found:
            branches.append(_Branch(found[1], found[2].split("\n")))
        elif text.strip(" \t\n;&"):
            raise _NotKnown
    return branches


def _alternatives(block: list[str]) -> list[_Branch]:
    branches: list[_Branch] = []
    for line in block[:-1]:
        plain = line.strip()
        found = re.match(r"(?:if|elif)\s+(.*)$", plain)
        if found:
            branches.append(_Branch(found[1], []))
        elif plain == "else":
            branches.append(_Branch("", []))
        elif plain != "then":
            branches[-1].lines.append(line)
    return branches


def _tests(branches: list[_Branch]) -> list[str]:
    return [branch.test for branch in branches]


def _named(subject: str, branches: list[_Branch]) -> list[int]:
    """Return the tasks that branches name by their numbers, where the script has no array."""
    texts = [word for one in branches for word in one.test.split("|")] if subject else []
    if subject.strip("${}") != TASK and subject:
        return []
    for one in [] if subject else branches:
        test = _TEST.search(one.test) or _COUNT.search(one.test)
        if test and test["sign"] in ("-eq", "==", "=") and test["left"].strip("\"'${}") == TASK:
            texts.append(test["right"])
    numbers = [word.strip(" \"'") for word in texts]
    return [int(word) for word in dict.fromkeys(numbers) if word.isdecimal() and len(word) < 6]


def _take(
    branches: list[_Branch], subject: str, scalars: dict[str, str], task: int
) -> _Branch | None:
    """Return the branch that a task takes; None where it takes none."""
    for branch in branches:
        if subject:
            number = str(_number(subject, scalars, task))
            patterns = [word.strip(" \"'") for word in branch.test.split("|")]
            holds = any(fnmatchcase(number, pattern) for pattern in patterns)
        else:
            holds = not branch.test or _holds(branch.test, scalars, task)
        if holds:
            return branch
    return None


def _holds(test: str, scalars: dict[str, str], task: int) -> bool:
    """Tell whether ``[ $X -eq 0 ]`` and the like hold in a task."""
    parts = re.split(r"\s+(&&|\|\|)\s+", test.strip())
    if "||" in parts and "&&" in parts:
        raise _NotKnown
    holds = []
    for part in parts[::2]:
        found = _TEST.fullmatch(part.strip()) or _COUNT.fullmatch(part.strip())
        compare = _COMPARE.get(found["sign"]) if found else None
        if found is None or compare is None:
            raise _NotKnown
        left, right = (_number(found[side], scalars, task) for side in ("left", "right"))
        holds.append(compare(left, right))
    return any(holds) if "||" in parts else all(holds)


def _number(text: str, scalars: dict[str, str], task: int) -> int:
    try:
        return pick(text.strip("\"'"), scalars, {}, task)
    except ValueError:
        raise _NotKnown from None


def _read(branch: _Branch) -> None:
    """Find what a branch sets and runs. Raises: _NotKnown, where it does more."""
    for line in branch.lines:
        plain = line.strip()
        if not plain or _SAYS.match(plain):
            continue
        if re.match(r"(?:exit|return)\b", plain):
            branch.ends = True
            return
        named = _settings(_SETS.sub("", plain))
        if named:
            branch.sets |= {name: put_in(value, branch.sets) for name, value in named.items()}
        elif branch.command or _OPENS.search(plain) or re.match(r"[\[(]", plain):
            raise _NotKnown
        else:
            branch.command = put_in(plain, branch.sets)


def _settings(plain: str) -> dict[str, str]:
    """Return what a line sets, where it does nothing else."""
    if re.search(r"=\(", plain):
        raise _NotKnown
    try:
        found = [_NAMED.fullmatch(word) for word in split_words(plain)]
    except ValueError:
        raise _NotKnown from None
    return {one[1]: one[2] for one in found if one} if all(found) else {}
