"""Which commands a script of bash runs in each task of its array: a small part of bash.

No program is started. Loops, branches, arrays and what programs such as ``sed`` print of files
beside the script are gone through as bash would; where something is met that only the machine
itself could tell, and that the commands depend on, nothing is returned.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from sweep.core.shell_text import split_words
from sweep.studyfile.starter.bash_programs import read_lines, run_program
from sweep.studyfile.starter.bash_settings import SETTING, set_line
from sweep.studyfile.starter.bash_words import (
    UNKNOWN,
    BashState,
    NotKnown,
    calculate,
    expand_text,
    expand_words,
    known,
    raw_words,
    stages,
)
from sweep.studyfile.starter.sbatch_text import cut

_MOST_STEPS = 50_000  # of all tasks together
_MOST_COMMANDS = 2_000
_OPENS = re.compile(r"(?:if|for|while|until|case|select)\b|\{$|.*\(\)\s*\{$")
_CLOSES = re.compile(r"(?:fi|done|esac)\b|\}")
_HERE = re.compile(r"^(.*?)\s*(<<<|<)\s*(.+)$", re.S)
_SEVERAL = re.compile(r"\s+(&&|\|\|)\s+")
_IFS = r"(?:IFS=(?:\$?'[^']*'|\"[^\"]*\"|\S*)\s+)"
_INNER = re.compile(r"(?:srun\b[^\"']*?\s)?(?:ba)?sh\s+-l?c\s+(.*)$")
_FUNCTION = re.compile(r"(?:function\s+([\w-]+)\s*(?:\(\s*\))?|([\w-]+)\s*\(\s*\))\s*\{")
_HOOK = re.compile(r"eval\s+\"?(?:\$\(|`)")  # as conda has it
_LEAVES = re.compile(r"(exit|return|break|continue)\b")


class _Leave(Exception):
    """``exit``, ``return``, ``break`` or ``continue``."""


@dataclass
class Ran:
    """A command that a task runs: its place in the script, what is set for it alone (``A=1``), and
    its words, with ``UNKNOWN`` around what is not known."""

    line: int
    settings: str
    words: tuple[str, ...]


@dataclass
class _Shell:
    lines: list[str]
    is_command: Callable[[str], tuple[str, str] | None]
    variables: BashState
    ran: list[Ran] = field(default_factory=list)
    steps: int = 0
    inputs: list[list[str]] = field(default_factory=list)
    pipes: dict[int, str] = field(default_factory=dict)
    functions: dict[str, tuple[int, int]] = field(default_factory=dict)
    printed: list[list[str]] = field(default_factory=list)

    def block(self, begin: int, end: int) -> None:
        place = begin
        while place < end:
            line = self.lines[place].strip()
            self._count(1 + len(line) // 80)
            if re.match(r"(?:if|for|while|until|case|select)\b", line):
                close = self._close(place, end)
                self._compound(line, place, close)
                place = close + 1
            elif named := _FUNCTION.match(line):
                close = self._close(place, end)
                self.functions[named[1] or named[2]] = (place + 1, close)
                place = close + 1
            elif line in ("", "{", "}", "do", "then", "done", "fi", ";;"):
                place += 1
            else:
                self._line(line, place)
                place += 1

    def _count(self, steps: int) -> None:
        self.steps += steps
        if self.steps > _MOST_STEPS:
            raise NotKnown("more steps than are gone through")

    def _close(self, begin: int, end: int) -> int:
        depth = 0
        for place in range(begin, end):
            line = self.lines[place].strip()
            if _CLOSES.match(line):
                depth -= 1
                if depth <= 0:
                    return place
            arm = re.match(r"\(?[^()\s]+\)\s*(.*)$", line)
            if _OPENS.match(arm[1] if arm else line):
                depth += 1
        raise NotKnown(self.lines[begin])

    def _compound(self, line: str, begin: int, close: int) -> None:
        if line.startswith("if"):
            self._if(begin, close)
        elif line.startswith("case"):
            self._case(line, begin, close)
        elif line.startswith("for"):
            self._for(line, begin, close)
        elif line.startswith(("while", "until")):
            self._while(line, begin, close)
        else:
            raise NotKnown(line)

    def _if(self, begin: int, close: int) -> None:
        arms: list[tuple[str, int]] = []
        depth = 0
        ends: list[int] = []
        for place in range(begin, close):
            line = self.lines[place].strip()
            if place > begin and _CLOSES.match(line):
                depth -= 1
            if not depth and (place == begin or re.match(r"(?:elif|else)\b", line)):
                ends.append(place)
                arms.append((re.sub(r"^(?:if|elif|else)\b\s*", "", line), place + 1))
            if place > begin and _OPENS.match(line):
                depth += 1
        stops = [*ends[1:], close]
        for (test, first), stop in zip(arms, stops, strict=True):
            try:
                holds = not test or self._holds(test)
            except NotKnown:
                if self._matters(begin + 1, close):
                    raise
                return
            if holds:
                self.block(first, stop)
                return

    def _matters(self, begin: int, end: int) -> bool:
        """Tell whether lines set something, leave, or run what is a training's command."""
        return any(
            SETTING.match(line) or _LEAVES.match(line) or self.is_command(line)
            for line in (one.strip() for one in self.lines[begin:end])
        )

    def _case(self, line: str, begin: int, close: int) -> None:
        found = re.match(r"case\s+(.*?)\s+in\b(.*)$", line)
        if found is None:
            raise NotKnown(line)
        subject = expand_text(found[1], self.variables)
        place, rest = begin, found[2]
        taken = False
        while place < close:
            text = rest if place == begin else self.lines[place].strip()
            arm = re.match(r"\(?\s*([^()\s][^()]*?)\s*\)(.*)$", text)
            if arm is None:
                place += 1
                continue
            patterns = [one.strip() for one in arm[1].split("|")]
            holds = not taken and any(
                fnmatchcase(known(subject), known(expand_text(one, self.variables)))
                for one in patterns
            )
            stop, first = place, arm[2].strip()
            while stop < close and not self.lines[stop].rstrip().endswith(";;"):
                stop += 1
            if holds:
                taken = True
                if first.removesuffix(";;").strip():
                    self._line(first.removesuffix(";;").strip(), place)
                kept = self.lines[stop] if stop < close else ""
                if stop < close and stop > place:
                    self.lines[stop] = kept.rstrip().removesuffix(";;")
                try:
                    self.block(place + 1, min(stop + 1, close))
                finally:
                    if stop < close:
                        self.lines[stop] = kept
            place = stop + 1

    def _for(self, line: str, begin: int, close: int) -> None:
        counted = re.match(r"for\s*\(\((.*?);(.*?);(.*?)\)\)", line)
        if counted:
            calculate(counted[1], self.variables)
            while calculate(counted[2] or "1", self.variables) and self._turn(begin, close):
                calculate(counted[3], self.variables)
            return
        found = re.match(r"for\s+(\w+)\s+in\s+(.*)$", line)
        if found is None:
            raise NotKnown(line)
        words = expand_words(found[2], self.variables)
        if any(re.search(rf"[*?]|{UNKNOWN}", word) for word in words):
            raise NotKnown(line)
        for word in words:
            self.variables.texts[found[1]] = word
            if not self._turn(begin, close):
                break

    def _turn(self, begin: int, close: int) -> bool:
        """Go through a loop once; return whether it goes on."""
        self._count(1)
        try:
            self.block(begin + 1, close)
        except _Leave as leave:
            if str(leave) in ("exit", "return"):
                raise
            return str(leave) == "continue"
        return True

    def _while(self, line: str, begin: int, close: int) -> None:
        test = re.sub(r"^(?:while|until)\s+", "", line)
        given = _HERE.match(self.lines[close].strip())
        piped = self.pipes.get(begin)
        if given:
            self.inputs.append(self._input(given[2], given[3]))
        elif piped:
            # A shell of its own goes through it: what it sets is gone behind it.
            self.inputs.append(known(self._substitute(piped)).splitlines())
            texts, arrays = dict(self.variables.texts), dict(self.variables.arrays)
        wanted = line.startswith("while")
        try:
            while self._holds(test) == wanted and self._turn(begin, close):
                pass
        finally:
            if given or piped:
                self.inputs.pop()
        if piped:
            self.variables.texts, self.variables.arrays = texts, arrays

    def _input(self, sign: str, text: str) -> list[str]:
        process = re.fullmatch(r"<\((.*)\)", text.strip())
        if process:
            return self._substitute(process[1]).splitlines()
        value = known(expand_text(text.strip(), self.variables))
        if sign == "<<<":
            return value.split("\n")
        return read_lines(value, self.variables.folder).splitlines()

    def _holds(self, test: str) -> bool:
        parts = _SEVERAL.split(test)
        holds = self._test(parts[0])
        for sign, part in zip(parts[1::2], parts[2::2], strict=True):
            if holds == (sign == "&&"):
                holds = self._test(part)
        return holds

    def _test(self, text: str) -> bool:
        text = text.strip()
        if text.startswith("!"):
            return not self._test(text[1:])
        if text.startswith("(("):
            return (
                calculate(text.strip().removeprefix("((").removesuffix("))"), self.variables) != 0
            )
        if re.match(rf"{_IFS}?read\b", text) or text in (":", "true"):
            return self._read(text) if "read" in text else True
        inner = re.fullmatch(r"(?:\[\[|\[|test)\s(.*?)(?:\s\]\]?)?", text, re.S)
        if inner is None:
            raise NotKnown(text)
        # What is not in quotes may be empty here, and is a word still.
        words = [known(expand_text(word, self.variables)) for word in raw_words(inner[1])]
        if len(words) == 2 and words[0] in ("-n", "-z"):
            return (words[0] == "-n") == bool(words[1])
        if len(words) == 1:
            return bool(words[0])
        if len(words) != 3:
            raise NotKnown(text)
        left, sign, right = words
        if sign in ("==", "=", "!="):
            same = fnmatchcase(left, right) if text.startswith("[[") else left == right
            return same == (sign != "!=")
        compare = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}
        if sign not in compare:
            raise NotKnown(text)
        return calculate(f"({left}) {compare[sign]} ({right})", self.variables) != 0

    def _read(self, text: str) -> bool:
        """Set what ``read`` reads; return whether there was a line."""
        given = _HERE.match(text)
        if given:
            line: str | None = "\n".join(self._input(given[2], given[3]))
            text = given[1]
        else:
            if not self.inputs:
                raise NotKnown(text)
            line = self.inputs[-1].pop(0) if self.inputs[-1] else None
        if line is None:
            return False
        found = re.fullmatch(
            r"(?:IFS=(\$?'[^']*'|\"[^\"]*\"|\S*)\s+)?read\b((?:\s+-\w+(?:\s+''|\s+\"\")?)*)\s*(.*)",
            text,
        )
        if found is None:
            raise NotKnown(text)
        of = (found[1] or "").lstrip("$").strip("'\"").replace("\\t", "\t")
        names = found[3].split()
        if not names:
            self.variables.texts["REPLY"] = line
            return True
        if "a" in re.sub(r"\s", "", found[2]):
            row = line.split(of) if of.strip() else line.split()
            self.variables.arrays[names[0]] = {str(i): word for i, word in enumerate(row)}
            return True
        if found[1] is not None and not of:
            row = [line]
        elif of.strip(" "):
            row = line.split(of[0], len(names) - 1)
        else:
            row = line.split(None, len(names) - 1)
        for i, name in enumerate(names):
            self.variables.texts[name] = row[i].strip() if i < len(row) else ""
        return True

    def _line(self, line: str, place: int) -> None:
        """Go through a command, or several that depend on each other."""
        starts = re.match(r"(?:\[|\(\(|!|test\b)", line)
        parts = _SEVERAL.split(line) if starts else [line]
        if len(parts) > 1:
            try:
                holds = self._test(parts[0])
            except NotKnown:
                if any(self._affects(part.strip("{} ")) for part in parts[2::2]):
                    raise
                return
            for sign, part in zip(parts[1::2], parts[2::2], strict=True):
                if holds == (sign == "&&"):
                    self._simple(part.strip().strip("{}").strip(), place)
            return
        self._simple(line, place)

    def _affects(self, plain: str) -> bool:
        return bool(SETTING.match(plain) or _LEAVES.match(plain) or self.is_command(plain))

    def _simple(self, line: str, place: int) -> None:
        leaves = _LEAVES.match(line)
        if leaves:
            raise _Leave(leaves[1])
        if line.startswith("((") or re.match(r"let\b", line):
            text = re.sub(r"^let\s+|^\(\(|\)\)$", "", line).strip("\"'")
            calculate(text, self.variables)
        elif re.match(rf"{_IFS}?read\b", line):
            self._read(line)
        elif re.match(r"(?:mapfile|readarray)\b", line):
            self._map(line)
        elif re.match(r"set\s+--?\s", line):
            words = expand_words(re.sub(r"^set\s+--?\s", "", line), self.variables)
            self.variables.arguments = words
        elif re.match(r"shift\b", line):
            count = calculate(line.removeprefix("shift") or "1", self.variables)
            self.variables.arguments = self.variables.arguments[count:]
        elif re.match(r"unset\b", line):
            for name in line.split()[1:]:
                self.variables.texts.pop(name, None)
                self.variables.arrays.pop(name, None)
        elif not set_line(line, self.variables):
            self._command(line, place)

    def _map(self, line: str) -> None:
        given = _HERE.match(line)
        if given is None:
            raise NotKnown(line)
        name = given[1].split()[-1]
        values = self._input(given[2], given[3])
        self.variables.arrays[name] = dict(zip(map(str, range(len(values))), values, strict=True))

    def _command(self, line: str, place: int) -> None:
        name = line.split(None, 1)[0] if line.strip() else ""
        if name in self.functions:
            self._call(expand_words(line, self.variables))
            return
        if name in ("echo", "printf") and self.printed:
            words = expand_words(line, self.variables)
            self.printed[-1].append(run_program(words, None, self.variables))
            return
        if not self.is_command(line) and not re.match(r"[\"']?\$|eval\b|srun\b|bash\b|sh\b", line):
            return
        line = cut(line)
        inner = re.match(r"eval\s+(.*)$", line) or _INNER.match(line)
        words = expand_words(inner[1] if inner else line, self.variables)
        if inner:
            if any(UNKNOWN in word for word in words) and _HOOK.match(line):
                return
            for one in re.split(r"\s*(?:;|&&)\s*", known(" ".join(words))):
                if one != line:
                    self._line(one, place)
            return
        found = self.is_command(shlex.join(words))
        if found:
            try:
                own = split_words(found[1])
            except ValueError:
                raise NotKnown(found[1]) from None
            if len(self.ran) >= _MOST_COMMANDS:
                raise NotKnown("more commands than are gone through")
            self.ran.append(Ran(place, found[0], tuple(own)))

    def _call(self, words: list[str]) -> None:
        """Go through a function with its arguments."""
        if len(self.printed) > 20:
            raise NotKnown(words[0])
        before, self.variables.arguments = self.variables.arguments, words[1:]
        try:
            self.block(*self.functions[words[0]])
        except _Leave as leave:
            if str(leave) != "return":
                raise
        finally:
            self.variables.arguments = before

    def substitute(self, text: str) -> str:
        """Return what a command in ``$(…)`` prints, marked as not known where it is not."""
        try:
            return self._substitute(text)
        except NotKnown:
            return f"{UNKNOWN}{text}{UNKNOWN}"

    def _substitute(self, text: str) -> str:
        """Return what a command in ``$(…)`` prints."""
        if re.fullmatch(r"\s*<\s*[^|;&]+", text):
            return "\n".join(self._input("<", text.strip()[1:]))
        if text.split(None, 1)[:1] and text.split(None, 1)[0] in self.functions:
            self.printed.append([])
            try:
                self._call(expand_words(text, self.variables))
            finally:
                printed = self.printed.pop()
            return "".join(printed).rstrip("\n")
        given = None
        for stage in stages(text):
            here = _HERE.match(stage) if re.search(r"<", stage) else None
            if here:
                given = "\n".join(self._input(here[2], here[3])) + "\n"
                stage = here[1]
            words = expand_words(re.sub(r"\s2>\s*\S+|\s2>&1", "", stage), self.variables)
            if not words:
                raise NotKnown(text)
            given = run_program(words, given, self.variables)
        return (given or "").rstrip("\n")


