"""The batch script, from a template; what is undefined there is an error.

One of the study's, the user's or the site's wins over ours: see ``template``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep.core import templates
from sweep.core.study import Study

TEMPLATE = "task.sh.j2"


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

    beside = Path(study.source).parent if study.source else None
    environment = Environment(
        loader=FileSystemLoader([str(folder) for _, folder in templates.folders(beside)]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # A name could hold a line break, which would end the comment that it stands in.
    # As tasks are called; what is called otherwise is no interpreter of ours.
    python = shlex.quote(argv[0]) if list(argv[1:3]) == ["-m", "sweep.task"] else ""
    return environment.get_template(TEMPLATE).render(
        study=study.name.replace("\n", " "),
        setup=list(study.slurm.setup),
        exports={name: shlex.quote(value) for name, value in exports.items()},
        argv=shlex.join(argv),
        python=python,
    )
