"""What programs print that scripts use to make arguments: seq, expr, cut, sed, awk and others.

Nothing is run. Only what is told by their arguments and by the files beside the script is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from sweep.studyfile.starter.bash_state import BashState, NotKnown, known
from sweep.studyfile.starter.bash_words import calculate
from sweep.studyfile.starter.sbatch_words import list_words

_MOST_BYTES = 1_000_000


def read_lines(name: str, folder: Path) -> str:
    """Return a file beside the script. Raises: NotKnown."""
    path = folder / Path(known(name)).expanduser()
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            raise NotKnown(f"{name}: is not here to be read")
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        raise NotKnown(f"{name}: is not here to be read") from None
    if "\r" in text or "\0" in text:
        raise NotKnown(f"{name}: its lines end as those of Windows")
    return text


def run_program(words: list[str], given: str | None, variables: BashState) -> str:
    """Return what a program prints.

    Args:
        given: Its standard input, if there is one.

    Raises:
        NotKnown: It is none of those here, or has other options.
    """
    name, *rest = [known(word) for word in words]
    if name in ("echo", "printf"):
        return _echo(rest) if name == "echo" else _printf(rest)
    if name == "seq":
        found = list_words(f"$(seq {' '.join(word for word in rest)})")
        return "\n".join(found or _decimal_seq(rest)) + "\n"
    if name == "expr":
        if not all(re.fullmatch(r"-?(?:0|[1-9]\d*)|[-+*/%()]", word) for word in rest):
            _none(words)
        return f"{calculate(' '.join(rest), variables)}\n"
    if name in ("basename", "dirname"):
        return _path_part(name, rest)
    programs: dict[str, Callable[[list[str], list[str]], list[str]]] = {
        "cat": lambda options, lines: lines if not options else _none(options),
        "head": _head,
        "tail": _tail,
        "cut": _cut,
        "tr": _tr,
        "wc": _wc,
        "sed": _sed,
        "awk": _awk,
        "gawk": _awk,
        "sort": _sort,
        "grep": _grep,
        "xargs": _xargs,
    }
    if name not in programs:
        raise NotKnown(f"{name}: is not known without running it")
    options, files = _part(name, rest)
    text = given
    if files:
        text = "".join(read_lines(one, variables.folder) for one in files)
    if text is None:
        raise NotKnown(f"{name}: is not known without running it")
    # What stands before lines of several files, behind a number of them, and at a text's end.
    if (len(files) > 1 and name in ("head", "tail")) or (name == "wc" and files):
        _none(words)
    if name == "wc" and "-l" in options and text and not text.endswith("\n"):
        _none(words)
    lines = programs[name](options, text.removesuffix("\n").split("\n") if text else [])
    # A last line without an end stays one, but for programs that print anew.
    is_open = not text.endswith("\n") and name in ("cat", "tail", "head", "sed", "tr")
    is_open = is_open and lines[-1:] == [text.rpartition("\n")[2]]
    return "\n".join(lines) + ("\n" if lines and not is_open else "")


_TAKES = {"head": "n", "tail": "n", "cut": "dfc", "awk": "Fv", "gawk": "Fv", "sed": "", "tr": ""}
_OWN = {"sed": 1, "awk": 1, "gawk": 1, "grep": 1, "tr": 2}


def _part(name: str, words: list[str]) -> tuple[list[str], list[str]]:
    """Return a program's options (with its code, or what it looks for) and its files."""
    options: list[str] = []
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if len(word) == 2 and word[1] in _TAKES.get(name, "") and place < len(words):
            word += words[place]
            place += 1
        options.append(word)
    own = _OWN.get(name, 0) if name != "tr" or "-d" not in options else 1
    return [*options, *words[place : place + own]], words[place + own :]


def _path_part(name: str, words: list[str]) -> str:
    found = re.fullmatch(r"(?:(.*[^/])/+|(/*))([^/]+)", words[0]) if words else None
    if found is None or words[0].startswith("-") or len(words) > (2 if name == "basename" else 1):
        return _none([name, *words])[0]
    if name == "dirname":
        return f"{found[1] or found[2][:1] or '.'}\n"
    last, end = found[3], words[1] if words[1:] else ""
    return f"{last if last == end else last.removesuffix(end)}\n"


