"""The flags of a user's script: read from its source, or where that shows none, from its --help."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.system.search_path import search_path
from sweep.studyfile.starter.python_text import parse_expression, parse_python, read_literal

HELP_TIMEOUT_S = 60.0
# What a script mentions whose flags are made out of our sight. Any other script is never started:
# without a parser of flags it would not print its help but train.
_PARSERS = re.compile(
    r"argparse|ArgumentParser|parse_args|click|typer|tyro|\bfire\b|simple_parsing|docopt|absl"
)
_MOST_FILES = 30
TYPES = ("int", "float", "str", "bool")
TRAINS = ("train", "fit", "main", "run")  # a script's commands, the likeliest first


@dataclass(frozen=True)
class Flag:
    """One option of a script.

    Attributes:
        option: As given on the command line, the long form ("--batch-size"); or the name of a
            positional argument.
        type: "int", "float", "str", "switch" (takes no value), "list" (takes several) or "".
        default: The script's own, or None where it has none or it is not known.
    """

    option: str
    type: str = ""
    default: Any = None
    choices: tuple[Any, ...] = ()
    required: bool = False

    @property
    def name(self) -> str:
        return self.option.lstrip("-")

    @property
    def is_positional(self) -> bool:
        return not self.option.startswith("-")


def scan(script: Path) -> list[Flag]:
    """Return a Python script's flags, in the order in which it declares them.

    The source is read first, because that starts nothing; ``--help`` is asked where the source
    shows no flag but a parser that may be filled elsewhere.

    Raises:
        InputError: The script is not there, is not Python, or its --help fails.
    """
    try:
        source = script.read_text(encoding="utf-8")
        tree = parse_python(source)
    except OSError as error:
        raise InputError(f"{script} cannot be read: {error.strerror}.") from None
    except (SyntaxError, ValueError) as error:
        raise InputError(
            f"{script} is not a Python script: {error}.",
            "Read are Python, notebooks (.ipynb), shell scripts (.sh) and R (.R). For another "
            "language: `sweep init` in an empty folder, then edit.",
        ) from None
    found = read_source(tree)
    others = [path.read_text("utf-8", "replace") for path in imported(tree, script)]
    for text in others if not found else ():
        try:
            found += read_source(parse_python(text))
        except (SyntaxError, ValueError, RecursionError):
            continue
    if found or not any(_PARSERS.search(text) for text in (source, *others)):
        return list({flag.option: flag for flag in reversed(found)}.values())[::-1]
    return read_help(ask_help(script))


def find_module(script: Path) -> tuple[Path, str] | None:
    """Return the folder and the dotted name under which a script must run as a module (``-m``).

    Returns:
        None for a plain script: one that imports nothing by the name of its own folder.
    """
    script = script.absolute()
    folder, own = script.parent, script.parent.name
    tree = parse_python(script.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.level:
            return folder.parent, f"{own}.{script.stem}"
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for name in names:
            first, _, rest = name.partition(".")
            place = folder.joinpath(*rest.split("."))
            # A folder that only has a library's name holds no module of that name.
            if (
                first == own
                and rest
                and (os.path.isdir(place) or os.path.isfile(place.with_suffix(".py")))
            ):
                return folder.parent, f"{own}.{script.stem}"
    return None


def imported(tree: ast.AST, script: Path) -> list[Path]:
    """Return the files of the script's own project that it imports."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names |= {base, *(f"{base}.{alias.name}".strip(".") for alias in node.names)}
    roots = (script.parent, *list(script.absolute().parents)[1:3])
    paths = []
    for name in sorted(names):
        parts = name.split(".")
        tails = [parts[i:] for i in range(len(parts))] if name else []
        near = [root.joinpath(*parts).with_suffix(".py") for root in roots if name]
        near += [script.parent.joinpath(*tail).with_suffix(".py") for tail in tails]
        paths += [path for path in near if os.path.isfile(path) and path != script]
    return list(dict.fromkeys(path.absolute() for path in paths))[:_MOST_FILES]


