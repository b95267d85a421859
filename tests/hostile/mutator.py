"""Texts that editors, merges, full disks and evil minds make of good ones; the same for a seed."""

from __future__ import annotations

import re
from random import Random

# Values in place of a word: numbers that are none, too large, or digits only to some; names that
# are too long, or mean something else; lists that are larger than memory.
WORDS = [
    *(
        "null",
        "[]",
        "{}",
        "-1",
        "0",
        "-0",
        "1e400",
        ".nan",
        "NaN",
        "Infinity",
        "-inf",
        "true",
        '""',
    ),
    *("²", "٣", "1_000", "0x1F", "0o17", "1e-320", "1e5", "5e-324", "0.1.2", "--", "+1", " 1 "),
    *("9" * 30, str(2**31), str(2**63), str(2**64), "9" * 5000, "1" + "0" * 400, "-" + "9" * 4400),
    *(
        "[1-999999999]",
        "1-999999999",
        "n[1-999999999]",
        "n[1-9999][1-9999][1-9999]",
        "0-4294967294",
    ),
    *("[0-99999999999999999999]", "1,2,,3-", "[[[[", "n[1-3", "5-1", "0-9:0", "0-9:99999999999"),
    *("x" * 300, "~nosuch", "~nosuch/x", "../../etc", "/dev/null", "/proc/self/mem", ".", "/"),
    *("%s", "{x}", "{{", "}}", "${x}", "${a:${b:c}}", "$(x)", "`x`", "\\", "'", '"', "!!x y", "~"),
    *(
        "&a [*a]",
        "*a",
        "<<: *a",
        "!!python/object:os.system x",
        "? x",
        "- -",
        "|",
        ">",
        "@",
        "%YAML",
    ),
    *(
        "None",
        "()",
        "lambda: 0",
        "__import__('os')",
        "1" + "+1" * 500,
        "f'{x}'",
        "é",
        "中文",
        "\u202e",
    ),
]
MARKS = [
    *"{}[]:,#&*!|>'\"%@`\t\n -?=()\\",
    *(
        "\x00",
        "\x07",
        "\x1b[31m",
        "\r",
        "\r\n",
        "\ufeff",
        "\u2028",
        "\x85",
        "\ud800",
        "\udcff",
        "\ufffe",
    ),
    *(
        "\n\n\n\n",
        "${",
        "}}",
        ": ",
        "\n  ",
        "]" * 50,
        "[" * 200,
        '{"a":' * 200,
        "(" * 200,
        "- " * 200,
    ),
]
DEEP = [
    lambda n: "[" * n,
    lambda n: "[" * n + "]" * n,
    lambda n: '{"a":' * n + "1" + "}" * n,
    lambda n: "{a: " * n,
    lambda n: "- " * n + "x",
    lambda n: "(" * n + "1" + ")" * n,
    lambda n: "x = " + "-" * n + "1",
    lambda n: "${" * n + "}" * n,
]
BOMBS = [
    "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(
        f"{n}: &{n} [{', '.join(['*' + p] * 9)}]\n"
        for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "&a [*a, *a]",
    "a: &x {b: &y {<<: *x}}",
    "k: !!binary " + "A" * 1000,
]


def mutate(text: str, chance: Random) -> bytes:
    """Return a text with some faults, as bytes: it need be no UTF-8."""
    if chance.random() < 0.04:
        return _whole(text, chance)
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        text = _change(text, chance)
    data = text.encode("utf-8", "surrogatepass")
    kind = chance.random()
    if kind < 0.05:
        return b"\xef\xbb\xbf" + data
    if kind < 0.1:
        return data.replace(b"\n", b"\r\n")
    if kind < 0.15 and data:
        place = chance.randrange(len(data))
        return data[:place] + bytes([chance.randrange(256)]) + data[place + 1 :]
    if kind < 0.17:
        return text.encode("utf-16", "surrogatepass")
    return data


def _whole(text: str, chance: Random) -> bytes:
    """Return something else altogether, or the text many times."""
    kind = chance.randrange(7)
    if kind == 0:
        return chance.randbytes(chance.choice((0, 1, 100, 5000)))
    if kind == 1:
        return chance.choice(DEEP)(chance.choice((50, 1000, 20_000))).encode()
    if kind == 2:
        return chance.choice(BOMBS).encode()
    if kind == 3:
        return (
            text + chance.choice(["x" * 300_000, "9" * 300_000, "\n" * 20_000, "\0" * 1000])
        ).encode("utf-8", "surrogatepass")
    if kind == 4:
        return (text * 50)[:200_000].encode("utf-8", "surrogatepass")
    if kind == 5:
        return chance.choice(WORDS).encode("utf-8", "surrogatepass")
    return text.replace("\n", " ").encode("utf-8", "surrogatepass")


def _change(text: str, chance: Random) -> str:
    lines = text.split("\n")
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    place = chance.randrange(len(text) + 1)
    words = re.findall(r"[\w.$-]+", text) or ["x"]
    old, new = chance.choice(words), chance.choice([*words, *WORDS, *WORDS])
    kind = chance.randrange(9)
    if kind == 0:
        return "\n".join(lines[:at] + lines[at + 1 :])
    if kind == 1:
        return "\n".join([*lines[:at], lines[to], *lines[at:]])
    if kind <= 3:
        return text.replace(old, new, 1)
    if kind == 4:
        return text.replace(old, new)[:500_000]
    if kind <= 6:
        return text[:place] + chance.choice(MARKS) + text[place:]
    if kind == 7:
        return text[:place] + text[place + 1 :]
    return text[: max(1, place)]
