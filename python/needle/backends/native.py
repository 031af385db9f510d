"""The backend of a compiled module, with a method for each kernel that the module exports.

The module has no attribute for a row of the kernel table that is not compiled; the class then keeps
the method of Backend, and the definition in ``needle/accelerated`` runs. ``backends.get`` calls
``load``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from ..config import CPU_ISA, NUM_THREADS, conv2d_algorithm
from ..contexts import main_interpreter
from ..errors import DeviceError
from .base import OPTIONAL, REQUIRED, SERVICES, UNARY, Backend

MODULE = "needle.backend_ndarray.ndarray_backend_cpu"

COURSE = ("matmul_tiled", "__tile_size__", "__device_name__")
"""Attributes of a device that course programs use, in addition to the interface."""


def load() -> Backend:
    """Return the CPU backend; DeviceError, with the remedy, if it cannot be imported.

    Raises RuntimeError in a sub-interpreter.
    """
    if not main_interpreter:
        raise RuntimeError(
            "cpu: needle's compiled kernels work in the main interpreter only, got a "
            "sub-interpreter; set NEEDLE_BACKEND=np in it, or use a process"
        )
    try:
        # Imported by name, because the compiled module is optional.
        module = importlib.import_module(MODULE)
    except ImportError as reason:
        raise DeviceError(
            f"cpu: the compiled module {MODULE} cannot be imported ({reason}); build it with "
            "'pip install .' or 'make build', or use the NumPy device needle.cpu_numpy()"
        ) from reason
    configure(module)
    return backend_of(module)


def configure(module: ModuleType) -> None:
    """Apply the variables and settings of ``config``; raise an error for an invalid value."""
    isa, threads = CPU_ISA.read(), NUM_THREADS.read()
    if isa and isa not in (available := module.available_isas()):
        raise DeviceError(
            f"cpu: {CPU_ISA.name}={isa!r} names no instruction set that runs here; "
            f"use one of {', '.join(available)}, or unset it to use the best"
        )
    if isa:
        module.select_isa(isa)
    if threads:
        if not threads.isdecimal() or not 1 <= int(threads) <= 4096:
            raise DeviceError(
                f"cpu: {NUM_THREADS.name} must be a whole number from 1 to 4096, got {threads!r}; "
                "unset it to use every core"
            )
        module.set_num_threads(int(threads))
    conv2d_algorithm.follow(module.select_conv2d)


def backend_of(module: ModuleType, **special: Any) -> Backend:
    """Return an instance of a Backend subclass whose methods are the module's functions.

    Functions of a compiled module do not bind ``self``, so a call reaches the kernel directly.
    ``special`` adds members, or replaces those of the module.
    """
    names = (*REQUIRED, *OPTIONAL, *SERVICES, *COURSE)
    members: dict[str, Any] = {n: getattr(module, n) for n in names if hasattr(module, n)}
    members["name"] = module.__device_name__
    members["optional_unary"] = tuple(
        name for name in getattr(module, "unary_names", ()) if name not in UNARY
    )
    members.update(special)
    if missing := [name for name in REQUIRED if name not in members]:
        raise DeviceError(
            f"{module.__name__}: the module lacks {', '.join(missing)}, so it belongs to another "
            "version; build it again with 'pip install .'"
        )
    members["module"] = module
    members["__doc__"] = f"The kernels of {module.__name__}."
    made: type[Backend] = type("NativeBackend", (Backend,), members)
    return made()
