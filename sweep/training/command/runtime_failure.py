"""Whether a command ended by itself, or its container was never started: each runtime's own words.

Apptainer's own errors are all 255, enroot's 1 or 127, Pyxis's 1 or 2; a command may leave with any
of these too. Only together with the runtime's own words in the output is it the runtime's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sweep.training.command.containers import SETUP_FAILED

_APPTAINER = r"^FATAL:\s+(?P<words>.+)$"
_ENROOT = r"^(?:\S+: )?\[ERROR\] (?P<words>.+)$"
_PYXIS = r"(?:pyxis: |error: spank: .*pyxis)(?P<words>.+)$"
_NO_PYXIS = r"unrecognized option '(?P<words>--(?:no-)?container-[a-z-]+)"
_NO_ROOT = (
    " (make it on that node; where the site has set Pyxis's container_scope=job, none is kept "
    "after the job that made it)"
)
_PATTERNS = {
    "apptainer": (_APPTAINER, (255,)),
    "singularity": (_APPTAINER, (255,)),
    "enroot": (_ENROOT, (1, 2, 125, 126, 127)),
    "pyxis": (_PYXIS, (1, 2, 127)),
}


def explain(runtime: str, exit_code: int | None, lines: Sequence[str]) -> str | None:
    """Return why a runtime did not start the command; None where the command itself ended.

    Args:
        exit_code: What the process left with, or None.
        lines: The end of its output.
    """
    if not exit_code:
        return None
    if any(line.endswith(SETUP_FAILED) for line in lines):
        said = [line.strip() for line in lines if line.strip()]
        before = [line for line in said if not line.endswith(SETUP_FAILED)][-1:]
        return "a line of environment.setup failed" + "".join(f": {line}" for line in before)
    if runtime not in _PATTERNS:
        return None
    if runtime == "pyxis" and exit_code == 255:
        for line in lines:
            if found := re.search(_NO_PYXIS, line):
                return f"this cluster's srun has no Pyxis (it does not know {found['words']})"
        return None
    pattern, codes = _PATTERNS[runtime]
    if exit_code not in codes:
        return None
    # Of several lines the first names the cause, the later ones what followed.
    for line in lines:
        if found := re.search(pattern, line):
            words = found["words"].strip()[:300]
            return f"{runtime} did not start the container: {words}" + _NO_ROOT * (
                "--container-image is not set" in words
            )
    return None
