"""Names kept for backends that are still to come, each with the reason why it cannot be used.

Called by the registry only; a row of its own kernels replaces an entry here.
"""

from __future__ import annotations

from ..errors import DeviceError
from .base import Backend


def load_cuda() -> Backend:
    """Always raises DeviceError: there are no CUDA kernels in this version."""
    raise DeviceError(
        "cuda: this version of needle has no CUDA kernels, got a request for the device; "
        "use needle.cpu() or needle.cpu_numpy()"
    )
