"""torchrun in a job script, which says on which node it is: here ``launcher: torchrun`` does."""

from __future__ import annotations

import re

from sweep.core.placeholders import EDIT
from sweep.studyfile.starter.draft import Draft

_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = {"standalone", "module", "no-python", "use-env", "use_env"}
# Where the other nodes are: what a script works out, and sweep's own launcher knows.
_PLACES = (
    *("nnodes", "node-rank", "master-addr", "master-port", "rdzv-id", "rdzv-backend"),
    *("rdzv-endpoint", "rdzv-conf", "standalone", "local-addr", "use-env"),
)


def use_launcher(draft: Draft, lost: list[str]) -> None:
    """Have sweep start a command on several nodes, or with a place that the script works out, that
    torchrun starts in the script."""
    command = draft.command
    begin = _arguments(command)
    if not begin:
        return
    options, end = _options(command, begin)
    nodes = draft.more.get("resources", {}).get("nodes", 1)
    is_open = any(EDIT in value for name, value in options if name != "nproc-per-node")
    if not (is_open or nodes > 1) or end >= len(command):
        return
    names = [name for name, _ in options]
    python = command[0] if begin > 1 else "python"
    module = ["-m"] if "module" in names else []
    bare = "no-python" in names
    draft.command = [*([] if bare else [python, *module]), *command[end:]]
    draft.more["launcher"] = "torchrun"
    number = dict(options).get("nproc-per-node", "1")
    gpus = str(draft.more.get("resources", {}).get("gpus", "")).rpartition(":")[2]
    ranks = number if number.isdecimal() else gpus
    if ranks.isdecimal() and int(ranks):
        draft.more["ddp"] = {"ranks_per_node": int(ranks)}
    own = [f"command: {place}" for place in {f"--{n}" for n in names}]
    lost[:] = [one for one in lost if not _is_of(one, options) and one not in own]
    others = [f"--{n}={v}" for n, v in options if n not in (*_PLACES, "nproc-per-node", "module")]
    lost.append(
        "torchrun: launcher: torchrun starts it on each node here, and tells where the others are; "
        f"its options {', '.join(f'--{n}' for n in names if n in _PLACES)} were left out"
        + (f"; so were {', '.join(others)}" if others else "")
    )


def _arguments(command: list[str]) -> int:
    """Return where torchrun's options begin; 0 where the command is none of torchrun's."""
    if command and re.search(r"(?:^|/)torchrun$", command[0]):
        return 1
    is_module = command[1:2] == ["-m"] and command[2:3] and command[2] in _MODULES
    return 3 if is_module and re.search(r"(?:^|/)python[\d.]*$", command[0]) else 0


def _options(command: list[str], place: int) -> tuple[list[tuple[str, str]], int]:
    """Return torchrun's options, with dashes in their names, and where what it starts begins."""
    found: list[tuple[str, str]] = []
    while place < len(command) and command[place].startswith("-"):
        name, equals, value = command[place].partition("=")
        place += 1
        name = "module" if name == "-m" else name.lstrip("-").replace("_", "-")
        if not equals and name not in _FLAGS and place < len(command):
            value = command[place]
            place += 1
        found.append((name, value))
    return found, place


def _is_of(sentence: str, options: list[tuple[str, str]]) -> bool:
    """Tell whether a sentence asks to replace what one of torchrun's options holds."""
    if not sentence.startswith("command: ") or EDIT not in sentence:
        return False
    told = re.match(r"command: (--?([\w-]+)=)?(\S.*?) (?:holds|is not)", sentence)
    if told is None:
        return False
    if told[2]:
        return told[2].replace("_", "-") in {name for name, _ in options}
    rest = re.sub(r"\$(?:\{\w+\}|\w+)", EDIT, told[3])
    return any(value in (rest, EDIT) and name in _PLACES for name, value in options)
