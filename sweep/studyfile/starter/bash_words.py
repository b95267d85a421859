"""The words that bash makes of a line: quotes, variables, arrays, arithmetic, braces, splitting.

A small part of bash, for scripts that put a training's arguments together. What is not known
without the machine that the script is for (its environment, its files) is marked in the text, and
passed on as such.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase, translate
from pathlib import Path

from sweep.studyfile.starter.python_text import parse_expression
from sweep.studyfile.starter.sbatch_words import expand_braces

UNKNOWN = "\ue000"  # stands, twice, around what is not known
_MOST_CHARACTERS = 100_000
_BINARY: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: int(a / b),  # bash cuts off towards 0
    ast.Mod: lambda a, b: a - int(a / b) * b,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_PARAMETER = re.compile(r"(#|!)?(\w+|[@*#?$!-])(.*)", re.S)
_SETS = re.compile(r"\s*(\w+)\s*([-+*/%]?=)(?!=)(.*)", re.S)


class NotKnown(ValueError):
    """What only a run of the script would tell."""


@dataclass
class BashState:
    """What a script has set."""

    folder: Path
    texts: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, dict[str, str]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    keyed: set[str] = field(default_factory=set)
    substitute: Callable[[str], str] = lambda _: UNKNOWN * 2

    def get(self, name: str) -> str | None:
        if name.isdecimal():
            number = int(name)
            return self.arguments[number - 1] if 0 < number <= len(self.arguments) else None
        if name in self.texts:
            return self.texts[name]
        return self.arrays[name].get("0", "") if name in self.arrays else None

    def elements(self, name: str) -> list[str]:
        """Return the elements of an array in its order."""
        if name in self.arrays:
            return [self.arrays[name][key] for key in sorted(self.arrays[name], key=_order)]
        if name in ("@", "*"):
            return self.arguments
        value = self.get(name)
        return [_mark(name)] if value is None else [value]


def _order(key: str) -> tuple[int, str]:
    return (int(key), "") if key.isdecimal() else (0, key)


def _mark(name: str) -> str:
    return f"{UNKNOWN}{name}{UNKNOWN}"


def known(text: str) -> str:
    """Return a text. Raises: NotKnown where a part of it is not known."""
    if UNKNOWN in text:
        raise NotKnown(text.replace(UNKNOWN, ""))
    return text


def expand_words(text: str, given: BashState) -> list[str]:
    """Return the words of a line. Raises: NotKnown."""
    fields: list[str] = []
    current: list[str] | None = None
    is_plain, is_pattern = True, False

    def end() -> None:
        nonlocal current, is_plain, is_pattern
        if current is not None:
            word = "".join(current)
            if is_pattern:  # which files there are only the machine itself could tell
                word = f"{UNKNOWN}{word.replace(UNKNOWN, '')}{UNKNOWN}"
            fields.extend(expand_braces(word) if is_plain else [word])
        current, is_plain, is_pattern = None, True, False

    for kind, piece in _pieces(text):
        if kind == "space":
            end()
        elif kind == "plain":
            current = [*(current or []), piece]
            is_pattern = is_pattern or piece in "*?"
        elif kind == "literal":
            current, is_plain = [*(current or []), piece], False
        elif kind == "quoted":
            several = _all_of(piece, given)
            current, is_plain = current or [], False
            if several is None:
                current.append(expand_text(piece, given, is_quoted=True))
                continue
            for number, one in enumerate(several):
                if number:
                    end()
                    is_plain = False
                current = [*(current or []), one]
            if not several and not current:
                current = None
        else:
            value = " ".join(_expand(piece, given))
            is_plain = False
            words = value.split()
            if value[:1].isspace():
                end()
                is_plain = False
            for number, one in enumerate(words):
                if number:
                    end()
                    is_plain = False
                current = [*(current or []), one]
            if value[-1:].isspace():
                end()
    end()
    if sum(map(len, fields)) > _MOST_CHARACTERS:
        raise NotKnown("a line of that length")
    return fields


def expand_text(text: str, given: BashState, *, is_quoted: bool = False) -> str:
    """Return a text as one word, as in an assignment or within double quotes."""
    found: list[str] = []
    for kind, piece in _pieces(text, is_quoted=is_quoted):
        if kind == "quoted":
            found.append(expand_text(piece, given, is_quoted=True))
        elif kind == "value":
            found.append(" ".join(_expand(piece, given)))
        else:
            found.append(piece)
    return "".join(found)


def _all_of(piece: str, given: BashState) -> list[str] | None:
    """Return the words of ``"${LIST[@]}"`` or ``"$@"``; None for any other quoted text."""
    found = re.fullmatch(r"\$\{(!?)(\w+)\[@\]\}|\$(@)|\$\{(@)\}", piece)
    if found is None:
        return None
    if found[1]:
        return sorted(given.arrays.get(found[2], {}), key=_order)
    return list(given.elements(found[2] or "@"))


def _pieces(text: str, *, is_quoted: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what a line is made of: "plain", "literal", "quoted", "value" (what begins with $ or
    is within backticks) and "space"."""
    place = 0
    while place < len(text):
        sign = text[place]
        if sign in "$`" and len(text) > place + 1:
            end = _end_of_value(text, place)
            yield ("value" if end > place + 1 else "literal"), text[place:end]
            place = end
        elif sign == "\\" and place + 1 < len(text):
            keeps = is_quoted and text[place + 1] not in '$`"\\'
            yield "literal", text[place : place + 2] if keeps else text[place + 1]
            place += 2
        elif is_quoted:
            yield "literal", sign
            place += 1
        elif sign == "'":
            end = text.find("'", place + 1)
            if end < 0:
                raise NotKnown(text)
            yield "literal", text[place + 1 : end]
            place = end + 1
        elif sign == '"':
            end = _end_of_quote(text, place)
            yield "quoted", text[place + 1 : end]
            place = end + 1
        else:
            yield ("space" if sign.isspace() else "plain"), sign
            place += 1