def ask_help(script: Path) -> str:
    """Run ``python SCRIPT --help`` and return what it prints. Raises: InputError."""
    python = shutil.which("python", path=search_path(os.environ)) or sys.executable
    module = find_module(script)
    try:
        done = subprocess.run(
            [python, *(["-m", module[1]] if module else [str(script.absolute())]), "--help"],
            cwd=module[0] if module else None,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=HELP_TIMEOUT_S,
            env=os.environ | {"COLUMNS": "500", "NO_COLOR": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{script} --help did not end within {HELP_TIMEOUT_S:g} s.",
            "Make it answer --help before it does anything else.",
        ) from None
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise InputError(
            f"{python} {script} --help ended with code {done.returncode}: {last}",
            "Mend that first, or activate the environment that the script needs.",
        )
    return done.stdout


def read_source(tree: ast.AST) -> list[Flag]:
    """Return the flags of all ``add_argument`` and ``click.option`` calls in a source; where it
    has subcommands, of the one that trains."""
    constants = read_constants(tree)
    command = find_command(tree)
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("add_argument", "option", "argument")
    ]
    found: dict[str, Flag] = {}
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        if command and _command_of(call, tree) not in (None, command):
            continue
        flag = read_call(call, constants)
        if flag:
            found.setdefault(flag.option, flag)
    return list(found.values())


def find_command(tree: ast.AST) -> str | None:
    """Return the argparse subcommand that trains, by its name, or the first; None for a script
    without subcommands."""
    return likeliest(list_subcommands(tree))


def list_subcommands(tree: ast.AST) -> list[str]:
    """Return the names of the argparse subcommands of a script, in its order."""
    return list(dict.fromkeys(name for _, name, _ in _subparsers(tree)))


def likeliest(names: Sequence[str]) -> str | None:
    """Return which of a script's commands trains, by their names; None where there is none."""
    likely = [name for name in TRAINS if name in names]
    likely += [name for name in names if "train" in name or "fit" in name]
    return next(iter([*likely, *names]), None)


def find_outer(tree: ast.AST) -> frozenset[str]:
    """Return the options of the parser that has the subcommands: these stand before the command."""
    makers = {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).endswith("ArgumentParser")
    }
    constants = read_constants(tree)
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    flags = [
        read_call(call, constants)
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_argument"
        and ast.unparse(call.func.value) in makers
    ]
    return frozenset(flag.option for flag in flags if flag) if find_command(tree) else frozenset()


def _subparsers(tree: ast.AST) -> list[tuple[tuple[int, int], str, str]]:
    """Return of each ``p = subparsers.add_parser("train")`` the place, the command and the name."""
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == "add_parser"
            and node.value.args
            and isinstance(name := literal(node.value.args[0]), str)
        ):
            found.append(((node.lineno, node.col_offset), name, ast.unparse(node.targets[0])))
    return sorted(found)


def _command_of(call: ast.Call, tree: ast.AST) -> str | None:
    """Return the subcommand to whose parser a call adds; None for the parser of all."""
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    place = (call.lineno, call.col_offset)
    before = [name for at, name, it in _subparsers(tree) if it == owner and at < place]
    return before[-1] if before else None


def read_constants(tree: ast.AST) -> dict[str, Any]:
    """Return the module's names that are set to a literal: DEFAULT_LR = 1e-3."""
    found = {}
    for node in getattr(tree, "body", []):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = read_literal(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError):
                continue
    return found


