"""Facts about an installation of needle: versions, devices and settings.

Called by ``python -m needle info`` and by ``apps/training`` for the record of a run.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ..array_namespace import Device, default_device
from ..config import given

PACKAGES = (
    *("numpy", "cloudpickle", "tqdm", "matplotlib", "tensorboardX"),
    *("pillow", "simplejpeg", "pyarrow", "fsspec", "s3fs", "aiohttp", "onnx", "onnxruntime"),
    *("bottle", "torch"),
)
"""Packages that may explain, by their versions, what a program does."""


def facts(devices: Sequence[Device]) -> dict[str, Any]:
    """Return versions, machine, devices and environment as JSON values.

    "devices" gives, for each of ``devices``, its details or the reason why it cannot be used;
    "packages" gives the version of each package, or None if it is not installed.
    """
    return {
        "location": str(Path(__file__).resolve().parents[1]),
        "python": platform.python_version(),
        "machine": {
            "system": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory_bytes": _memory(),
        },
        "packages": {name: version_of(name) for name in PACKAGES},
        "default device": repr(default_device()),
        "devices": {repr(device): _state(device) for device in devices},
        "environment": given(),
    }


def version_of(package: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Return the processor's model name, or Python's own description if the system has none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def _memory() -> int | None:
    """Return the machine's memory in bytes, or None if the system does not report it."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _state(device: Device) -> str:
    """Describe what a device runs on, or why it cannot be used."""
    reason = device.why()
    if reason is not None:
        return f"not usable: {reason}"
    module: Any = getattr(getattr(device, "backend", None), "module", None)
    if not hasattr(module, "isa"):
        return "usable"
    return (
        f"usable: instruction set {module.isa} of {', '.join(module.available_isas())}; "
        f"{module.num_threads()} threads; {_caches(module)}"
    )


def _caches(module: Any) -> str:
    """Return the sizes of a core's data caches, which determine the blocking of matrix products."""
    found = module.caches()
    return f"L1 {found['l1'] >> 10} KiB ({found['l1_ways']} ways), L2 {found['l2'] >> 10} KiB"


def describe(found: dict[str, Any]) -> str:
    """Return the facts as text: one line for each, groups indented."""
    lines: list[str] = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"{name}:", *(f"  {key}: {_text(what)}" for key, what in value.items())]
        else:
            lines.append(f"{name}: {_text(value)}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return "not installed" if value is None else str(value)
