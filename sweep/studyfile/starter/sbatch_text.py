"""The text of a job script, made plain: one command a line, names set once, known values put in.

Bash itself is not run. A name that is set again counts as another one from there on; one that is
set within an if, a loop or a function is not known.
"""

from __future__ import annotations

import re
from typing import Any

from sweep.core.masking import names_secret
from sweep.studyfile.starter.sbatch_words import list_words, read_shell_word

_HERE = re.compile(r"<<-?[ \t]*([\"']?)(\w+)\1([^\n]*)\n.*?^[ \t]*\2[ \t]*$", re.M | re.S)
_ASSIGNED = re.compile(r"^[ \t]*(?:export\s+|local\s+|declare\s+(?:-\w+\s+)?|let\s+)?(\w+)=")
_OPENS = re.compile(r"^(?:if|for|while|until|case|select)\b|\{$")
_CLOSES = re.compile(r"^(?:fi|done|esac)\b|^\}")
_SAYS_NOTHING = re.compile(
    r"(?:echo|printf|date|hostname|pwd|nvidia-smi|mkdir|exit|set|shopt|ulimit|wait|sleep|which|ls|"
    r"exec|time|true|env|lscpu|free|scontrol|sstat|sacct|trap|umask)\b|:"
)
_BLOCK = re.compile(r"^(?:if|then|else|elif|fi|for|while|until|do|done|case|esac|\S*\)|;;|\}|\{)")
_IS_SETUP = re.compile(
    r"^(?:(?:module|ml|source|(?:conda|mamba|micromamba)\s+activate|spack|ulimit|\.)\s"
    r"|eval\s+\"?(?:\$\(|`)(?:\S*/)?(?:conda|mamba|micromamba|pyenv|ssh-agent)\b)"
)
_GPUS_SEEN = {
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    *("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"),
}
_EXPORT = re.compile(r"^export\s+(\w+)=(.*)$")


