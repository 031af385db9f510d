"""The WebGPU backend, whose WGSL kernels run on Metal, Vulkan and Direct3D 12.

``backends.get("webgpu")`` calls ``load``; ``"webgpu:1"`` is the second adapter. The kernels are
the .wgsl files here, called by ``required``, ``norms``, ``steps``, ``optional`` and ``images``;
``memory`` stores the dtypes.
"""

from __future__ import annotations

from ..base import Backend
from .adapters import adapter
from .images import ImageBackend, lowering
from .optional import WebGpuBackend

__all__ = ["WebGpuBackend", "load"]


def load(index: int = 0) -> Backend:
    """Return the backend of adapter ``index``; raise DeviceError if there is none."""
    kernels = WebGpuBackend if lowering() is None else ImageBackend
    return kernels(adapter(index), f"webgpu:{index}" if index else "webgpu")
