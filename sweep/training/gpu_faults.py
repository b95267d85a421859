"""What programs print when a GPU faulted under them, or CUDA's MPS let them down.

Under MPS a fatal fault reaches every training on the GPU, and none is told whose it was. The texts
are those of CUDA's error codes (cudaGetErrorString, and the names that frameworks print).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

FAULT, MPS = "fault", "mps"
WINDOW = 60  # last lines: a fault that was survived is far above them

# After these CUDA says that the process must be ended and started again.
_FAULT = (
    r"(?i)\ban illegal (?:memory access|instruction) was encountered\b"
    r"|\bunspecified launch (?:failure|error)\b|\bmisaligned address\b|\binvalid program counter\b"
    r"|\bhardware stack error\b|\boperation not supported on global/shared address space\b"
    r"|\bdevice-side assert triggered\b|\bthe launch timed out and was terminated\b"
    r"|\buncorrectable (?:NVLink|ECC) error\b|\binvalid access of peer GPU memory\b"
    r"|\btensor memory not completely freed\b"
    r"|\bCUDA_ERROR_(?:ILLEGAL_(?:ADDRESS|INSTRUCTION)|LAUNCH_(?:FAILED|TIMEOUT)"
    r"|MISALIGNED_ADDRESS|INVALID_(?:PC|ADDRESS_SPACE)|HARDWARE_STACK_ERROR|ASSERT"
    r"|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|CONTAINED|TENSOR_MEMORY_LEAK)\b"
    r"|\bcudaError(?:IllegalAddress|IllegalInstruction|LaunchFailure|LaunchTimeout"
    r"|MisalignedAddress|InvalidPc|InvalidAddressSpace|HardwareStackError|Assert|ECCUncorrectable"
    r"|NvlinkUncorrectable|Contained|TensorMemoryLeak)\b"
)
# 805 to 810: no connection, a call that failed, not ready, too many clients, ended by the server.
# 46: the server has no room for one more, or a GPU in Exclusive_Process is held by another's.
_MPS = (
    r"\bMPS client failed to connect\b|\bMPS server is not ready\b"
    r"|\bremote procedural call between the MPS server and the MPS client failed\b"
    r"|\brequired to (?:create MPS client|support device connections)\b"
    r"|\bdevices? ?(?:\(s\) is/are|are) busy or unavailable\b"
    r"|\bcudaErrorDevicesUnavailable\b|\bCUDA_ERROR_DEVICE_UNAVAILABLE\b"
    r"|\bMPS client has been terminated\b"
    r"|\bCUDA_ERROR_MPS_\w+|\bcudaErrorMps\w+"
)


def find_unserved(log: Sequence[str]) -> str:
    """Return the line that says that MPS did not serve a training; "" where none does.

    Frameworks only warn of it, say that there is no GPU, and many a script trains on the CPU then.

    Args:
        log: The first lines of the output of a training that has not failed.
    """
    return next((line.strip()[:200] for line in log if re.search(_MPS, line)), "")


def find(log: Sequence[str]) -> tuple[str, str]:
    """Return FAULT, MPS or "" by the end of a log, and the line that says so.

    Args:
        log: The last lines of the output of a training that failed.
    """
    for kind, pattern in ((MPS, _MPS), (FAULT, _FAULT)):
        for line in reversed(log[-WINDOW:]):
            if re.search(pattern, line):
                return kind, line.strip()[:200]
    return "", ""
