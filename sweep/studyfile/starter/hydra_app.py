"""The application of a Hydra configuration: its script, and the arguments that choose the file."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.core.placeholders import EDIT, escape
from sweep.studyfile.starter.foreign_yaml import read_yaml
from sweep.studyfile.starter.python_text import parse_python, read_literal
from sweep.studyfile.tree import YamlError

_MOST_SCRIPTS = 2000
_SKIPPED = {"node_modules", "site-packages", "__pycache__", "venv", "build", "dist", "outputs"}
_COMMENT = re.compile(r"^[ \t]*#.*?\bpython3?\s+(?:-m\s+)?(\S+)\s+(.*)$", re.MULTILINE)
_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w./@]*=[^,\s]+")
# No repository: other people's scripts lie below these.
_TOO_WIDE = {Path("/"), Path("/tmp"), Path("/home"), Path("/root"), Path.home()}
_ROOTS = {"conf", "config", "configs", "hydra_conf", "cfg"}


@dataclass(frozen=True)
class Application:
    """A script under ``@hydra.main``.

    Attributes:
        folder: Where its configurations lie; None where that is not told.
        name: Of its primary configuration, without the suffix.
    """

    script: Path
    folder: Path | None
    name: str | None


def build_command(path: Path, text: str, lost: list[str]) -> list[str]:
    """Return the command that trains once with a configuration file and a trial's overrides."""
    comment = _COMMENT.search(text)
    found = _find(path, comment[1] if comment else None, lost)
    chosen = _choose(path, found)
    words: list[str] = []
    for word in comment[2].split() if comment else ():
        # Hydra refuses two values for one group; a comment may still name a file's former name.
        is_own = any(_key(word) == _key(one) for one in (*chosen, *words))
        if _OVERRIDE.fullmatch(word) and not word.startswith("hydra") and not is_own:
            words.append(word)
    if words:
        lost.append(f"{', '.join(words)}: taken from a comment of the file; check that you need it")
    script = escape(_shown(found.script)) if found else EDIT
    if comment and not found and comment[1].endswith(".py") and os.path.isfile(comment[1]):
        script = escape(comment[1])
        lost[:] = [line for line in lost if not line.startswith("the application: ")]
        lost.append(f"the application: {comment[1]} is a guess, from a comment of the file")
    return [
        "python",
        script,
        *[escape(word) for word in (*chosen, *words)],
        "{overrides}",
        "hydra.mode=RUN",
        "hydra.run.dir={trial_dir}",
    ]


def _key(word: str) -> str:
    return word.lstrip("+").partition("=")[0]


def _shown(script: Path) -> str:
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


def find_folders(path: Path) -> list[Path]:
    """Return the folders in which the groups of a configuration may lie."""
    folder = path.resolve().parent
    return [folder, *list(folder.parents)[:3]]


def _find(path: Path, named: str | None, lost: list[str]) -> Application | None:
    """Return the application that a configuration belongs to, or None where that is not clear."""
    path = path.resolve()
    found = list(_applications(_repository(path)))
    near = [path.parent, *list(path.parents)[1:3]]
    fitting = [
        app
        for app in found
        if app.folder and (path.is_relative_to(app.folder) if app.folder else False)
    ]
    # Of several the one that the file's own comment names, or whose primary configuration it is.
    fitting = fitting or [app for app in found if app.script.parent in near and app.folder is None]
    for narrowed in (
        [app for app in fitting if app.name == path.stem and app.folder == path.parent],
        [app for app in fitting if named and app.script.name == Path(named).name],
        fitting,
    ):
        if len(narrowed) == 1:
            lost.append(
                f"the application: {_shown(narrowed[0].script)} is a guess, from its hydra.main; "
                "check the command"
            )
            return narrowed[0]
        if len(narrowed) > 1:
            names = ", ".join(_shown(app.script) for app in narrowed[:5])
            lost.append(f"the application: replace {EDIT} in the command by one of {names}")
            return None
    lost.append(f"the application: replace {EDIT} in the command by your script")
    return None


def _repository(path: Path) -> Path:
    parents = list(path.parents)
    for folder in parents[:6]:
        if (folder / ".git").exists():
            return folder
    return next(one for one in reversed(parents[:3]) if one not in _TOO_WIDE or one == path.parent)


def _applications(root: Path) -> Iterator[Application]:
    if root == Path("/"):
        return
    looked = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(
            name for name in names if not name.startswith(".") and name not in _SKIPPED
        )
        for file in sorted(files):
            if not file.endswith(".py"):
                continue
            looked += 1
            if looked > _MOST_SCRIPTS:
                return
            yield from read_application(Path(folder, file))


def read_application(script: Path) -> Iterator[Application]:
    """Yield the script's own ``hydra.main``, if it has one."""
    try:
        text = script.read_text(encoding="utf-8", errors="replace")
        if "hydra" not in text or "main" not in text:
            return
        tree = parse_python(text)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called != "hydra.main" and not (called == "main" and "from hydra import" in text):
            continue
        given: dict[str, str | None] = {}
        for key, value in [
            *zip(("config_path", "config_name"), node.args, strict=False),
            *((keyword.arg or "", keyword.value) for keyword in node.keywords),
        ]:
            given[key] = _text(value)
        folder, name = given.get("config_path"), given.get("config_name")
        if folder is not None and name is None and folder.endswith((".yaml", ".yml")):
            folder, _, name = folder.rpartition("/")  # the way of Hydra before 1.0
        is_here = "config_path" not in given and name is not None
        place = (script.parent / (folder or ".")) if folder is not None or is_here else None
        yield Application(
            script,
            place.resolve() if place else None,
            re.sub(r"\.ya?ml$", "", name) if name else None,
        )
        return


def _text(node: ast.AST) -> str | None:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(read_literal(node)) if is_text else None


def _choose(path: Path, found: Application | None) -> list[str]:
    """Return the arguments by which an application takes up a configuration file."""
    path = path.resolve()
    if found is None or found.folder is None or not path.is_relative_to(found.folder):
        group = path.parent.name
        if group in _ROOTS or not re.fullmatch(r"(hparams_?search|sweeps?|experiments?)", group):
            return []
        return [f"{group}={path.stem}"]
    group = path.parent.relative_to(found.folder).as_posix()
    if group == ".":
        return [] if found.name == path.stem else [f"--config-name={path.stem}"]
    if group.startswith("hydra"):
        return []
    return [f"{'' if _has_group(found, group) else '+'}{group}={path.stem}"]


def _has_group(found: Application, group: str) -> bool:
    """Tell whether the primary configuration's defaults have a group, so that it is overridden."""
    if found.folder is None or found.name is None:
        return True
    try:
        file = found.folder / f"{found.name}.yaml"
        data = read_yaml(file.read_text(encoding="utf-8"), file.name).data
    except (OSError, UnicodeDecodeError, YamlError):
        return True
    entries = data.get("defaults") if isinstance(data, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        keys = entry.keys() if isinstance(entry, dict) else [str(entry).rpartition("/")[0]]
        for key in keys:
            name = re.sub(r"^(override|optional)\s+", "", str(key)).lstrip("/")
            if name.partition("@")[0] == group:
                return True
    return False
