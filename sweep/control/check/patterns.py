"""Whether a pattern for the output says which number it means, as far as the script tells.

What it matches is known only once training prints; the journal notes it then. Here is what can be
said before a trial runs.
"""

from __future__ import annotations

import re

from sweep.control.check.lines import WARNING, Line
from sweep.control.check.reach import scripts
from sweep.core.programs import LAUNCHER, read_program
from sweep.core.study import Study
from sweep.training.command import launchers

# The text with which a pattern begins: a name, and what stands between it and the number.
_LITERAL = re.compile(r"(?:\.\*)?([A-Za-z_]\w*[=: ]*)")
# A script that says so prints on one rank alone.
_ON_ONE_RANK = re.compile(
    r"is_main_process|is_(?:world|local)_process_zero|is_global_zero|rank_zero|accelerator\.print|"
    r"rank\w*(?:\(\))?\s*(?:==|!=|>|is)\s*0|process_index(?:\(\))?\s*==\s*0|"
    r"not\s+\w*rank\b",
    re.IGNORECASE,
)
_PARTS = r"train|training|val|valid|validation|eval|dev|test"


def look(study: Study) -> list[Line]:
    """Return a warning for each pattern that may read another number than it should."""
    lines = []
    for objective in study.objectives:
        if objective.pattern is None:
            continue
        pattern = objective.pattern
        if re.compile(pattern).groups > 1 and "|" not in pattern:
            lines.append(
                Line(
                    "pattern",
                    WARNING,
                    f"{objective.metric}: {pattern!r} has several groups, and the first that takes "
                    "part is the number",
                    "Write (?:…) for those that are none.",
                )
            )
        names = _names(study, pattern)
        if len(names) > 1:
            lines.append(
                Line(
                    "pattern",
                    WARNING,
                    f"{objective.metric}: {pattern!r} matches {' and '.join(map(repr, names))}, "
                    "which the script prints; on one line the first counts, else each is a step",
                    "Write the whole name.",
                )
            )
    return [*lines, *_of_several(study)]


def _of_several(study: Study) -> list[Line]:
    """Return a warning where several processes may print a metric, and nothing tells them apart."""
    program = read_program(study.command)
    if program.kind != LAUNCHER or not any(one.pattern for one in study.objectives):
        return []
    if launchers.labels_lines(study) or any(map(_ON_ONE_RANK.search, scripts(study))):
        return []
    return [
        Line(
            "pattern",
            WARNING,
            f"{program.name} starts several processes, and a line that each of them prints counts "
            "as many steps",
            "Let the first rank alone print it, or have the launcher say whose a line is: "
            "accelerate launch --tee 3, mpirun --tag-output (Open MPI) or -l (MPICH), srun -l.",
        )
    ]


def _names(study: Study, pattern: str) -> list[str]:
    """Return the longer names in the script's texts that a pattern matches as well as each other.

    None where the name stands by itself too: then that is what counts.
    """
    literal = _LITERAL.match(pattern)
    if literal is None:
        return []
    label = re.compile(
        rf"(?<![\w./-])((?:(?:{_PARTS}) )?[\w./-]*){re.escape(literal[1].rstrip())}"
        r"(?=[\s=:]*(?:\{|%|['\"]))",
        re.IGNORECASE,
    )
    found = {name for text in scripts(study) for name in label.findall(text)}
    if "" in found and not any(" " in name for name in found):
        return []
    name = literal[1].rstrip("=: ")
    return sorted(f"{before}{name}" for before in found if before)
