"""Constants and random tensors.

A random tensor is one call of the global ``np.random`` stream on the host, of exactly the final
shape, so that a seed gives the same numbers on every device. With a ``generator`` it is one draw of
that generator on the device. The formulas for layers are in ``fans``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..array_namespace import BACKEND, Device
from ..array_namespace import device as as_device
from ..autograd import Tensor
from ..dtypes import numpy_dtype
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import as_int_tuple, as_shape
from .generator import Generator

DTypeLike = Any


def _scaled_draw(
    host: Any,
    scale: float,
    shift: float,
    device: Device | None,
    dtype: DTypeLike,
    requires_grad: bool,
) -> Tensor:
    """Return ``host * scale + shift``.

    As in the course, needle's own arrays round the draw to the final dtype before, NumPy mode
    after the arithmetic.
    """
    drawn: NumpyArray[Any] = np.asarray(host)
    if BACKEND == "nd":
        drawn = drawn.astype(numpy_dtype(dtype, "init"))
    return Tensor(
        drawn * float(scale) + float(shift),
        device=as_device(device),
        dtype=dtype,
        requires_grad=requires_grad,
    )


def _drawn(
    generator: Generator,
    name: str,
    shape: Any,
    settings: tuple[float, float],
    device: Device | None,
    dtype: DTypeLike,
    requires_grad: bool,
) -> Tensor:
    target = as_device(device)
    return Tensor.make_const(
        generator.draw(name, shape, *settings, target, dtype), requires_grad=requires_grad
    )


@host_step
def rand(
    *shape: int,
    low: float = 0.0,
    high: float = 1.0,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return uniform numbers in [low, high), of shape ``shape``."""
    sizes = as_shape("rand", shape)
    if generator is not None:
        settings = low, high - low
        return _drawn(generator, "uniform", sizes, settings, device, dtype, requires_grad)
    host = np.random.rand(*sizes)
    return _scaled_draw(host, high - low, low, device, dtype, requires_grad)


@host_step
def randn(
    *shape: int,
    mean: float = 0.0,
    std: float = 1.0,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return normal numbers of the given mean and standard deviation."""
    sizes = as_shape("randn", shape)
    if generator is not None:
        return _drawn(generator, "normal", sizes, (mean, std), device, dtype, requires_grad)
    host = np.random.randn(*sizes)
    return _scaled_draw(host, std, mean, device, dtype, requires_grad)


@host_step
def randb(
    *shape: int,
    p: float = 0.5,
    device: Device | None = None,
    dtype: DTypeLike = "bool",
    requires_grad: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """Return 1 (True) with probability ``p``, else 0: uniform numbers compared with ``p``."""
    sizes = as_shape("randb", shape)
    if generator is not None:
        return _drawn(generator, "bernoulli", sizes, (p, 1.0), device, dtype, requires_grad)
    drawn: NumpyArray[Any] = np.asarray(np.random.rand(*sizes))
    if BACKEND == "nd":
        drawn = drawn.astype("float32")
    hits = (drawn <= float(p)).astype(numpy_dtype(dtype, "randb"))
    return Tensor(hits, device=as_device(device), dtype=dtype, requires_grad=requires_grad)


def constant(
    *shape: int,
    c: float = 1.0,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of which every element is ``c``."""
    sizes, kind = as_shape("constant", shape), numpy_dtype(dtype, "constant")
    return Tensor.make_const(as_device(device).full(sizes, c, kind), requires_grad)


def ones(
    *shape: int,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of ones."""
    return constant(*shape, c=1.0, device=device, dtype=dtype, requires_grad=requires_grad)


def zeros(
    *shape: int,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of zeros."""
    return constant(*shape, c=0.0, device=device, dtype=dtype, requires_grad=requires_grad)


def zeros_like(
    array: Tensor, *, device: Device | None = None, requires_grad: bool = False
) -> Tensor:
    """Return zeros of the shape, dtype and (unless given) device of ``array``."""
    target = array.device if device is None else device
    return zeros(*array.shape, device=target, dtype=array.dtype, requires_grad=requires_grad)


def ones_like(
    array: Tensor, *, device: Device | None = None, requires_grad: bool = False
) -> Tensor:
    """Return ones of the shape, dtype and (unless given) device of ``array``."""
    target = array.device if device is None else device
    return ones(*array.shape, device=target, dtype=array.dtype, requires_grad=requires_grad)


@host_step
def one_hot(
    n: int,
    i: Tensor,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor of shape ``i.shape + (n,)``: 1 at position ``i`` of the last axis, else 0.

    ``i``: labels, which are whole numbers in [0, n) of any dtype and shape; ShapeError for others.
    """
    (n,) = as_int_tuple("one_hot", "n", (n,))
    host = i.numpy()
    if not bool(((host >= 0) & (host < n) & (host == np.floor(host))).all()):
        raise ShapeError(
            f"one_hot: labels must be whole numbers in [0, {n}), got values from {host.min()} to "
            f"{host.max()}; raise n or correct the labels"
        )
    labels = host.astype(np.int64)
    hot: NumpyArray[Any] = np.zeros((*labels.shape, n), dtype=numpy_dtype(dtype, "one_hot"))
    np.put_along_axis(hot, labels[..., None], 1, axis=-1)
    return Tensor(hot, device=as_device(device), dtype=dtype, requires_grad=requires_grad)