def _end_of_quote(text: str, begin: int) -> int:
    place = begin + 1
    while place < len(text):
        if text[place] == '"':
            return place
        if text[place] == "\\":
            place += 2
        elif text[place] in "$`":
            place = _end_of_value(text, place)
        else:
            place += 1
    raise NotKnown(text)


def _end_of_value(text: str, begin: int) -> int:
    """Return where what begins with $ or a backtick ends."""
    if text[begin] == "`":
        end = text.find("`", begin + 1)
        if end < 0:
            raise NotKnown(text)
        return end + 1
    following = text[begin + 1 : begin + 2]
    if following not in ("(", "{"):
        name = re.compile(r"[A-Za-z_]\w*|[\d@*#?$!-]").match(text, begin + 1)
        return name.end() if name else begin + 1
    closing = {"(": ")", "{": "}"}[following]
    depth, place = 0, begin + 1
    while place < len(text):
        sign = text[place]
        if sign == "'" and following == "(":
            place = text.find("'", place + 1)
            if place < 0:
                break
        elif sign == '"':
            place = _end_of_quote(text, place)
        elif sign == "\\":
            place += 1
        elif sign == following:
            depth += 1
        elif sign == closing:
            depth -= 1
            if not depth:
                return place + 1
        place += 1
    raise NotKnown(text)


