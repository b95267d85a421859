"""What a result came from: code, environment, data and execution, recorded and compared.

A record has four axes, each a dictionary: ``code``, ``environment``, ``data`` and ``execution``.
``capture_study`` fills them at launch, ``capture_attempt`` where an attempt trains, with the
machine in them. No record holds a secret: URLs are masked, and of the environment only variables
that change a training are kept.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.core.errors import InputError
from sweep.core.files import read_json
from sweep.core.masking import MASK, hide_arguments, mask
from sweep.core.own_version import VERSION
from sweep.core.paths import runs_folder
from sweep.core.secrets import is_secret
from sweep.core.study import Study
from sweep.provenance.code import capture_code
from sweep.provenance.data import capture_data
from sweep.provenance.machine import capture_gpus, capture_host
from sweep.provenance.packages import describe_conda, describe_python, find_python
from sweep.training.build import is_missing
from sweep.training.command.conda_and_modules import find_conda
from sweep.training.command.containers import CONTAINERS
from sweep.training.images import digest_of, record_of

# An attempt looks at no more files of data than these: that costs some ms. A re-run looks at all.
MAX_LOOKED_AT = 2_000
# Variables that change what a training computes. Which GPU it gets does not.
_VARIABLES = (
    r"^(OMP_|MKL_|OPENBLAS_|BLIS_|GOTO_|KMP_|NUMEXPR_|CUDA_|CUBLAS_|CUDNN_|NVIDIA_TF32|NCCL_|GLOO_|"
    r"TORCH_|TORCHINDUCTOR_|PYTORCH_|TF_|XLA_|JAX_|TRITON_|HIP_|ROCR_|LD_LIBRARY_PATH$|LD_PRELOAD$|"
    r"PYTHONOPTIMIZE$)"
)
_NOT_COMPARED = ("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH")


def capture_study(
    study: Study,
    environ: Mapping[str, str] | None = None,
    *,
    runs: Path | None = None,
    known: Mapping[str, Any] | None = None,
    full: bool = False,
) -> tuple[dict[str, Any], bytes]:
    """Return what is the same for all trials of a study, and the patch of what is not committed.

    Args:
        environ: The launching shell's environment; this process's when None.
        runs: The runs folder, which is no code; the default one when None.
        known: An earlier record: large files that have not changed since are not read again.
        full: Hash all data byte by byte.
    """
    environ = os.environ if environ is None else environ
    workdir = Path(study.workdir)
    code, patch = capture_code(study.command, workdir, runs or runs_folder())
    record = {
        "code": code,
        "environment": capture_environment(study, environ, known),
        "data": _capture_all_data(study, known, full=full),
        "execution": _capture_execution(study),
    }
    return record, patch


def _capture_execution(study: Study) -> dict[str, Any]:
    return {
        "command": hide_arguments(study.command),
        "launcher": study.launcher,
        "nodes": study.resources.nodes,
        "gpus_per_node": study.resources.gpu_count,
        "resources": dataclasses.asdict(study.resources),
        "sweep": VERSION,
    }


def capture_attempt(
    study: Study,
    base: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    runs: Path | None = None,
    gpus: Mapping[str, Any] | None = None,
    thorough: bool = False,
) -> dict[str, Any]:
    """Return the record of an attempt where it trains: what may have changed since ``base``.

    Args:
        study: With the live paths.
        base: The record of the launch that it belongs to; its code holds while it is frozen.
        environ: What training inherits.
        gpus: As ``machine.capture_gpus`` gives them; asked here when None.
        thorough: Look at all data, however many files.
    """
    code = base.get("code") or {}
    if not code.get("snapshot"):
        code, _ = capture_code(study.command, Path(study.workdir), runs or runs_folder())
    environment = capture_environment(study, environ, base, thorough=thorough)
    environment |= capture_gpus(environ) if gpus is None else dict(gpus)
    known = base.get("data") or {}
    few = all(entry.get("files", 0) <= MAX_LOOKED_AT for entry in known.values())
    data = _capture_all_data(study, base) if thorough or few else dict(known)
    execution = _capture_execution(study) | capture_host()
    return {"code": code, "environment": environment, "data": data, "execution": execution}


def capture_environment(
    study: Study,
    environ: Mapping[str, str],
    known: Mapping[str, Any] | None = None,
    *,
    thorough: bool = True,
) -> dict[str, Any]:
    """Return the ``environment`` axis, as far as it is known without starting anything.

    Args:
        known: The record before.
        thorough: Look through an image that is a folder; else it is as it was known.
    """
    given = study.environment
    found: dict[str, Any] = {"runtime": given.runtime, "image": given.image}
    if given.image and not given.built and given.runtime in CONTAINERS:
        image = study.at_workdir(given.image)
        found |= _capture_image(image, (known or {}).get("environment") or {}, thorough)
    found |= capture_built(study, environ)
    modules = [name for name in environ.get("LOADEDMODULES", "").split(":") if name]
    found["modules"] = modules
    seen = {**environ, **{n: v for n, v in given.env.items() if v is not None}}
    found["variables"] = {
        name: MASK if is_secret(name, value) else mask(value)
        for name, value in sorted(seen.items())
        if name not in _NOT_COMPARED and (re.match(_VARIABLES, name) or name in given.env)
    }
    return found


def capture_built(study: Study, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what is known of an image once it is built, and of what is installed in it."""
    found: dict[str, Any] = {}
    if study.environment.built:
        # Its name is the digest of what it was built from, its record has its own.
        image = Path(study.environment.built)
        record = read_json(record_of(image)) or {}
        found |= {"built": image.name, "image_sha256": record.get("digest")}
    if not is_missing(study):
        found |= _capture_installed(study, environ)
    if "packages" in found:
        lock = json.dumps(found["packages"], sort_keys=True)
        found["packages_sha256"] = hashlib.sha256(lock.encode()).hexdigest()
    return found


def _capture_installed(study: Study, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return an environment's Python and packages, where its folders tell them; ``within`` asks
    containers and modules."""
    if study.environment.runtime == "conda":
        try:
            return describe_conda(find_conda(study, environ))
        except InputError:
            return {}  # of a name that is known on the nodes alone
    python = find_python(study, environ)
    return describe_python(python) if python else {}


def _capture_image(image: Path, known: Mapping[str, Any], thorough: bool) -> dict[str, Any]:
    """Return the hash of an image, read again only where the file has changed."""
    try:
        status = image.stat()
    except OSError:
        return {}
    if image.is_dir():
        seen = None if thorough else known.get("image_sha256")
        return {"image_sha256": seen or digest_of(image)}
    stamp = [status.st_size, status.st_mtime_ns]
    if known.get("image_stamp") == stamp and known.get("image_sha256"):
        return {"image_stamp": stamp, "image_sha256": known["image_sha256"]}
    return {"image_stamp": stamp, "image_sha256": digest_of(image)}


def _capture_all_data(
    study: Study, known: Mapping[str, Any] | None, *, full: bool = False
) -> dict[str, Any]:
    before = (known or {}).get("data") or {}
    return {
        path: capture_data(
            study.at_workdir(path),
            full=full or bool(before.get(path, {}).get("full")),
            known=before.get(path),
        )
        for path in study.data
    }
