"""The command line: parse, build, call one verb, print. The only place that catches.

Each command imports what it needs when it runs, so that ``sweep --help`` and tab completion are
quick.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

import sweep.schedulers  # noqa: F401  (registers them: see ``core.executors``)
from sweep.core.errors import (
    EXIT_DONE,
    EXIT_FAULT,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    SweepError,
    closest,
)
from sweep.core.paths import runs_folder
from sweep.core.system.crash import write_crash

# Where each command lives: module and attribute.
COMMANDS = {
    "launch": "running",
    "stop": "running",
    "rerun-best": "rerunning",
    "run": "measuring",
    "scaling": "measuring",
    "confirm": "trust",
    "diff": "trust",
    "status": "looking",
    "collect": "looking",
    "logs": "looking",
    "report": "reports",
    "init": "files",
    "build": "images",
    "check": "files",
    "schema": "files",
    "config": "settings",
    "templates": "settings",
    "db": "files",
}


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for, and suggests close names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = import_module(f"sweep.cli.{COMMANDS[name]}")
        return getattr(module, name.replace("-", "_"))  # type: ignore[no-any-return]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:
            begun = [name for name in COMMANDS if name.startswith(args[0])]
            near = begun[0] if begun else closest(args[0], list(COMMANDS))
            hint = f" Did you mean {near}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with:  sweep init;  sweep launch study.yaml --wait",
)
@click.version_option(package_name="sweep-hpo", prog_name="sweep")
def main_group() -> None:
    """Hyperparameter search on Slurm job arrays: capped, resumable, reproducible.

    \b
      sweep launch study.yaml      trials into an Optuna study, a capped job array
      sweep collect --top 5        ranked, exported, plotted
      sweep rerun-best             same seed and code again; says whether it reproduced

    STUDY, where a command takes one, defaults to the study last launched from this folder.
    Everything of a study lies in runs/<name>/ (--runs DIR or $SWEEP_RUNS for another place).
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong input, 3 the re-run differs,
    70 a fault of ours with a crash file, 130 interrupted."""
    # Ended from outside (by timeout, or a closing session): as by Ctrl-C, nothing stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    try:
        # Outside its standalone mode click gives an Exit's code back instead of raising it.
        code = main_group.main(args=arguments, prog_name="sweep", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_DONE
    except click.ClickException as error:
        error.show()
        return EXIT_INPUT
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. Nothing is lost: give the same command again.", err=True)
        return EXIT_INTERRUPTED
    except SweepError as error:
        click.echo(f"Error: {error.message}", err=True)
        if error.hint:
            click.echo(error.hint, err=True)
        return error.exit_code
    except (BrokenPipeError, SystemExit):
        # Whoever read our output (head, less) has left: nobody to tell. click exits by itself then,
        # and for no other reason outside its standalone mode.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except Exception as error:
        path = write_crash(runs_folder(), error, arguments)
        click.echo(
            f"Error: a fault of sweep's own ({type(error).__name__}). Details are in {path};\n"
            "please report it with that file.",
            err=True,
        )
        return EXIT_FAULT
