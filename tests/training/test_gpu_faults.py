"""Whether a log says that the GPU faulted, or that MPS let the training down."""

from __future__ import annotations

import pytest

from sweep.training.gpu_faults import WINDOW, find, find_unserved


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "fault"),
        ("torch.AcceleratorError: CUDA error: unspecified launch failure", "fault"),
        ("RuntimeError: CUDA error: device-side assert triggered", "fault"),
        ("CUDA error: uncorrectable ECC error encountered", "fault"),
        ("F external/xla: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", "fault"),
        ("cupy_backends...: cudaErrorLaunchFailure: unspecified launch failure", "fault"),
        ("CUDA error: MPS client failed to connect to the MPS control daemon or the", "mps"),
        ("CUDA error: the remote procedural call between the MPS server and the MPS client", ""),
        ("the hardware resources required to create MPS client have been exhausted", "mps"),
        (
            "the hardware resources required to support device connections have been exhausted",
            "mps",
        ),
        ("CUDA_ERROR_MPS_RPC_FAILURE", "mps"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "mps"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "mps"),
        ("cudaErrorDevicesUnavailable", "mps"),
        ("CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error", "fault"),
        ("CUDA error: tensor memory not completely freed", "fault"),
        ("CUDA_ERROR_NVLINK_UNCORRECTABLE", "fault"),
        ("the device is busy", ""),
        ("cudaErrorMpsClientTerminated: the MPS client has been terminated by the server", "mps"),
        ("MPS backend out of memory", ""),  # Apple's
        ("ValueError: illegal memory", ""),
    ],
)
def test_a_line(line: str, kind: str) -> None:
    assert find(["epoch 1", line, "", "CUDA kernel errors might be reported"])[0] == kind


def test_the_end_of_a_log() -> None:
    """What was survived does not count, and MPS's own words count first."""
    fault, mps = "CUDA error: misaligned address", "CUDA error: MPS server is not ready to"
    assert find([fault, *["epoch"] * WINDOW]) == ("", "")
    assert find([mps, fault]) == ("mps", mps)
    assert find([]) == ("", "")


def test_a_training_that_mps_did_not_serve_and_that_goes_on() -> None:
    """As PyTorch warns of it, which says then that there is no GPU."""
    warning = (
        "torch/cuda/__init__.py:129: UserWarning: CUDA initialization: Unexpected error from "
        "cudaGetDeviceCount(). Error 805: MPS client failed to connect to the MPS control daemon "
        "or the MPS server (Triggered internally at c10/cuda/CUDAFunctions.cpp:109.)"
    )
    assert "Error 805" in find_unserved(["epoch 0", warning, "epoch 1"])
    assert find_unserved(["epoch 0", "MPS is on", "misaligned address"]) == ""
