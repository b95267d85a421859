"""What a line of bash sets: ``A=1``, ``export A=$B``, ``A=(1 2)``, ``A+=(3)``, ``A[4]=5``."""

from __future__ import annotations

import re
from pathlib import Path

from sweep.studyfile.starter.bash_state import BashState, NotKnown
from sweep.studyfile.starter.bash_words import element_key, expand_text, expand_words, raw_words

SETTING = re.compile(
    r"(?P<before>(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?"
    r"(?P<name>[A-Za-z_]\w*)(?:\[(?P<index>[^\]]*)\])?(?P<sign>\+?=)(?P<value>.*)",
    re.S,
)


def set_line(line: str, variables: BashState) -> bool:
    """Set what a line sets; return whether it does nothing else."""
    words = raw_words(line)
    if words and re.match(r"declare|typeset|local", words[0]) and "-A" in words:
        variables.keyed |= {word.partition("=")[0] for word in words[1:]}
    own = (
        words[1:]
        if words and re.match(r"export|local|readonly|declare|typeset", words[0])
        else words
    )
    if own is not words and any(re.match(r"-\w*[nilu]", word) for word in own):
        raise NotKnown(line)
    settings = [SETTING.fullmatch(word) for word in own if not word.startswith("-")]
    if own is words and not (settings and all(settings)):
        return False
    for one in settings:
        if one is not None:
            _assign(one, variables)
    return True


def _assign(found: re.Match[str], variables: BashState) -> None:
    name, sign, value = found["name"], found["sign"], found["value"]
    array = variables.arrays.get(name, {})
    if value.startswith("(") and value.endswith(")") and found["index"] is None:
        parts = raw_words(value[1:-1])
        keyed = [re.fullmatch(r"\[([^\]]*)\]=(.*)", part, re.S) for part in parts]
        if any(keyed) or name in variables.keyed:
            new = {}
            for one in keyed:
                if one is None:
                    raise NotKnown(value)
                new[element_key(name, one[1], variables)] = expand_text(one[2], variables)
        else:
            first = max(map(int, array), default=-1) + 1 if sign == "+=" else 0
            words = expand_words(value[1:-1], variables)
            new = {str(first + i): word for i, word in enumerate(words)}
        variables.arrays[name] = {**array, **new} if sign == "+=" else new
        variables.texts.pop(name, None)
        return
    text = expand_text(value, variables)
    if value == "~" or value.startswith("~/"):
        text = f"{Path.home()}{text[1:]}"
    if found["index"] is not None:
        key = element_key(name, found["index"], variables)
        before = array.get(key, "") if sign == "+=" else ""
        variables.arrays[name] = {**array, key: before + text}
        return
    before = (variables.get(name) or "") if sign == "+=" else ""
    variables.put(name, before + text)