def _sort(options: list[str], lines: list[str]) -> list[str]:
    # Which sign is before which others is the machine's own.
    if options or not all(re.fullmatch(r"[a-z0-9]*", line) for line in lines):
        return _none(["sort", *options])
    return sorted(lines)


def _xargs(options: list[str], lines: list[str]) -> list[str]:
    text = " ".join(lines)
    if options or re.search(r"[\"'\\]", text):
        return _none(["xargs", *options])
    return [" ".join(text.split())]


def _none(options: list[str]) -> list[str]:
    raise NotKnown(f"{' '.join(options)}: is not known without running it")


def _decimal_seq(words: list[str]) -> list[str]:
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        return _none(words)
    first, step = (1.0 if len(numbers) == 1 else numbers[0]), numbers[1] if len(numbers) == 3 else 1
    places = max(len(word.partition(".")[2]) for word in words)
    if not all(re.fullmatch(r"-?\d*\.?\d*", word) for word in words) or (
        places > max((len(word.partition(".")[2]) for word in words[:-1]), default=0)
    ):
        return _none(words)
    if not step or not 1 <= len(numbers) <= 3 or not 0 <= (numbers[-1] - first) / step < 10_000:
        return _none(words)
    count = int((numbers[-1] - first) / step + 1e-9) + 1
    return [f"{first + i * step:.{places}f}" for i in range(count)]


def _echo(words: list[str]) -> str:
    end = "\n"
    while words and re.fullmatch("-[neE]+", words[0]):
        if "e" in words[0] and any("\\" in word for word in words):
            _none(words)
        end = "" if "n" in words[0] else end
        words = words[1:]
    return " ".join(words) + end


def _printf(words: list[str]) -> str:
    form, *values = words or [""]
    form = form.replace("\\n", "\n").replace("\\t", "\t")
    if "\\" in form or any(re.match(r"-?0\d", value) for value in values):
        _none(words)
    found = re.findall(r"%(0?\d*)(\.\d+)?([dsifg])", form)
    if not found or len(found) != len(values) or form.count("%") != len(found):
        return form if not found and not values and "%" not in form else _none(words)[0]
    try:
        numbers = [
            value if kind == "s" else int(value) if kind in "di" else float(value)
            for (_, _, kind), value in zip(found, values, strict=True)
        ]
    except ValueError:
        return _none(words)[0]
    return form % tuple(numbers)


def _count(options: list[str]) -> str:
    if not options:
        return "10"
    return re.sub(r"^-n?|^--lines=", "", options[0]) if len(options) == 1 else _none(options)[0]


def _head(options: list[str], lines: list[str]) -> list[str]:
    count = _count(options)
    return lines[: int(count)] if count.isdecimal() else _none(options)


def _tail(options: list[str], lines: list[str]) -> list[str]:
    count = _count(options)
    if re.fullmatch(r"\+\d+", count):
        return lines[max(0, int(count) - 1) :]
    if not count.isdecimal():
        return _none(options)
    return lines[-int(count) :] if int(count) else []


def _cut(options: list[str], lines: list[str]) -> list[str]:
    given = {option[1]: option[2:] for option in options}
    of = given.get("d", "\t")
    chosen = re.fullmatch(r"(\d+)(?:(-)(\d+)?)?|(\d+(?:,\d+)+)", given.get("f", ""))
    if chosen is None or len(of) != 1 or given.keys() - set("df"):
        return _none(options)
    rows = []
    for line in lines:
        row = line.split(of)
        if chosen[4]:
            numbers = sorted({int(one) for one in chosen[4].split(",")})
        else:
            first = int(chosen[1])
            last = first if not chosen[2] else int(chosen[3] or len(row))
            numbers = list(range(first, last + 1))
        rows.append(of.join(row[n - 1] for n in numbers if n <= len(row)) if of in line else line)
    return rows


def _tr(options: list[str], lines: list[str]) -> list[str]:
    if len(options) == 2 and options[0] == "-d":
        gone = options[1].replace("\\r", "\r").replace("\\n", "\n")
        if re.search(r"[\\\[]|.-.", gone) or ("\n" in gone and len(lines) > 1):
            return _none(options)
        return ["".join(sign for sign in line if sign not in gone) for line in lines]
    if len(options) == 2 and len(options[0]) == len(options[1]) == 1:
        return [line.replace(options[0], options[1]) for line in lines]
    return _none(options)