_CODE = re.compile(r"\b(python[\d.]*(?:[ \t]+-\w+)*?[ \t]+-c)[ \t]+(?:\"[^\"]*\"|'[^']*')")
_LIST = re.compile(r"^([ \t]*(?:declare\s+-a\s+)?\w+\+?=\()((?:[^()]|\$\([^()]*\))*)\)", re.M)
# for ((i=0; i<5; i++)), also up to the length of an array
_COUNTED = re.compile(
    r"\bfor\s*\(\(\s*(\w+)\s*=\s*(\d+)\s*;\s*\1\s*(<=?)\s*(?:(\d+)|\$\{#(\w+)\[@\]\})\s*;"
    r"\s*(?:\1\+\+|\+\+\1)\s*\)\)"
)
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|(?P<comment>(?<!\S)#)|['\"]")
_TESTS = re.compile(
    r"[ \t]*(?:(?:do|then|else|\{)[ \t]+)?"
    r"(?:\[|\(\(|!|(?:test|grep|command|which|cmp|diff|false|if|elif|while|until)\b)"
)


def straighten(text: str) -> str:
    """Return a script with one command in a line: without comments, here-documents and the code
    of ``python -c``, with joined lines and lists."""
    text = _join_lines(text)
    text = re.sub(r"\$\[([^\[\]\n]*)\]", r"$((\1))", text)  # as arithmetic once was written
    text = _HERE.sub(lambda found: f"<<{found[2]}{found[3]}", text)
    text = _CODE.sub(r"\1 ''", text)
    text = _LIST.sub(lambda found: f"{found[1]}{' '.join(found[2].split())})", text)
    text = _COUNTED.sub(_count, text)
    lines = [one for line in text.split("\n") for one in _apart(line)]
    return "\n".join(lines)


def _without_comment(line: str) -> str:
    for found in _QUOTED.finditer(line):
        if found["comment"]:
            return line[: found.start()].rstrip()
        if found[0] in ("'", '"'):  # goes on in the next line
            break
    return line


def _join_lines(text: str) -> str:
    """Return a script without comments, and with lines joined that a backslash continues.

    A comment is not continued, and ends a command that is.
    """
    done: list[str] = []
    begun: str | None = None
    for line in text.split("\n"):
        plain = line.lstrip()
        if plain.startswith("#"):
            done += [begun] if begun is not None else []
            begun = None
            continue
        line = _without_comment(line)
        if begun is not None:
            line = f"{begun} {line.lstrip()}"
        if re.search(r"(?<!\\)(?:\\\\)*\\$", line):
            begun = line[:-1]
        else:
            done.append(line)
            begun = None
    return "\n".join([*done, *([begun] if begun is not None else [])])


def _count(found: re.Match[str]) -> str:
    """Return a loop that counts as one over what it counts."""
    if found[5]:
        whole = found[2] == "0" and found[3] == "<"
        return f"for {found[1]} in ${{!{found[5]}[@]}}" if whole else found[0]
    last = int(found[4]) - (found[3] == "<")
    return f"for {found[1]} in {{{found[2]}..{last}}}" if last >= int(found[2]) else found[0]


def _apart(line: str) -> list[str]:
    """Return the commands of a line, one each."""
    parts: list[str] = []
    begin = 0
    for found in _PIECE.finditer(line):
        # What stands behind a test happens or not; behind a command it is the next one.
        if found[0] in (";", "&") or (found[0] == "&&" and not _TESTS.match(line, begin)):
            parts.append(line[begin : found.start()])
            begin = found.end()
    parts.append(line[begin:])
    split = [re.sub(r"^(\s*)(then|do|else)[ \t]+(?=\S)", r"\1\2\n", part) for part in parts]
    return [one for part in split for one in part.split("\n")]


def cut(line: str) -> str:
    """Return a command up to its pipe, redirection or the next command."""
    for found in _PIECE.finditer(line):
        if found["ends"]:
            return line[: found.start()].rstrip()
    return line.rstrip()


_PIECE = re.compile(
    r";;|'[^']*'|\"(?:\\.|[^\"\\])*\"|\(\(.*?\)\)|\$\{[^}]*\}|\\.|"
    r"\$\((?:[^()]|\([^()]*\))*\)|(?P<ends>&&|\|\|?|;|(?<!\S)[12&]?>>?|<|(?<![<>&])&(?![&>]))"
)


def likeliest(commands: list[str]) -> int:
    """Return which of a script's commands trains: one that varies, by its name one that does, the
    last of several."""

    def rank(place: int) -> tuple[bool, bool, bool, int]:
        words = re.split(r"[\W_]+", commands[place].lower())
        return (
            "$" in commands[place],
            not _OTHER.intersection(words[:6]),
            bool(_TRAINS.intersection(words[:6])),
            place,
        )

    return max(range(len(commands)), key=rank)


_TRAINS = {"train", "training", "trainer", "main", "fit", "finetune", "run"}
_OTHER = {"eval", "evaluate", "test", "plot", "prepare", "preprocess", "download", "process", "pip"}


def number_names(body: str) -> str:
    """Return a script in which a name that is set again is another one from there on: ``X``,
    ``X__2``; what is set within an if, a loop or a function has no value behind it.

    Args:
        body: As ``straighten`` returns it.
    """
    versions: dict[str, int] = {}
    blocks: list[set[str]] = []  # what each open block has set
    lines: list[str] = []

    def forget(names: set[str]) -> None:
        for name in names:
            versions[name] = max(2, versions.get(name, 0) + 1)

    for line in body.split("\n"):
        plain = line.strip()
        if _CLOSES.match(plain) and blocks:
            forget(blocks.pop())
        elif _BRANCHES.match(plain) and blocks:
            forget(blocks[-1])
        if _OPENS.search(plain):
            blocks.append(set())
        line = _rename(line, {key: n for key, n in versions.items() if n > 1})
        for found in reversed(list(_SETS.finditer(line))):
            name, end = found["name"], found.end("name")
            number = versions.get(name, 0) + 1
            is_sure = not line[: found.start()].strip() and found["sign"] == "="
            if blocks:
                # In a loop's second turn it would be the first's that is read before.
                is_first = number == 1 and not re.search(rf"\b{name}\b", "\n".join(lines))
                is_sure = is_sure and is_first and not re.search(rf"\b{name}\b", line[end:])
                blocks[-1].add(name)
            if is_sure:
                versions[name] = number
            else:
                forget({name})
            suffix = (f"__{number}" if number > 1 else "") if is_sure else "__unread"
            line = f"{line[:end]}{suffix}{line[end:]}"
        if looped := re.match(r"^(\s*(?:for|select)\s+)(\w+)\b(.*)$", line):
            forget({looped[2]})
            line = f"{looped[1]}{looped[2]}__{versions[looped[2]]}{looped[3]}"
        for read in re.findall(r"\b(?:read|mapfile|readarray)\b(.*)$", line):
            forget(
                set(re.findall(r"(?<![\w$/.-])([A-Za-z_]\w*)(?![\w/.])", read.partition("<")[0]))
            )
        lines.append(line)
    return "\n".join(lines)


_BRANCHES = re.compile(r"^(?:else|elif)\b|;;")


def find_loops(body: str, line: str, lists: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the values of the loops around a line: by the loop's variable what it goes over.

    Loops over what is not known are left out.
    """
    stack: list[tuple[str, str]] = []
    for one in body.split("\n"):
        plain = one.strip()
        if line in one:
            break
        if _CLOSES.match(plain) and stack:
            stack.pop()
        if _OPENS.search(plain):
            found = re.match(r"for\s+(\w+)\s+in\s+(.*)$", plain)
            stack.append((found[1], found[2]) if found else ("", ""))
    values = {name: _items(text, lists) for name, text in stack if name}
    return {name: found for name, found in values.items() if found}


def _items(text: str, lists: dict[str, list[Any]]) -> list[Any]:
    """Return what a loop goes over; nothing where that is not known."""
    several = re.fullmatch(r"\"?\$\{(!?)(\w+)\[[@*]\]\}\"?", text.strip())
    if several:
        values = lists.get(several[2], [])
        return list(range(len(values))) if several[1] else values
    words: list[str] = []
    for part in re.split(r"(\"?\$\{\w+\[[@*]\]\}\"?)", text):
        of = re.fullmatch(r"\"?\$\{(\w+)\[[@*]\]\}\"?", part)
        found = [str(v) for v in lists.get(of[1], [])] if of else list_words(part)
        if found is None or (of and not found):
            return []
        words += found
    return [read_shell_word(word) for word in words]


_SETS = re.compile(
    r"(?:^[ \t]*|(?:&&|\|\||\)|\{)[ \t]*|\(\([ \t]*)"
    r"(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)?|let\s+)?"
    r"(?P<name>[A-Za-z_]\w*)(?:[ \t]*(?P<sign>[-+*/%]?=)(?!=)|(?:\+\+|--)(?![\w-]))",
    re.MULTILINE,
)


def _rename(line: str, versions: dict[str, int]) -> str:
    for name, number in versions.items():
        line = re.sub(rf"(\$\{{?[#!]?){name}\b", rf"\g<1>{name}__{number}", line)
        # Within arithmetic names have no dollar.
        bare = re.compile(rf"(?<![\w$]){name}\b(?!\s*=[^=])")
        new = f"{name}__{number}"
        line = _WITHIN.sub(lambda found, bare=bare, new=new: bare.sub(new, found[0]), line)  # type: ignore[misc]
    return line


_WITHIN = re.compile(r"\(\((.*?)\)\)|\[([^\]]*)\]")


def without_numbers(text: str) -> str:
    """Return a text with the names as the script has them, which ``number_names`` has changed."""
    return re.sub(r"__(?:\d+|unread)(?![A-Za-z0-9])", "", text)


def put_in(body: str, scalars: dict[str, str]) -> str:
    """Return a script with the values of plain names in the place of ``$NAME`` and ``${NAME}``."""
    for _ in range(5):
        done = re.sub(
            r"(?<!\\)\$(?:\{(\w+)\}|(\w+))", lambda m: scalars.get(m[1] or m[2], m[0]), body
        )
        if done == body:
            break
        body = done
    return body


def settle(scalars: dict[str, str]) -> dict[str, str]:
    """Return variables with those within them replaced that are plain text."""
    for _ in range(5):
        plain = {n: value for n, value in scalars.items() if not re.search(r"[$`]", value)}
        scalars = {
            n: value if "((" in value else put_in(value, plain) for n, value in scalars.items()
        }
    return scalars


def read_setup(outside: str, commands: list[str], lost: list[str]) -> list[str]:
    """Return the lines that prepare a task, for ``slurm.setup``; say in ``lost`` which were left
    out.

    Args:
        outside: The script, with known values in place, without what runs in a container.
        commands: The lines of which one was taken; these are not named again.
    """
    setup: list[str] = []
    left: list[str] = []
    depth = 0
    own = {re.sub(r"__\w+$", "", found["name"]) for found in _SETS.finditer(outside)}
    for line in outside.split("\n"):
        plain = line.strip().rstrip(";")
        if _CLOSES.match(plain):
            depth = max(0, depth - 1)
        opens = bool(_OPENS.search(plain))
        export = _EXPORT.match(plain)
        if depth == 0 and not opens and _IS_SETUP.match(plain):
            setup += [*_needed(plain, outside, setup), without_numbers(plain)]
        elif depth == 0 and export and names_secret(export[1]):
            lost.append(
                f"export {export[1]}: is a secret by its name, and was not copied; set it in the "
                f"shell that launches, and write environment: {{env: {{{export[1]}: null}}}}"
            )
        elif export and export[1] in _GPUS_SEEN:
            lost.append(f"export {export[1]}: was left out; each trial is given its GPUs")
        elif export:
            used = set(re.findall(r"\$\{?(\w+?)(?:__\w+)?\b", export[2])) - {export[1]}
            if depth or used & own or "SLURM_ARRAY" in plain:
                shown = without_numbers(plain)
                lost.append(f"{shown}: is not the same for all tasks; was left out")
            else:
                setup.append(plain)
        elif re.match(r"(?:cd|pushd)\s", plain) and "SLURM_SUBMIT_DIR" not in plain:
            varies = set(re.findall(r"\$\{?(\w+?)(?:__\w+)?\b", plain)) & own
            what = (
                "is another folder by task, which no trial goes into; give it as an argument"
                if varies or "SLURM_ARRAY" in plain
                else "trials run in a copy of the folder in which sweep launch is called; call it "
                "there"
            )
            lost.append(f"{without_numbers(plain)}: {what}")
        elif _is_left_out(plain, commands):
            left.append(without_numbers(plain.split()[0]))
        depth += 1 if opens else 0
    if left:
        lost.append(
            f"{', '.join(dict.fromkeys(left))}: what the script does beside its command was left "
            "out; what a trial needs before it belongs into slurm.setup"
        )
    return setup


def _needed(plain: str, outside: str, setup: list[str]) -> list[str]:
    """Return the lines that set what a line of the setup reads: ``P=$(conda info --base)``."""
    found: list[str] = []
    for name in dict.fromkeys(re.findall(r"\$\{?(\w+)", plain)):
        given = re.findall(rf"^[ \t]*((?:export\s+)?{name}=[^\n]*)$", outside, re.M)
        line = without_numbers(given[0].strip()) if len(given) == 1 else ""
        if line and line not in setup and "SLURM_ARRAY" not in line:
            found += [*_needed(given[0], outside, [*setup, line]), line]
    return found


def _is_left_out(plain: str, commands: list[str]) -> bool:
    """Tell whether a line does something that the study will not do."""
    if not plain or plain.startswith("#") or re.match(r"cd\s|pushd\s|popd", plain):
        return False
    if _BLOCK.match(plain) or _SAYS_NOTHING.match(plain) or re.match(r"(?:\[|\(\()", plain):
        return False
    if re.match(r"\w+\[[^\]]*\]\+?=|\w+\+=", plain):
        return False
    if _ASSIGNED.match(plain) or re.match(r"(?:declare|local|readonly|unset|let)\b", plain):
        return False
    texts = (plain, without_numbers(plain))
    is_command = any(one in text for one in commands for text in texts)
    return not is_command and re.match(r"[\w./$\"'~{]", plain) is not None
