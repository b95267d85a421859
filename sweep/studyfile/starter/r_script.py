"""A script in R: commandArgs, optparse, argparse, variables; and what it reports or prints."""

from __future__ import annotations

import re
from pathlib import Path

from sweep.core.placeholders import escape
from sweep.studyfile.starter.flags import Flag
from sweep.studyfile.starter.metrics import find_in_text
from sweep.studyfile.starter.other_scripts import Argument, OtherScript, make_flag, read_value

LOOKED_FOR = (
    "commandArgs(trailingOnly = TRUE) by number, make_option of optparse, add_argument of argparse "
    'and argparser, Sys.getenv("LR", "0.1")'
)
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
_HELD = re.compile(
    r"([A-Za-z.][\w.]*)\s*(?:<-|=)\s*commandArgs\(\s*(?:trailingOnly\s*=\s*)?T(?:RUE)?\b"
)
_DIRECT = r"commandArgs\(\s*(?:trailingOnly\s*=\s*)?T(?:RUE)?\s*\)"
_OTHERWISE = re.compile(r"\belse\s+([^\s(){},]+)|ifelse\(.*,\s*([^,()]+)\)|%\|\|%\s*([^\s(){},]+)")
_OPTION = re.compile(r"\b(?:make_option|add_argument)\s*\(")
_NAME = re.compile(r"[\"'](-{0,2}[A-Za-z][\w.-]*)[\"']")
_VARIABLE = re.compile(
    r"Sys\.getenv\(\s*[\"']([A-Za-z]\w*)[\"']\s*,\s*(?:unset\s*=\s*)?([^(),]+)\)"
)
_KINDS = {
    "double": "float",
    "numeric": "float",
    "float": "float",
    "integer": "int",
    "int": "int",
    "character": "str",
    "logical": "switch",
}


def read_r(path: Path, shown: str) -> OtherScript:
    """Return what a script in R can be given. ``shown`` is its path in the command."""
    text = path.read_text(encoding="utf-8", errors="replace")
    code = _COMMENT.sub("", text)
    arguments = [*_numbered(code), *_options(code), *_variables(code)]
    unique = {one.flag.name: one for one in reversed(arguments)}
    return OtherScript(
        ["Rscript", escape(shown)],
        [unique[name] for name in dict.fromkeys(one.flag.name for one in arguments)],
        text,
        find_in_text(text),
    )


def _numbered(code: str) -> list[Argument]:
    held = _HELD.search(code)
    place = rf"(?:{re.escape(held[1])}|{_DIRECT})" if held else _DIRECT
    used = re.compile(rf"^[^\n]*?{place}\s*\[\[?\s*(\d+)L?\s*\]\]?[^\n]*$", re.MULTILINE)
    found: dict[int, Flag] = {}
    for line in used.finditer(code):
        name = re.match(r"\s*([A-Za-z.][\w.]*)\s*(?:<-|=)\s*", line[0])
        otherwise = _OTHERWISE.search(line[0])
        default = next((one for one in otherwise.groups() if one), None) if otherwise else None
        found.setdefault(
            int(line[1]),
            make_flag(name[1] if name else f"arg{line[1]}", default, required=default is None),
        )
    return [
        Argument(found.get(number, Flag(f"arg{number}", required=True)), ("{}",), is_counted=True)
        for number in range(1, max(found, default=0) + 1)
    ]


def _options(code: str) -> list[Argument]:
    arguments = []
    for call in _OPTION.finditer(code):
        words = _inside(code, call.end() - 1)
        names = _NAME.findall(re.split(r"\b(?:help|type|default|action|dest)\s*=", words)[0])
        options = [name for name in names if name.startswith("-")]
        option = next((name for name in options if name.startswith("--")), None) or (
            options[0] if options else names[0] if names else None
        )
        if option is None:
            continue
        kind = _KINDS.get(_word(words, "type") or "", "")
        if re.search(r"store_true|store_false|flag\s*=\s*T", words):
            kind = "switch"
        given = re.search(r"\bdefault\s*=\s*([^\s,()]+)", words)
        default = None if given is None or given[1] in ("NULL", "NA") else read_value(given[1])
        name = option.lstrip("-")
        is_positional = option == name
        flag = Flag(name, kind, default, required=is_positional and given is None)
        form = ("{}",) if is_positional else (option, "{}")
        arguments.append(Argument(flag, form, is_counted=is_positional))
    return arguments


def _word(words: str, key: str) -> str | None:
    found = re.search(rf"\b{key}\s*=\s*[\"'](\w+)[\"']", words)
    return found[1] if found else None


def _inside(code: str, start: int) -> str:
    """Return what stands between a parenthesis and its end."""
    depth = 0
    for at in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return code[start + 1 : at]
    return code[start + 1 :]


def _variables(code: str) -> list[Argument]:
    return [
        Argument(make_flag(name, default), (f"{name}={{}}",), is_variable=True)
        for name, default in _VARIABLE.findall(code)
        if not name.startswith("SWEEP_")
    ]
