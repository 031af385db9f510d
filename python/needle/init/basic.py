"""Constants and plain random draws.

Every random tensor is one call of the global ``np.random`` stream, of exactly the final shape, on
the host, so a seed gives the same numbers on every device; or, with a ``generator``, one draw of
that on the device. Formulas for layers are in ``fans``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..array_namespace import BACKEND, Device, cpu
from ..array_namespace import default_device as tensor_default_device
from ..autograd import Tensor
from ..dtypes import numpy_dtype
from ..errors import ShapeError
from ..host_steps import host_step
from ..shapes import as_shape
from .generator import Generator

DTypeLike = Any


def default_device() -> Device:
    """Where a tensor goes when no device is given: ``cpu()``, or where the compiled module is
    missing the device that Tensor itself defaults to."""
    device = cpu()
    return device if device.enabled() else tensor_default_device()


def _scaled_draw(
    host: Any,
    scale: float,
    shift: float,
    device: Device | None,
    dtype: DTypeLike,
    requires_grad: bool,
) -> Tensor:
    """host * scale + shift; needle's arrays round the draw to the final dtype first, NumPy mode
    rounds last (both as the course does)."""
    drawn: NumpyArray[Any] = np.asarray(host)
    if BACKEND == "nd":
        drawn = drawn.astype(numpy_dtype(dtype, "init"))
    return Tensor(
        drawn * float(scale) + float(shift),
        device=device or default_device(),
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
    place = device or default_device()
    return Tensor.make_const(
        generator.draw(name, shape, *settings, place, dtype), requires_grad=requires_grad
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
    """Uniform in [low, high), of shape ``shape``."""
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
    """Normal with the given mean and standard deviation."""
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
    """1 (True) with probability ``p``, else 0: one uniform draw compared with ``p``."""
    sizes = as_shape("randb", shape)
    if generator is not None:
        return _drawn(generator, "bernoulli", sizes, (p, 1.0), device, dtype, requires_grad)
    drawn: NumpyArray[Any] = np.asarray(np.random.rand(*sizes))
    if BACKEND == "nd":
        drawn = drawn.astype("float32")
    hits = (drawn <= float(p)).astype(numpy_dtype(dtype, "randb"))
    return Tensor(hits, device=device or default_device(), dtype=dtype, requires_grad=requires_grad)


@host_step
def constant(
    *shape: int,
    c: float = 1.0,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Every element ``c``."""
    return Tensor(
        np.full(as_shape("constant", shape), c, dtype=numpy_dtype(dtype, "constant")),
        device=device or default_device(),
        dtype=dtype,
        requires_grad=requires_grad,
    )


def ones(
    *shape: int,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Every element 1."""
    return constant(*shape, c=1.0, device=device, dtype=dtype, requires_grad=requires_grad)


def zeros(
    *shape: int,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """Every element 0."""
    return constant(*shape, c=0.0, device=device, dtype=dtype, requires_grad=requires_grad)


def zeros_like(
    array: Tensor, *, device: Device | None = None, requires_grad: bool = False
) -> Tensor:
    """Zeros of ``array``'s shape, dtype and (unless given) device."""
    target = device or array.device
    return zeros(*array.shape, device=target, dtype=array.dtype, requires_grad=requires_grad)


def ones_like(
    array: Tensor, *, device: Device | None = None, requires_grad: bool = False
) -> Tensor:
    """Ones of ``array``'s shape, dtype and (unless given) device."""
    target = device or array.device
    return ones(*array.shape, device=target, dtype=array.dtype, requires_grad=requires_grad)


@host_step
def one_hot(
    n: int,
    i: Tensor,
    device: Device | None = None,
    dtype: DTypeLike = "float32",
    requires_grad: bool = False,
) -> Tensor:
    """A new last axis of size ``n`` that is 1 at position ``i`` and 0 elsewhere.

    ``i``: integral values in [0, n) of any dtype and shape; ShapeError for others.
    """
    host = i.numpy()
    if not bool(((host >= 0) & (host < n) & (host == np.floor(host))).all()):
        raise ShapeError(
            f"one_hot: ids must be whole numbers in [0, {n}), got values from {host.min()} to "
            f"{host.max()}; raise n or correct the ids"
        )
    ids = host.astype(np.int64)
    hot: NumpyArray[Any] = np.zeros((*ids.shape, n), dtype=numpy_dtype(dtype, "one_hot"))
    np.put_along_axis(hot, ids[..., None], 1, axis=-1)
    return Tensor(hot, device=device or default_device(), dtype=dtype, requires_grad=requires_grad)
