"""Write a commented study file."""

from __future__ import annotations

from pathlib import Path

import click

from sweep.cli.try_ import try_study
from sweep.core.errors import EXIT_DONE
from sweep.studyfile.starter.init import init as write_starter


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep init                       a small example that runs as it is\n"
    "  sweep init train.py              a study file for your script, from its flags\n"
    "  sweep init train.py --try        and trains its first point for a minute\n"
    "  sweep init train.ipynb           the same for a notebook, a shell script (.sh) or R (.R)\n"
    "  sweep init --from wandb.yaml     converts a W&B sweep or a Hydra configuration"
)
@click.argument("script", required=False, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    help="Convert a W&B sweep, a Hydra configuration, an Optuna script, a job array, loops of "
    "bash, or a file of NNI, Determined or seml.",
)
@click.option(
    "--dir",
    "folder",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write [default: here].",
)
@click.option("--force", is_flag=True, help="Replace a study file that is there.")
@click.option(
    "--try",
    "is_tried",
    is_flag=True,
    help="Then train its first point for a minute at most, and keep nothing of that (sweep try).",
)
def init(
    script: Path | None, source: Path | None, folder: Path, force: bool, is_tried: bool
) -> int:
    """Write a commented study file."""
    written = write_starter(folder, script, source, force=force)
    for path in written.files:
        click.echo(f"wrote {path}")
    for remark in written.remarks:
        click.echo(f"  {remark}")
    if is_tried:
        return try_study(written.files[0])
    path = written.files[0]
    click.echo(f"next: read {path}, then  sweep try {path}  and  sweep launch {path} --wait")
    return EXIT_DONE
