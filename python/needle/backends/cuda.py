"""The CUDA backend: one Backend per GPU, made from the compiled module ``ndarray_backend_cuda``.

The module is optional: it is built if nvcc is found, and can be imported without a GPU.
``backends.get("cuda")`` calls ``load``; ``"cuda:1"`` is the second GPU.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from ..config import CUDA_EXACT, CUDA_SYNC, cuda_sm90, matmul_precision
from ..dtypes import NAMES
from ..errors import DeviceError
from .base import Backend
from .native import backend_of

MODULE = "needle.backend_ndarray.ndarray_backend_cuda"

BFLOAT16_KERNELS = (
    *("conv2d", "conv2d_input_grad", "conv2d_weight_grad", "batch_norm", "batch_norm_grad"),
    *("max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad"),
    *("apply_epilogue", "relu_grad"),
)
"""The optional kernels that read and write bfloat16, in addition to the elementwise ones."""


def load(index: int = 0) -> Backend:
    """Return the backend of GPU ``index``; DeviceError, with the reason, if it cannot be used."""
    try:
        module = importlib.import_module(MODULE)
    except ImportError as reason:
        raise DeviceError(
            f"cuda: the compiled module {MODULE} cannot be imported ({reason}); build needle on a "
            "machine with a GPU and nvcc 12.4 or later, or with NEEDLE_CUDA=on, or use needle.cpu()"
        ) from reason
    return backend_of_device(module, index)


def _record_graph(module: ModuleType, index: int, run: Callable[[], None]) -> Callable[[], None]:
    graph = module.Graph(index)
    try:
        run()
    except BaseException:
        graph.abandon()
        raise
    graph.finish()
    launch: Callable[[], None] = graph.launch
    return launch


def backend_of_device(module: ModuleType, index: int) -> Backend:
    """Return a Backend that runs the module's kernels on one of its devices."""
    count = module.device_count()
    if count == 0:
        raise DeviceError(
            f"cuda: no GPU can be used here ({module.why()}); use needle.cpu() or "
            "needle.cpu_numpy()"
        )
    if not 0 <= index < count:
        raise DeviceError(
            f"cuda: GPU {index} does not exist, this machine has {count}; use needle.cuda(0) to "
            f"needle.cuda({count - 1})"
        )
    module.set_exact(CUDA_EXACT.read() not in ("", "0"))
    module.set_synchronous(CUDA_SYNC.read() not in ("", "0"))
    matmul_precision.follow(module.set_matmul_precision)
    cuda_sm90.follow(lambda value: module.enable_sm90(value == "on"))
    precisions = tuple(module.matmul_precisions_of(index))
    return backend_of(
        module,
        dtypes=NAMES if "bf16" in precisions else Backend.dtypes,
        bfloat16_kernels=(*BFLOAT16_KERNELS, *module.unary_names),
        matmul_precisions=precisions,
        name=module.__device_name__ + (f":{index}" if index else ""),
        allocate=_bound(module.allocate_on, index),
        memory_stats=_bound(module.memory_stats_of, index),
        empty_cache=_bound(module.empty_cache_of, index),
        synchronize=_bound(module.synchronize_on, index),
        record_graph=_bound(_record_graph, module, index),
        run_images=_bound(module.run_images_on, index),
        pin=_bound(module.pin_on, index),
    )


def _bound(function: Callable[..., Any], *first: Any) -> Any:
    """Return a method that ignores ``self`` and passes ``first`` before its arguments."""
    return staticmethod(partial(function, *first))  # Python 3.13 warns of a bare partial in a class
