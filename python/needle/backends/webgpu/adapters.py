"""The WebGPU adapters of this machine, GPUs first and software drivers last.

Called by ``load``. ``wgpu`` is optional (extra ``webgpu``) and imported at first use.
"""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from ...errors import DeviceError

REMEDY = "install it with pip install 'needle[webgpu]', or use needle.cpu()"
_KINDS = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")
_DRIVERS = ("Metal", "Vulkan", "D3D12", "OpenGL")
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
)


def adapter(index: int) -> Any:
    """Return adapter ``index``; raise DeviceError with the reason if there is none."""
    found = adapters()
    if not found:
        raise DeviceError(
            "webgpu: no adapter was found; install a driver for Vulkan (on Debian and Ubuntu "
            "mesa-vulkan-drivers and libvulkan1), Metal or Direct3D 12, or use needle.cpu()"
        )
    if not 0 <= index < len(found):
        raise DeviceError(
            f"webgpu: adapter {index} does not exist, this machine has {len(found)}; use "
            f"needle.webgpu(0) to needle.webgpu({len(found) - 1})"
        )
    return found[index]


@lru_cache(maxsize=1)
def adapters() -> tuple[Any, ...]:
    """Return every adapter, the best first; raise DeviceError if wgpu cannot be imported."""
    try:
        wgpu = importlib.import_module("wgpu")
    except (ImportError, OSError) as reason:
        raise DeviceError(
            f"webgpu: the package wgpu cannot be imported ({reason}); {REMEDY}"
        ) from reason
    try:
        return tuple(sorted(wgpu.gpu.enumerate_adapters_sync(), key=_rank))
    except (RuntimeError, OSError) as reason:
        raise DeviceError(
            f"webgpu: the adapters cannot be listed ({reason}); update the graphics driver, "
            "or use needle.cpu()"
        ) from reason


def _rank(found: Any) -> tuple[int, int]:
    kind, driver = found.info["adapter_type"], found.info["backend_type"]
    return (
        _KINDS.index(kind) if kind in _KINDS else len(_KINDS),
        _DRIVERS.index(driver) if driver in _DRIVERS else len(_DRIVERS),
    )


def open_device(found: Any) -> Any:
    """Return a device of the adapter with its maximum limits on buffer size and buffer count."""
    limits = {name: found.limits[name] for name in _LIMITS}
    try:
        return found.request_device_sync(label="needle", required_limits=limits)
    except RuntimeError as reason:
        raise DeviceError(
            f"webgpu: {name_of(found)} cannot be opened ({reason}); update the graphics driver, "
            "or use needle.cpu()"
        ) from reason


def name_of(found: Any) -> str:
    """Return the name of an adapter, its driver, and whether it runs in software."""
    info = found.info
    software = ", software" if info["adapter_type"] == "CPU" else ""
    return f"{info['device']} ({info['backend_type']}{software})"
