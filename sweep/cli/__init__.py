"""The command line: parse, build, call one verb, print. The only place that catches.

Each module here is a command and named as it (``try_`` is ``try``, a word of Python's); ``common``
is what they share, ``waiting`` what those share that wait, ``handle`` the same for Python,
``suggest`` what a shell offers at TAB. Its first line is what ``sweep --help`` says of it, its
function of the same name is the command. That function returns its exit code where it may be
another than 0; all else that a command has to say of its failure is a SweepError. Modules are
imported when their command is called, so that ``sweep --help`` and tab completion are quick.
"""

from __future__ import annotations

import ast
import io
import os
import signal
import sys
from contextlib import nullcontext, redirect_stderr
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from sweep.core.errors import (
    EXIT_DONE,
    EXIT_FAULT,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    REFUSALS,
    InputError,
    LeftRunning,
    RefusedBySystem,
    SweepError,
    closest,
)
from sweep.core.masking import keep_environment, mask
from sweep.core.own_version import VERSION
from sweep.core.paths import runs_folder
from sweep.core.system.crash import write_crash
from sweep.core.terminal_text import print_all_characters

HERE = Path(__file__).parent
SHARED = {"__init__", "common", "handle", "suggest", "waiting"}  # modules that are no commands
ASKED_BY_SHELL = "_SWEEP_COMPLETE"  # set where TAB was pressed, or a shell wants its function


def command_names() -> list[str]:
    """Return all commands: the names of the modules here."""
    modules = {path.stem for path in HERE.glob("*.py")} - SHARED
    return sorted(module.rstrip("_").replace("_", "-") for module in modules)


def module_of(name: str) -> str:
    """Return the name of a command's module."""
    return f"{name}_" if iskeyword(name) else name.replace("-", "_")


def sentence_of(name: str) -> str:
    """Return what a command does, in a sentence: the first line of its module, not imported."""
    text = (HERE / f"{module_of(name)}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


class CommandGroup(click.Group):
    """Imports a command's module when the command is asked for, and suggests close names."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return command_names()

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in command_names():
            return None
        module = module_of(name)
        import_module("sweep.schedulers")  # a command finds them registered: ``core.executors``
        return getattr(import_module(f"sweep.cli.{module}"), module)  # type: ignore[no-any-return]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        begun = [name for name in command_names() if name.startswith(incomplete)]
        return [CompletionItem(name, help=sentence_of(name)) for name in begun]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        names = command_names()
        if args and args[0] not in names:
            begun = [name for name in names if name.startswith(args[0])]
            near = begun[0] if begun else closest(args[0], names)
            meant = f" Did you mean {near}?" if near else ""
            raise InputError(f"There is no command {args[0]!r}.{meant}", "All: sweep --help.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence_of(name)) for name in command_names()])


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"sweep, version {VERSION}")
        ctx.exit()


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with:  sweep init;  sweep launch study.yaml --wait",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
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
    """Run the command line and exit, with one of the codes of ``sweep.core.errors``."""
    # Ended from outside (by timeout, or a closing session): as by Ctrl-C, nothing stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    given = sys.argv[1:] if arguments is None else arguments
    # Where TAB was pressed somebody is typing: no word of ours goes onto that line.
    asked = bool(os.environ.get(ASKED_BY_SHELL))
    with redirect_stderr(io.StringIO()) if asked else nullcontext():
        code = run_command(given)
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run one command; say what ended it, and return the exit code that belongs to that."""
    keep_environment(os.environ)
    print_all_characters()
    try:
        # Outside its standalone mode click gives back what the command returned.
        code = main_group.main(args=arguments, prog_name="sweep", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_DONE
    except LeftRunning as error:
        click.echo(f"\n{error}", err=True)
        return error.exit_code
    except SweepError as error:
        click.echo(f"Error: {error}", err=True)
        return error.exit_code
    except click.ClickException as error:  # it could not read the call
        said = io.StringIO()
        error.show(file=said)
        click.echo(mask(said.getvalue()), err=True, nl=False)
        return EXIT_INPUT
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. Nothing is lost: give the same command again.", err=True)
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Whoever read our output (head, less) has left: nobody to tell. click exits by itself then,
        # and for no other reason outside its standalone mode.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except OSError as error:
        if error.errno not in REFUSALS:
            return _fault(error, arguments)
        refused = RefusedBySystem(error)
        click.echo(f"Error: {refused}", err=True)
        return refused.exit_code
    except Exception as error:
        return _fault(error, arguments)


def _fault(error: Exception, arguments: list[str]) -> int:
    """Leave a crash file of a fault of ours, and say so."""
    path = write_crash(runs_folder(), error, arguments)
    click.echo(
        f"Error: a fault of sweep's own ({type(error).__name__}). Details are in {path};\n"
        "please report it with that file.",
        err=True,
    )
    return EXIT_FAULT
