"""The batch script, from a template; what is undefined there is an error.

A user's own ``task.sh.j2`` beside the study file wins over ours.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.study import Study

TEMPLATE = "task.sh.j2"


def templates_folder() -> Path:
    """Return the folder of the templates: inside the package, or beside it in a checkout."""
    here = Path(__file__).parent
    installed = here / "templates"
    return installed if (installed / TEMPLATE).is_file() else here.parent / "templates"


def render(study: Study, argv: Sequence[str], exports: Mapping[str, str]) -> str:
    """Return the batch script of a study's tasks.

    Args:
        argv: What each task runs, sweep's own interpreter first; the arguments of the submission
            are added to it (``--finalise TOKEN`` and such).
        exports: Variables for the tasks; none of them a secret.

    Raises:
        jinja2.UndefinedError: The template asks for what there is not.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folders = [str(templates_folder())]
    if study.source:
        folders.insert(0, str(Path(study.source).parent))
    environment = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # A name could hold a line break, which would end the comment that it stands in.
    return environment.get_template(TEMPLATE).render(
        study=study.name.replace("\n", " "),
        setup=list(study.slurm.setup),
        exports={name: shlex.quote(value) for name, value in exports.items()},
        argv=shlex.join(argv),
    )
