"""How frameworks lay out what they save: what a folder must hold to be a whole checkpoint.

``LAYOUTS`` is a table; a new framework is a row. ``WRITTEN_LAST`` and ``POINTERS`` are two more.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from sweep.training import save_names
from sweep.training.whole_files import are_whole

MOST_FILES = 20_000  # of one checkpoint that are looked at
_MOST_POINTER_BYTES = 4096


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


@dataclass(frozen=True)
class Layout:
    """One framework's way to save.

    Attributes:
        name: Whose it is.
        files: Patterns of files (relative paths), one of which tells that a folder is such a save.
        markers: Patterns of what is written last: one of them must be there.
        folder: Pattern of the folder's own name, where that matters.
        only: Patterns; where a file matches none of them somebody else has made the folder, with
            a way of his own to tell that it is whole. Empty: that does not matter.
        is_pointed_at: It is whole only once the folder above says so (``POINTERS``).
    """

    name: str
    files: tuple[str, ...]
    markers: tuple[str, ...] = ()
    folder: str = "*"
    only: tuple[str, ...] = ()
    is_pointed_at: bool = False


_TRANSFORMERS = _words(
    "model*.safetensors model.safetensors.index.json pytorch_model* adapter_* config.json "
    "generation_config.json training_args.bin optimizer.pt optimizer.bin scheduler.pt scaler.pt "
    "rng_state*.pth trainer_state.json *tokenizer* special_tokens_map.json added_tokens.json "
    "vocab.* merges.txt spiece.model *processor_config.json chat_template* readme.md "
    "global_step*/* latest zero_to_fp32.py tf_model.h5 pytorch_model_fsdp_0/* optimizer_0/*"
)
# The first that fits counts.
LAYOUTS = (
    Layout(
        "Accelerate",
        ("random_states_*.pkl", "optimizer*.bin", "scheduler*.bin", "custom_checkpoint_*.pkl"),
        ("random_states_*.pkl", "trainer_state.json"),
    ),
    Layout(
        "transformers",
        _words(
            "model*.safetensors pytorch_model*.bin adapter_model.* training_args.bin optimizer.pt "
            "rng_state*.pth config.json global_step*/* optimizer_0/*"
        ),
        ("trainer_state.json",),
        folder="checkpoint-*",
        only=_TRANSFORMERS,
    ),
    Layout("DeepSpeed", ("*model_states.pt", "*optim_states.pt"), is_pointed_at=True),
    Layout("Megatron", ("mp_rank_*/*", "tp_rank_*/*"), folder="iter_*", is_pointed_at=True),
    Layout(
        "Keras' BackupAndRestore",
        ("latest.weights.h5",),
        ("training_metadata.json",),
        only=("latest.weights.h5*", "training_metadata.json*"),
    ),
)
# Files by which a checkpoint folder is seen to be one checkpoint itself, saved into it directly.
FLAT = ("*.distcp", "random_states_*.pkl", "_checkpoint_metadata", "manifest.ocdbt")
# Whoever writes one of these writes it last, whatever it is called above; where the save before has
# one, a save without is not whole.
WRITTEN_LAST = _words(
    "trainer_state.json .metadata _metadata _checkpoint_metadata commit_success* _success success "
    ".success .snapshot_metadata complete .complete completed done .done *.done _done _complete "
    "committed .committed training_metadata.json latest metadata.json random_states_*.pkl"
)
_MARKERS_WITH_CONTENT = (".metadata", "_metadata", "_checkpoint_metadata")
# Small files in which a framework names its newest whole save, by its name or number.
POINTERS = _words(
    "latest latest.txt last last.txt last_checkpoint last_checkpoint.txt latest_checkpoint "
    "latest_checkpoint.txt latest_checkpointed_iteration.txt latest_iteration.txt latest_step "
    "latest_step.txt last_step.txt latest_universal checkpoint"
)
_TENSORFLOW = r'(?m)^model_checkpoint_path:\s*"(.+)"'
_STATE_END = (
    r"(?i)\.(pt|pth|ckpt|bin|safetensors|distcp|npz|npy|h5|hdf5|keras|pkl|pickle|joblib|msgpack|zip|tar|"
    r"ubj|model|json|txt)$"
)


@dataclass(frozen=True)
class Content:
    """The files of a folder, as relative paths with /; in lower case for looking them up."""

    folder: Path
    files: tuple[str, ...]
    empty: frozenset[str]

    def has(self, patterns: Sequence[str]) -> bool:
        return any(_matches(file, patterns) for file in self.files)

    @property
    def ranks(self) -> int:
        """How many of its files say which rank wrote them."""
        return sum(bool(_rank_in(file)) for file in self.files)


_NUMBERED_RANK = r"(rng_state|random_states|__)_?\d+(_\d+)?\.(pth|pkl|distcp)$"


def _rank_in(file: str) -> bool:
    name = file.rpartition("/")[2]
    return bool(
        save_names.parse(name).ranks or re.search(_NUMBERED_RANK, name) or "rank_" in file.lower()
    )


def _matches(file: str, patterns: Sequence[str]) -> bool:
    text = file.lower()
    base = text.rpartition("/")[2]
    return any(fnmatchcase(text, p) or ("/" not in p and fnmatchcase(base, p)) for p in patterns)


def look_into(folder: Path) -> Content:
    """Return what lies in a folder, and below."""
    files: list[str] = []
    empty: list[str] = []
    waiting = [""]
    while waiting and len(files) < MOST_FILES:
        below = waiting.pop()
        for entry in os.scandir(folder / below if below else folder):
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif entry.is_file():
                files.append(path)
                if not entry.stat().st_size:
                    empty.append(path)
    return Content(folder, tuple(sorted(files)), frozenset(empty))


def find_layout(content: Content) -> Layout | None:
    """Return whose way to save a folder is of; None where nobody's that is known."""
    name = content.folder.name.lower()
    for layout in LAYOUTS:
        if fnmatchcase(name, layout.folder) and content.has(layout.files):
            if layout.only and not all(
                _matches(f, layout.only) or save_names.is_companion(f.rpartition("/")[2])
                for f in content.files
            ):
                continue
            return layout
    return None


