"""What a try of a study's first point means for its trials, line by line."""

from __future__ import annotations

import math
import re
import shlex

from sweep.control.check import FAILED, NOT_ASKED, OK, WARNING, Line, patterns, reach
from sweep.control.check.lines import size
from sweep.core import pareto, placeholders
from sweep.core.errors import closest
from sweep.core.outcomes import FINISHED, INTERRUPTED
from sweep.core.study import Constraint, Objective, Study
from sweep.core.trial import summarise
from sweep.results.terminal import shown
from sweep.tasks.side_runs.tried import Tried, TriedMetric
from sweep.training.near_lines import reading_advice
from sweep.training.printed_metric import why_missed

_READS_RESUME = re.compile(r"\bSWEEP_RESUME\b|\bReporter\b.*\.resume\b", re.DOTALL)
_SHOWN = 5
_WIDTH = 120  # of a line of output


def judge(study: Study, tried: Tried) -> list[Line]:
    """Return line by line what was seen, and what is to be done about it."""
    lines = [_command(tried), *_values(tried), _training(tried)]
    for objective in study.objectives:
        lines += _metric(objective, tried)
    lines += [_constraint(bound, tried) for bound in study.constraints]
    lines.append(_others(study, tried))
    lines.append(_resume(study, tried))
    told = [why_missed(o.metric, o.pattern, tried.notes) for o in study.objectives if o.pattern]
    for note in tried.notes:
        if not any(why and why in note for why in told):
            lines.append(Line("output", WARNING, note, "Correct the study file or the script."))
    lines += [*reach.look(study), *patterns.look(study)]
    if tried.beside_code and not study.own_workdir:
        lines.append(_beside_code(tried))
    return lines


def _command(tried: Tried) -> Line:
    text = shlex.join(tried.command)
    if list(tried.argv) != list(tried.command):
        text += f"\nstarted as: {shlex.join(tried.argv)}"
    return Line("command", OK, text)


def _values(tried: Tried) -> list[Line]:
    values = [f"{name}={shown(value)}" for name, value in tried.params.items()]
    return [Line("values", OK, ", ".join([*values, f"seed {tried.seed}"]))]


def _training(tried: Tried) -> Line:
    took = f"{tried.took_s:g} s"
    if tried.is_limited:
        said = f"ended after {took}: the limit of a try is {tried.limit_s} s from its start"
        return Line("training", OK, said)
    if tried.outcome == FINISHED:
        return Line("training", OK, f"ran to its end in {took}")
    reason = tried.reason or tried.outcome
    if tried.outcome == INTERRUPTED:
        return Line("training", WARNING, f"{reason} after {took}", "Try again.")
    advice = "What it printed last stands below." if tried.tail else "It printed nothing."
    if "ModuleNotFoundError" in reason and tried.program:
        advice = (
            f"{tried.command[0]} is {tried.program}: activate the environment that has it before "
            "you call sweep, or name it in the study file, environment: {runtime: venv, image: "
            "FOLDER}."
        )
    return Line("training", FAILED, f"{reason} (after {took})", advice)


def _metric(objective: Objective, tried: Tried) -> list[Line]:
    name = objective.metric
    series = tried.series.get(name)
    if series is None:
        if tried.has_failed:
            return [Line("metric", NOT_ASKED, f"{name}: training failed before it came")]
        return [_missing(objective, tried)]
    count, last = len(series.points), series.points[-1]
    value = summarise(series.points, objective.at, objective.direction)
    text = f"{name}: {count} value{'s' if count > 1 else ''}; a trial would count {shown(value)} "
    text += f"({objective.direction}, {objective.at})"
    if series.lines:
        shown_lines = "".join(f"\n  {_cut(line)}" for line in series.lines)
        text += f"\nread by the pattern {objective.pattern} from{shown_lines}"
    else:
        text += "\nas training reports it"
    first = series.points[0]
    steps = f"step {first[0]} is {shown(first[1])}" + (
        f", step {last[0]} is {shown(last[1])}" if count > 1 else ""
    )
    lines = [Line("metric", OK, text)]
    if not all(math.isfinite(value) for _, value in series.points):
        advice = "A trial whose metric is not finite counts as diverged. Look for its cause."
        lines = [Line("metric", WARNING, text + "\nsome of it is not finite", advice)]
    return [*lines, Line("steps", OK, f"{name}: {steps}; {_how_counted(objective, series)}")]


def _how_counted(objective: Objective, series: TriedMetric) -> str:
    if not series.lines:
        return "as training reports them"
    if objective.step_pattern:
        return f"read by the pattern {objective.step_pattern}"
    return "each match counts as one more, from 0"


