# Trail 4 of 30: broadcasting and reshaping as arithmetic on tuples.
# Next: python/needle/ndarray/array.py
"""Arithmetic on shapes and strides: pure functions of tuples of ints, used on every higher floor.

The functions know no array and no backend. Those that check a user's input take the operation's
name first, for the error message. Strides count elements, not bytes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from functools import cmp_to_key, lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from .config import MAX_DIMS
from .errors import DTypeError, IndexingError, ShapeError

Shape = tuple[int, ...]
Strides = tuple[int, ...]
Pair = tuple[int, int]
Size = int | Pair
"""A size of a window: one for rows and columns, or one for each."""

MAX_SIZE = 2**60
_CACHED = 4096
_INTS = frozenset({int})


def product(shape: Iterable[int]) -> int:
    """Return the number of elements of ``shape``; 1 for ()."""
    return math.prod(shape)


@lru_cache(_CACHED)
def compact_strides(shape: Shape) -> Strides:
    """Return row-major strides, in which an axis of size 0 counts as size 1.

    >>> compact_strides((2, 3, 4))
    (12, 4, 1)
    """
    ### BEGIN YOUR SOLUTION [compact-strides]
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size or 1
    return tuple(reversed(strides))
    ### END YOUR SOLUTION


def shape_of(op: str, x: Any) -> Shape:
    """Return the shape of an operation's input; TypeError for one without a shape."""
    try:
        shape: Shape = tuple(x.shape)
    except AttributeError:
        raise TypeError(
            f"{op}: the input must be a Tensor or an array, got {type(x).__name__}; "
            "make it one with needle.Tensor(...)"
        ) from None
    return shape


def shape_with(op: str, x: Any, layout: str, *ndims: int, remedy: str = "reshape it") -> Shape:
    """Return the shape of x; ShapeError, which names ``layout``, for a rank not in ``ndims``."""
    shape = shape_of(op, x)
    if len(shape) not in ndims:
        raise ShapeError(f"{op}: the input must be {layout}, got shape {shape}; {remedy}")
    return shape


def _can_be_key(value: Any) -> bool:
    """Return True for plain ints and tuples of them; as keys, 1.0 and True would be equal to 1."""
    return (type(value) is tuple and _INTS.issuperset(map(type, value))) or type(value) is int


def as_shape(op: str, shape: Any) -> Shape:
    """Return a shape (an int or a sequence of ints) as a tuple; ShapeError if it is invalid."""
    return _known_shape(op, shape) if _can_be_key(shape) else _as_shape(op, shape)


def _as_shape(op: str, shape: Any) -> Shape:
    result = as_int_tuple(op, "shape", shape)
    if any(size < 0 for size in result):
        raise ShapeError(f"{op}: sizes must not be negative, got shape {result}")
    check_ndim(op, len(result))
    if math.prod(size or 1 for size in result) > MAX_SIZE:  # strides must fit 64 bits too
        raise ShapeError(f"{op}: an array may have at most 2**60 elements, got shape {result}")
    return result


_known_shape = lru_cache(_CACHED)(_as_shape)


def as_int_tuple(op: str, what: str, value: Any) -> tuple[int, ...]:
    """Return an int or a sequence of ints, which may be NumPy's, as a tuple of Python ints."""
    items = value if isinstance(value, Iterable) else (value,)
    try:
        result = tuple(operator.index(item) for item in items)
    except TypeError:
        raise DTypeError(f"{op}: {what} must be an int or a tuple of ints, got {value!r}") from None
    if result and not -MAX_SIZE <= min(result) <= max(result) <= MAX_SIZE:
        raise ShapeError(f"{op}: {what} must be at most 2**60, got {value!r}; pass a smaller one")
    return result


def check_ndim(op: str, ndim: int) -> None:
    """Raise ShapeError for more than MAX_DIMS axes."""
    if ndim > MAX_DIMS:
        raise ShapeError(f"{op}: an array may have at most {MAX_DIMS} axes, got {ndim}; reshape it")


@lru_cache(_CACHED)
def broadcast_shapes(op: str, *shapes: Shape) -> Shape:
    """Return the shape to which all ``shapes`` broadcast by NumPy's rule; else ShapeError.

    >>> broadcast_shapes("add", (3, 1), (4,))
    (3, 4)
    """
    result = [1] * max(map(len, shapes))
    for shape in shapes:
        lead = len(result) - len(shape)
        for axis, size in enumerate(shape, lead):
            if size == result[axis] or size == 1:
                continue
            if result[axis] != 1:
                listed = " and ".join(map(str, shapes))
                raise ShapeError(
                    f"{op}: shapes must broadcast (equal or 1 from the right), got {listed}; "
                    f"reshape one operand"
                )
            result[axis] = size
    return tuple(result)