def _expand(piece: str, given: BashState) -> list[str]:
    """Return the words of what begins with $ or a backtick."""
    if piece.startswith("$((") and piece.endswith("))"):
        return [str(calculate(piece[3:-2], given))]
    if piece.startswith("$("):
        return [given.substitute(piece[2:-1])]
    if piece.startswith("`"):
        return [given.substitute(piece[1:-1].replace("\\`", "`"))]
    inner = piece[2:-1] if piece.startswith("${") else piece[1:]
    found = _PARAMETER.fullmatch(inner)
    if found is None:
        raise NotKnown(piece)
    sign, name, rest = found.groups()
    index, rest = _index(rest)
    if name == "#" and not sign and index is None and not rest:
        return [str(len(given.arguments))]
    if sign and index is None and rest:
        raise NotKnown(piece)
    if sign == "!" and index is None:
        return [given.get(known(given.get(name) or "")) or _mark(name)]
    values = _values(name, index, given)
    if sign == "!":
        return sorted(given.arrays.get(name, {}), key=_order)
    if sign == "#":
        if index in ("@", "*"):
            return [str(len(values))]
        return [str(len(known(values[0] if values and values[0] is not None else "")))]
    if not rest:
        return [_mark(name) if value is None else value for value in values]
    slicing = re.fullmatch(r":([^:=+?-][^:]*)(?::(.*))?", rest, re.S)
    if slicing and (index or name) in ("@", "*"):
        first = calculate(slicing[1], given) - (0 if index else 1)
        count = calculate(slicing[2], given) if slicing[2] else len(values)
        return [_mark(name) if one is None else one for one in values[first:][:count]]
    return [_changed(value, rest, given) for value in values]


def _index(rest: str) -> tuple[str | None, str]:
    """Return the index that follows a name, and what follows that."""
    depth = 0
    for place, sign in enumerate(rest if rest.startswith("[") else ""):
        depth += (sign == "[") - (sign == "]")
        if not depth:
            return rest[1:place], rest[place + 1 :]
    return None, rest


def _values(name: str, index: str | None, given: BashState) -> list[str | None]:
    if index is None:
        return list(given.arguments) if name in ("@", "*") else [given.get(name)]
    if index in ("@", "*"):
        return list(given.elements(name))
    if name not in given.arrays:
        return [given.get(name) if known(expand_text(index, given)) == "0" else None]
    return [given.arrays[name].get(element_key(name, index, given), "")]


def element_key(name: str, index: str, given: BashState) -> str:
    """Return the key of an element as arrays here have it."""
    if name in given.keyed or any(not key.isdecimal() for key in given.arrays.get(name, {})):
        return known(expand_text(index, given))
    number = calculate(index, given)
    keys = [int(key) for key in given.arrays.get(name, {})]
    return str(number + max(keys) + 1 if number < 0 and keys else number)


def _changed(value: str | None, rest: str, given: BashState) -> str:
    """Return a value after ``${NAME:-x}``, ``${NAME%.*}``, ``${NAME/a/b}`` and the like."""
    found = re.match(r"(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:)(.*)", rest, re.S)
    if found is None:
        raise NotKnown(rest)
    sign, text = found.groups()
    if sign in (":-", "-", ":=", "="):
        return value or expand_text(text, given)
    if sign in (":+", "+"):
        return expand_text(text, given) if value else ""
    if value is None:
        raise NotKnown(rest)
    known(value)
    if sign in ("^^", ",,"):
        return value.upper() if sign == "^^" else value.lower()
    if sign == ":":
        first, _, count = text.partition(":")
        begin = calculate(first, given)
        return value[begin:][: calculate(count, given)] if count else value[begin:]
    if sign in ("#", "##", "%", "%%"):
        return _stripped(value, sign, known(expand_text(text, given)))
    if sign in ("/", "//"):
        old, _, new = text.partition("/")
        pattern = translate(known(expand_text(old, given))).removesuffix("\\Z").removesuffix(r"\z")
        put = known(expand_text(new, given))
        return re.sub(pattern, lambda _: put, value, count=0 if sign == "//" else 1)
    raise NotKnown(rest)


def _stripped(value: str, sign: str, pattern: str) -> str:
    lengths = range(len(value) + 1)
    for length in lengths if len(sign) == 1 else reversed(lengths):
        at_start = sign.startswith("#")
        part = value[:length] if at_start else value[len(value) - length :]
        if fnmatchcase(part, pattern):
            return value[length:] if at_start else value[: len(value) - length]
    return value


def calculate(text: str, given: BashState) -> int:
    """Return what bash's arithmetic makes of a text. Raises: NotKnown."""
    text = known(expand_text(text.strip(), given)).strip().strip('"')
    result = 0
    for part in text.split(","):
        result = _calculate(part, given)
    return result


