"""Samplers and pruners of OptunaHub's registry (``type: "optunahub:name"``): fetched once, pinned.

A registry is a Git repository with a folder for each package (``package/samplers/<name>``). launch
fetches that folder alone, at the commit that the revision names at that moment; the study keeps the
commit's name and a copy of its own, and its tasks run that copy and ask no network. OptunaHub's own
client is not used: it would fetch in tasks whatever is newest.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from sweep.core.errors import DamagedFile, SweepError
from sweep.core.paths import StudyFolder
from sweep.core.study import Choice, Study

FETCH_S = 300.0
COMMIT = re.compile(r"[0-9a-f]{40}")
# The tree above a package, as OptunaHub's client names what it loads: each is imported by its name.
ROOT = "optunahub_registry"
BRANCH, TAG, TAGGED = "refs/heads/{}", "refs/tags/{}", "refs/tags/{}^{{}}"


class HubFailed(SweepError):
    """A package could not be fetched from its registry."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return where packages are kept for all studies of a user."""
    home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "~", ".cache")
    return Path(os.path.expanduser(home)) / "sweep" / "optunahub"


def package_path(kind: str, choice: Choice) -> str:
    """Return the folder of a package in its registry.

    Args:
        kind: "sampler" or "pruner".
    """
    return f"package/{kind}s/{choice.type.partition(':')[2]}"


def place(folder: Path, kind: str, choice: Choice) -> Path:
    """Return where a pinned package lies in a folder of such."""
    return folder / str(choice.options["pinned"]) / ROOT / package_path(kind, choice)


def find(kind: str, choice: Choice, folders: Mapping[str, Path]) -> Path:
    """Return the package of a choice that is pinned, from the first folder that has it.

    Args:
        folders: By what they are, in words.

    Raises:
        HubFailed: None has it.
    """
    for folder in folders.values():
        found = place(folder, kind, choice)
        if found.is_dir():
            return found
    where = " nor ".join(f"in {what} ({folder})" for what, folder in folders.items())
    raise HubFailed(
        f"The {kind} {choice.type} is not {where}.",
        "Launch the study again where there is network.",
    )


def chosen(study: Study) -> Iterator[tuple[str, Choice]]:
    """Yield what a study has of a registry: ("sampler" or "pruner", its choice)."""
    for kind, choice in (("sampler", study.sampler), ("pruner", study.pruner)):
        if choice.is_hub:
            yield kind, choice


