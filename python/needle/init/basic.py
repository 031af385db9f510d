"""Constants and random tensors.

A random tensor is drawn by one call to the global ``np.random`` stream on the host, with exactly
the final shape, so that a seed gives the same numbers on every device. With a ``generator`` it is
one draw of that generator on the device. The formulas for layers are in ``fans``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..array_namespace import BACKEND, Device, default_dtype
from ..array_namespace import device as as_device
from ..autograd import Tensor
from ..dtypes import numpy_dtype
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import Shape, as_int_tuple, as_shape
from .generator import Generator

DTypeLike = Any


def _random(
    name: str,
    sample: Any,
    sizes: Shape,
    settings: tuple[float, float],
    device: Device | None,
    dtype: DTypeLike,
    requires_grad: bool,
    generator: Generator | None,
) -> Tensor:
    """Return ``a + b * sample(*sizes)``, where settings is (a, b), or draw from the generator.

    As in the course, needle's own arrays round the sample to the final dtype before the arithmetic,
    and NumPy mode rounds after it.
    """
    device, (a, b) = as_device(device), settings
    if generator is not None:
        drawn = generator.draw(name, sizes, a, b, device, dtype)
        return Tensor.make_const(drawn, requires_grad=requires_grad)
    host: NumpyArray[Any] = np.asarray(sample(*sizes))
    if BACKEND == "nd":
        host = host.astype(numpy_dtype(dtype, "init", default_dtype))
    host = host * float(b) + float(a)
    return Tensor(host, device=device, dtype=dtype, requires_grad=requires_grad)


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
    """Return uniform random numbers in [low, high)."""
    sizes, settings, sample = as_shape("rand", shape), (low, high - low), np.random.rand
    return _random("uniform", sample, sizes, settings, device, dtype, requires_grad, generator)


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
    """Return normally distributed random numbers with the given mean and standard deviation."""
    sizes, settings, sample = as_shape("randn", shape), (mean, std), np.random.randn
    return _random("normal", sample, sizes, settings, device, dtype, requires_grad, generator)


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
    sizes, device = as_shape("randb", shape), as_device(device)
    if generator is not None:
        drawn = generator.draw("bernoulli", sizes, p, 1.0, device, dtype)
        return Tensor.make_const(drawn, requires_grad=requires_grad)
    host: NumpyArray[Any] = np.asarray(np.random.rand(*sizes))
    if BACKEND == "nd":
        host = host.astype("float32")
    hits = (host <= float(p)).astype(numpy_dtype(dtype, "randb", default_dtype))
    return Tensor(hits, device=device, dtype=dtype, requires_grad=requires_grad)


def constant(
    *shape: int,
    c: float = 1.0,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Return a tensor in which every element is ``c``."""
    sizes, kind = as_shape("constant", shape), numpy_dtype(dtype, "constant", default_dtype)
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
    kind = numpy_dtype(dtype, "one_hot", default_dtype)
    hot: NumpyArray[Any] = np.zeros((*labels.shape, n), dtype=kind)
    np.put_along_axis(hot, labels[..., None], 1, axis=-1)
    return Tensor(hot, device=as_device(device), dtype=dtype, requires_grad=requires_grad)
