# Trail 6 of 30: binary chooses dtype, layout and buffer, then calls the backend.
# Next: python/needle/backends/numpy_backend.py
"""Call a backend's kernels on views and Python scalars; each function returns a new view.

This file promotes dtypes, casts and broadcasts operands, chooses the layout of the result (dense,
in the operands' axis order) and allocates its buffer, so that a backend sees only what
``backends/base.py`` promises. It knows no NDArray; ``array`` and ``elementwise`` call it.
"""

from __future__ import annotations

from functools import lru_cache

from .. import shapes
from ..backends.base import Backend, Operand, Scalar, View
from ..dtypes import DType, bool_, default_int, int32, is_floating, is_integer, is_storage, promote
from ..errors import DTypeError, ShapeError
from ..shapes import Shape, Strides
from .dtype_rules import BOOL_FORM, ROUNDING, common_dtype, elementwise_rule, fitting, scalar_rule

# A NamedTuple's own constructor costs as much as a small kernel.
new_view = tuple.__new__

_EXACT = 2.0**53
"""Every integer up to this one is exact in float64."""


def empty(backend: Backend, shape: Shape, dtype: DType, strides: Strides | None = None) -> View:
    """Return a view of a new, uninitialised buffer; row-major unless strides are given."""
    if strides is None:
        strides = shapes.compact_strides(shape)
    size = shapes.product(shape)
    if size > shapes.MAX_SIZE:
        raise ShapeError(f"empty: an array may have at most 2**60 elements, got shape {shape}")
    if is_storage(dtype) and dtype.name not in backend.dtypes:
        raise DTypeError(
            f"{backend.name}: arrays must be of {', '.join(backend.dtypes)}, got {dtype}; use "
            "float32, or a device that has it"
        )
    return new_view(View, (backend.allocate(size, dtype), shape, strides, 0, dtype))


def cast(backend: Backend, a: View, dtype: DType) -> View:
    """Return a copy in ``dtype`` that keeps the axis order of ``a``."""
    out = empty(backend, a.shape, dtype, shapes.dense_strides_like(a.shape, a.strides))
    backend.copy(a, out)
    return out


def compact(backend: Backend, a: View) -> View:
    """Return a row-major copy."""
    out = empty(backend, a.shape, a.dtype)
    backend.copy(a, out)
    return out


def broadcast(op: str, a: View, shape: Shape) -> View:
    """Return ``a`` broadcast to ``shape``; the same view if it already has that shape."""
    if a.shape == shape:
        return a
    strides = shapes.broadcast_strides(op, a.shape, a.strides, shape)
    return new_view(View, (a.handle, shape, strides, a.offset, a.dtype))


@lru_cache(4096)
def _same_dtype_result(
    name: str, shape: Shape, strides: Strides, dtype: DType, count: int
) -> tuple[str, int, DType, Strides] | None:
    """Return the kernel's name and the size, dtype and strides of the result.

    The ``count`` operands share a layout and a dtype. Returns None if they must be cast first.
    """
    compute, result = elementwise_rule(name, *[dtype] * count)
    if compute != dtype:
        return None
    kernel = BOOL_FORM.get(name, name) if compute is bool_ else name
    return kernel, shapes.product(shape), result, shapes.dense_strides_like(shape, strides)


def unary(backend: Backend, name: str, a: View) -> View:
    """Return name(a), elementwise; ``name`` is one of ``base.UNARY``."""
    if name in ROUNDING and not is_floating(a.dtype) and a.dtype != bool_:
        return cast(backend, a, a.dtype)
    plain = _same_dtype_result(name, a.shape, a.strides, a.dtype, 1)
    if plain is None:
        return unary(backend, name, cast(backend, a, elementwise_rule(name, a.dtype)[0]))
    _, size, dtype, strides = plain
    out = new_view(View, (backend.allocate(size, dtype), a.shape, strides, 0, dtype))
    backend.unary(name, a, out)
    return out


def binary(backend: Backend, name: str, a: Operand, b: Operand) -> View:
    """Return name(a, b), elementwise and broadcast; ``name`` is one of ``base.BINARY``.

    At most one operand is a Python scalar.
    """
    if type(a) is View:
        if type(b) is View:
            return binary_of_views(backend, name, a, b)
        return _binary_with_scalar(backend, name, a, b, False)  # type: ignore[arg-type]
    return _binary_with_scalar(backend, name, b, a, True)  # type: ignore[arg-type]


