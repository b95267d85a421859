"""Where programs are looked for once the tools of a virtual environment are left."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

# Written into a tool's own environment by pipx and uv: training does not live there.
_TOOL_MARKS = ("pipx_metadata.json", "uv-receipt.toml")


def search_path(base: Mapping[str, str]) -> str:
    """Return the PATH on which training's programs are looked for (see the module's text)."""
    path = base.get("PATH") or os.defpath
    activated = base.get("VIRTUAL_ENV") or base.get("CONDA_PREFIX")
    is_own = any(os.path.exists(os.path.join(sys.prefix, mark)) for mark in _TOOL_MARKS)
    if activated or is_own or sys.prefix == sys.base_prefix:
        return path
    own = os.path.dirname(sys.executable)
    return os.pathsep.join([own] + [part for part in path.split(os.pathsep) if part != own])
