"""The device openmp, whose functions in src/kernels.cc are called without Python wrappers."""

from pathlib import Path

from needle.backends import Backend
from needle.backends.native import backend_of

from . import _kernels


def load() -> Backend:
    """Return the backend; called once, at the first use of the device."""
    backend = backend_of(_kernels)
    backend.known_failures = Path(__file__).with_name("known_failures.txt").read_text().split()
    return backend