def _calculate(text: str, given: BashState) -> int:
    steps = re.fullmatch(r"\s*(\+\+|--)?\s*(\w+)\s*(\+\+|--)?\s*", text)
    if steps and (steps[1] or steps[3]):
        before = _number(steps[2], given)
        after = before + (1 if (steps[1] or steps[3]) == "++" else -1)
        given.texts[steps[2]] = str(after)
        return after if steps[1] else before
    setting = _SETS.fullmatch(text)
    if setting:
        value = _calculate(setting[3], given)
        if len(setting[2]) > 1:
            value = _evaluate(_parse(f"({setting[1]}){setting[2][0]}({value})"), given)
        given.texts[setting[1]] = str(value)
        return value
    return _evaluate(_parse(text), given) if text.strip() else 0


def _parse(text: str) -> ast.AST:
    chosen = re.fullmatch(r"([^?]+)\?([^:]+):(.+)", text, re.S)
    if chosen:
        text = f"({chosen[2]}) if ({chosen[1]}) else ({chosen[3]})"
    text = re.sub(r"\b10#0*(\d)", r"\1", text)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    try:
        return parse_expression(re.sub(r"(?<!/)/(?!/)", "//", text).strip())
    except (SyntaxError, ValueError):
        raise NotKnown(text) from None


def _evaluate(node: ast.AST, given: BashState) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return int(node.value)
    if isinstance(node, ast.Name):
        return _number(node.id, given)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        key = str(_evaluate(node.slice, given))
        return int(given.arrays.get(node.value.id, {}).get(key, "0") or 0)
    if isinstance(node, ast.UnaryOp):
        value = _evaluate(node.operand, given)
        return -value if isinstance(node.op, ast.USub) else int(not value)
    if isinstance(node, ast.IfExp):
        return _evaluate(node.body if _evaluate(node.test, given) else node.orelse, given)
    if isinstance(node, ast.BoolOp):
        values = [bool(_evaluate(one, given)) for one in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        sides = _evaluate(node.left, given), _evaluate(node.comparators[0], given)
        return int(_operator(node.ops[0])(*sides))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        base, power = _evaluate(node.left, given), _evaluate(node.right, given)
        if 0 <= power < 64 and abs(base) < 2**32:
            return int(base**power)
    elif isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, given), _evaluate(node.right, given)
        try:
            return int(_operator(node.op)(left, right))
        except ZeroDivisionError:
            raise NotKnown("a division by 0") from None
    raise NotKnown(ast.unparse(node))


def _operator(node: ast.AST) -> Callable[[int, int], int]:
    if type(node) not in _BINARY:
        raise NotKnown(type(node).__name__)
    return _BINARY[type(node)]


def _number(name: str, given: BashState) -> int:
    text = known(given.get(name) or _mark(name)).strip()
    if not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", text):
        raise NotKnown(name)
    return int(text)


def raw_words(line: str) -> list[str]:
    """Return the words of a line with their quotes and variables, as they stand."""
    words: list[str] = []
    place, begin = 0, 0
    depth = 0
    while place < len(line):
        sign = line[place]
        if sign in "\"'`":
            end = place + 1
            while end < len(line) and line[end] != sign:
                end += 2 if line[end] == "\\" and sign != "'" else 1
            place = end
        elif sign == "\\":
            place += 1
        elif sign in "({" and (depth or (place and line[place - 1] in "$=(")):
            depth += 1
        elif sign in ")}" and depth:
            depth -= 1
        elif sign.isspace() and not depth:
            words += [line[begin:place]] if place > begin else []
            begin = place + 1
        place += 1
    return [*words, *([line[begin:]] if len(line) > begin else [])]


def stages(text: str) -> list[str]:
    """Return the commands of a pipeline."""
    found = re.split(r"\|(?=(?:[^'\"]|'[^']*'|\"(?:\\.|[^\"\\])*\")*$)", text)
    if re.search(r"[;&]", re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|2>&1", "", text)):
        raise NotKnown(text)
    return [stage.strip() for stage in found]
