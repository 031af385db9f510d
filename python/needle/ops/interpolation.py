"""Resample signals and images: nearest, linear, cubic. Called by ``nn.Upsample``.

Each axis is resampled separately: an output is a weighted sum of a few inputs, its taps. The
positions follow PyTorch; the cubic weights are those of Keys 1981 with a = -0.75.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ..autograd import Tensor, as_operand
from ..errors import ShapeError, UnknownNameError, check_choice
from ..host_steps import host_step
from ..shapes import MAX_SIZE, as_int_tuple, product, shape_of
from .adaptive_pooling import adaptive_avg_pool2d
from .indexing import Embedding
from .registry import op
from .repetition import repeat_interleave
from .shape import permute, reshape

Taps = tuple[tuple[NumpyArray[Any], NumpyArray[Any]], ...]
MODES = {
    "nearest": (3, 4),
    "nearest-exact": (3, 4),
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "area": (4,),
}
"""The modes, and the number of input axes that each takes."""


@op(Embedding)
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Return x (N, C, L) or (N, C, H, W) resampled to ``size``, or by ``scale_factor``.

    Pass exactly one of the two: one number, or one per axis. With a factor, the output size is
    floor(size * factor). mode: "nearest", "nearest-exact", "linear" (N, C, L), "bilinear",
    "bicubic" or "area" (N, C, H, W). ``align_corners``: the corner pixels of both grids coincide;
    else their outer edges do. It applies to linear and cubic modes. ShapeError for invalid shapes
    or sizes, UnknownNameError for another mode.
    """
    shape = shape_of("interpolate", x)
    x = as_operand(x)
    _check_mode(mode, shape, align_corners)
    target, factors = _target(shape, size, scale_factor)
    if mode == "area":
        return adaptive_avg_pool2d(x, (target[0], target[1]))
    for axis, (count, factor) in enumerate(zip(target, factors, strict=True), 2):
        way = mode, bool(align_corners), shape[axis], count, factor, str(x.dtype)
        times = count // shape[axis]
        x = repeat_interleave(x, times, axis) if _repeats(*way) else _weighted(x, axis, way)
    return x


def _check_mode(mode: str, shape: tuple[int, ...], align_corners: bool | None) -> None:
    check_choice("interpolate", "mode", mode, MODES, UnknownNameError)
    if len(shape) not in MODES[mode] or 0 in shape[2:]:
        axes = {3: "(N, C, L)", 4: "(N, C, H, W)"}
        layouts = " or ".join(axes[n] for n in MODES[mode])
        raise ShapeError(
            f"interpolate: mode {mode!r} takes {layouts} with no empty axis after C, got shape "
            f"{shape}; reshape the input or choose another mode"
        )
    if align_corners is not None and (mode.startswith("nearest") or mode == "area"):
        raise ValueError(
            "interpolate: align_corners applies only to linear and cubic modes, got "
            f"{align_corners} with mode {mode!r}; leave it out"
        )


def _target(
    shape: tuple[int, ...], size: Any, factor: Any
) -> tuple[tuple[int, ...], tuple[float | None, ...]]:
    """Return the output sizes, and the scale factors if the caller gave them, else None."""
    axes = len(shape) - 2
    if (size is None) == (factor is None):
        raise ValueError(
            f"interpolate: exactly one of size and scale_factor must be given, got size={size} and "
            f"scale_factor={factor}; pass one"
        )
    given = size if factor is None else factor
    several = isinstance(given, Sequence) or getattr(given, "ndim", 0) == 1
    each = tuple(given) if several else (given,) * axes
    if len(each) != axes or not all(0 < value <= MAX_SIZE for value in each):
        raise ShapeError(
            f"interpolate: size or scale_factor must be one positive number or {axes}, got "
            f"{given!r} for shape {shape}; pass one for each axis after C"
        )
    if factor is None:
        return as_int_tuple("interpolate", "size", each), (None,) * axes
    sizes = tuple(int(n * f) for n, f in zip(shape[2:], each, strict=True))
    if min(sizes) < 1:
        raise ShapeError(
            f"interpolate: the output must not be empty, got sizes {sizes} from shape {shape}; "
            "use a larger scale_factor"
        )
    return sizes, each


@lru_cache(256)
def _taps(
    mode: str, align_corners: bool, size: int, count: int, factor: float | None, dtype: str
) -> Taps:
    """Return, for each tap, the input index of each output, and the weights as a column.

    A single tap has weight 1.
    """
    out = np.arange(count)
    if mode.startswith("nearest"):
        nearest = np.minimum(_nearest(mode, out, size, factor, dtype), size - 1)
        return ((nearest, np.ones((count, 1))),)
    if align_corners:
        place = out * ((size - 1) / (count - 1) if count > 1 else 0.0)
    else:
        place = (out + 0.5) * (1 / factor if factor else size / count) - 0.5
    if mode == "bicubic":
        low = np.floor(place).astype(np.int64)
        offsets = (-1, 0, 1, 2)
        return tuple(
            (np.clip(low + k, 0, size - 1), _keys(np.abs(place - low - k))[:, None])
            for k in offsets
        )
    place = np.maximum(place, 0.0)
    low = np.minimum(place.astype(np.int64), size - 1)
    share = (place - low)[:, None]
    return (low, 1 - share), (np.minimum(low + 1, size - 1), share)


def _nearest(
    mode: str, out: NumpyArray[Any], size: int, factor: float | None, dtype: str
) -> NumpyArray[Any]:
    """Return the input index of each output; ties at pixel borders round as in PyTorch."""
    real = np.dtype(dtype).type
    scale = real(1 / factor) if factor else real(size) / real(len(out))
    if mode == "nearest":
        place = (out.astype(real) * scale).astype(np.float32)
    else:
        middle = ((out + 0.5) * np.float64(scale) - 0.5).astype(real)
        place = (np.maximum(middle, real(0)) + real(0.5)).astype(np.float32)
    return np.asarray(np.floor(place).astype(np.int64))


def _keys(distance: NumpyArray[Any], a: float = -0.75) -> NumpyArray[Any]:
    """Return Keys' cubic kernel at distances in [0, 2]."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.asarray(np.where(d <= 1, near, far))


def _repeats(*way: Any) -> bool:
    """Return True if each input element is repeated equally often, in order."""
    (index, _), *more = _taps(*way)
    times, rest = divmod(len(index), way[2])
    return not (more or rest) and np.array_equal(index, np.arange(len(index)) // times)


def _weighted(x: Tensor, axis: int, way: Any) -> Tensor:
    """Return the weighted sums of x along ``axis``."""
    order = (axis, *(i for i in range(len(x.shape)) if i != axis))
    first = permute(x, order)
    rest = first.shape[1:]
    rows = reshape(first, (first.shape[0], product(rest)))
    total = None
    for tap in range(len(_taps(*way))):
        part: Tensor = Embedding(_index(way, tap, x.device).realize_cached_data())(rows)
        if len(_taps(*way)) > 1:
            part = part * _column(way, tap, x.device)
        total = part if total is None else total + part
    assert total is not None
    back = sorted(range(len(order)), key=order.__getitem__)
    return permute(reshape(total, (total.shape[0], *rest)), back)


@host_step
def _index(way: Any, tap: int, device: Any) -> Tensor:
    """Return the input index of each output at one tap."""
    return Tensor(_taps(*way)[tap][0], device=device, dtype="int64", requires_grad=False)


@host_step
def _column(way: Any, tap: int, device: Any) -> Tensor:
    """Return the weights of one tap as a column."""
    return Tensor(_taps(*way)[tap][1], device=device, dtype=way[-1], requires_grad=False)