def _wc(options: list[str], lines: list[str]) -> list[str]:
    if options == ["-l"]:
        return [str(len(lines))]
    return [str(sum(len(line.split()) for line in lines))] if options == ["-w"] else _none(options)


def _grep(options: list[str], lines: list[str]) -> list[str]:
    if len(options) == 2 and options[0] == "-v" and re.fullmatch(r"\^?[\w#$^]*", options[1]):
        return [line for line in lines if not re.search(options[1], line)]
    return _none(options)


def _sed(options: list[str], lines: list[str]) -> list[str]:
    *flags, code = options or [""]
    line = re.fullmatch(r"(\d+)(?:,(\d+))?\s*p;?(?:\s*(\d+)q;?)?", code.replace("{p;q}", "p"))
    if flags == ["-n"] and line:
        return lines[int(line[1]) - 1 : int(line[2] or line[1])] if int(line[1]) else []
    only = re.fullmatch(r"(\d+)q;d|(\d+)!d", code)
    if not flags and only:
        number = int(only[1] or only[2])
        return lines[number - 1 : number] if number else []
    gone = re.fullmatch(r"(\d+)d", code)
    if not flags and gone:
        return lines[: int(gone[1]) - 1] + lines[int(gone[1]) :]
    put = re.fullmatch(r"s(.)([\w .,=:;-]*)\1([\w .,=:;-]*)\1(g?)", code)
    if not flags and put and "." not in put[2]:
        return [line.replace(put[2], put[3], -1 if put[4] else 1) for line in lines]
    return _none(options)


def _awk(options: list[str], lines: list[str]) -> list[str]:
    *flags, code = options or [""]
    of, own = "", {}
    for flag in flags:
        if flag.startswith("-F"):
            of = flag[2:].replace("\\t", "\t").strip(" ")
        elif flag.startswith("-v") and "=" in flag:
            name, _, value = flag[2:].strip().partition("=")
            own[name] = value
        else:
            return _none(options)
    found = re.fullmatch(
        r"\s*(?:(?:FNR|NR|\$(?P<column>\d))\s*==\s*([\w+ -]+?))?\s*"
        r"(?:\{\s*print\s*([^;{}]*?)\s*;?\s*(?:exit;?\s*)?\})?\s*",
        code,
    )
    if found is None or not code.strip() or len(of) > 1:
        return _none(options)
    if found["column"]:
        wanted, place = str(_awk_number(found[2], own, options)), int(found["column"])
        rows = [(line.split(of) if of else line.split(), line) for line in lines]
        own_words = [row[place - 1] if 0 < place <= len(row) else "" for row, _ in rows]
        if not all(re.fullmatch(r"0|[1-9]\d*|[A-Za-z_][\w-]*|", word) for word in own_words):
            return _none(options)  # 1.0 and 01 are equal to 1
        lines = [row[1] for row, word in zip(rows, own_words, strict=True) if word == wanted]
    elif found[2]:
        number = _awk_number(found[2], own, options)
        lines = lines[number - 1 : number] if number > 0 else []
    if not found[3]:
        return lines
    printed = []
    for line in lines:
        row = line.split(of) if of else line.split()
        words = []
        for part in found[3].split(","):
            column = re.fullmatch(r"\$(\d+|\w+|\([\w+ -]+\)|NF)", part.strip())
            if column is None:
                return _none(options)
            text = column[1].strip("()")
            place = len(row) if text == "NF" else _awk_number(text, own, options)
            words.append(line if not place else row[place - 1] if place <= len(row) else "")
        printed.append(" ".join(words))
    return printed


def _awk_number(text: str, own: dict[str, str], options: list[str]) -> int:
    found = re.fullmatch(r"(\w+)\s*(?:([+-])\s*(\d+))?", text.strip())
    value = own.get(found[1], found[1]) if found else ""
    if found is None or not value.isdecimal():
        _none(options)
    assert found is not None
    more = int(found[3] or 0)
    return int(value) + (more if found[2] == "+" else -more)
