"""The words that bash makes of a line: quotes, variables, arrays, arithmetic, braces, splitting.

A small part of bash, for scripts that put a training's arguments together. What is not known
without the machine that the script is for (its environment, its files) is marked in the text, and
passed on as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase, translate

from sweep.studyfile.starter.bash_numbers import evaluate
from sweep.studyfile.starter.bash_state import UNKNOWN, BashState, NotKnown, known, mark
from sweep.studyfile.starter.sbatch_words import expand_braces

_MOST_CHARACTERS = 100_000
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.|\{)[^{}]*\}")
_FIRST_OF_ALL = re.compile(r"\$(?:@|\{@|\{!?\w+\[@\])")
# What a job finds in its environment, whatever else a script says for it.
_GIVEN = re.compile(
    r"(?!SLURM_ARRAY_TASK_ID$)(?:SLURM_|CUDA_|XDG_)\w+|"
    r"HOME|USER|PWD|PATH|SHELL|LANG|TMPDIR|HOSTNAME|RANDOM|SECONDS|LINENO|UID|PPID"
)
_CHAIN = re.compile(
    r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\(\(.*?\)\)|\[\[.*?\]\]|\$\((?:[^()]|\([^()]*\))*\)|\\.|&&|\|\|"
)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_PARAMETER = re.compile(r"(#|!)?(\w+|[@*#?$!-])(.*)", re.S)


def expand_words(text: str, given: BashState) -> list[str]:
    """Return the words of a line. Raises: NotKnown."""
    fields: list[str] = []
    current: list[str] | None = None
    shape = ""  # of the word: what is in quotes, or was put in, is a zero
    is_pattern = False

    def end() -> None:
        nonlocal current, shape, is_pattern
        if current is not None:
            word = "".join(current)
            if is_pattern:  # which files there are only the machine itself could tell
                word = f"{UNKNOWN}{word.replace(UNKNOWN, '')}{UNKNOWN}"
            words = [word]
            if _BRACES.search(shape):
                words = [one for one in expand_braces(word) if one]
                if "\0" in shape or any(_BRACES.search(one) for one in words):
                    raise NotKnown(text)
            fields.extend(words)
        current, shape, is_pattern = None, "", False

    def add_words(words: list[str]) -> None:
        nonlocal current, shape
        for number, one in enumerate(words):
            if number:
                end()
            current, shape = [*(current or []), one], shape + "\0"

    for kind, piece in _pieces(text):
        if kind == "space":
            end()
        elif kind == "plain":
            if piece in "<>|&;()" or (piece == "#" and current is None):
                raise NotKnown(text)
            current, shape = [*(current or []), piece], shape + piece
            is_pattern = is_pattern or piece in "*?"
        elif kind == "literal":
            add_words([piece])
        elif kind == "quoted":
            several = _all_of(piece, given)
            add_words([expand_text(piece, given, is_quoted=True)] if several is None else several)
        else:
            value = " ".join(_expand(piece, given))
            signs = given.texts.get("IFS", " \t\n")
            if value and value[0] in signs and value[0].isspace():
                end()
            for number, one in enumerate(split_fields(value, signs)):
                if number:
                    end()
                add_words([one])
                is_pattern = is_pattern or (UNKNOWN not in one and bool(re.search(r"[*?]", one)))
            if value and value[-1] in signs:
                end()
    end()
    if sum(map(len, fields)) > _MOST_CHARACTERS:
        raise NotKnown("a line of that length")
    return fields


def split_fields(value: str, signs: str, most: int = 0) -> list[str]:
    """Return the words of a value, parted at the signs of IFS.

    Args:
        most: So many words at the most, the last with all that is left; 0 for any number.

    Raises:
        NotKnown: The signs are others than blanks, or one other sign.
    """
    if not signs or (value and not any(sign in value for sign in signs)):
        return [value] if value else []
    if signs.isspace():
        part = f"(?:{UNKNOWN}[^{UNKNOWN}]*{UNKNOWN}|[^{signs}])+"
        value = value.strip(signs)
        if not most:
            return re.findall(part, value)
        if most == 1:
            return [value] if value else []
        return [one for one in re.split(f"[{signs}]+", value, maxsplit=most - 1) if one]
    if len(signs) > 1 or UNKNOWN in value or (most and value.endswith(signs)):
        raise NotKnown(f"IFS={signs!r}")
    if most:
        return value.split(signs, most - 1)
    return value.removesuffix(signs).split(signs) if value else []


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
    if not _FIRST_OF_ALL.search(piece):
        return None
    if not _FIRST_OF_ALL.match(piece) or _end_of_value(piece, 0) != len(piece):
        raise NotKnown(piece)
    return _expand(piece, given)


def _pieces(text: str, *, is_quoted: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what a line is made of: "plain", "literal", "quoted", "value" (what begins with $ or
    is within backticks) and "space"."""
    place = 0
    while place < len(text):
        sign = text[place]
        if sign == "$" and not is_quoted and text[place + 1 : place + 2] in ("'", '"'):
            escaped = re.compile(r"\$'((?:[^'\\]|\\[nt\\'\"])*)'").match(text, place)
            if escaped is None:
                raise NotKnown(text)
            yield "literal", re.sub(r"\\(.)", lambda found: _ESCAPES[found[1]], escaped[1])
            place = escaped.end()
        elif text.startswith("$[", place):
            raise NotKnown(text)
        elif sign in "$`" and len(text) > place + 1:
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
        return [given.get(known(given.get(name) or "")) or mark(name)]
    if sign == "!":
        return given.keys(name)
    if sign == "#" and index in ("@", "*") and name in given.arrays:
        return [str(len(given.arrays[name]))]
    values = _values(name, index, given)
    if "*" in (index, name) and not given.texts.get("IFS", " ").startswith(" "):
        raise NotKnown(piece)
    if sign == "#":
        if index in ("@", "*"):
            return [str(len(values))]
        return [str(len(known(values[0] if values and values[0] is not None else "")))]
    if not rest:
        return [mark(name) if value is None else value for value in values]
    slicing = re.fullmatch(r":([^:=+?-][^:]*)(?::(.*))?", rest, re.S)
    if slicing and (index or name) in ("@", "*"):
        first = calculate(slicing[1], given) - (0 if index else 1)
        count = calculate(slicing[2], given) if slicing[2] else len(values)
        keys = list(given.arrays.get(name, {}))
        is_whole = not index or keys == [str(i) for i in range(len(values))]
        if not is_whole or count < 0 or first < (-len(values) if index else 0):
            raise NotKnown(piece)
        return [mark(name) if one is None else one for one in values[first:][:count]]
    return [_changed(value, name if index is None else "", rest, given) for value in values]


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