def binary_of_views(backend: Backend, name: str, a: View, b: View) -> View:
    """Return ``binary`` of two arrays."""
    shape, strides, dtype = a.shape, a.strides, a.dtype
    if b.strides != strides or b.shape != shape or b.dtype is not dtype:
        return _binary_of_mixed_views(backend, name, a, b)
    plain = _same_dtype_result(name, shape, strides, dtype, 2)
    if plain is None:
        return _binary_of_mixed_views(backend, name, a, b)
    kernel, size, dtype, strides = plain
    out = new_view(View, (backend.allocate(size, dtype), shape, strides, 0, dtype))
    backend.binary(kernel, a, b, out)
    return out


def _binary_with_scalar(
    backend: Backend, name: str, view: View, number: Scalar, reflected: bool
) -> View:
    dtype = view.dtype
    if is_floating(dtype) and -_EXACT <= number <= _EXACT:
        plain = _same_dtype_result(name, view.shape, view.strides, dtype, 2)
        assert plain is not None  # a floating array computes in its own dtype
        _, size, dtype, strides = plain
        number = float(number)
        out = new_view(View, (backend.allocate(size, dtype), view.shape, strides, 0, dtype))
    else:
        compute, dtype = scalar_rule(name, dtype, number)
        view, number = _as(backend, compute, view), fitting(name, compute, number)
        name = BOOL_FORM.get(name, name) if compute is bool_ else name
        strides = shapes.dense_strides_like(view.shape, view.strides)
        out = empty(backend, view.shape, dtype, strides)
    if reflected:
        backend.binary(name, number, view, out)
    else:
        backend.binary(name, view, number, out)
    return out


def _binary_of_mixed_views(backend: Backend, name: str, a: View, b: View) -> View:
    compute, dtype = elementwise_rule(name, a.dtype, b.dtype)
    a, b, shape = _as(backend, compute, a), _as(backend, compute, b), a.shape
    if shape != b.shape:
        shape = shapes.broadcast_shapes(name, shape, b.shape)
        a, b = broadcast(name, a, shape), broadcast(name, b, shape)
    name = BOOL_FORM.get(name, name) if compute is bool_ else name
    out = empty(backend, shape, dtype, shapes.dense_strides_like(shape, a.strides, b.strides))
    backend.binary(name, a, b, out)
    return out


def _as(backend: Backend, dtype: DType, a: View) -> View:
    return a if a.dtype is dtype or a.dtype == dtype else cast(backend, a, dtype)


def where(backend: Backend, condition: View, a: Operand, b: Operand) -> View:
    """Return a where the condition is true, else b, broadcast and promoted to one dtype."""
    dtype = common_dtype(*[x.dtype if isinstance(x, View) else x for x in (a, b)])
    views = [x for x in (condition, a, b) if isinstance(x, View)]
    shape = shapes.broadcast_shapes("where", *[view.shape for view in views])
    condition = broadcast("where", _as(backend, bool_, condition), shape)
    a, b = [
        broadcast("where", _as(backend, dtype, x), shape)
        if isinstance(x, View)
        else fitting("where", dtype, x)
        for x in (a, b)
    ]
    layouts = [x.strides for x in (a, b, condition) if isinstance(x, View)]
    out = empty(backend, shape, dtype, shapes.dense_strides_like(shape, *layouts))
    backend.where(condition, a, b, out)
    return out


def reduce(backend: Backend, name: str, a: View, axes: tuple[int, ...], keepdims: bool) -> View:
    """Return ``name`` over the (normalised) axes; ``name`` is one of ``base.REDUCE``.

    sum and prod of bool or integers give int64, any and all bool, max and min the array's dtype.
    """
    shape, strides, final_shape, final_strides = _reduced_layout(a.shape, a.strides, axes, keepdims)
    name, dtype = _reduction(name, a, shape)
    out = empty(backend, shape, dtype, strides)
    if 0 not in shape:
        backend.reduce(name, _as(backend, dtype, a), out)
    return new_view(View, (out.handle, final_shape, final_strides, 0, dtype))


