"""Print what lets bash, zsh or fish complete at TAB."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from sweep.core.errors import InputError

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep completion bash > ~/.sweep.bash; echo '. ~/.sweep.bash' >> ~/.bashrc\n"
    "  sweep completion zsh > ~/.sweep.zsh; echo '. ~/.sweep.zsh' >> ~/.zshrc\n"
    "  sweep completion fish > ~/.config/fish/completions/sweep.fish"
)
@click.argument("shell", required=False, type=click.Choice(SHELLS))
def completion(shell: str | None) -> None:
    """Print what lets a shell complete commands, options, studies, trials, states and formats.

    Without SHELL it is that of $SHELL. Write it into a file once, as below, and open a new shell.
    In ~/.zshrc it belongs behind the line with `compinit`.

    What is offered is read from the runs folder ($SWEEP_RUNS, --runs or ./runs) alone: a database
    or a scheduler is never asked.
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise InputError(
            f"Which shell is {shell!r}?" if shell else "$SHELL names no shell.",
            f"Name one: sweep completion {'|'.join(SHELLS)}.",
        )
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "sweep", "_SWEEP_COMPLETE").source())