def holds_state(content: Content) -> bool:
    """Tell whether there is anything in a folder that may be a saved state: no logs alone."""
    return content.has(WRITTEN_LAST) or any(
        file not in content.empty and not save_names.is_companion(file.rpartition("/")[2])
        for file in content.files
    )


def says_state(content: Content) -> bool:
    """Tell whether something in a folder is surely a state, or the marker of one."""
    return content.has(WRITTEN_LAST) or any(
        re.search(_STATE_END, file)
        and not file.lower().endswith((".txt", ".json"))
        and not save_names.is_companion(file.rpartition("/")[2])
        for file in content.files
    )


def is_whole(content: Content, *, needs_marker: bool = True) -> bool:
    """Tell whether a folder holds all that its framework writes into it.

    Args:
        needs_marker: Also where the layout alone says that there must be one.

    Raises:
        OSError: A file cannot be read.
    """
    layout = find_layout(content)
    if needs_marker and layout and layout.markers and not content.has(layout.markers):
        return False
    return (
        _has_metadata(content)
        and _has_all_parts(content)
        and not _is_being_written(content)
        and are_whole(content.folder, [f for f in content.files if _is_read(f)])
        and not any(_is_read(file) for file in content.empty)
    )


def _is_read(file: str) -> bool:
    """Tell whether a file has to have its end: states, and markers that are more than a mark."""
    return bool(re.search(_STATE_END, file)) or _matches(file, _MARKERS_WITH_CONTENT)


def misses_what_others_have(content: Content, before: Content) -> bool:
    """Tell whether a save lacks what the save before it has: a marker, a file, a rank."""
    if not _markers(before) <= _markers(content):
        return True
    return content.ranks < before.ranks or not _kinds(before) <= _kinds(content)


def _markers(content: Content) -> set[tuple[str, str]]:
    """Return what of a folder's files is written last, each with the folder in it, unnumbered."""
    found = set()
    for file in content.files:
        folder, _, base = file.rpartition("/")
        for pattern in WRITTEN_LAST:
            if fnmatchcase(base.lower(), pattern):
                found.add((re.sub(r"\d+", "#", folder), pattern))
    return found


def _kinds(content: Content) -> set[tuple[str, str]]:
    """Return the files of state in a folder without what differs from save to save: numbers."""
    found = set()
    for file in content.files:
        folder, _, base = file.rpartition("/")
        if re.search(_STATE_END, base) and not save_names.is_companion(base):
            found.add((re.sub(r"\d+", "#", folder), save_names.parse(base).series))
    return found


def _has_metadata(content: Content) -> bool:
    """torch.distributed.checkpoint writes .metadata last, in each folder that has shards."""
    with_shards = {f.rpartition("/")[0] for f in content.files if f.endswith(".distcp")}
    for folder in with_shards:
        metadata = f"{folder}/.metadata" if folder else ".metadata"
        if metadata not in content.files or metadata in content.empty:
            return False
    return True


def _has_all_parts(content: Content) -> bool:
    """Tell whether all parts are there that file names (00001-of-00003) or indices speak of."""
    parts: dict[tuple[str, str, int], set[tuple[int, ...]]] = {}
    for file in content.files:
        folder, _, base = file.rpartition("/")
        name = save_names.parse(base)
        if name.world is not None and name.ranks and name.role != save_names.UNFINISHED:
            key = (folder, f"{name.series}{name.numbers}", name.world)
            parts.setdefault(key, set()).add(name.ranks)
    if any(len(found) < world for (_, _, world), found in parts.items()):
        return False
    return all(_has_indexed(content, f) for f in content.files if f.endswith(".index.json"))


def _has_indexed(content: Content, index: str) -> bool:
    text = (content.folder / index).read_text(encoding="utf-8", errors="replace")
    if not text.startswith("{"):
        return True  # it says nothing
    try:
        named = set(json.loads(text)["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
    folder = index.rpartition("/")[0]
    return all((f"{folder}/{name}" if folder else name) in content.files for name in named)


def _is_being_written(content: Content) -> bool:
    """Tell whether a temporary file or folder in it has not become what it was to be."""
    for file in content.files:
        parts = file.split("/")
        if any("orbax-checkpoint-tmp" in part for part in parts):
            return True
        for end in (".tmp", ".part", ".partial", ".incomplete"):
            if parts[-1].endswith(end) and file.removesuffix(end) not in content.files:
                return True
    return False


def is_pointer_name(name: str) -> bool:
    """Tell whether a file is called as frameworks call their pointers; each rank may have one."""
    return save_names.without_rank(name) in POINTERS


def may_be_pointer(name: str) -> bool:
    """Tell whether a file may name the newest save: also big_vision's checkpoint.bv-LAST."""
    told = save_names.parse(name)
    is_last = (
        told.role == save_names.LAST and told.world is None and not re.search(_STATE_END, name)
    )
    return is_last or is_pointer_name(name)


def read_pointer(path: Path) -> str | None:
    """Return the name or number that a small text file holds; "" where it is empty.

    None where it is no such file.
    """
    try:
        if path.stat().st_size > _MOST_POINTER_BYTES:
            return None
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if found := re.search(_TENSORFLOW, text):
        text = found[1]
    if "\n" in text or text.startswith(("{", "[")):
        return None
    return text.rstrip("/").rpartition("/")[2]
