"""A shell script: $1, ${LR:-0.1}, getopts, long options; and what it reports or prints."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sweep.core.placeholders import escape
from sweep.studyfile.starter.flags import Flag
from sweep.studyfile.starter.metrics import Metric, find_in_text, find_metrics
from sweep.studyfile.starter.other_scripts import Argument, OtherScript, make_flag
from sweep.studyfile.starter.python_text import parse_python

LOOKED_FOR = (
    'lr=$1, ${LR:-0.1}, getopts, options read by case "$1" in --lr), and "$@" passed on to a '
    "Python script"
)
SHEBANG = re.compile(r"#!\s*(?:/usr/bin/env\s+(?:-S\s+)?)?(?:\S*/)?((?:ba|da|z|k)?sh)\b")
_COMMENT = re.compile(r"(^|[\s;])#.*$", re.MULTILINE)
_SINGLE_QUOTED = re.compile(r"'[^']*'")
_FUNCTION = re.compile(
    r"^[ \t]*(?:function\s+[\w-]+\s*(?:\(\))?|[\w-]+\s*\(\))\s*\{.*?^[ \t]*\}",
    re.MULTILINE | re.DOTALL,
)
_NUMBERED = re.compile(
    r"(?:\b([A-Za-z_]\w*)=|(?:^|\s)--?([A-Za-z][\w-]*)[= ])[\"']?"
    r"\$(?:([1-9])|\{([1-9])(?::?([-=?])([^}]*))?\})",
    re.MULTILINE,
)
_UNNAMED = re.compile(r"\$(?:([1-9])|\{([1-9])[:}?-])")
_VARIABLE = re.compile(r"\$\{([A-Za-z]\w*)(:?[-=?])([^}]*)\}")
_LETTERS = re.compile(r"\bgetopts\s+[\"']?:?([A-Za-z0-9:]+)[\"']?")
# One way only to split its words: with optional bars between them a long one took for ever.
_WORD = r"[\"']?-{0,2}[A-Za-z][\w=*-]*[\"']?"
_ARM = re.compile(rf"^[ \t(]*({_WORD}(?:\s*\|\s*{_WORD})*\s*)\)(.*?);;", re.M | re.S)
_LOOP = re.compile(r"\bcase\s+[\"']?\$\{?1\}?[\"']?\s+in\b")
_PASSES_ON = re.compile(r"(?<!\S)(\S{1,300}\.py)\b[^\n]*(?:\"\$@\"|\$@|\$\*)")
_PYTHON = re.compile(r"(?<![\w/.-])([\w./-]+\.py)\b")
# Of the system, of launchers, of sweep: not the script's own.
_OTHERS = re.compile(
    r"(SWEEP|SLURM|CUDA|NCCL|OMP|MKL|OMPI|PMI|XDG|LC|CONDA|HF|WANDB|TORCH|PYTHON|BASH|GLOO|MASTER|"
    r"SGE|PBS|LSB)_?\w*|PATH|HOME|USER|SHELL|LANG|TERM|PWD|TMP(DIR)?|TEMP|HOSTNAME|DISPLAY|IFS|"
    r"RANK|LOCAL_RANK|WORLD_SIZE|NODE_RANK|EDITOR|DEBUG|VERBOSE|\w*_?PORT"
)


def read_shell(path: Path, shown: str) -> OtherScript:
    """Return what a shell script can be given. ``shown`` is its path in the command."""
    text = path.read_text(encoding="utf-8", errors="replace")
    found = SHEBANG.match(text)
    code = _COMMENT.sub(r"\1", text.partition("\n")[2] if text.startswith("#!") else text)
    # Within functions $1 is theirs; within '…' nobody's.
    plain = _FUNCTION.sub("", code)
    remarks = []
    if re.search(r"^#SBATCH\b", text, re.MULTILINE):
        remarks.append(
            "Its #SBATCH lines are not taken over here: write resources and slurm below, or "
            f"convert a job array with sweep init --from {shown}."
        )
    options = [*_letters(code), *(_long(plain) if _LOOP.search(plain) or "getopt" in code else ())]
    numbered = [] if options else _numbered(_SINGLE_QUOTED.sub("''", plain))
    passes_on = _PASSES_ON.search(plain)
    return OtherScript(
        [found[1] if found else "bash", escape(shown)],
        [*_variables(code), *options, *numbered],
        text,
        find_in_text(text) or _of_python(code, path),
        inner=_place(passes_on[1], path) if passes_on and not options else None,
        remarks=remarks,
    )


def _numbered(code: str) -> list[Argument]:
    named: dict[int, Flag] = {}
    for name, option, bare, braced, sign, text in _NUMBERED.findall(code):
        number = int(bare or braced)
        default = text if sign in ("-", "=") and text else None
        flag = make_flag(name or option, default, required=default is None)
        named.setdefault(number, flag)
    used = {int(bare or braced) for bare, braced in _UNNAMED.findall(code)} | named.keys()
    return [
        Argument(named.get(number, Flag(f"arg{number}", required=True)), ("{}",), is_counted=True)
        for number in range(1, max(used, default=0) + 1)
    ]


def _variables(code: str) -> list[Argument]:
    found: dict[str, Argument] = {}
    for one in _VARIABLE.finditer(code):
        name, sign, text = one[1], one[2], one[3]
        # What the script sets itself before is not taken from the environment.
        is_set = any(
            setting.start() < one.start()
            for setting in re.finditer(rf"(?<![\w$]){name}=(?!\S*\$\{{{name}\b)", code)
        )
        if name in found or is_set or _OTHERS.fullmatch(name):
            continue
        default = None if sign.endswith("?") or not text else text
        flag = make_flag(name, default, required=sign.endswith("?"))
        found[name] = Argument(flag, (f"{name}={{}}",), is_variable=True)
    return list(found.values())


def _default(name: str, code: str) -> str | None:
    """Return what a variable is set to at first, where that is a plain value."""
    found = re.search(rf"(?<![\w$-]){re.escape(name)}=([\"']?)([^\s\"'$;]*)\1(?=[\s;]|$)", code)
    return found[2] if found and found[2] else None


def _letters(code: str) -> list[Argument]:
    found = _LETTERS.search(code)
    if not found:
        return []
    rest = code[found.end() :]
    arguments = []
    for letter, takes in re.findall(r"([A-Za-z0-9])(:?)", found[1]):
        arm = re.search(rf"^[ \t(]*[\"']?{letter}[\"']?\s*\)(.*?);;", rest, re.M | re.S)
        names = re.findall(r"\b([A-Za-z_]\w*)=", arm[1]) if arm else []
        name = names[0] if names else letter
        if not takes:
            arguments.append(Argument(Flag(name, "switch"), (f"-{letter}",)))
            continue
        flag = make_flag(name, _default(name, code[: found.start()]))
        arguments.append(Argument(flag, (f"-{letter}", "{}")))
    return arguments


def _long(code: str) -> list[Argument]:
    arguments: dict[str, Argument] = {}
    for names, body in _ARM.findall(code):
        options = [word.strip(" \t\"'") for word in names.split("|")]
        long = [option for option in options if option.startswith("--")]
        option = next(iter(long or [one for one in options if one.startswith("-")]), "")
        if not option or option in ("--", "--help", "-h"):
            continue
        is_joined = option.endswith("=*")
        option = option.removesuffix("=*")
        takes = is_joined or re.search(r"\$\{?2\b", body)
        variable = re.search(r"\b([A-Za-z_]\w*)=", body)
        default = _default(variable[1], code) if variable else None
        name = option.lstrip("-")
        if name in arguments:
            continue
        if not takes:
            arguments[name] = Argument(Flag(name, "switch"), (option,))
            continue
        words = (f"{option}={{}}",) if is_joined else (option, "{}")
        arguments[name] = Argument(make_flag(name, default), words)
    return list(arguments.values())


def _place(name: str, script: Path) -> Path | None:
    name = name.strip("\"'").rpartition("/")[2] if "$" in name else name.strip("\"'")
    for folder in (Path(), script.parent):
        if os.path.isfile(folder / name):
            return folder / name
    return None


def _of_python(code: str, script: Path) -> list[Metric]:
    """Return what the Python scripts that it starts print or report."""
    for name in _PYTHON.findall(code):
        path = _place(name, script)
        if path is None:
            continue
        try:
            source = path.read_text(encoding="utf-8")
            found = find_metrics(parse_python(source), source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if found:
            return found
    return []
