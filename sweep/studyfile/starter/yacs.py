"""Configurations of yacs: defaults in the source, replaced by KEY VALUE pairs after the flags.

``cfg.merge_from_list(args.opts)`` takes them: ``python train.py --config-file a.yaml SOLVER.BASE_LR
0.01``. A value must be of its default's type, or yacs refuses it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.studyfile.starter.flags import Flag, literal, read_source
from sweep.studyfile.starter.python_flags import Sources
from sweep.studyfile.starter.python_text import parse_python

# detectron2's own defaults, as far as a search or a trial is concerned with them.
_OF_DETECTRON2: dict[str, Any] = {
    "SOLVER.BASE_LR": 0.001,
    "SOLVER.IMS_PER_BATCH": 16,
    "SOLVER.MOMENTUM": 0.9,
    "SOLVER.WEIGHT_DECAY": 0.0001,
    "SOLVER.MAX_ITER": 40000,
    "OUTPUT_DIR": "./output",
    "SEED": -1,
}
_ITS_FLAGS = (Flag("--config-file", "str", ""), Flag("--resume", "switch"))


@dataclass(frozen=True)
class Pairs:
    """What a script takes as KEY VALUE pairs.

    Attributes:
        values: The defaults by their dotted names.
        option: The flag after which they stand ("--opts"); "" where they follow all others.
        flags: The script's other flags.
    """

    values: dict[str, Any]
    option: str
    flags: list[Flag]


def read_pairs(sources: Sources) -> Pairs | None:
    """Return what a script's configuration takes by ``merge_from_list``; None for another one."""
    names = {
        re.split(r"[^\w.]", ast.unparse(call.args[0]))[0].rpartition(".")[2]  # args.opts or []
        for called, call in sources.calls
        if called.endswith(".merge_from_list") and call.args
    }
    if not names:
        return None
    flags = list(
        {flag.option: flag for tree in sources.trees for flag in read_source(tree)}.values()
    )
    taken = [flag for flag in flags if flag.name in names and flag.type == "list"]
    is_detectron2 = "detectron2" in sources.text
    if taken:
        option = "" if taken[0].is_positional else taken[0].option
    elif is_detectron2 and any(c.endswith("default_argument_parser") for c, _ in sources.calls):
        option, flags = "", [*_ITS_FLAGS, *flags]
    else:
        return None
    values = dict(_OF_DETECTRON2) if is_detectron2 else {}
    for tree in [*sources.trees, *_config_trees(sources)]:
        values |= dict(_assigned(tree))
    return Pairs(values, option, [flag for flag in flags if flag not in taken]) if values else None


def _config_trees(sources: Sources) -> Iterator[ast.Module]:
    """Yield the modules of packages from which the script imports: ``from config import cfg``."""
    script = sources.script.absolute()
    for node in ast.walk(sources.tree):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        for root in (script.parent, *list(script.parents)[1:3]):
            package = root.joinpath(*node.module.split("."))
            if not (package / "__init__.py").is_file():
                continue
            for path in sorted(package.glob("*.py"))[:20]:
                tree = _parse(path)
                if tree is not None:
                    yield tree


def _parse(path: Path) -> ast.Module | None:
    try:
        text = path.read_text("utf-8", "replace")
        return parse_python(text) if re.search(r"\bCfgNode\b", text) else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def _assigned(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """Yield what is assigned to the attributes of configuration nodes: ``_C.SOLVER.LR = 0.1``."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    roots = {
        ast.unparse(node.targets[0])
        for node in nodes
        if isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func).rpartition(".")[2] in ("CN", "CfgNode")
    }
    for node in sorted(nodes, key=lambda one: one.lineno):
        owner, _, name = ast.unparse(node.targets[0]).partition(".")
        if owner in roots and name and isinstance(node.targets[0], ast.Attribute):
            value = literal(node.value)
            if isinstance(value, bool | int | float | str):
                yield name, value
