"""What programs print when memory ran out: on a GPU, on the host, in shared memory.

A training that ran out of memory leaves with exit code 1 like one with a typo. The difference
matters: samplers learn to avoid such configurations, and trying one again is of little use. The
messages are literal parts of what the libraries print; where each was seen stands beside it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

GPU = "on the GPU"
HOST = "on the host"
SHARED = "in shared memory"
TPU = "on the TPU"


@dataclass(frozen=True)
class Message:
    """A message that memory ran out.

    Attributes:
        pattern: What is searched for in a line; case counts.
        whose: Who prints it.
        where: GPU, TPU, HOST or SHARED.
        source: A public report that shows it.
    """

    pattern: str
    whose: str
    where: str
    source: str


SLURM = Message(
    # "srun: error: n1: task 0: Out Of Memory", "slurmstepd: error: Detected 1 oom_kill event in …"
    r"^(?:srun|slurmstepd)[^:]*: error: .*(?:oom[-_ ]kill|Out Of Memory)",
    "Slurm",
    HOST,
    "https://github.com/nextflow-io/nextflow/issues/5932",
)
DASK = Message(
    # A worker's nanny ends it, and starts another one.
    r"- distributed\.nanny\.memory - WARNING - Worker \S+ \(pid=\d+\) exceeded \d+% memory budget",
    "Dask",
    HOST,
    "https://github.com/dask/distributed/issues/6110",
)
MESSAGES = (
    Message(
        r"\b(?:CUDA|HIP|XPU) out of memory\.",
        "PyTorch",
        GPU,
        "https://github.com/pytorch/pytorch/issues/16417",
    ),
    Message(
        r"^torch\.(?:cuda\.)?OutOfMemoryError:",
        "PyTorch",
        GPU,
        "https://github.com/Comfy-Org/ComfyUI/issues/2021",
    ),
    Message(
        r"\bMPS backend out of memory\b",
        "PyTorch",
        GPU,
        "https://github.com/Comfy-Org/ComfyUI/issues/7440",
    ),
    Message(
        r"\b(?:CUDA|HIP) error: ?out of memory\b",
        "PyTorch",
        GPU,
        "https://github.com/pytorch/pytorch/issues/16417",
    ),
    Message(
        r"\bCuda failure (?:\d+ )?'out of memory'",
        "NCCL",
        GPU,
        "https://github.com/NVIDIA/nccl/issues/1235",
    ),
    Message(
        r"\bCUBLAS_STATUS_ALLOC_FAILED\b",
        "cuBLAS",
        GPU,
        "https://github.com/QwenLM/Qwen3/issues/873",
    ),
    Message(
        r"\bCUDNN_STATUS_ALLOC_FAILED\b",
        "cuDNN",
        GPU,
        "https://github.com/tensorflow/tensorflow/issues/39989",
    ),
    Message(
        r"\bCUDA_ERROR_OUT_OF_MEMORY\b",
        "CUDA",
        GPU,
        "https://github.com/tensorflow/tensorflow/issues/30912",
    ),
    Message(
        r"\bcudaErrorMemoryAllocation\b", "CUDA", GPU, "https://github.com/dmlc/xgboost/issues/7140"
    ),
    Message(
        r"\b(?:RESOURCE_EXHAUSTED|Resource exhausted): Out of memory\b",
        "XLA",
        GPU,
        "https://github.com/jax-ml/jax/issues/13428",
    ),
    Message(
        r"\b(?:RESOURCE_EXHAUSTED|Resource exhausted): Failed to allocate request for\b",
        "XLA",
        GPU,
        "https://github.com/kingoflolz/mesh-transformer-jax/issues/66",
    ),
    Message(
        r"\bOOM when allocating tensor with shape\b",
        "TensorFlow",
        GPU,
        "https://github.com/tensorflow/tensorflow/issues/17669",
    ),
    Message(
        r"\b(?:RESOURCE_EXHAUSTED|Resource exhausted|ResourceExhaustedError): "
        r"(?:\{\{.*\}\} )?failed to allocate memory\b",
        "TensorFlow",
        GPU,
        "https://github.com/faustomorales/keras-ocr/issues/195",
    ),
    Message(
        r"\bRan out of memory in memory space \w+\.",
        "XLA",
        TPU,
        "https://github.com/LargeWorldModel/LWM/issues/60",
    ),
    Message(
        r"^cupy\.cuda\.memory\.OutOfMemoryError\b",
        "CuPy",
        GPU,
        "https://github.com/cupy/cupy/issues/1912",
    ),
    Message(
        r"\bNCudaLib::TOutOfMemoryError\b",
        "CatBoost",
        GPU,
        "https://github.com/catboost/catboost/issues/2750",
    ),
    Message(
        r"\bMemory Object Allocation Failure\b",
        "OpenCL",
        GPU,
        "https://github.com/lightgbm-org/LightGBM/issues/4480",
    ),
    Message(
        r"\bOut of memory error on GPU \d+\.",
        "PaddlePaddle",
        GPU,
        "https://github.com/PaddlePaddle/Paddle/issues/42228",
    ),
    Message(
        r"\bDefaultCPUAllocator: (?:can't allocate memory|not enough memory)\b",
        "PyTorch",
        HOST,
        "https://github.com/pytorch/pytorch/pull/20618",
    ),
    Message(
        r"\bstd::bad_alloc\b", "C++", HOST, "https://github.com/ljanyst/ssd-tensorflow/issues/8"
    ),
    Message(
        r"^ray\.exceptions\.OutOfMemoryError\b",
        "Ray",
        HOST,
        "https://github.com/real-stanford/flingbot/issues/11",
    ),
    Message(
        r"^(?:\w+\.)*\w*MemoryError\b",
        "Python",
        HOST,
        "https://github.com/numpy/numpy/issues/17595",
    ),
    Message(
        r"\[Errno 12\] Cannot allocate memory\b",
        "Python",
        HOST,
        "https://github.com/microsoft/Graphormer/issues/7",
    ),
    Message(
        r"\bDataLoader worker \(pid \d+\) is killed by signal: Killed\b",
        "a DataLoader's worker",
        HOST,
        "https://github.com/pytorch/pytorch/issues/8976",
    ),
    Message(
        r"\bDataLoader worker \(pid \d+\) is killed by signal: Bus error\b",
        "a DataLoader's worker",
        SHARED,
        "https://github.com/pytorch/pytorch/issues/108861",
    ),
    Message(
        r"\bunable to write to file </torch_\w+>",
        "PyTorch",
        SHARED,
        "https://github.com/ultralytics/ultralytics/issues/1238",
    ),
    Message(
        r"^memory allocation of \d+ bytes failed",
        "Rust",
        HOST,
        "https://github.com/rrwick/Polypolish/issues/16",
    ),
    Message(
        r"\bcannot allocate vector of size [\d.]+ [KMGT]b\b",
        "R",
        HOST,
        "https://github.com/RausellLab/CelliD/issues/7",
    ),
    SLURM,
)
# A library that cannot even make its handle: "CUBLAS_STATUS_NOT_INITIALIZED when calling
# cublasCreate(handle)", https://discuss.pytorch.org/t/cuda-error-cublas-status-not-initialized/125450
_MAY_BE_SHORT = (
    r"\b(CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_(NOT_INITIALIZED|INTERNAL_ERROR)"
    r"|CUSOLVER_STATUS_INTERNAL_ERROR|CUFFT_ALLOC_FAILED)\b"
)
_HEAD = "Traceback (most recent call last):"
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_LAST = 20  # lines that are looked at where no exception of Python's ended it
WINDOW = 400  # lines in which an exception may begin: XLA lists its buffers after it


def explain(log: Sequence[str], exit_code: int | None) -> str | None:
    """Return in words where memory ran out, by the end of a log; None where it does not say so.

    Where an exception of Python's ended it, only that one and those that it is chained to count: a
    training that caught an earlier one and went on with a smaller batch did not fail for that.

    Args:
        log: The last lines of the output of a training that failed by itself, ``WINDOW`` or fewer.
        exit_code: Python's is 1 after an exception that nobody caught.
    """
    lines = _last_exception(log) if exit_code == 1 else list(log[-_LAST:])
    for line in map(str.strip, lines):
        for message in MESSAGES:
            if re.search(message.pattern, line):
                return f"memory ran out {message.where} ({message.whose}): {line[:200]}"
    return None


def may_be_short(log: Sequence[str]) -> bool:
    """Tell whether a training failed as one also does that finds no memory left on its GPU.

    Where it has the GPU for itself it is some other fault.
    """
    return any(re.search(_MAY_BE_SHORT, line) for line in log[-_LAST:])


def says_killed(log: Sequence[str]) -> bool:
    """Tell whether one of Slurm's programs says that the kernel killed for memory, or Dask that it
    did so itself."""
    return any(re.search(one.pattern, line) for line in log[-_LAST:] for one in (SLURM, DASK))


def _last_exception(log: Sequence[str]) -> list[str]:
    """Return what the last exception and those that caused it say, else the last lines.

    Without the code that a traceback shows, which may speak of memory as well.
    """
    heads = [place for place, line in enumerate(log) if line.strip() == _HEAD]
    if not heads:
        return list(log[-_LAST:])
    first = heads.pop()
    while heads and any(line.strip() in _CHAINED for line in log[heads[-1] : first]):
        first = heads.pop()
    found, in_code = [], False
    for line in log[first:]:
        if line.strip() == _HEAD:
            in_code = True
            continue
        in_code = in_code and line.startswith((" ", "\t"))
        if not in_code:
            found.append(line)
    return found
