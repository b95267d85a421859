"""What a study's trackers will do, as far as it can be said before they have anything to write."""

from __future__ import annotations

import base64
import json
import netrc
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.client import HTTPException
from pathlib import Path

from sweep.control.check.lines import WARNING, Line
from sweep.core.masking import mask_url
from sweep.core.study import Study
from sweep.training.command.environment import MLFLOW_URI

WANDB_URL = "https://api.wandb.ai"
ANSWER_S = 5.0
LONGEST = 2**20  # bytes of an answer


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
    return bool(_login(environ))


def ask_wandb(environ: Mapping[str, str]) -> str:
    """Return why W&B's server takes nothing from us now; empty where it does."""
    url = environ.get("WANDB_BASE_URL") or WANDB_URL
    key = environ.get("WANDB_API_KEY") or _login(environ)
    asked = urllib.request.Request(f"{url.rstrip('/')}/graphql", b'{"query": "{viewer {id}}"}')
    asked.add_header("Content-Type", "application/json")
    asked.add_header("Authorization", f"Basic {base64.b64encode(f'api:{key}'.encode()).decode()}")
    try:
        with urllib.request.build_opener(_NoRedirect).open(asked, timeout=ANSWER_S) as answer:
            said = json.loads(answer.read(LONGEST))
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            return f"W&B's server, {mask_url(url)}, refuses the key (HTTP {error.code})"
        return "" if error.code < 500 else _silent(url, str(error))
    except (OSError, ValueError, RecursionError, HTTPException) as error:
        return _silent(url, str(getattr(error, "reason", error)))
    data = said.get("data") if isinstance(said, dict) else None
    known = isinstance(data, dict) and data.get("viewer")
    return "" if known else f"W&B's server, {mask_url(url)}, does not know the key"


def look(
    study: Study,
    folder: Path,
    environ: Mapping[str, str],
    ask: Callable[[Mapping[str, str]], str] = ask_wandb,
) -> list[Line]:
    """Return a warning for each tracker that sends nothing, or could not now.

    Args:
        folder: The study's.
        ask: Returns why W&B's server takes nothing; "" where it does.
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
    if "wandb" in study.track and is_online(environ):
        why = ask(environ)
        if why:
            lines.append(
                Line(
                    "wandb",
                    WARNING,
                    why,
                    "Trials run without it; runs that begin meanwhile are kept as files: "
                    f"wandb sync {folder}/wandb/offline-run-*",
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


def _silent(url: str, why: str) -> str:
    return f"W&B's server, {mask_url(url)}, does not answer here: {why}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key goes to no other server."""

    def redirect_request(self, *_: object) -> None:
        return None


def _login(environ: Mapping[str, str]) -> str:
    """Return the key of a login in the netrc file; empty without one."""
    host = urllib.parse.urlsplit(environ.get("WANDB_BASE_URL") or WANDB_URL).hostname or ""
    try:
        found = netrc.netrc(environ.get("NETRC") or os.path.expanduser("~/.netrc"))
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return ""
    return found.hosts[host][2] if host in found.hosts else ""


def _ask(uri: str) -> str:
    """Return why a server does not answer; empty where it does, if only to refuse."""
    try:
        with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=ANSWER_S):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError, HTTPException) as error:
        return str(getattr(error, "reason", error))
