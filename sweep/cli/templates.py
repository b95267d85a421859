"""List the templates in force; copy one out to change it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sweep.cli import suggest
from sweep.cli.common import json_option
from sweep.core import templates as template
from sweep.core.errors import InputError


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep templates\n"
    "  sweep templates --copy task.sh.j2            to templates/ here, for the studies here\n"
    "  sweep templates --copy task.sh.j2 --user     for all your studies"
)
@click.argument("folder", default=".", type=click.Path(file_okay=True, path_type=Path))
@click.option(
    "--copy",
    "name",
    metavar="NAME",
    shell_complete=suggest.words(template.names),
    help="Copy the one in force out.",
)
@click.option("--user", "to_user", is_flag=True, help="Copy it into your own folder.")
@click.option("--force", is_flag=True, help="Replace a copy that is there.")
@json_option
def templates(folder: Path, name: str | None, to_user: bool, force: bool, as_json: bool) -> None:
    """List which file each template is, for the studies of FOLDER (or of a study file's folder).

    The first that has the name wins: templates/ in the study's folder, your own
    (~/.config/sweep/templates), the site's (/etc/sweep/templates), sweep's.
    """
    beside = (folder.parent if folder.is_file() else folder).absolute()
    if name:
        click.echo(f"wrote {template.copy_out(name, beside, to_user=to_user, force=force)}")
        return
    if to_user or force:
        raise InputError("--user and --force go with --copy.", "Say what to copy: --copy NAME.")
    found = [template.find(one, beside) for one in template.names()]
    if as_json:
        click.echo(
            json.dumps(
                [
                    {
                        "name": one.name,
                        "path": str(one.path),
                        "whose": one.whose,
                        "hides": [str(path) for path in one.hidden],
                    }
                    for one in found
                ],
                indent=1,
            )
        )
        return
    width = max(len(one.name) for one in found)
    for one in found:
        click.echo(f"{one.name:<{width}}  {one.whose:<5}  {one.path}")
        for path in one.hidden:
            click.echo(f"{'':<{width}}  hides  {path}")
