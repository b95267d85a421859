"""Keys of an objective: which metric is optimised, and where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweep.core.study import Objective
from sweep.studyfile.rules import INVALID, Entry, Text, Word, meaning
from sweep.studyfile.sections import REQUIRED, Key, Section

DIRECTIONS = Word(
    ("maximize", "minimize"),
    meaning(
        maximize="max maximise maximum up higher increase asc maximization",
        minimize="min minimise minimum down lower decrease desc minimization",
    ),
)


class _Objective(Section):
    """An objective; what ``from`` holds are fields of its own."""

    def read_values(self, at: Entry) -> Any:
        values = super().read_values(at)
        if values is not INVALID and isinstance(values["pattern"], Mapping):
            given = values["pattern"]
            values |= {"pattern": given["stdout"], "step_pattern": given.get("step")}
        return values


_A_PATTERN = Text(
    rule="must be a regular expression",
    advice='For example "val_acc=([0-9.eE+-]+)".',
    max_length=2000,
)
READING = Section(
    "objective.from",
    None,
    {
        "stdout": Key(
            _A_PATTERN,
            "Regular expression that finds the metric in a line of output; its first group is the "
            "number. Each line that matches is one more step.",
            example="val_acc=([0-9.eE+-]+)",
            aliases="regex pattern output",
            default=REQUIRED,
        ),
        "step": Key(
            _A_PATTERN,
            "Regular expression that finds the step in a line of output; its first group is a "
            "whole number. It holds for values in that line and in those that follow, and for "
            "all of a table.",
            example="Epoch ([0-9]+)",
            aliases="epoch steps iteration",
        ),
    },
)
OBJECTIVE = _Objective(
    "an objective",
    Objective,
    {
        "metric": Key(
            Text(pattern=r"\S(.*\S)?", rule="must be the name of a metric"),
            "Name of the metric to optimise, as training reports it; slashes are fine.",
            example="val_accuracy",
            aliases="name key monitor",
        ),
        "direction": Key(
            DIRECTIONS,
            "Whether more or less of the metric is better.",
            example="maximize",
            aliases="goal mode optimize optimise",
            default=REQUIRED,
        ),
        "at": Key(
            Word(("best", "last")),
            "Which of the reported steps counts: the best one or the last one.",
        ),
        "from": Key(
            READING,
            "Where the metric is read, for a script that knows nothing of sweep. Absent: training "
            "reports it.",
            example={"stdout": "val_acc=([0-9.eE+-]+)"},
            field="pattern",
        ),
    },
)
