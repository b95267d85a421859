"""A call of OmniOpt2 in a script of bash: ``omniopt … --parameter lr range 0 1 float``."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep.core.placeholders import EDIT, escape
from sweep.core.shell_text import split_words
from sweep.studyfile.starter.draft import HINTS, Draft, make_name
from sweep.studyfile.starter.sbatch_text import straighten
from sweep.studyfile.starter.sbatch_words import read_shell_word

_CALL = re.compile(r"^[ \t]*(?:\S*/)?omniopt\s+([^\n]*--parameter\b[^\n]*)$", re.MULTILINE)
_ENCODED = re.compile(
    r"\$\(\s*(?:echo|printf)\s+(?:-n\s+)?(\"(?:\\.|[^\"\\])*\"|'[^']*')\s*\|\s*base64[^)]*\)"
)
_NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+))"
_SAMPLERS = {"BOTORCH_MODULAR": "gp", "SOBOL": "qmc", "UNIFORM": "random", "TPE": "tpe"}
# What shows, logs or tunes OmniOpt itself.
_UNUSED = {
    *("follow", "show-sixel-graphics", "send-anonymized-usage-stats", "num-random-steps"),
    *("live-share", "main-process-gb", "run-mode", "experiment-name", "nodes-per-job"),
}


def is_omniopt(text: str) -> bool:
    """Tell whether a script calls OmniOpt with parameters."""
    return _CALL.search(straighten(text)) is not None


def convert_omniopt(text: str, path: Path, lost: list[str]) -> Draft:
    """Return the study of a script's call of OmniOpt; what is lost is said in ``lost``."""
    program = ""

    def keep(found: re.Match[str]) -> str:
        nonlocal program
        program = " ".join(split_words(found[1]))
        return "ENCODED"

    found = _CALL.search(straighten(text))
    assert found is not None
    try:
        words = split_words(_ENCODED.sub(keep, found[1]))
    except ValueError:
        words = found[1].split()
    options, parameters = _read(words)
    given = options.pop("run-program", "")
    draft = Draft(
        f"Made from the call of OmniOpt in {path.name}.",
        make_name(options.get("experiment-name") or path.stem),
        [],
        hints=list(HINTS),
        more={"trials": 50, "seed": 0, "sampler": "auto"},
    )
    for one in parameters:
        _add_parameter(draft, one, lost)
    draft.command = _command(program or _decode(given), draft, lost)
    _add_objectives(draft, options.pop("result-names", "RESULT=min"))
    _add_options(draft, options, lost)
    return draft


def _read(words: list[str]) -> tuple[dict[str, str], list[list[str]]]:
    """Return the options, with dashes in their names, and what follows each ``--parameter``."""
    options: dict[str, str] = {}
    parameters: list[list[str]] = []
    for place, word in enumerate(words):
        if not word.startswith("--"):
            continue
        following = words[place + 1 :]
        end = next((i for i, one in enumerate(following) if one.startswith("--")), len(following))
        name, equals, value = word.lstrip("-").partition("=")
        if name == "parameter":
            parameters.append(following[:end])
        else:
            options[name.replace("_", "-")] = value if equals else " ".join(following[:end])
    return options, parameters


def _add_parameter(draft: Draft, words: list[str], lost: list[str]) -> None:
    name, kind, *rest = [*words, "", ""]
    values = [one for one in rest if one]
    try:
        if kind == "range":
            number: Callable[[Any], Any] = int if "int" in values[2:3] else float
            found = {"type": number.__name__, "low": number(values[0]), "high": number(values[1])}
            draft.space[name] = found | ({"log": True} if "true" in values[3:4] else {})
        elif kind == "choice":
            choices = [read_shell_word(one) for one in values[0].split(",")]
            draft.space[name] = {"type": "categorical", "choices": list(dict.fromkeys(choices))}
        elif kind == "fixed":
            draft.fixed[name] = read_shell_word(values[0])
        else:
            raise ValueError(kind)
    except (ValueError, IndexError):
        lost.append(f"--parameter {' '.join(words)}: is not known; name it under space")


def _decode(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError, UnicodeDecodeError):
        return ""


def _command(program: str, draft: Draft, lost: list[str]) -> list[str]:
    known = draft.space.keys() | draft.fixed.keys()
    text = re.sub(
        r"%\(?(\w+)\)?|\$(\w+)",
        lambda found: (
            f"\1{found[1] or found[2]}\2" if (found[1] or found[2]) in known else found[0]
        ),
        program,
    )
    try:
        words = split_words(text)
    except ValueError:
        words = []
    if not words:
        lost.append(f"--run_program: is not known here; replace {EDIT} in the command")
        return [EDIT, "{params}"]
    if any(word in ("|", "&&", ";", ">") for word in words):
        lost.append("--run_program: is run without a shell here; put it into a script")
    return [escape(word).replace("\1", "{").replace("\2", "}") for word in words]


def _add_objectives(draft: Draft, names: str) -> None:
    for one in names.replace(",", " ").split():
        name, _, direction = one.partition("=")
        metric = name if len(names.split()) > 1 or name != "RESULT" else "result"
        draft.objectives.append(
            {
                "metric": metric,
                "direction": "maximize" if direction == "max" else "minimize",
                "from": {"stdout": rf"{re.escape(name)}:\s*{_NUMBER}"},
            }
        )


def _add_options(draft: Draft, options: dict[str, str], lost: list[str]) -> None:
    resources: dict[str, Any] = {}
    slurm: dict[str, Any] = {}
    for name, value in options.items():
        number = int(value) if value.isdecimal() else 0
        if name == "max-eval" and number:
            draft.more["trials"] = number
        elif name == "num-parallel-jobs" and number:
            draft.more["max_parallel"] = number
        elif name == "worker-timeout" and number:
            resources["time"] = f"{number}min"
        elif name == "time" and number:
            draft.more["time"] = f"{number}min"
        elif name == "mem-gb" and number:
            resources["memory"] = f"{number}G"
        elif name in ("gpus", "cpus-per-task") and value.isdecimal():
            resources["gpus" if name == "gpus" else "cpus"] = number
        elif name in ("partition", "account", "reservation"):
            slurm[name] = value
        elif name == "seed" and value.isdecimal():
            draft.more["seed"] = number
        elif name == "model" and value.upper() in _SAMPLERS:
            draft.more["sampler"] = _SAMPLERS[value.upper()]
        elif name not in _UNUSED:
            shown = f"--{name.replace('-', '_')}" + (f"={value}" if value else "")
            lost.append(f"{shown}: has no counterpart here")
    draft.more |= {"resources": resources} if resources else {}
    draft.more |= {"slurm": slurm} if slurm else {}
