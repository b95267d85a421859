"""Secrets that stand in a user's command: what is written down holds a reference to each.

``--api-key X`` becomes ``--api-key {secret:api_key}``, and X travels as a variable of the task's
that training never sees, in the study's 0600 file of secrets. The command is filled with it where
it starts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from sweep.core.masking import (
    MASK,
    TOKENS,
    holds_password,
    is_secret_option,
    keep_secret,
    names_secret,
)
from sweep.core.placeholders import escape, names, parse
from sweep.core.study import Study

REFERENCE = "secret:"  # begins the name of its placeholder
# A variable that a line of shell sets to something other than another variable's value.
_SETS = r"\b([A-Za-z_]\w*)=(?![\"']?\$)[\"']?[^\s\"';]"
VARIABLE = "SWEEP_SECRET_"  # begins the name of its variable
# Within a text: what names a value, and the value. An option, an assignment (also of a URL's query
# and of libpq's keywords), an entry of JSON, a header.
_NAMED = (
    r"(?i)(?:(?P<option>--[a-z][\w-]{0,60})\s+"
    r"|(?P<quoted>[\"'])?(?P<key>(?<![\w$])[a-z_][\w.-]{0,60})[\"']?\s*(?P<mark>[=:])\s*)"
    r"(?:(?:bearer|basic|token)\s+)?"
    r"(?:\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|(?!(?:bearer|basic|token)\s*$)(?P<plain>[^-$\s\"'][^\s\"';|&<>(),`]*))"
)
_ADDRESS = r"[A-Za-z][\w+.:-]*://"
_ADDRESS_WITHIN = r"(?i)(?<![a-z0-9+.-])[a-z][a-z0-9+.-]{0,30}://[^\s\"'`|<>]+"


def take_out(study: Study) -> tuple[Study, dict[str, str]]:
    """Return the study with references for the secrets in its commands, and their variables.

    A study without any comes back as it is, as does one whose secrets were taken out.
    """
    found: dict[str, str] = {}
    command = _take_out(study.command, found)
    commands = {name: _take_out(words, found) for name, words in study.commands.items()}
    if not found:
        return study, {}
    keep_secret(*found.values())
    return dataclasses.replace(study, command=command, commands=commands), found


def values_of(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets by the names of their placeholders, from the variables of a task."""
    return {
        REFERENCE + name.removeprefix(VARIABLE).lower(): value
        for name, value in environ.items()
        if name.startswith(VARIABLE)
    }


def stand_ins(study: Study) -> dict[str, str]:
    """Return variables for the secrets that a study's commands refer to, to look at them only."""
    words = [word for command in (study.command, *study.commands.values()) for word in command]
    found = {name for word in words for name in names(word) if name.startswith(REFERENCE)}
    return {VARIABLE + name.removeprefix(REFERENCE).upper(): MASK for name in found}


def names_in(study: Study) -> list[str]:
    """Return the options, or the like, whose secrets stand in the commands of a study as it was
    written: ``--api-key``, ``token``."""
    found = []
    for words in (study.command, *study.commands.values()):
        for before, word in zip(("", *words), words, strict=False):
            found += [name for name, _ in _split(before, word) if name]
    return list(dict.fromkeys(found))


def notes(study: Study) -> list[str]:
    """Return what to say of secrets in a study, in its command or elsewhere; in sentences."""
    found = []
    if options := names_in(study):
        found.append(
            f"The value of {', '.join(options)} stands in the command: while training runs, "
            "everybody on its machine can see it with ps. Sweep shows *** and keeps it in a file "
            "that only you can read; the frozen code has the study file as it is. Better have "
            "training read it from a variable that environment.env passes on."
        )
    if places := plain_places(study):
        found.append(
            f"{', '.join(places)} seems to be a secret, and is none to sweep there: it is shown, "
            "and stored in study.json, the database, configurations and the frozen code. Take it "
            "out, and have training read it from a variable that environment.env passes on: "
            "env: {NAME: null} takes the launching shell's."
        )
    return found


