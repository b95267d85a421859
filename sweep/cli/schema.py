"""Print the JSON Schema of study files, for editors."""

from __future__ import annotations

import json

import click

from sweep.studyfile import json_schema


@click.command(
    epilog="\b\nExample:\n  sweep schema > ~/.config/sweep.schema.json\n"
    "Then, as a study file's first line:\n  # yaml-language-server: $schema=/path/to/it"
)
def schema() -> None:
    """Print the JSON Schema of study files, for editors."""
    click.echo(json.dumps(json_schema(), indent=2))
