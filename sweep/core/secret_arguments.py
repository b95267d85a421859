"""Secrets that stand in a user's command: what is written down holds a reference to each.

``--api-key X`` becomes ``--api-key {secret:api_key}``, and X travels as a variable of the task's
that training never sees, in the study's 0600 file of secrets. The command is filled with it where
it starts.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from sweep.core.masking import MASK, holds_password, is_secret_option, keep_secret, names_secret
from sweep.core.placeholders import names, parse
from sweep.core.study import Study

REFERENCE = "secret:"  # begins the name of its placeholder
# A variable that a line of shell sets to something other than another variable's value.
_SETS = re.compile(r"\b([A-Za-z_]\w*)=(?![\"']?\$)[\"']?[^\s\"';]")
VARIABLE = "SWEEP_SECRET_"  # begins the name of its variable


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
    commands = (study.command, *study.commands.values())
    return list(dict.fromkeys(name for words in commands for name in blank(words, "")[1]))


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
        names = [name for line in lines for name in _SETS.findall(line) if names_secret(name)]
        found += [f"{section}: {name}" for name in names]
    return found


def blank(command: Sequence[str], instead: str) -> tuple[list[str], list[str]]:
    """Return a command with another text in the place of each secret, and what these belong to."""
    words: list[str] = []
    found: list[str] = []
    for before, word in zip(("", *command), command, strict=False):
        place = _place(before, word)
        if place is None:
            words.append(word)
            continue
        words.append(f"{place[0]}{instead}")
        found.append(before if is_secret_option(before) else place[0].rstrip("=") or "a URL")
    return words, found


def _is_named(name: str) -> bool:
    return names_secret(name.rpartition(".")[2])


def _take_out(command: Sequence[str], found: dict[str, str]) -> tuple[str, ...]:
    taken: list[str] = []
    for before, word in zip(("", *command), command, strict=False):
        place = _place(before, word)
        if place is None:
            taken.append(word)
            continue
        head, value = place
        name = head.rstrip("=") or (before if is_secret_option(before) else "address")
        taken.append(f"{head}{{{REFERENCE}{_keep(name, value, found)}}}")
    return tuple(taken)


def _place(before: str, word: str) -> tuple[str, str] | None:
    """Return what stands before a secret in an argument, and the secret; None where there is none.

    Only of arguments that are nothing but text: a placeholder's value is no secret of the file's.
    """
    try:
        pieces = parse(word)
    except ValueError:
        return None
    if len(pieces) != 1 or not isinstance(pieces[0], str):
        return None
    if is_secret_option(before) and not word.startswith("-"):
        return "", pieces[0]
    name, equals, value = pieces[0].partition("=")
    if equals and value and "://" not in name and (names_secret(name) or _is_address(value)):
        head = word[: len(word) - len(word.partition("=")[2])]
        return head, value
    return ("", pieces[0]) if _is_address(pieces[0]) else None


def _is_address(text: str) -> bool:
    return "://" in text and holds_password(text)


def _keep(name: str, value: str, found: dict[str, str]) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "value"
    number, key = 1, plain
    while found.get(f"{VARIABLE}{key.upper()}", value) != value:
        number += 1
        key = f"{plain}_{number}"
    found[f"{VARIABLE}{key.upper()}"] = value
    return key