@lru_cache(4096)
def _reduced_layout(
    shape: Shape, strides: Strides, axes: tuple[int, ...], keepdims: bool
) -> tuple[Shape, Strides, Shape, Strides]:
    """Return the kernel's shape and strides, with reduced axes kept, then those of the result."""
    whole = shapes.reduced_shape(shape, axes, True)
    dense = shapes.dense_strides_like(whole, strides)
    kept = [axis for axis in range(len(shape)) if keepdims or axis not in axes]
    return whole, dense, tuple(whole[i] for i in kept), tuple(dense[i] for i in kept)


def _reduction(name: str, a: View, shape: Shape) -> tuple[str, DType]:
    """Return the kernel's name and dtype; ShapeError for a maximum over no elements."""
    if name in ("sum", "prod"):
        return name, a.dtype if is_floating(a.dtype) else default_int
    if name in ("any", "all"):
        return name, bool_
    if shapes.product(shape) and not shapes.product(a.shape):
        raise ShapeError(
            f"{name}: there must be at least one element, got shape {a.shape}; leave empty arrays "
            "out"
        )
    if a.dtype == bool_:
        return ("any" if name == "max" else "all"), bool_
    return name, a.dtype


def matmul(backend: Backend, a: View, b: View) -> View:
    """Return (..., m, k) @ (..., k, n), broadcast over batch axes; 1-D: a row or column."""
    rows, dtype = a.shape, a.dtype
    matrices = len(rows) == len(b.shape) == 2 and rows[1] == b.shape[0]
    if matrices and b.dtype is dtype and is_floating(dtype):  # the common case
        out = empty(backend, (rows[0], b.shape[1]), dtype)
        backend.matmul(a, b, out)
        return out
    dtype = elementwise_rule("multiply", a.dtype, b.dtype)[1]
    compute = promote(dtype, int32) if is_integer(dtype) else dtype
    left, right = _matrices(a, b)
    batch = shapes.broadcast_shapes("matmul", left.shape[:-2], right.shape[:-2])
    left, right = (
        broadcast("matmul", _as(backend, compute, view), batch + view.shape[-2:])
        for view in (left, right)
    )
    out = empty(backend, (*batch, left.shape[-2], right.shape[-1]), compute)
    backend.matmul(left, right, out)
    columns = b.shape[-1:] if len(b.shape) > 1 else ()
    shape = (*batch, *a.shape[-2:-1], *columns)  # without the axes added to 1-D operands
    return View(_as(backend, dtype, out).handle, shape, shapes.compact_strides(shape), 0, dtype)


def _matrices(a: View, b: View) -> tuple[View, View]:
    """Return both operands with at least two axes; ShapeError if they cannot be multiplied."""
    if not a.shape or not b.shape:
        raise ShapeError(
            f"matmul: operands need at least one axis, got {a.shape} @ {b.shape}; use * for scalars"
        )
    left, right = a, b
    if len(a.shape) == 1:
        left = View(a.handle, (1, *a.shape), (0, *a.strides), a.offset, a.dtype)
    if len(b.shape) == 1:
        right = View(b.handle, (*b.shape, 1), (*b.strides, 0), b.offset, b.dtype)
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"matmul: inner dimensions must agree, got {a.shape} @ {b.shape}; "
            f"transpose or reshape one operand"
        )
    return left, right


def fill(backend: Backend, out: View, value: Scalar) -> None:
    """Set every element of ``out``; DTypeError if its integer dtype cannot hold the value."""
    backend.fill(out, fitting("setitem", out.dtype, value))


def is_identical(a: View, b: View) -> bool:
    """Return True if two views have the same buffer and layout."""
    return a.handle is b.handle and a[1:] == b[1:]


def has_repeats(view: View) -> bool:
    """Return True if several elements share one memory location because of a stride of 0."""
    strides = view.strides
    return 0 in strides and any(not s and n > 1 for n, s in zip(view.shape, strides, strict=True))


def fill_where(backend: Backend, condition: View, value: Scalar, out: View) -> None:
    """Set the elements of ``out`` where ``condition`` (bool, of its shape) is true, in place."""
    backend.where(condition, fitting("setitem", out.dtype, value), out, out)
