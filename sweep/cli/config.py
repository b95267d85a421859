"""Show each value of a study, and where it came from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from sweep.cli import suggest
from sweep.cli.common import get_runs, json_option, overrides_option, runs_option
from sweep.core.errors import InputError
from sweep.core.json_text import text_of
from sweep.core.masking import mask_url
from sweep.core.paths import RUNS_VARIABLE
from sweep.core.settings import homes
from sweep.core.study import Study
from sweep.storage.access import STORAGE_VARIABLE
from sweep.studyfile.origins import Origin, origins


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep config                   what the site's and your defaults hold\n"
    "  sweep config study.yaml        each value with its file and line\n"
    "  sweep config study.yaml --set slurm.partition=gpu --json"
)
@click.argument("study", required=False, shell_complete=suggest.studies)
@overrides_option
@json_option
@runs_option
def config(study: str | None, overrides: tuple[str, ...], as_json: bool, runs: Path | None) -> None:
    """Show each value of a study, and the file and line, option or default that it came from.

    STUDY is a study file, or the name of a launched study. Beneath the study file lie your
    defaults (~/.config/sweep/config.yaml), and beneath those the site's (/etc/sweep/site.yaml): the
    upper one wins, key by key. Without STUDY the defaults alone are shown.
    """
    if overrides and study is None:
        raise InputError("--set goes with a study file.", "Give its path: sweep config STUDY.yaml.")
    where = get_runs(runs)
    path = None if study is None else _study_file(study, where)
    found = origins(path, overrides, os.environ)
    url = os.environ.get(STORAGE_VARIABLE)
    if url:  # it wins over the file
        found = [one for one in found if not one.path.startswith("storage")]
        found.append(Origin("storage", mask_url(url), f"${STORAGE_VARIABLE}"))
    by_variable = f"${RUNS_VARIABLE}" if os.environ.get(RUNS_VARIABLE) else "default"
    found.append(Origin("(runs)", str(where.root), "--runs" if runs else by_variable))
    files = {home.whose: home.file for home in homes()}
    if as_json:
        click.echo(
            json.dumps(
                {
                    "files": {whose: str(file) for whose, file in files.items() if file.is_file()},
                    "values": [
                        {"path": one.path, "value": one.value, "from": one.origin} for one in found
                    ],
                },
                indent=1,
                ensure_ascii=False,
            )
        )
        return
    for whose, file in files.items():
        click.echo(f"{whose} defaults: {file}{'' if file.is_file() else ' (not there)'}")
    rows = [(one.path, text_of(one.value), one.origin) for one in found]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, origin in rows:
        click.echo(f"{name:<{widths[0]}}  {value:<{min(widths[1], 50)}}  {origin}")


def _study_file(study: str, runs: Any) -> Path:
    """Return a study file by its path, or by the name of a study that was launched from it."""
    if Path(study).exists() or study.endswith((".yaml", ".yml")):
        return Path(study)
    folder = runs.study(study)
    if not folder.study.is_file():
        raise InputError(
            f"{study} is no file, and no study in {runs.root}.", "Give the path of a study file."
        )
    return Path(Study.read(folder.study).source)
