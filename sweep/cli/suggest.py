"""What a shell offers where TAB is pressed: names, trials, words.

Read from the runs folder alone: no database is opened and no scheduler asked, so that it is quick
and answers where they are away. What cannot be read ends in no word (``sweep.cli.run_command``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from sweep.core.paths import Runs, StudyFolder, runs_folder
from sweep.results.known_words import (
    last_study,
    metric_names,
    read_study,
    study_names,
    trial_numbers,
)
from sweep.studyfile import load

Items = list[CompletionItem]
# Of a table, beside parameters and metrics.
COLUMNS = ("rank", "trial", "state", "value", "mean", "seed", "attempts", "duration_s", "gpu_hours")
Complete = Callable[[click.Context, click.Parameter, str], Items]


def studies(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer the studies of the runs folder; files where what was typed begins none of them."""
    found = _begin(study_names(_runs(ctx)), begun)
    return found or ([CompletionItem(begun, type="file")] if begun else [])


def trials(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer the trials of the study that the call names which have started."""
    return _begin(trial_numbers(_folder(ctx)), begun)


def trial_list(words: Iterable[str] = ()) -> Complete:
    """Offer trials, and words beside them, in a list with commas."""

    def offer(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
        return _in_list([*words, *trial_numbers(_folder(ctx))], begun)

    return offer


def study_and_trial(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer what ``[STUDY] TRIAL`` may be: a study's trials behind its name."""
    runs = _runs(ctx)
    given = _texts(ctx.params.get("study_and_trial"))
    if given:
        return _begin(trial_numbers(runs.study(given[0])) if len(given) == 1 else [], begun)
    return _begin([*trial_numbers(_folder(ctx)), *study_names(runs)], begun)


def sides(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer what can be compared: trials of the study last launched, and studies."""
    return _begin([*study_names(_runs(ctx)), *trial_numbers(_folder(ctx))], begun)


def study_commands(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer the further commands of the study."""
    study = read_study(_folder(ctx))
    return _begin(study.commands if study else (), begun)


def metrics(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer the metrics that the study's trials have reported."""
    return _begin(metric_names(_folder(ctx)), begun)


def columns(ctx: click.Context, _: click.Parameter, begun: str) -> Items:
    """Offer the columns of a study's table, in a list with commas."""
    folder = _folder(ctx)
    study = read_study(folder)
    names = [*COLUMNS, *(study.space.names() if study else ()), *metric_names(folder)]
    return _in_list(dict.fromkeys(names), begun)


def words(known: Callable[[], Iterable[str]]) -> Complete:
    """Offer words that are the same for every study."""
    return lambda ctx, param, begun: _begin(known(), begun)


def _begin(offered: Iterable[str], begun: str) -> Items:
    return [CompletionItem(word) for word in offered if word.startswith(begun)]


def _in_list(offered: Iterable[str], begun: str) -> Items:
    before, comma, last = begun.rpartition(",")
    given = before.split(",")
    left = (word for word in offered if word not in given)
    return [CompletionItem(f"{before}{comma}{item.value}") for item in _begin(left, last)]


def _runs(ctx: click.Context) -> Runs:
    return Runs(runs_folder(ctx.params.get("runs")))


def _folder(ctx: click.Context) -> StudyFolder:
    """Return the folder of the study that the call names: by its name, or by its file."""
    runs = _runs(ctx)
    name = _given(ctx, "study")
    file = _given(ctx, "study_file") or (name if str(name).endswith((".yaml", ".yml")) else None)
    if file is not None and os.path.isfile(file):
        name = load(Path(file)).name
    return runs.study(name or last_study(runs))


def _given(ctx: click.Context, argument: str) -> str | None:
    """Return an argument's value. Behind an option that still lacks its own, click has not come to
    the arguments: they are left over, in their order."""
    arguments = [one.name for one in ctx.command.params if isinstance(one, click.Argument)]
    left = dict(zip(arguments, ctx.args, strict=False))
    value = ctx.params.get(argument) or left.get(argument)
    return None if value is None else str(value)


def _texts(value: object) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else []