def _plain(body: str) -> tuple[list[str], dict[int, str]]:
    """Return the lines of a script, each with one command, and what is piped into which loop."""
    lines: list[str] = []
    pipes: dict[int, str] = {}
    for line in body.split("\n"):
        named = re.match(r"(.*\(\s*\)\s*\{|\s*function\s+[\w-]+\s*\{)\s*(\S.*)", line)
        piped = re.match(r"(.*[^|\s])\s*\|\s*(while\b.*)$", line)
        if named and _FUNCTION.match(named[1].strip()):
            lines += [named[1], named[2]]
        elif piped:
            pipes[len(lines)] = piped[1].strip()
            lines.append(piped[2])
        else:
            lines.append(line)
    return lines, pipes


def run_tasks(
    body: str,
    folder: Path,
    tasks: list[int],
    names: dict[str, str],
    is_command: Callable[[str], tuple[str, str] | None],
) -> list[list[Ran]]:
    """Return what a script runs in each of its tasks.

    Args:
        body: As ``sbatch_text.straighten`` returns it.
        folder: Where relative paths begin.
        tasks: The numbers of an array's tasks; none for a script that runs once.
        names: What Slurm sets for all of them.
        is_command: Tells the settings and the command of a line that is one.

    Raises:
        NotKnown: Something that only a run of the script would tell.
    """
    found = []
    steps = 0
    for task in tasks or [-1]:
        variables = BashState(folder, dict(names))
        if tasks:
            variables.texts["SLURM_ARRAY_TASK_ID"] = str(task)
        lines, pipes = _plain(body)
        shell = _Shell(lines, is_command, variables, pipes=pipes, steps=steps)
        variables.substitute = shell.substitute
        with contextlib.suppress(_Leave):
            shell.block(0, len(shell.lines))
        found.append(shell.ran)
        steps = shell.steps
        if sum(map(len, found)) > _MOST_COMMANDS:
            raise NotKnown("more commands than are gone through")
    return found