def ensure(
    study: Study,
    folder: StudyFolder,
    environ: Mapping[str, str],
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Return a study whose packages are pinned, and are in its folder or in the user's cache.

    What an earlier launch has pinned for the same words stays; nothing is asked then.

    Args:
        folder: The study's, which need not be there.
        say: Told what was fetched.

    Raises:
        HubFailed: A package cannot be fetched, or is not in its registry.
    """
    for kind, choice in chosen(study):
        pinned = _pinned_before(kind, choice, folder) or _fetch(kind, choice, environ, say)
        if kind == "sampler":
            study = dataclasses.replace(study, sampler=pinned)
        else:
            study = dataclasses.replace(study, pruner=pinned)
    return study


def freeze(study: Study, folder: StudyFolder, environ: Mapping[str, str]) -> None:
    """Copy what is pinned into the study's folder, unless it is there.

    Raises:
        HubFailed: It is not in the cache any more.
    """
    for kind, choice in chosen(study):
        copy = place(folder.hub, kind, choice)
        if not copy.is_dir():
            found = find(kind, choice, {"the cache": cache_folder(environ)})
            _put(copy, functools.partial(shutil.copytree, found))


def _put(target: Path, make: Callable[[Path], object]) -> None:
    """Make a folder so that nobody sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as beside:
        new = Path(beside) / target.name
        make(new)
        try:
            new.rename(target)
        except OSError:
            if not target.is_dir():  # else another has put it there
                raise


def _pinned_before(kind: str, choice: Choice, folder: StudyFolder) -> Choice | None:
    """Return a choice as the launch before has pinned it, where it says the same and is there."""
    try:
        stored = getattr(Study.read(folder.study), kind)
    except DamagedFile:
        return None  # no launch before; what is damaged launch says
    pin = stored.options.get("pinned")
    pinned = Choice(choice.type, {**choice.options, "pinned": pin})
    same = ("registry", "revision")
    if pin is None or stored.type != choice.type:
        return None
    if any(stored.options[name] != choice.options[name] for name in same):
        return None
    return pinned if place(folder.hub, kind, pinned).is_dir() else None


def _fetch(
    kind: str, choice: Choice, environ: Mapping[str, str], say: Callable[[str], None]
) -> Choice:
    """Return a choice, pinned to what its revision names now; its package is in the cache."""
    if shutil.which("git", path=environ.get("PATH")) is None:
        raise HubFailed(
            f"The {kind} {choice.type} is fetched by git, which is not installed here.",
            "Install it, or copy the class into the workdir and name it package.module:Class.",
        )
    registry, revision = str(choice.options["registry"]), str(choice.options["revision"])
    ask = _Git(f"The {kind} {choice.type}", registry, environ)
    pin = revision if COMMIT.fullmatch(revision) else ask.resolve(revision)
    pinned = Choice(choice.type, {**choice.options, "pinned": pin})
    target = place(cache_folder(environ), kind, pinned)
    if not target.is_dir():
        _put(target, lambda new: ask.fetch(pin, package_path(kind, choice), new))
    say(f"{kind} {choice.type}: commit {pin} of {registry}")
    return pinned


class _Git:
    """Asks one repository.

    Args:
        what: What is fetched, for messages.
    """

    def __init__(self, what: str, registry: str, environ: Mapping[str, str]) -> None:
        self.what = what
        self.registry = registry
        self.environ = {**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}

    def resolve(self, revision: str) -> str:
        """Return the commit that a branch or a tag names now."""
        said = self._run("ls-remote", "--", self.registry, revision, f"{revision}^{{}}")
        rows = (line.split("\t") for line in said.splitlines() if "\t" in line)
        refs = {ref: commit for commit, ref in rows}
        for form in (BRANCH, TAGGED, TAG, "{}"):
            if (ref := form.format(revision)) in refs:
                return refs[ref]
        raise HubFailed(
            f"{self.what} cannot be fetched: {self.registry} has no branch or tag {revision}.",
            "Correct its revision: a branch, a tag, or a commit's full name.",
        )

    def fetch(self, commit: str, path: str, target: Path) -> None:
        """Write one folder of a commit to ``target``."""
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="git-") as tree:
            self._run("init", "--quiet", tree)
            self._run("-C", tree, "remote", "add", "origin", self.registry)
            self._run("-C", tree, "sparse-checkout", "set", "--no-cone", f"/{path}/")
            self._run(
                *("-C", tree, "fetch", "--quiet", "--depth=1", "--no-tags"),
                *("--filter=blob:none", "origin", commit),
            )
            if not self._run("-C", tree, "ls-tree", "--name-only", commit, f"{path}/__init__.py"):
                raise HubFailed(
                    f"{self.what} cannot be fetched: {self.registry} has no {path} at {commit}.",
                    "Correct its name, or its revision.",
                )
            self._run("-C", tree, "checkout", "--quiet", commit)
            (Path(tree) / path).rename(target)

    def _run(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                ["git", *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=FETCH_S,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            why = f"git {arguments[0]} took longer than {FETCH_S:.0f} s"
        else:
            if done.returncode == 0:
                return done.stdout
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            fatal = [line for line in lines if line.startswith(("fatal:", "error:"))]
            said = fatal[:1] or lines[-1:]  # others follow from the first, and advice
            why = said[0][:300].rstrip(".") if said else f"git ended with {done.returncode}"
        raise HubFailed(
            f"{self.what} cannot be fetched from {self.registry}: {why}.",
            "Launch it where there is network; or let its registry name a copy of that repository.",
        )
