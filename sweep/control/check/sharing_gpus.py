"""What ``resources.share`` means where a study runs, and what is not known of its GPUs there."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

from sweep.control.check.lines import FAILED, OK, WARNING, Fact, Line
from sweep.core.executors import kind_of
from sweep.core.study import Study
from sweep.core.system.gpus import find_gpus
from sweep.core.system.mps import OFF, ON
from sweep.core.system.shared_cards import mps_of, sampler_of

NVML = "pynvml"  # the module of nvidia-ml-py


def look(study: Study) -> list[Line]:
    """Return the line on trials that share GPUs; none where they share none.

    Args:
        study: Whose executor is decided.
    """
    if study.resources.share is None:
        return []
    return [judge(study, has_nvml=importlib.util.find_spec(NVML) is not None)]


def judge(study: Study, *, has_nvml: bool) -> Line:
    """Return that line.

    Args:
        has_nvml: Whether the package that asks the GPUs is installed.
    """
    share = study.resources.share
    assert share is not None
    here = kind_of(study).shares_this_machine
    whose = "this machine" if here else "a task"
    text = (
        f"up to {share.max} trials train on each GPU of {whose}, as many as gain and fit"
        if share.measured
        else f"{share.max} trials train on each GPU of {whose} from the start"
    )
    text += f"; {study.parallel} at once in all"
    if has_nvml:
        return Line("sharing", OK, text)
    unknown = "the GPUs' memory cannot be asked: nvidia-ml-py is not installed"
    if share.measured:
        unknown += ", so that reports, CPUs and what runs out of memory decide"
    return Line(
        "sharing",
        WARNING,
        f"{text}; {unknown}",
        "pip install 'sweep-hpo[energy]' into sweep's own Python, which the tasks run too.",
    )


def ask_mps(study: Study) -> dict[str, Any]:
    """Return whether CUDA's MPS can be started for the first GPU here: by starting it once."""
    share = study.resources.share
    assert share is not None
    names = find_gpus(os.environ)
    if share.mps == OFF:
        return {"not_asked": "the study file says mps: off"}
    if not names:
        return {"not_asked": "no GPU is seen on the node"}
    mps = mps_of(share.mps, sampler_of(names[0]))
    mps.begin()
    try:
        return {"gpu": names[0], "wanted": share.mps, "why": mps.why}
    finally:
        mps.end()


def judge_mps(fact: Fact) -> Line:
    """Judge whether CUDA's MPS serves the trials of a GPU."""
    if not fact["why"]:
        return Line("mps", OK, f"it starts, for GPU {fact['gpu']}")
    text = f"it does not start for GPU {fact['gpu']}: {fact['why']}"
    if fact["wanted"] == ON:
        return Line("mps", FAILED, text, "Write mps: auto, or ask the site about CUDA's MPS.")
    return Line("mps", OK, f"{text}; trials share the GPU without it")
