"""What a study's trackers will do, as far as it can be said before they have anything to write."""

from __future__ import annotations

import netrc
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from sweep.control.check.lines import WARNING, Line
from sweep.core.masking import mask_url
from sweep.core.study import Study

MLFLOW_URI = "MLFLOW_TRACKING_URI"
WANDB_URL = "https://api.wandb.ai"
ANSWER_S = 5.0


def look(study: Study, folder: Path, environ: Mapping[str, str]) -> list[Line]:
    """Return a warning for each tracker that sends nothing, or could not now.

    Args:
        folder: The study's.
    """
    lines = []
    if "wandb" in study.track and not is_online(environ):
        lines.append(
            Line(
                "wandb",
                WARNING,
                "W&B gets nothing by itself: runs are written as files "
                + (
                    f"(WANDB_MODE={environ['WANDB_MODE']})"
                    if environ.get("WANDB_MODE")
                    else "(no WANDB_API_KEY is set, and nobody has logged in)"
                ),
                f"Send them later: wandb sync {folder}/wandb/offline-run-*",
            )
        )
    uri = environ.get(MLFLOW_URI, "")
    if "mlflow" in study.track and uri.startswith(("http://", "https://")):
        why = _ask(uri)
        if why:
            lines.append(
                Line(
                    "mlflow",
                    WARNING,
                    f"the server of {MLFLOW_URI}, {mask_url(uri)}, does not answer here: {why}",
                    "Trials run without it, and it gets what it can while tasks live.",
                )
            )
    return lines


def in_database(study: Study, environ: Mapping[str, str]) -> bool:
    """Tell whether MLflow keeps the study's runs in a database beside the study's."""
    return "mlflow" in study.track and not environ.get(MLFLOW_URI)


def is_online(environ: Mapping[str, str]) -> bool:
    """Tell whether W&B's client would send runs: as WANDB_MODE says, else where it has a key."""
    mode = environ.get("WANDB_MODE", "")
    if mode:
        return mode in ("online", "shared")
    if environ.get("WANDB_API_KEY"):
        return True
    host = urllib.parse.urlsplit(environ.get("WANDB_BASE_URL") or WANDB_URL).hostname or ""
    try:
        found = netrc.netrc(environ.get("NETRC") or os.path.expanduser("~/.netrc"))
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return False
    return host in found.hosts


def _ask(uri: str) -> str:
    """Return why a server does not answer; empty where it does, if only to refuse."""
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_S):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))
