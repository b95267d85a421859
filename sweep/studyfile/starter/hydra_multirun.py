"""A sweep of Hydra on a command line: ``python app.py -m lr=0.1,0.01 model=a,b``.

Its overrides are read as the configuration that they change, which ``hydra`` converts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sweep.core.hydra_text import Call, read_value
from sweep.core.placeholders import EDIT, RESERVED
from sweep.studyfile.starter.draft import Draft
from sweep.studyfile.starter.hydra import add_study
from sweep.studyfile.starter.hydra_sweeps import BASIC

_OVERRIDE = re.compile(r"(~?\+{0,2}[A-Za-z_][\w./@:-]*)=(.*)", re.S)
_PLACEHOLDER = re.compile(r"(?<!\{)\{(?!\{)")
_MULTIRUN = ("-m", "--multirun")


def read_multirun(draft: Draft, path: Path, lost: list[str]) -> bool:
    """Take the sweep out of the command of a draft that is one of Hydra's; return whether it is.

    Args:
        draft: Its command becomes one that trains once.
        path: The script that has the command; its folder is searched for groups.
    """
    begin = _find_script(draft.command)
    words = draft.command[begin:]
    swept = dict(_read(word) for word in words if _is_sweep(word))
    own = [word for word in words if re.match(r"hydra[./]", word)]
    flags = [word for word in words if word in _MULTIRUN or word == "hydra.mode=MULTIRUN"]
    if not flags or not any("=" in word for word in words):
        return False
    if not swept:
        lost.append(
            f"{flags[0]}: Hydra takes what it varies from its configuration; convert that file "
            f"with sweep init --from, and replace {EDIT} here"
        )
        return False
    others = dict(draft.space)
    if "points" in draft.more:
        draft.command.append(EDIT)
        lost.append(
            f"{flags[0]} {', '.join(swept)}: Hydra goes through these within each task; write the "
            f"points that they make with what the tasks pick, and replace {EDIT}"
        )
        return False
    rest = [word for word in words if word not in (*flags, *own) and not _is_sweep(word)]
    own_names = {n: f"{n}_value" if n in RESERVED else n for n in swept}
    passed = [f"{name}={{{own_names[name]}}}" for name in swept] if others else ["{overrides}"]
    if others and any(name.startswith("+") for name in swept):
        passed = [f"{name}={EDIT}" for name in swept]
        lost.append(f"{', '.join(swept)}: loops and Hydra both vary; replace {EDIT}")
    draft.command[begin:] = [*rest, *passed, "hydra.run.dir={trial_dir}"]
    for name, found in others.items():
        if any(_is_sweep(str(value)) for value in found.get("choices", ())):
            draft.command.append(EDIT)
            lost.append(f"{name}: Hydra goes through several values of each; replace {EDIT}")
    objectives, draft.objectives = draft.objectives, []
    said = len(lost)
    kind = add_study(draft, _configuration(own, swept, lost), path, lost)
    for name in swept if others else ():
        if name in draft.space:
            draft.space[own_names[name]] = draft.space.pop(name)
    if kind == BASIC:
        # Nothing is said of the objective here that a shell script's own sentence does not say.
        draft.objectives = objectives
        lost[said:] = [one for one in lost[said:] if not one.startswith(("objective:", "the ret"))]
    missing = [n for n in swept if n not in draft.space and own_names[n] not in draft.space]
    if missing:
        draft.command.append(EDIT)
        lost.append(f"{', '.join(missing)}: see above; replace {EDIT} by how it is passed")
    return True


def _find_script(command: list[str]) -> int:
    """Return where the arguments of the application begin: behind app.py, or -m package.app."""
    for place, word in enumerate(command):
        if word.endswith(".py"):
            return place + 1
        if word == "-m" and place and re.search(r"python[\d.]*$|launch$", command[place - 1]):
            return place + 2
    return len(command)


def _is_sweep(word: str) -> bool:
    found = _OVERRIDE.fullmatch(word)
    if found is None or _PLACEHOLDER.search(word) or word.startswith("hydra"):
        return False
    try:
        return isinstance(read_value(_read(word)[1]), Call)
    except (ValueError, TypeError, RecursionError):
        return False


def _read(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value.replace("{{", "{").replace("}}", "}")


def _configuration(own: list[str], swept: dict[str, str], lost: list[str]) -> dict[str, Any]:
    """Return the configuration that a command line's overrides of Hydra itself come to."""
    defaults: list[dict[str, str]] = []
    hydra: dict[str, Any] = {"sweeper": {"params": swept}}
    for name, text in map(_read, own):
        if name.startswith("hydra/"):
            defaults.append({f"override {name}": text})
            continue
        keys = name.split(".")[1:]
        if keys[0] not in ("sweeper", "launcher"):
            if keys[0] != "mode":
                lost.append(f"{name}: was left out; each trial has a folder of its own")
            continue
        place = hydra
        for key in keys[:-1]:
            place = place.setdefault(key, {})
        try:
            place[keys[-1]] = read_value(text)
        except (ValueError, TypeError, RecursionError):
            lost.append(f"{name}: is not known without running it (got {text!r})")
    return {"defaults": defaults, "hydra": hydra}