def _missing(objective: Objective, tried: Tried) -> Line:
    name = objective.metric
    within = f" within {tried.limit_s} s" if tried.is_limited else ""
    longer = f" Or look longer: --time {tried.limit_s * 5}." if tried.is_limited else ""
    if objective.pattern:
        why = why_missed(name, objective.pattern, tried.notes) or "no line came near"
        text = f"no line of output matches {objective.pattern!r}{within}: {why}"
        if name in tried.series:
            text += f"; {name} was reported as well"
        advice = "Correct objective.from, or let the script print such a line."
        return Line("metric", FAILED, f"{name}: {text}", advice + longer)
    if not tried.series:
        text = f"{name}: nothing was reported{within}"
        printed = reading_advice(name, tried.tail)
        advice = f"{printed}. " if printed else ""
        advice += (
            "Report it: from sweep.report import Reporter; Reporter().log(step=epoch, "
            f"{_argument(name)}). Or have it read from the output: objective.from."
        )
        return Line("metric", FAILED, text, advice + longer)
    names = list(tried.series)
    near = closest(name, names)
    text = f"{name}: not reported{within}; reported were {', '.join(names[:_SHOWN])}"
    meant = f"Did you mean {near}? " if near else ""
    return Line("metric", FAILED, text, f"{meant}Name one of them as objective.metric.{longer}")


def _argument(name: str) -> str:
    return f"{name}=value" if name.isidentifier() else "**{" + repr(name) + ": value}"


def _constraint(bound: Constraint, tried: Tried) -> Line:
    name = bound.metric
    series = tried.series.get(name)
    if series is not None:
        last = series.points[-1][1]
        broken = max(pareto.violations([bound], {name: last})) > 0
        keeps = "breaks" if broken else "keeps to"
        return Line("constraint", OK, f"{name}: {shown(last)}, which {keeps} {bound.limits}")
    if tried.has_failed:
        return Line("constraint", NOT_ASKED, f"{name}: training failed before it came")
    reported = f"; reported were {', '.join(list(tried.series)[:_SHOWN])}" if tried.series else ""
    near = closest(name, list(tried.series))
    advice = f"Did you mean {near}? " if near else ""
    advice += (
        f"Report it, Reporter().log(step=epoch, {_argument(name)}) or a line in $SWEEP_METRICS: a "
        "trial that never does has failed."
    )
    if tried.is_limited:  # it may come at the end
        within = f" within {tried.limit_s} s"
        return Line("constraint", WARNING, f"{name}: not reported{within}{reported}", advice)
    return Line("constraint", FAILED, f"{name}: not reported{reported}", advice)


def _others(study: Study, tried: Tried) -> Line:
    own = {objective.metric for objective in study.objectives}
    own |= {bound.metric for bound in study.constraints}
    others = [
        f"{name} ({len(series.points)})" for name, series in tried.series.items() if name not in own
    ]
    return Line("also", OK, ", ".join(others) if others else "no other metric")


def _resume(study: Study, tried: Tried) -> Line:
    named = any("resume" in placeholders.names(word) for word in study.command)
    reads = any(_READS_RESUME.search(text) for text in reach.scripts(study))
    if tried.saved is None and tried.has_failed:
        return Line("resume", NOT_ASKED, "training failed before it saved a checkpoint")
    if tried.saved is None:
        if tried.elsewhere:
            return Line(
                "resume",
                WARNING,
                f"no checkpoint in {{checkpoint_dir}}, but one beside it, {tried.elsewhere}: an "
                "interrupted trial would begin anew",
                "Pass {checkpoint_dir} to what names its folder.",
            )
        text = "no checkpoint was saved: an interrupted trial would begin anew"
        advice = "Save into {checkpoint_dir} ($SWEEP_CHECKPOINT_DIR), and take {resume}."
        return Line("resume", WARNING, text, advice)
    text = f"{tried.saved.path} ({size(tried.saved.bytes)}) would be handed to the next attempt"
    if named:
        return Line("resume", OK, f"{text}:\n{shlex.join(tried.saved.command)}")
    if study.resume == "folder":
        return Line("resume", OK, f"{text}, copied into its {{checkpoint_dir}}")
    if reads:
        return Line("resume", OK, f"{text} as $SWEEP_RESUME, which the script reads")
    advice = "Pass {resume}, such as --resume {resume}; or let the script read $SWEEP_RESUME."
    return Line("resume", WARNING, f"{text}, but nothing in the command takes it", advice)


def _beside_code(tried: Tried) -> Line:
    files, rest = tried.beside_code[:_SHOWN], len(tried.beside_code) - _SHOWN
    more = f" and {rest} more" if rest > 0 else ""
    return Line(
        "files",
        WARNING,
        f"written into the folder of the code, which all trials share: {', '.join(files)}{more}",
        "Pass {trial_dir} to what names their folder, or write workdir: trial.",
    )


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"
