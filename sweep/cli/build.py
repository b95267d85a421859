"""Build or pull a study's image or environment, once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from sweep.cli.common import get_runs, json_option, overrides_option, runs_option
from sweep.schedulers.choose import resolve
from sweep.studyfile import load
from sweep.training.build import ensure


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep build study.yaml\n"
    "  sweep build study.yaml --where here    on this machine: nodes may have no network\n"
    "  sweep build study.yaml --force         again: its name means another image by now"
)
@click.argument("study_file", metavar="STUDY.yaml", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Build anew what is there already.")
@click.option(
    "--where",
    type=click.Choice(["here", "job"]),
    help="On this machine, or in a job [default: environment.build].",
)
@click.option("--job", "where", flag_value="job", help="As --where job.")
@overrides_option
@json_option
@runs_option
def build(
    study_file: Path,
    force: bool,
    where: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    runs: Path | None,
) -> None:
    """Build or pull the image or environment that a study names; `sweep launch` does it as well,
    on a cluster in a job that the study's tasks wait for.

    From a registry's name, a definition (.def) or an archive of Docker's for containers, a
    requirements.txt for venv, a lock file or environment.yml for conda. It lies in
    runs/.images/, with its log, and is built once: named by the digest of its source.
    """
    study = resolve(load(study_file, overrides))
    tell = (lambda text: click.echo(text, err=True)) if not as_json else (lambda _: None)
    _, found = ensure(study, get_runs(runs), os.environ, tell, force=force, where=where)
    if as_json:
        data = (
            None
            if found is None
            else {
                "path": str(found.path),
                "digest": found.digest,
                "source": found.source,
                "built": found.built,
                "took_s": round(found.took_s, 3),
            }
        )
        click.echo(json.dumps(data))
    elif found is None:
        given = study.environment
        what = given.image or f"runtime {given.runtime}"
        click.echo(f"nothing is to be built for {what}")
    else:
        word = "built" if found.built else "is there already"
        click.echo(f"{found.path} {word}\nsha256 {found.digest}")
