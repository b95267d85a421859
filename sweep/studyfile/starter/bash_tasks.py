"""Which commands a script of bash runs in each task of its array: a small part of bash.

No program is started. Loops, branches, arrays and what programs such as ``sed`` print of files
beside the script are gone through as bash would; where something is met that only the machine
itself could tell, and that the commands depend on, nothing is returned.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from sweep.core.shell_text import split_words
from sweep.studyfile.starter.bash_lines import (
    FUNCTION,
    LEAVES,
    MAY_RUN,
    SEVERAL,
    RunsWithin,
    affects,
    counts_further,
    may_train,
    plain_lines,
    without_files,
)
from sweep.studyfile.starter.bash_programs import read_lines, run_program
from sweep.studyfile.starter.bash_settings import set_line
from sweep.studyfile.starter.bash_state import UNKNOWN, BashState, LeftBlock, NotKnown, Ran, known
from sweep.studyfile.starter.bash_tests import holds_test, set_fields, set_lines
from sweep.studyfile.starter.bash_words import (
    calculate,
    check_quotes,
    expand_text,
    expand_words,
    raw_words,
    split_chain,
    stages,
)

_MOST_STEPS = 50_000  # of all tasks together
_MOST_COMMANDS = 2_000
_OPENS = re.compile(
    r"(?:if|for|while|until|case|select)\b|\{$|.*\(\s*\)\s*\{$|function\s+[\w-]+\s*\{$"
)
_CLOSES = re.compile(r"(?:fi|done|esac)\b|\}")
_HERE = re.compile(r"^(.*?)\s*(<<<|<)\s*(.+)$", re.S)
_IFS = r"(?:IFS=(?:\$?'[^']*'|\"[^\"]*\"|\S*)\s+)"
_HOOK = re.compile(r"eval\s+\"?(?:\$\(|`)")  # as conda has it
_INNER = re.compile(r"(?:srun\b[^\"']*?\s)?(?:ba)?sh\s+-l?c\s+(.*)$")


@dataclass
class _Shell:
    lines: list[str]
    is_command: Callable[[str], tuple[str, str] | None]
    variables: BashState
    ran: list[Ran] = field(default_factory=list)
    steps: int = 0
    stops: bool = False  # set -e
    inputs: list[str] = field(default_factory=list)
    pipes: dict[int, str] = field(default_factory=dict)
    functions: dict[str, tuple[int, int]] = field(default_factory=dict)
    printed: list[list[str]] = field(default_factory=list)

    def block(self, begin: int, end: int) -> None:
        place = begin
        while place < end:
            line = self.lines[place].strip()
            self._count(1 + len(line) // 80)
            if re.match(r"\((?!\()|.*\)\s*\($", line):
                raise NotKnown(line)  # a shell of its own
            if re.match(r"(?:if|for|while|until|case|select)\b", line):
                close = self._close(place, end)
                self._compound(line, place, close)
                place = close + 1
            elif named := FUNCTION.match(line):
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
                if self._affects(test) or any(map(self._affects, self.lines[begin + 1 : close])):
                    raise
                return
            if holds:
                self.block(first, stop)
                return

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
                if re.search(r"^\s*case\b|;&", self.lines[stop]):
                    raise NotKnown(line)
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
            self.variables.put(found[1], word)
            if not self._turn(begin, close):
                break
        if counts_further(found[1], found[2], self.lines[close + 1 :]):
            raise NotKnown(line)

    def _turn(self, begin: int, close: int) -> bool:
        """Go through a loop once; return whether it goes on."""
        self._count(1)
        try:
            self.block(begin + 1, close)
        except LeftBlock as leave:
            if str(leave) in ("exit", "return"):
                raise
            return str(leave) == "continue"
        return True

    def _while(self, line: str, begin: int, close: int) -> None:
        test = re.sub(r"^(?:while|until)\s+", "", line)
        given = _HERE.match(self.lines[close].strip())
        piped = self.pipes.get(begin)
        wanted = line.startswith("while")
        with self._own_shell() if piped else contextlib.nullcontext():
            if given or piped:
                text = self._input(given[2], given[3]) if given else known(self._output(str(piped)))
                self.inputs.append(text)
            try:
                while self._holds(test) == wanted and self._turn(begin, close):
                    pass
            finally:
                if given or piped:
                    self.inputs.pop()

    @contextlib.contextmanager
    def _own_shell(self) -> Iterator[None]:
        """Go through what a shell of its own does: what it sets is gone behind it."""
        of = self.variables
        before = dict(of.texts), dict(of.arrays), list(of.arguments)
        try:
            yield
        except LeftBlock as leave:
            if str(leave) != "exit":
                raise
        finally:
            of.texts, of.arrays, of.arguments = before

    def _input(self, sign: str, text: str) -> str:
        """Return what a command reads."""
        process = re.fullmatch(r"<\((.*)\)", text.strip())
        if process:
            return known(self._output(process[1]))
        words = raw_words(text)
        if len(words) != 1:
            raise NotKnown(text)
        value = known(expand_text(words[0], self.variables))
        return f"{value}\n" if sign == "<<<" else read_lines(value, self.variables.folder)

    def _holds(self, test: str) -> bool:
        parts = SEVERAL.split(test)
        holds = self._test(parts[0])
        for sign, part in zip(parts[1::2], parts[2::2], strict=True):
            if holds == (sign == "&&"):
                holds = self._test(part)
        return holds

    def _test(self, text: str) -> bool:
        text = text.strip()
        if text.startswith("!"):
            return not self._test(text[1:])
        if re.match(rf"{_IFS}?read\b", text) or text in (":", "true", "false"):
            return self._read(text) if "read" in text else text != "false"
        return holds_test(text, self.variables)

    def _read(self, text: str) -> bool:
        """Set what ``read`` reads; return whether there was a line."""
        given = _HERE.match(text)
        if given:
            rest = self._input(given[2], given[3])
            text = given[1]
        elif self.inputs:
            rest = self.inputs.pop()
        else:
            raise NotKnown(text)
        line, has_end, rest = rest.partition("\n")
        if not given:
            self.inputs.append(rest)
        set_fields(text, line, self.variables)
        return bool(has_end)

    def _line(self, line: str, place: int) -> None:
        """Go through a command, or several that depend on each other."""
        starts = re.match(r"(?:\[|\(\(|!|test\b)", line)
        parts = SEVERAL.split(line) if starts else split_chain(line)
        if len(parts) == 1:
            self._simple(line, place)
            return
        if any(
            re.match(r"[{(](?!\()", part.strip()) and part.strip()[-1] not in "})" for part in parts
        ):
            raise NotKnown(line)
        try:
            holds = self._test(parts[0]) if starts else self._succeeds(parts[0], place)
        except NotKnown:
            if any(map(self._affects, parts if not starts else parts[2::2])):
                raise
            return
        for sign, part in zip(parts[1::2], parts[2::2], strict=True):
            if holds == (sign == "&&"):
                own = re.fullmatch(r"\{\s(.*?);?\s*\}", part.strip())
                self._simple(own[1] if own else part.strip(), place)
                holds = True

    def _succeeds(self, text: str, place: int) -> bool:
        """Go through a command; return whether it succeeds."""
        if text.strip() in ("true", ":", "false"):
            return text.strip() != "false"
        succeeds = re.match(r"(?:cd|mkdir|module|ml|source|\.|conda|export)\b", text)
        if not succeeds and (not self._affects(text) or re.match(r"read\b", text)):
            raise NotKnown(text)
        self._simple(text.strip(), place)
        return True

    def _affects(self, text: str) -> bool:
        return affects(text, self.functions, self.is_command)

    def _simple(self, line: str, place: int) -> None:
        leaves = LEAVES.match(line)
        if leaves:
            if leaves[1] in ("break", "continue") and leaves[2].strip():
                raise NotKnown(line)
            raise LeftBlock(leaves[1])
        if re.match(r"(?:local|declare|typeset)\b", line):
            self.variables.keep(raw_words(line)[1:])
        value = re.fullmatch(r"printf\s+-v\s+(\w+)\s+(.*)", line, re.S)
        if line.startswith("((") or re.match(r"let\b", line):
            text = re.sub(r"^let\s+|^\(\(|\)\)$", "", line).strip("\"'")
            if not calculate(text, self.variables) and self.stops:
                raise NotKnown(line)  # ends a script that set -e
        elif value:
            words = expand_words(f"printf {value[2]}", self.variables)
            self.variables.put(value[1], run_program(words, None, self.variables))
        elif re.match(r":\s", line):
            expand_words(line, self.variables)
        elif re.match(rf"{_IFS}?read\b", line):
            self._read(line)
        elif re.match(r"(?:mapfile|readarray)\b", line):
            self._map(line)
        elif re.match(r"set\s+--?\s", line):
            words = expand_words(re.sub(r"^set\s+--?\s", "", line), self.variables)
            self.variables.arguments = words
        elif re.match(r"shopt\b.*extglob|set\s+[^-+\s]", line):
            raise NotKnown(line)
        elif re.match(r"set\s+-[a-z]*e", line):
            self.stops = True
        elif re.match(r"shift\b", line):
            count = calculate(line.removeprefix("shift") or "1", self.variables)
            if count <= len(self.variables.arguments):
                self.variables.arguments = self.variables.arguments[count:]
        elif re.match(r"unset\b", line):
            for name in line.split()[1:]:
                if "[" in name:
                    raise NotKnown(line)
                self.variables.texts.pop(name, None)
                self.variables.arrays.pop(name, None)
        elif not set_line(line, self.variables):
            self._command(line, place)

    def _map(self, line: str) -> None:
        given = _HERE.match(line)
        if given is None:
            raise NotKnown(line)
        set_lines(given[1], self._input(given[2], given[3]), self.variables)

    def _command(self, line: str, place: int) -> None:
        name = (line.split(None, 1) or [""])[0]
        if name in self.functions:
            self._call(expand_words(without_files(line), self.variables))
            return
        if self.printed:
            if name not in ("echo", "printf"):  # what it prints is not known
                raise (RunsWithin if self.is_command(line) else NotKnown)(line)
            words = expand_words(line, self.variables)
            self.printed[-1].append(run_program(words, None, self.variables))
            return
        is_command = self.is_command(line)
        if not is_command and not MAY_RUN.match(line):
            if may_train(line):
                raise NotKnown(line)
            check_quotes(line)
            return
        line = without_files(line)
        inner = re.match(r"eval\s+(.*)$", line) or _INNER.match(line)
        words = expand_words(inner[1] if inner else line, self.variables)
        if inner:
            if any(UNKNOWN in word for word in words) and _HOOK.match(line):
                return
            text = known(" ".join(words))
            if re.search("[\"'][^;&]*[;&]", text) or ("$" in text and not line.startswith("eval")):
                raise NotKnown(line)
            for one in re.split(r"\s*(?:;|&&)\s*", text):
                if one != line:
                    self._line(one, place)
            return
        if found := self.is_command(shlex.join(words)):
            try:
                own = split_words(found[1])
            except ValueError:
                raise NotKnown(found[1]) from None
            if len(self.ran) >= _MOST_COMMANDS:
                raise NotKnown("more commands than are gone through")
            self.ran.append(Ran(place, found[0], tuple(own)))
            if re.match(r"exec\b", line):
                raise LeftBlock("exit")
        elif (
            is_command or any(UNKNOWN in word for word in words) or words[-1:] in (["bash"], ["sh"])
        ):
            raise NotKnown(line)

    def _call(self, words: list[str]) -> None:
        """Go through a function with its arguments."""
        if len(self.printed) > 20:
            raise NotKnown(words[0])
        before, self.variables.arguments = self.variables.arguments, words[1:]
        self.variables.local.append({})
        try:
            self.block(*self.functions[words[0]])
        except LeftBlock as leave:
            if str(leave) != "return":
                raise
        finally:
            self.variables.arguments = before
            self.variables.leave()

    def substitute(self, text: str) -> str:
        """Return what a command in ``$(…)`` prints, marked as not known where it is not."""
        try:
            return self._output(text).rstrip("\n")
        except RunsWithin:
            raise
        except NotKnown:
            return f"{UNKNOWN}{text}{UNKNOWN}"

    def _output(self, text: str) -> str:
        """Return what a command prints. Raises: NotKnown."""
        if not text.strip():
            return ""
        if re.fullmatch(r"\s*<\s*[^|;&]+", text):
            return self._input("<", text.strip()[1:])
        if text.split(None, 1)[0] in self.functions:
            self.printed.append([])
            try:
                with self._own_shell():
                    self._call(expand_words(text, self.variables))
            finally:
                printed = self.printed.pop()
            return "".join(printed)
        given = None
        for stage in stages(text):
            here = _HERE.match(stage) if re.search(r"<", stage) else None
            if here:
                given = self._input(here[2], here[3])
                stage = here[1]
            words = expand_words(re.sub(r"\s2>\s*/dev/null", "", stage), self.variables)
            if not words:
                raise NotKnown(text)
            given = run_program(words, given, self.variables)
        return given or ""


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
        lines, pipes = plain_lines(body)
        shell = _Shell(lines, is_command, variables, pipes=pipes, steps=steps)
        variables.substitute = shell.substitute
        with contextlib.suppress(LeftBlock):
            shell.block(0, len(shell.lines))
        found.append(shell.ran)
        steps = shell.steps
        if sum(map(len, found)) > _MOST_COMMANDS:
            raise NotKnown("more commands than are gone through")
    return found