def literal(node: ast.AST | None, constants: Mapping[str, Any] | None = None) -> Any:
    """Return the value of a literal, or of a name that is a constant; None for all else."""
    if isinstance(node, ast.Name):
        return (constants or {}).get(node.id)
    try:
        return read_literal(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return None


def read_call(call: ast.Call, constants: Mapping[str, Any]) -> Flag | None:
    """Return the flag of an ``add_argument``, ``click.option`` or ``click.argument`` call; None
    for one that takes no value of ours, or is not understood."""
    names = [literal(argument, constants) for argument in call.args]
    names = [name for name in names if isinstance(name, str)]
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    long = [name for name in names if name.startswith("--")]
    called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    is_click, is_argument = called == "option", called == "argument"
    if not names or (is_click and not long) or (is_argument and names[0].startswith("-")):
        return None
    if is_argument and "default" in keywords:
        keywords.setdefault("required", ast.Constant(False))
    option = long[0] if long else names[-1]
    action = str(literal(keywords.get("action"), constants) or "")
    if action in ("help", "version"):
        return None
    is_boolean = isinstance(keywords.get("action"), ast.Attribute | ast.Name)
    is_switch = (
        action.startswith(("store_", "count"))
        or (is_boolean and not action)
        or bool(literal(keywords.get("is_flag"), constants))
        or "/" in option
    )
    default = literal(keywords.get("default"), constants)
    choices = literal(keywords.get("choices"), constants)
    kind = ast.unparse(keywords["type"]) if "type" in keywords else ""
    choice = re.fullmatch(r"(?:click\.)?Choice\((\[.*\]|\(.*\)).*\)", kind)
    if choice:
        choices, kind = literal(parse_expression(choice[1]), constants), "str"
    is_optional = literal(keywords.get("nargs"), constants) in ("?", "*") or (
        is_argument and literal(keywords.get("required"), constants) is False
    )
    several = action in ("append", "extend") or (
        "nargs" in keywords and literal(keywords["nargs"], constants) != "?"
    )
    return Flag(
        option,
        "switch" if is_switch else "list" if several else _type(kind, default),
        default,
        tuple(choices) if isinstance(choices, list | tuple | set | range) else (),
        bool(literal(keywords.get("required"), constants))
        or (not option.startswith("-") and not several and not is_click and not is_optional),
    )


def _type(kind: str, default: Any) -> str:
    if kind in TYPES:
        return kind
    if isinstance(default, bool):
        return "bool"
    if isinstance(default, int | float | str):
        return type(default).__name__ if not kind else ""
    return "" if kind else "str"


def read_help(text: str) -> list[Flag]:
    """Return the flags that a help text lists, as argparse and click print it."""
    usage = re.sub(r"\[[^\[\]]*\]", "", text.partition("\n\n")[0])
    found: dict[str, Flag] = {}
    # An entry starts with a dash after at most eight spaces; deeper lines go on with its help.
    entries = re.split(r"^ {1,8}(?=-)", text, flags=re.MULTILINE)[1:]
    for entry in entries:
        entry = re.split(r"\n(?=\S)|\n\n", entry)[0]
        head, _, rest = re.sub(r"\n\s+", "  ", entry.strip()).partition("  ")
        long = re.search(r"--[\w.-]*\w", head)
        if not long or long[0] in ("--help", "--version"):
            continue
        after = head[long.end() :].strip(" =,/")
        choices = re.search(r"\{([^}]*)\}|\[([\w.-]+(?:\|[\w.-]+)+)\]", after)
        default = re.search(r"[(\[]default(?: is)?[:=]? ?([^)\]]*)[)\]]", rest, re.IGNORECASE)
        value = _read_word(default[1].strip(" '\"")) if default else None
        words = re.split(r"[,|]", choices[1] or choices[2] or "") if choices else []
        kind = ""
        if not after or after.startswith("--no"):
            kind = "switch"
        elif after.endswith("...") or "[" in after.replace(choices[0] if choices else "", ""):
            kind = "list"
        elif re.match(r"INT(EGER)?\b", after):
            kind = "int"
        elif re.match(r"FLOAT\b", after):
            kind = "float"
        elif isinstance(value, int | float | str):
            kind = type(value).__name__
        found[long[0]] = Flag(
            long[0], kind, value, tuple(map(_read_word, words)), long[0] in usage.split()
        )
    return list(found.values())


def _read_word(word: str) -> Any:
    """Read a default or a choice as Python would print it: a number, True, None, else text."""
    try:
        return read_literal(word)
    except (ValueError, SyntaxError):
        return word