def plain_places(study: Study) -> list[str]:
    """Return where else than in a command something of a study is a secret by its name: fixed
    values and lines of setup (a variable of environment.env with such a value is refused)."""
    found = [f"fixed.{name}" for name, value in study.fixed.items() if value and _is_named(name)]
    for section, lines in (
        ("slurm.setup", study.slurm.setup),
        ("environment.setup", study.environment.setup),
    ):
        names = [name for line in lines for name in re.findall(_SETS, line) if names_secret(name)]
        found += [f"{section}: {name}" for name in names]
    return found


def blank(command: Sequence[str], instead: str) -> tuple[list[str], list[str]]:
    """Return a command with another text in the place of each secret, and what these belong to."""
    words: list[str] = []
    found: list[str] = []
    for before, word in zip(("", *command), command, strict=False):
        parts = _split(before, word)
        words.append("".join(instead if name else text for name, text in parts))
        found += [name for name, _ in parts if name]
    return words, found


def _is_named(name: str) -> bool:
    return names_secret(name.rpartition(".")[2])


def _take_out(command: Sequence[str], found: dict[str, str]) -> tuple[str, ...]:
    taken: list[str] = []
    for before, word in zip(("", *command), command, strict=False):
        parts = _split(before, word)
        taken.append(
            "".join(
                f"{{{REFERENCE}{_keep(name, text, found)}}}" if name else text
                for name, text in parts
            )
        )
    return tuple(taken)


def _split(before: str, word: str) -> list[tuple[str, str]]:
    """Return the parts of an argument, each (name, secret) or ("", text as the argument has it).

    A placeholder's value is no secret of the file's.
    """
    try:
        pieces = parse(word)
    except ValueError:
        return [("", word)]
    own = is_secret_option(before) and not word.startswith("-")
    if len(pieces) == 1 and isinstance(pieces[0], str) and not own:
        text = pieces[0]
        name, equals, value = text.partition("=")
        is_name = equals and value and not re.search(r"[\s?&;:\"'/]", name)
        if is_name and (names_secret(name) or _is_address(value)):
            return [("", word[: len(word) - len(word.partition("=")[2])]), (name, value)]
        if _is_address(text):
            return [("a URL", text)]
    parts: list[tuple[str, str]] = []
    for piece in pieces:
        if not isinstance(piece, str):
            parts.append(("", f"{{{piece.name}}}"))
        elif own:
            parts.append((before, piece))
        else:
            parts += _split_text(piece)
    return parts if any(name for name, _ in parts) else [("", word)]


def _split_text(text: str) -> list[tuple[str, str]]:
    """Return the parts of a text in which secrets may stand anywhere, a shell's line say."""
    spans = {
        found.span(): "a URL" for found in re.finditer(_ADDRESS_WITHIN, text) if _is_open(found[0])
    }
    spans |= {found.span(): "a token" for found in TOKENS.finditer(text)}
    named, at = re.compile(_NAMED), 0
    while found := named.search(text, at):
        name = found["option"] or found["key"]
        value = next(kind for kind in ("double", "single", "plain") if found[kind])
        if _names_its_value(found) and not found[value].startswith("$"):
            spans[found.span(value)] = name
            at = found.end()
        else:
            at = found.end("option" if found["option"] else "key")
    parts, end = [], 0
    for (start, stop), name in sorted(spans.items()):
        if start >= end:
            parts += [("", escape(text[end:start])), (name, text[start:stop])]
            end = stop
    return [part for part in (*parts, ("", escape(text[end:]))) if part[1]]


def _names_its_value(found: re.Match[str]) -> bool:
    name = found["option"] or found["key"]
    if name.lower() == "authorization":
        return found["mark"] is not None
    is_header = found["mark"] == ":" and not found["quoted"]
    return names_secret(name) and (not is_header or "-" in name)  # "key: 3" is none


def _is_address(text: str) -> bool:
    return bool(re.match(_ADDRESS, text)) and holds_password(text)


def _is_open(address: str) -> bool:
    """Tell whether an address within a text has a password in it, or a token for its user."""
    is_token = re.match(r"(?i)https?://[^/?#@:]+@", address)
    return bool(is_token or re.search(r"://[^/?@]*:.*@", address))


def _keep(name: str, value: str, found: dict[str, str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "value"
    number, key = 1, plain
    while found.get(f"{VARIABLE}{key.upper()}", value) != value:
        number += 1
        key = f"{plain}_{number}"
    found[f"{VARIABLE}{key.upper()}"] = value
    return key
