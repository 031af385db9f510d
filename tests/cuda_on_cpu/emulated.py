"""The CUDA backend with its kernels compiled for the CPU, as device ``cuda_emulated``.

``make test-all`` builds the module (CMake target ``cuda_on_cpu``); without it tests are skipped.
"""

import importlib
from types import ModuleType

import pytest

from needle import backends, config
from needle.backend_selection import BACKEND
from needle.backends import cuda

NAME = "cuda_emulated"
ORDERS = ("forward", "reversed", "shuffled")


def compiled(name: str) -> ModuleType | None:
    """Return a compiled module of this folder, with sanitizers under ``make sanitize``, or None."""
    for package in ("sanitized", "tests.cuda_on_cpu"):
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError:  # a module that exists and cannot be loaded is an error
            continue
    return None


module = compiled("ndarray_backend_cuda_emulated")
if module is not None:
    for index in range(module.device_count()):
        backends.register(
            NAME + (f"_{index}" if index else ""),
            lambda index=index: cuda.backend_of_device(module, index),
        )

NEEDED = [
    pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends"),
    pytest.mark.skipif(module is None, reason="not built: CMake target cuda_on_cpu"),
]
"""Marks of tests that run on the emulated GPU."""


def set_capability(major: int) -> None:
    """Set the compute capability of the emulated GPUs; 9 enables the kernels of sm_90."""
    assert module is not None
    module.set_capability(major)
    config.cuda_sm90.set("on" if major == 9 else "off")
