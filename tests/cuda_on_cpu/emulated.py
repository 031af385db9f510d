"""The CUDA backend with its kernels run on the CPU, as device ``cuda_emulated``.

``make test`` builds the module (CMake target ``cuda_on_cpu``); tests skip where it is not there.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from needle import backends
from needle.backends import cuda

NAME = "cuda_emulated"
ORDERS = ("forward", "reversed", "shuffled")


def load_module() -> ModuleType | None:
    """The compiled module, or None where it was not built; one on Python's path, as make sanitize
    puts it there, comes first."""
    for package in ("", "tests.cuda_on_cpu."):
        try:
            return importlib.import_module(package + "ndarray_backend_cuda_emulated")
        except ModuleNotFoundError:  # but one that is there and cannot be loaded is an error
            continue
    return None


module = load_module()
if module is not None:
    for index in range(module.device_count()):
        backends.register(
            NAME + (f"_{index}" if index else ""),
            lambda index=index: cuda.backend_of_device(module, index),
        )