def _changed(value: str | None, name: str, rest: str, given: BashState) -> str:
    """Return a value after ``${NAME:-x}``, ``${NAME%.*}``, ``${NAME/a/b}`` and the like."""
    found = re.match(r"(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:)(.*)", rest, re.S)
    if found is None:
        raise NotKnown(rest)
    sign, text = found.groups()
    if sign[-1] in "-=+?":
        if value is None and _GIVEN.fullmatch(name):
            return mark(name)
        is_there = bool(value) if len(sign) == 2 else value is not None
        if is_there != (sign[-1] == "+"):
            return value or ""
        if sign[-1] == "?" or (sign[-1] == "=" and not name) or "'" in text:
            raise NotKnown(rest)
        put = expand_text(text, given)
        if sign[-1] == "=":
            given.put(name, put)
        return put
    if value is None:
        raise NotKnown(rest)
    known(value)
    if sign in ("^^", ",,") and not text:
        return value.upper() if sign == "^^" else value.lower()
    if sign == ":":
        first, _, count = text.partition(":")
        begin = calculate(first, given)
        if begin < -len(value):
            return ""
        return value[begin:][: calculate(count, given)] if count else value[begin:]
    if sign in ("#", "##", "%", "%%"):
        return _stripped(value, sign, expand_pattern(text, given))
    if sign in ("/", "//"):
        old, _, new = text.partition("/")
        pattern = translate(expand_pattern(old, given)).removesuffix("\\Z").removesuffix(r"\z")
        put = known(expand_text(new, given))
        # "&" may be what was found, and "#" and "%" the ends of the text.
        if re.match("[#%]", old) or re.search(r"\\/", text) or "&" in put or re.match(pattern, ""):
            raise NotKnown(rest)
        return re.sub(pattern, lambda _: put, value, count=0 if sign == "//" else 1)
    raise NotKnown(rest)


def expand_pattern(text: str, given: BashState) -> str:
    """Return a pattern as Python's ``fnmatch`` has it. Raises: NotKnown."""
    pieces = list(_pieces(text))
    if "[^" in text or any(
        re.search(r"[*?\[]", piece) for kind, piece in pieces if kind in ("literal", "quoted")
    ):
        raise NotKnown(text)
    return known(expand_text(text, given))


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
    return evaluate(text, given)


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


def check_quotes(line: str) -> None:
    """Raises: NotKnown: A quote of a line goes on in the next one."""
    for _ in _pieces(line):
        pass


def split_chain(line: str) -> list[str]:
    """Return the commands of a line that depend on each other, with ``&&`` and ``||`` between."""
    parts: list[str] = []
    begin = 0
    for found in _CHAIN.finditer(line):
        if found[0] in ("&&", "||"):
            parts += [line[begin : found.start()], found[0]]
            begin = found.end()
    return [*parts, line[begin:]]


def stages(text: str) -> list[str]:
    """Return the commands of a pipeline."""
    found = re.split(r"\|(?=(?:[^'\"]|'[^']*'|\"(?:\\.|[^\"\\])*\")*$)", text)
    if re.search(r"[;&]", re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|2>&1", "", text)):
        raise NotKnown(text)
    return [stage.strip() for stage in found]
