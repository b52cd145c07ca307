"""The peak of the memory that a function needs on top of what is there when it begins.

On Linux it is the high-water mark of the process's resident memory, which the kernel can reset:
it sees everything, torch's tensors, the libraries' scratch space and the fused kernels' alike.
Free memory that the allocator holds back is returned first, or a step would reuse it unseen.
Elsewhere it is the peak of what torch's profiler sees torch allocate: tensors alone, but to the
byte, and the same on every machine.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def peak_extra_bytes(function: Callable[[], object]) -> int:
    """Call `function`; the largest amount of additional memory in use at any one time."""
    gc.collect()
    return _resident(function) if _reset() else peak_tensor_bytes(function)


def _reset() -> bool:
    """Begin the high-water mark again at what is resident now; whether that is possible."""
    try:
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)
        _RESET.write_text("5")
        return _kilobytes("VmHWM") > 0
    except (OSError, TypeError):
        return False


def _resident(function: Callable[[], object]) -> int:
    before = _kilobytes("VmRSS")
    function()
    return max(0, _kilobytes("VmHWM") - before) * 1024


def _kilobytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"{_STATUS} has no {field}")


def peak_tensor_bytes(function: Callable[[], object]) -> int:
    """Call `function`; the most that the tensors it makes take up at any one time."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        function()
    recorded = profiler.profiler
    assert recorded is not None and recorded.kineto_results is not None
    changes = sorted(
        (event.start_ns(), event.nbytes())
        for event in recorded.kineto_results.events()
        if event.name() == "[memory]"
    )
    held = peak = 0
    for _, change in changes:
        held += change
        peak = max(peak, held)
    return peak
