"""The lines of a script of bash, each with one command, and what of a command is its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from sweep.studyfile.starter.bash_settings import SETTING
from sweep.studyfile.starter.bash_state import NotKnown
from sweep.studyfile.starter.bash_words import split_chain
from sweep.studyfile.starter.sbatch_text import cut

SEVERAL = re.compile(r"\s+(&&|\|\|)\s+")
FUNCTION = re.compile(r"(?:function\s+([\w-]+)\s*(?:\(\s*\))?|([\w-]+)\s*\(\s*\))\s*\{")
_TO_FILES = re.compile(
    r"\s*(?:\d|&)?(?:>>?|<{1,3}-?)(?:&\d|\s*(?:\"[^\"]*\"|'[^']*'|\$\([^)]*\)|\$\{[^}]*\}|[^\s|;&<>])+)"
)
_GROUP = re.compile(r"(\s*)(\S.*?)\s+(&&|\|\|)\s+\{(?:\s+(.*))?$")
_NAMED = re.compile(r"\s*(?:function\s+[\w-]+\s*(?:\(\s*\))?|[\w-]+\s*\(\s*\))\s*$")
LEAVES = re.compile(r"(exit|return|break|continue)\b(.*)")
_CHANGES = re.compile(
    r"(?:read|mapfile|readarray|shift|unset|let|eval|exec|set\s+--|printf\s+-v|srun|bash|sh)\b|"
    r"\(|[\"']?\$"
)
_TRAINS = re.compile(
    r"(?:^|[\s|(;&/`])(?:python[\d.]*|torchrun|accelerate|deepspeed|Rscript|julia)\s+(?!-?\s*<<)[\w./$\"-]|"
    r"\|\s*(?:ba)?sh\b|\b(?:xargs|parallel)\s"
)
MAY_RUN = re.compile(r"(?:(?:exec|time|nohup|env)\s+)*(?:[\"']?\$|(?:eval|srun|bash|sh)\b)")
_SAYS = re.compile(
    r"(?:echo|printf|which|type|command|pip|pip3|conda|mamba|module|ml|ls|source|\.|alias|export|"
    r"cat|mkdir|touch|sleep)\s"
)


def without_files(line: str) -> str:
    """Return a command without its pipe, the files that it writes, and what follows it."""
    own = cut(line)
    rest = line[len(own) :]
    while found := _TO_FILES.match(rest):
        rest = rest[found.end() :]
    if rest.strip() and not re.match(r"\s*[|;&]", rest):
        raise NotKnown(line)  # arguments behind the name of a file
    return own


def plain_lines(body: str) -> tuple[list[str], dict[int, str]]:
    """Return the lines of a script, each with one command, and what is piped into which loop."""
    lines: list[str] = []
    pipes: dict[int, str] = {}
    # Arms of a case that follow each other in a line; a function's bracket in the next one.
    body = re.sub(r";;[ \t]*(?=\S)", ";;\n", body)
    given = body.split("\n")
    for number, line in enumerate(given):
        if _NAMED.match(line) and re.match(r"\s*\{", "".join(given[number + 1 : number + 2])):
            line = f"{line} {{"
            given[number + 1] = re.sub(r"\{", "", given[number + 1], count=1)
        named = re.match(r"(.*\(\s*\)\s*\{|\s*function\s+[\w-]+\s*\{)\s*(\S.*)$", line)
        piped = re.match(r"(.*[^|\s])\s*\|\s*(while\b.*)$", line)
        group = _GROUP.match(line)
        if named and FUNCTION.match(named[1].strip()):
            lines += [named[1], named[2]]
        elif piped:
            pipes[len(lines)] = piped[1].strip()
            lines.append(piped[2])
        elif group and not SEVERAL.search(group[2]) and not re.match(r"\(?[^()\s]+\)\s", group[2]):
            # A group that depends on a test is an if; any other command is taken to succeed.
            test = group[2]
            if not re.match(r"\[|\(\(|!|(?:test|grep|command|which|cmp|diff|false)\b", test):
                lines.append(test)
                test = "true"
            lines.append(f"if {'! ' if group[3] == '||' else ''}{test}")
            lines += [group[4]] if group[4] else []
        elif re.match(r"\s*\{\s+\S", line):
            lines += ["{", re.sub(r"^\s*\{\s+", "", line)]
        else:
            lines.append(line)
    return lines, pipes


def affects(
    text: str, functions: Collection[str], is_command: Callable[[str], tuple[str, str] | None]
) -> bool:
    """Tell whether a line sets something, leaves, or runs what may be a training's command."""
    for part in split_chain(text):
        plain = part.strip("{ \t")
        if SETTING.match(plain) or LEAVES.match(plain) or _CHANGES.match(plain):
            return True
        if is_command(plain) or (plain and plain.split(None, 1)[0] in functions):
            return True
    return False


class RunsWithin(NotKnown):
    """A function whose output is taken runs a command that may train."""


def may_train(line: str) -> bool:
    """Tell whether a line that is not gone through may run a training all the same."""
    # What is said or loaded is none, but for what it is piped into.
    piped = "|" + line.partition("|")[2]
    return _TRAINS.search(piped if _SAYS.match(line) else line) is not None


def counts_further(name: str, words: str, behind: list[str]) -> bool:
    """Tell whether the variable of a loop that counts is used behind it.

    ``straighten`` made it a loop over words, behind which the variable is one less than bash's.
    """
    if not re.fullmatch(r"\{\d+\.\.\d+\}|\$\{!\w+\[@\]\}", words.strip()):
        return False
    use = re.compile(rf"\$\{{?{name}\b|(?:\(\(|\[)[^)\]]*\b{name}\b|^\s*for\s+{name}\b")
    found = next(filter(None, map(use.search, behind)), None)
    return found is not None and not found[0].lstrip().startswith("for")
