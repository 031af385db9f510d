"""Arithmetic operations and bytes of a kernel call, computed from its views. Called by listen.py.

Operations are those of the definition (a Winograd convolution does fewer). Elementwise work counts
one per element, normalisation a few. Every view counts as read or written once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from needle.backends.base import Epilogue, EpilogueGrad, View

# The positions of output and weight among a kernel's arguments.
CONVOLUTIONS = {
    "conv2d": (2, 1),
    "conv2d_input_grad": (0, 1),
    "conv2d_weight_grad": (0, 2),
}
PASSES = {"batch_norm": 8, "layer_norm": 8, "softmax": 5, "log_softmax": 5, "cross_entropy": 6}
NO_ARITHMETIC = ("fill", "copy", "upload", "download", "gather", "scatter", "one_hot", "where")


def operations(name: str, args: tuple[Any, ...]) -> int:
    """Return the number of additions and multiplications of the kernel ``name``."""
    if name == "matmul":
        left, out = args[0], args[2]
        return 2 * math.prod(out.shape) * left.shape[-1]
    if name in CONVOLUTIONS:
        out, weight = (args[i] for i in CONVOLUTIONS[name])
        return 2 * math.prod(out.shape) * math.prod(weight.shape[:3])
    if name in NO_ARITHMETIC:
        return 0
    largest = max((math.prod(view.shape) for view in views(args)), default=0)
    known = next((count for kernel, count in PASSES.items() if name.startswith(kernel)), 1)
    return known * largest


def bytes_moved(args: tuple[Any, ...]) -> int:
    """Return the bytes of all views among the arguments; an axis of stride 0 is read once."""
    return sum(
        view.dtype.itemsize
        * math.prod(n for n, step in zip(view.shape, view.strides, strict=True) if step)
        for view in views(args)
    )


def views(args: Any) -> Iterator[View]:
    """Yield the views among the arguments, also inside lists and epilogues."""
    for arg in args:
        if isinstance(arg, View):
            yield arg
        elif isinstance(arg, (list, Epilogue, EpilogueGrad)):
            yield from views(arg)
