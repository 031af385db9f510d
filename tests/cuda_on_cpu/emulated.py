"""The CUDA backend with its kernels run on the CPU, as device ``cuda_emulated``.

``make test-all`` builds the module (CMake target ``cuda_on_cpu``). Without it tests are skipped.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from needle import backends, config
from needle.backends import cuda

NAME = "cuda_emulated"
ORDERS = ("forward", "reversed", "shuffled")


def compiled(name: str) -> ModuleType | None:
    """A compiled module of this folder, or None where it was not built; under ``make sanitize``
    the one with sanitizers."""
    for package in ("sanitized", "tests.cuda_on_cpu"):
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError:  # but one that is there and cannot be loaded is an error
            continue
    return None


module = compiled("ndarray_backend_cuda_emulated")
if module is not None:
    for index in range(module.device_count()):
        backends.register(
            NAME + (f"_{index}" if index else ""),
            lambda index=index: cuda.backend_of_device(module, index),
        )


def set_capability(major: int) -> None:
    """Set the compute capability of the emulated GPUs; 9 switches the kernels of sm_90 on."""
    assert module is not None
    module.set_capability(major)
    config.cuda_sm90.set("on" if major == 9 else "off")
