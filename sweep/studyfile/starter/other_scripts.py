"""Scripts that are no Python modules: notebooks, bash, R; what each can be given, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.flags import Flag
from sweep.studyfile.starter.guesses import find_place, guess_parameter, is_effort
from sweep.studyfile.starter.metrics import Metric


@dataclass(frozen=True)
class Argument:
    """One value that a script takes.

    Attributes:
        flag: Its name, type and default; ``required`` where the script does not run without it.
        words: How it is given, "{}" standing for the value: ("-l", "{}"), ("--lr={}",), ("{}",).
        is_variable: Whether the words stand before the command, as ``env`` takes them.
        is_counted: Whether it is known by its place, so that those before it must be given too.
    """

    flag: Flag
    words: tuple[str, ...]
    is_variable: bool = False
    is_counted: bool = False


@dataclass(frozen=True)
class OtherScript:
    """A script that some other program runs.

    Attributes:
        start: The command, up to what the script is given.
        arguments: What it takes, in its order.
        text: Its code.
        metrics: What it reports or prints, the likeliest objective first.
        values_file: Words that pass all of space and fixed by the file ``{config}``; where there
            are none, each value is given by its argument's words.
        end: Words at the command's end.
        inner: The Python script to which it passes on all of its arguments.
        remarks: Sentences for the reader.
    """

    start: list[str]
    arguments: list[Argument]
    text: str
    metrics: list[Metric]
    values_file: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    inner: Path | None = None
    remarks: list[str] = field(default_factory=list)


def add_arguments(draft: Draft, script: OtherScript, looked_for: str) -> None:
    """Sort what a script takes into space, fixed, places and what stays as it is.

    Args:
        draft: Its command is the script's start; it gets the rest.
        looked_for: Ways to take values that were looked for, for the reader where none was found.
    """
    before: list[str] = []
    after: list[str] = []
    own: list[str] = []
    missing: list[str] = []
    gives_seed = reads_seed(script.text)
    last = max((i for i, one in enumerate(script.arguments) if _is_given(one)), default=-1)
    for number, one in enumerate(script.arguments):
        flag, guessed = one.flag, guess_parameter(one.flag)
        place = find_place(flag, "")
        target = before if one.is_variable else after
        passes = not script.values_file
        if guessed:
            draft.space[flag.name] = guessed
            if flag.default is not None:
                draft.notes[f"space.{flag.name}"] = f"the script's default is {flag.default}"
            value = f"{{{flag.name}}}"
        elif is_effort(flag) and flag.default is not None:
            draft.fixed[flag.name] = flag.default
            value = f"{{{flag.name}}}"
        elif place and flag.type not in ("switch", "list"):
            value, passes = place, True
            gives_seed = gives_seed or place == "{seed}"
        elif flag.required:
            missing.append(flag.name)
            value, passes = EDIT, True
        elif one.is_counted and number < last:
            value = escape(str(flag.default))
        else:
            own.append(flag.name)
            continue
        if passes:
            target += [word.replace("{}", value) for word in one.words]
    if before:
        draft.command[:0] = ["env", *before]
    draft.command += after
    if script.values_file and (draft.space or draft.fixed):
        draft.command += script.values_file
    draft.command += script.end
    _say(draft, missing, own, looked_for)
    if not gives_seed:
        draft.remarks.append(NO_SEED)


def _is_given(one: Argument) -> bool:
    """Tell whether a study has to pass this value."""
    is_effort_known = is_effort(one.flag) and one.flag.default is not None
    place = find_place(one.flag, "")
    return bool(one.flag.required or guess_parameter(one.flag) or is_effort_known or place)


def _say(draft: Draft, missing: Sequence[str], own: Sequence[str], looked_for: str) -> None:
    if missing:
        draft.remarks.append(
            f"Replace {EDIT} in the command: the script needs {', '.join(missing)}."
        )
    if own:
        draft.remarks.append(f"Left as the script has them: {', '.join(own)}.")
    if not draft.space:
        draft.notes["space"] = (
            "Nothing to vary was found. Add parameters here, such as lr: {type: float, low: 1e-4, "
            "high: 0.1, log: true}, and give them to the script in the command, as {lr}."
        )
        draft.remarks.append(
            f"Nothing to vary was found in the script: see space. Looked for: {looked_for}."
        )


NO_SEED = (
    "No flag for the seed was found: without it a re-run cannot be the same. Read $SWEEP_SEED in "
    "the script, or pass {seed} in the command."
)


def reads_seed(text: str) -> bool:
    """Tell whether a script's code takes the trial's seed by itself."""
    by_reporter = "sweep.report" in text and re.search(r"\.seed\b", text) is not None
    return "SWEEP_SEED" in text or by_reporter


def read_value(text: str) -> int | float | str:
    """Return a default as it stands in a script: a number, or text without its quotes."""
    text = text.strip().strip("\"'")
    for kind in (int, float):
        try:
            return kind(re.sub(r"(?<=\d)L$", "", text))  # 6L is a whole number in R
        except ValueError:
            continue
    return text


def make_flag(name: str, default: str | None, *, required: bool = False) -> Flag:
    """Return a value that is known by its name, and by a default as the script has it."""
    if default is None:
        return Flag(name, required=required)
    value = read_value(default)
    kind = "switch" if default.strip().lower() in ("true", "false") else type(value).__name__
    return Flag(name, kind, value, required=required)
