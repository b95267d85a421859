"""``sweep init --from FILE``: another tool's search as a study file, and what that cannot hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from sweep.core.errors import InputError
from sweep.studyfile.starter.draft import write_draft
from sweep.studyfile.starter.hydra import convert_hydra, find_sweeper
from sweep.studyfile.starter.wandb import convert_wandb, is_wandb


@dataclass(frozen=True)
class Converted:
    """A study file made from another.

    Attributes:
        text: The study file; what is in ``lost`` stands on top of it as comments, too.
        lost: What was not carried over, or only nearly, and what to do: one sentence each.
        source: "W&B" or "Hydra".
    """

    text: str
    lost: list[str]
    source: str


def convert(path: Path) -> Converted:
    """Convert a W&B sweep file or a Hydra configuration with an Optuna-sweeper section.

    Raises:
        InputError: The file cannot be read, or is neither of the two.
    """
    data = _read(path)
    lost: list[str] = []
    sweeper = find_sweeper(data)
    if is_wandb(data):
        source, draft = "W&B", convert_wandb(data, path.name, lost)
    elif sweeper is not None:
        source, draft = "Hydra", convert_hydra(data, sweeper, path, lost)
    else:
        raise InputError(
            f"{path} is neither a W&B sweep nor a Hydra configuration with an Optuna sweeper.",
            "A W&B sweep has `parameters`; a Hydra configuration `hydra: {sweeper: {params: …}}`.",
        )
    lost = [f"{sentence}." for sentence in dict.fromkeys(lost)]
    draft.remarks += lost
    return Converted(write_draft(draft), lost, source)


def _read(path: Path) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (YAMLError, UnicodeDecodeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else "unknown"
        raise InputError(f"{path} is not YAML: {first}.") from None