@lru_cache(_CACHED)
def broadcast_strides(op: str, shape: Shape, strides: Strides, target: Shape) -> Strides:
    """Return strides that broadcast an array of ``shape`` to ``target``; ShapeError if none do.

    Repeated axes have stride 0, and so have all axes of size 1 (NumPy's convention).
    """
    ### BEGIN YOUR SOLUTION [broadcast-view]
    lead = len(target) - len(shape)
    if lead < 0 or any(s not in (1, t) for s, t in zip(shape, target[lead:], strict=True)):
        raise ShapeError(
            f"{op}: every axis must be equal or of size 1 from the right, got shape {shape} for "
            f"target {target}; reshape the array first"
        )
    return (0,) * lead + tuple(
        0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)
    )
    ### END YOUR SOLUTION


def normalize_axis(op: str, axis: Any, ndim: int) -> int:
    """Return ``axis`` counted from the front, in [0, ndim)."""
    try:
        index = operator.index(axis)
    except TypeError:
        raise DTypeError(f"{op}: axis must be an int, got {axis!r}") from None
    if not -ndim <= index < ndim:
        valid = f"use {-ndim}..{ndim - 1}" if ndim else "a 0-d array has no axes"
        raise IndexingError(f"{op}: axis {index} is out of range for {ndim} dimensions; {valid}")
    return index + ndim if index < 0 else index


