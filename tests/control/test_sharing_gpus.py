"""What a check says of trials that share GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sweep.control.check import sharing_gpus
from sweep.control.check.lines import FAILED, OK, WARNING
from sweep.control.check.sharing_gpus import ask_mps, judge_mps
from sweep.core.study import Resources, Share
from sweep.core.system.mps import EXCLUSIVE, Identity, Mps, find_facts
from tests import mps_stub
from tests.study_rows import make_study


@pytest.mark.parametrize(
    ("executor", "share", "text"),
    [
        ("local", Share(), "up to 16 trials train on each GPU of this machine, as many as gain"),
        ("slurm", Share(max=4), "up to 4 trials train on each GPU of a task, as many as gain"),
        ("slurm", Share(max=3, measured=False), "3 trials train on each GPU of a task from the"),
    ],
)
def test_what_share_means(executor: str, share: Share, text: str) -> None:
    """By where it runs; and that memory is not asked, where nothing can."""
    resources = Resources(gpus=1, share=share)
    study = make_study(executor=executor, resources=resources, max_parallel=8)
    line = sharing_gpus.judge(study, has_nvml=True)
    assert (
        line.state == OK and line.text.startswith(text) and line.text.endswith("6 at once in all")
    )
    line = sharing_gpus.judge(study, has_nvml=False)
    assert line.state == WARNING and "nvidia-ml-py" in line.text and "[energy]" in line.advice


def test_trials_that_share_nothing() -> None:
    """Nothing is said."""
    assert sharing_gpus.look(make_study()) == []


@pytest.mark.parametrize(
    ("wanted", "why", "verdict", "text"),
    [
        ("auto", "", OK, "it starts, for GPU 0"),
        ("on", "", OK, "it starts, for GPU 0"),
        ("auto", "no program", OK, "no program; trials share the GPU without it"),
        ("on", "no program", FAILED, "it does not start for GPU 0: no program"),
    ],
)
def test_whether_mps_starts(wanted: str, why: str, verdict: str, text: str) -> None:
    line = judge_mps({"gpu": "0", "wanted": wanted, "why": why})
    assert line.state == verdict and text in line.text


@pytest.mark.real
def test_mps_is_started_once_to_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ended; what keeps it from starting is told."""
    study = make_study(resources=Resources(gpus=1, share=Share()))
    off = make_study(resources=Resources(gpus=1, share=Share(mps="off")))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    gpu = Identity("GPU-00000000-stub", EXCLUSIVE)
    monkeypatch.setattr(
        sharing_gpus, "mps_of", lambda word, _: Mps(word, lambda: find_facts(gpu, os.environ))
    )
    assert "not_asked" in ask_mps(off)
    assert "there is no nvidia-cuda-mps-control" in ask_mps(study)["why"]
    programs = mps_stub.install(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    assert ask_mps(study) == {"gpu": "0", "wanted": "auto", "why": ""}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "no GPU" in ask_mps(study)["not_asked"]
