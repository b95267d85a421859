"""What DVC's files say of data: hashes in ``.dvc`` files and in ``dvc.lock``."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

MAX_BYTES = 4 << 20
LOCK = "dvc.lock"
_HASHES = ("md5", "etag", "checksum", "version_id")


def read_outs(file: Path) -> Iterator[tuple[Path, str]]:
    """Yield (absolute path, hash) of what a ``.dvc`` file or a ``dvc.lock`` tracks.

    A file that cannot be read or understood tracks nothing.
    """
    found = _load(file)
    if file.name != LOCK:
        yield from _outs(found, file.parent, found.get("wdir"))
        return
    pipeline = _load(file.with_name("dvc.yaml")).get("stages")
    # Since DVC 2 the stages have a key of their own, before they lay at the top.
    stages = found.get("stages", found)
    for name, stage in stages.items() if isinstance(stages, Mapping) else ():
        written = pipeline.get(str(name).partition("@")[0]) if isinstance(pipeline, Mapping) else {}
        if isinstance(stage, Mapping):
            wdir = written.get("wdir") if isinstance(written, Mapping) else None
            yield from _outs(stage, file.parent, wdir)


def _outs(stage: Mapping[str, Any], folder: Path, wdir: Any) -> Iterator[tuple[Path, str]]:
    outs = stage.get("outs")
    base = os.path.join(folder, wdir) if isinstance(wdir, str) else str(folder)
    for out in outs if isinstance(outs, list) else ():
        if not isinstance(out, Mapping) or not isinstance(out.get("path"), str):
            continue
        known = next((out[key] for key in _HASHES if isinstance(out.get(key), str)), None)
        if known is None and out.get("files"):  # versions in a bucket, file by file
            text = json.dumps(out["files"], sort_keys=True, default=str)
            known = hashlib.sha256(text.encode()).hexdigest()
        if known is not None:
            yield Path(os.path.normpath(os.path.join(base, out["path"]))), known


def _load(file: Path) -> Mapping[str, Any]:
    try:
        if file.stat().st_size > MAX_BYTES:
            return {}
        found = YAML(typ="safe").load(file.read_bytes())
    except (OSError, YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
