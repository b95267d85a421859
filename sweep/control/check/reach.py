"""Whether what a study varies reaches its training: each parameter, each fixed value, the seed.

A parameter that the command does not name is sampled, stored and ranked, and changes nothing. The
training may read it from $SWEEP_CONFIG all the same, so this warns and refuses nothing; where the
script can be looked into and speaks of the variable, nothing is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from sweep.control.check.lines import WARNING, Line
from sweep.core.placeholders import CONFIG_JSON, SPREAD, TOGETHER, names
from sweep.core.study import Study

_READS_CONFIG = re.compile(r"\bSWEEP_CONFIG\b")
_READS_SEED = re.compile(r"\bSWEEP_(?:SEED|CONFIG)\b|\bReporter\b.*\.seed\b", re.DOTALL)
_MOST_BYTES = 1 << 20  # of a script that is looked into
_SHOWN = 5  # names in one line


def look(study: Study) -> list[Line]:
    """Return a warning for what does not reach the command, and one for the seed."""
    named = _named(study)
    lines = []
    passed = {*SPREAD, *TOGETHER} & named
    lost = [name for name in (*study.space.names(), *study.fixed) if name not in named]
    if lost and not passed and not _script_has(study, _READS_CONFIG):
        verb, it = ("reaches", "it") if len(lost) == 1 else ("reach", "them")
        wanted = _list("{" + name + "}" for name in lost)
        text = (
            f"{_list(lost)} never {verb} the command, which has neither {wanted} nor {{params}}, "
            "{overrides} or {config}"
        )
        advice = (
            f"Pass {it}, such as --{lost[0]} {{{lost[0]}}}, or read the file that $SWEEP_CONFIG "
            "names."
        )
        lines.append(Line("parameters", WARNING, text, advice))
    in_file = {"config", CONFIG_JSON} if study.config.seed else set()
    if not {"seed", *in_file} & named and not _script_has(study, _READS_SEED):
        lines.append(
            Line(
                "seed",
                WARNING,
                "the trial's seed never reaches the command, which has "
                + ("neither {seed} nor {config}" if study.config.seed else "no {seed}")
                + (
                    ": the replicates of a trial would all be the same"
                    if study.is_replicated
                    else ": a re-run cannot be the same"
                ),
                "Pass it, such as --seed {seed}, or read $SWEEP_SEED.",
            )
        )
    return lines


def _named(study: Study) -> set[str]:
    """Return the names of all placeholders in the command; an odd brace is told elsewhere."""
    return set().union(*map(names, study.command))


def _script_has(study: Study, pattern: re.Pattern[str]) -> bool:
    """Tell whether a file that the command names, as far as it can be read here, has a pattern."""
    return any(pattern.search(text) for text in scripts(study))


def scripts(study: Study) -> Iterator[str]:
    """Yield the text of each file that the command names, as far as it can be read here."""
    folder = Path(study.workdir)
    for element in study.command:
        if "\0" in element or "{" in element:
            continue
        path = folder / element
        try:
            if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                yield path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue


def _list(names: Iterable[str]) -> str:
    names = list(names)
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
