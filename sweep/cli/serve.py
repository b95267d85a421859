"""Show a study in your browser, live, while it runs."""

from __future__ import annotations

import getpass
import os
from pathlib import Path
from typing import Any

import click

from sweep.cli.common import get_runs, open_study, runs_option, scheduler_for, study_argument
from sweep.control.open_study import Opened
from sweep.control.scheduler_view import SchedulerView
from sweep.core.errors import InputError
from sweep.core.system.crash import write_crash
from sweep.core.times import span
from sweep.results.live_page.web_server import IDLE_S, Pages, WebServer
from sweep.results.page import html


@click.command(
    epilog="\b\nExamples:\n"
    "  sweep serve                     # the study last launched\n"
    "  sweep serve digits --port 8899\n"
    "  sweep serve --all               # a list of all studies, and the page of each\n"
    "\n\b\n"
    "It listens on this machine alone. From your laptop, forward its port, and open the address:\n"
    "  ssh -L 8899:127.0.0.1:8899 me@login.example.org\n"
    "  ssh -L 8899:127.0.0.1:8899 -J me@login.example.org me@node7    # on a compute node"
)
@study_argument
@click.option("--all", "all_studies", is_flag=True, help="All studies of the runs folder.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Listen at this one [default: any free one]."
)
@click.option(
    "--idle",
    type=click.IntRange(1),
    default=round(IDLE_S),
    show_default=True,
    metavar="SECONDS",
    help="End when nobody has looked for so long.",
)
@runs_option
def serve(
    study: str | None, all_studies: bool, port: int | None, idle: int, runs: Path | None
) -> None:
    """Show the page of `sweep report`, renewed as results come: what trains now with its curves,
    the best so far, the search space, logs, what the slots did.

    The page can only be read. Its address holds a token; who has it, and can reach this machine's
    own 127.0.0.1, sees the page. Ctrl-C ends it; studies go on.
    """
    if study is not None and all_studies:
        raise InputError("Give a study's name or --all, not both.")
    where = get_runs(runs)
    vega = html.script(html.cache_folder())
    name = None
    if not all_studies:
        opened = open_study(where, study)
        name = opened.study.name
        opened.ledger.db.close()  # the page's own reader opens it while somebody looks
    views: dict[str, SchedulerView] = {}

    def ask_scheduler(opened: Opened) -> Any:
        view = views.get(opened.study.name)
        if view is None or view.opened is not opened:
            schedule = scheduler_for(opened.study)(opened.folder)
            view = views[opened.study.name] = SchedulerView(opened, schedule, only_looks=True)
        return view.ask()

    def fault(error: BaseException) -> None:
        path = write_crash(where.root, error, ["serve"])
        click.echo(f"A fault of sweep's own ({type(error).__name__}): {path}", err=True)

    server = WebServer(Pages(where, name, ask_scheduler, vega), port or 0, idle, fault=fault)
    # The token is a secret everywhere but here.
    click.echo(f"{'All studies' if name is None else name}: {server.gate.address}")
    click.echo(f"From elsewhere first: {ssh_line(server.gate.port)}")
    click.echo(f"Ctrl-C ends it, and so does {span(idle)} in which nobody looks.")
    is_idle = server.serve()
    click.echo(
        f"Nobody has looked for {span(idle)}: it has ended." if is_idle else "\nIt has ended."
    )


def ssh_line(port: int, environ: Any = os.environ) -> str:
    """Return how this machine's port is reached from elsewhere.

    Within a job (also a shell on a compute node) the way leads over the login node that it was
    submitted from.
    """
    host, user = os.uname().nodename, environ.get("USER") or getpass.getuser()
    forward = f"ssh -L {port}:127.0.0.1:{port}"
    via = environ.get("SLURM_SUBMIT_HOST", "")
    if environ.get("SLURM_JOB_ID") and via and via.partition(".")[0] != host.partition(".")[0]:
        return f"{forward} -J {user}@{via} {user}@{host}"
    return f"{forward} {user}@{host}"