def normalize_axes(op: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return None (every axis), an int or a sequence of ints as a sorted tuple in [0, ndim).

    For a 0-d array, the axes 0 and -1 are ignored, as in NumPy and PyTorch.
    """
    if axes is None:
        return tuple(range(ndim))
    found = distinct_axes(op, axes, ndim or 1)
    return tuple(sorted(found)) if ndim else ()


def distinct_axes(op: str, axes: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes in the given order, in [0, ndim); ShapeError if one is given twice."""
    return _known_axes(op, axes, ndim) if _can_be_key(axes) else _distinct_axes(op, axes, ndim)


def _distinct_axes(op: str, axes: Any, ndim: int) -> tuple[int, ...]:
    items: Sequence[Any] = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    result = tuple(normalize_axis(op, axis, ndim) for axis in items)
    if len(set(result)) != len(result):
        raise ShapeError(f"{op}: axes must be distinct, got {tuple(items)} for {ndim} dimensions")
    return result


_known_axes = lru_cache(_CACHED)(_distinct_axes)


def permuted(shape: Shape, strides: Strides, axes: Any) -> tuple[Shape, Strides]:
    """Return shape and strides whose axis i is axis ``axes[i]``; ShapeError if one is missing."""
    permute = _known_order if _can_be_key(axes) else _permuted
    return permute(shape, strides, axes)


def _permuted(shape: Shape, strides: Strides, axes: Any) -> tuple[Shape, Strides]:
    ### BEGIN YOUR SOLUTION [permute-view]
    order = distinct_axes("permute", axes, len(shape))
    if len(order) != len(shape):
        raise ShapeError(f"permute: every axis must be named, got {order} for {shape}")
    return tuple(shape[axis] for axis in order), tuple(strides[axis] for axis in order)
    ### END YOUR SOLUTION


_known_order = lru_cache(_CACHED)(_permuted)


def reduced_shape(shape: Shape, axes: Iterable[int], keepdims: bool) -> Shape:
    """Return ``shape`` without the (normalised) axes, or with size 1 there if ``keepdims``."""
    dropped = frozenset(axes)
    if keepdims:
        return tuple(1 if axis in dropped else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in dropped)


def resolve_reshape(op: str, shape: Shape, new_shape: Any) -> Shape:
    """Return ``new_shape`` with a -1 replaced; ShapeError if the numbers of elements differ."""
    resolve = _known_reshape if _can_be_key(new_shape) else _resolve_reshape
    return resolve(op, shape, new_shape)


def _resolve_reshape(op: str, shape: Shape, new_shape: Any) -> Shape:
    target = as_int_tuple(op, "shape", new_shape)
    check_ndim(op, len(target))
    total, unknown = product(shape), target.count(-1)
    known = product(size for size in target if size != -1)
    if unknown > 1 or any(size < -1 for size in target):
        raise ShapeError(f"{op}: sizes must be >= 0 with at most one -1, got {target}")
    fits = known == total if not unknown else known != 0 and total % known == 0
    if not fits:
        raise ShapeError(
            f"{op}: the number of elements must stay {total}, got shape {shape} to {target}"
        )
    return tuple(total // known if size == -1 else size for size in target)


_known_reshape = lru_cache(_CACHED)(_resolve_reshape)


@lru_cache(_CACHED)
def view_strides_for_reshape(shape: Shape, strides: Strides, new_shape: Shape) -> Strides | None:
    """Return strides that view the same memory as ``new_shape``, or None if a copy is needed.

    Both shapes have the same number of elements.
    """
    ### BEGIN YOUR SOLUTION [reshape-view]
    # Match runs of old axes with runs of new axes of equal size; the elements of a run of old axes
    # must have one common stride.
    if shape == new_shape:
        return strides
    if product(shape) == 0 or is_row_major(shape, strides):
        return compact_strides(new_shape)
    old = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    result: list[int] = []
    taken = 0
    while taken < len(old):
        run_size, first = old[taken][0], taken
        new_run = [new_shape[len(result)]]
        new_size = new_run[0]
        while run_size != new_size:
            if new_size < run_size:
                new_run.append(new_shape[len(result) + len(new_run)])
                new_size *= new_run[-1]
            else:
                taken += 1
                run_size *= old[taken][0]
                if old[taken - 1][1] != old[taken][0] * old[taken][1]:
                    return None
        taken += 1
        assert first < taken
        stride = old[taken - 1][1]
        run_strides = []
        for size in reversed(new_run):
            run_strides.append(stride)
            stride *= size
        result.extend(reversed(run_strides))
    last = result[-1] if result else 1
    return tuple(result) + (last,) * (len(new_shape) - len(result))
    ### END YOUR SOLUTION


def is_row_major(shape: Shape, strides: Strides) -> bool:
    """Return True if the elements are adjacent in row-major order; axes of size 1 are ignored."""
    ### BEGIN YOUR SOLUTION [row-major]
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
    ### END YOUR SOLUTION


@lru_cache(_CACHED)
def dense_strides_like(shape: Shape, *strides: Strides) -> Strides:
    """Return strides of a new dense buffer in the operands' axis order ("K order" in NumPy).

    The strides of every operand belong to ``shape``; a stride of 0 (broadcast) is ignored. The
    first operand that orders two axes decides, and row-major order where none does.
    """
    ### BEGIN YOUR SOLUTION [keep-order]
    axes = [axis for axis in range(len(shape)) if shape[axis] != 1]
    if all(_in_order(axes, operand) for operand in strides):
        return compact_strides(shape)

    def compare(a: int, b: int) -> int:
        for operand in strides:
            if operand[a] and operand[b] and abs(operand[a]) != abs(operand[b]):
                return abs(operand[b]) - abs(operand[a])
        return a - b

    order = sorted(axes, key=cmp_to_key(compare))
    result = [1] * len(shape)
    step = 1
    for axis in reversed(order):
        result[axis] = step
        step *= shape[axis] or 1
    return tuple(result)
    ### END YOUR SOLUTION


def _in_order(axes: Sequence[int], strides: Strides) -> bool:
    """Return True if the non-zero strides do not increase along ``axes``."""
    steps = [abs(strides[axis]) for axis in axes if strides[axis]]
    return all(left >= right for left, right in pairwise(steps))


def conv_output_size(
    op: str, size: int, kernel: int, stride: int, padding: int, dilation: int
) -> int:
    """Return the number of windows: (size + 2*padding - dilation*(kernel-1) - 1) // stride + 1."""
    if kernel < 1 or stride < 1 or dilation < 1 or padding < 0:
        raise ShapeError(
            f"{op}: kernel, stride and dilation must be at least 1 and padding at least 0, got "
            f"kernel={kernel} stride={stride} dilation={dilation} padding={padding}"
        )
    span = dilation * (kernel - 1) + 1
    if size + 2 * padding < span:
        raise ShapeError(
            f"{op}: the window must fit the padded input, got window {span} for size {size} with "
            f"padding {padding}; pad more or use a smaller kernel"
        )
    return (size + 2 * padding - span) // stride + 1


def pair(op: str, name: str, value: Any) -> Pair:
    """Return two ints, or one int twice, as a pair; for kernel sizes, strides and paddings."""
    return _known_pair(op, name, value) if _can_be_key(value) else _pair(op, name, value)


def _pair(op: str, name: str, value: Any) -> Pair:
    items = as_int_tuple(op, name, value)
    if len(items) == 1 and not isinstance(value, Iterable):
        items *= 2
    if len(items) != 2:
        raise ShapeError(f"{op}: {name} must be an int or two ints, got {value!r}")
    return items[0], items[1]


_known_pair = lru_cache(_CACHED)(_pair)


def row_pair(op: str, name: str, value: Any, row: int) -> tuple[int, int]:
    """Return the pair (``row``, size) for a 1-d size, which is an int or a sequence of one."""
    items = as_int_tuple(op, name, value)
    if len(items) != 1:
        raise ShapeError(
            f"{op}: {name} must be an int or a sequence of one int, got {value!r}; pass an int"
        )
    return row, items[0]


class Geometry(NamedTuple):
    """The geometry of a convolution: one value from the layer to the kernel."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @classmethod
    def of(cls, op: str, stride: Any, padding: Any, dilation: Any, groups: int) -> Geometry:
        """Return the geometry for sizes that are ints or pairs; ShapeError for others."""
        return cls(
            pair(op, "stride", stride),
            pair(op, "padding", padding),
            pair(op, "dilation", dilation),
            *as_int_tuple(op, "groups", (groups,)),
        )

    @lru_cache(_CACHED)  # noqa: B019 - a geometry is a tuple
    def output_size(self, op: str, size: Pair, kernel: Pair) -> Pair:
        """Return how many windows (down, across) of ``kernel`` fit on an image of ``size``.

        ShapeError, which names ``op``, if none fits.
        """
        stride, padding, dilation, _ = self
        return (
            conv_output_size(op, size[0], kernel[0], stride[0], padding[0], dilation[0]),
            conv_output_size(op, size[1], kernel[1], stride[1], padding[1], dilation[1]),
        )
