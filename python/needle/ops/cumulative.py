"""Running sums and products along an axis (cumsum, cumprod), and the product over axes (prod)."""

from __future__ import annotations

from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp
from ..dtypes import is_floating
from ..shapes import normalize_axes, normalize_axis, product, shape_of
from .indexing import GetItem
from .padding import Pad
from .reduction import Reduction, expanded, sum_dtype
from .registry import Array, Axes, LinearOp, op
from .shape import flip, permute, reshape


def _slice(axis: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(start, stop),)


class CumSum(LinearOp):
    """Running sums along an axis: ``cumsum``."""

    def __init__(self, axis: int, reverse: bool = False) -> None:
        self.axis, self.reverse = axis, reverse

    def compute(self, a: Array) -> Array:
        a = xp.flip(a, axis=self.axis) if self.reverse else a
        # NumPy before 2.1 lacks the array API's name.
        running = getattr(xp, "cumulative_sum", None) or xp.cumsum
        out = running(a, axis=self.axis, dtype=sum_dtype(a.dtype))
        return xp.flip(out, axis=self.axis) if self.reverse else out

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        return CumSum(self.axis, not self.reverse)(out_grad)


@op(CumSum, methods=["cumsum"])
def cumsum(a: Tensor, axis: int, reverse: bool = False) -> Tensor:
    """Return the sums of the elements up to each one along ``axis``.

    ``reverse``: sum the elements from each one to the end instead.
    """
    if not shape_of("cumsum", a):
        return reshape(cumsum(reshape(a, (1,)), axis), ())
    return CumSum(normalize_axis("cumsum", axis, len(a.shape)), reverse)(a)


class CumProd(TensorOp):
    """Running products along an axis: ``cumprod``."""

    reads = (0, "result")

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def compute(self, a: Array) -> Array:
        """Return the running products, combining 2, 4, 8, ... neighbours in turn."""
        out, reach = (a if is_floating(a.dtype) else a.astype("int64")) * 1, 1
        while reach < a.shape[self.axis]:
            later, earlier = _slice(self.axis, reach, None), _slice(self.axis, None, -reach)
            out[later] = out[later] * out[earlier]
            reach *= 2
        return out

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        """Return the gradient without a division, so that it is also right at zeros.

        With y the result and s_i = g_i + a_(i+1) s_(i+1), the sum over later results, the gradient
        is y_(i-1) s_i.
        """
        a, axis = node.inputs[0], self.axis
        size = a.shape[axis]
        if size == 0:
            return out_grad
        total = out_grad
        factor = _shifted(a, axis, -1, 0.0)
        reach = 1
        while reach < size:
            total = total + factor * _shifted(total, axis, -reach, 0.0)
            factor = factor * _shifted(factor, axis, -reach, 0.0)
            reach *= 2
        return _shifted(node, axis, 1, 1.0) * total


def _shifted(a: Tensor, axis: int, by: int, fill: float) -> Tensor:
    """Return ``a`` shifted by ``by`` elements along an axis; the gap is filled with ``fill``."""
    widths = [(0, 0)] * len(a.shape)
    widths[axis] = (by, 0) if by > 0 else (0, -by)
    kept = _slice(axis, None, -by) if by > 0 else _slice(axis, -by, None)
    return Pad(widths, fill)(GetItem(kept)(a))


@op(CumProd, methods=["cumprod"])
def cumprod(a: Tensor, axis: int) -> Tensor:
    """Return the products of the elements up to each one along ``axis``."""
    if not shape_of("cumprod", a):
        return reshape(cumprod(reshape(a, (1,)), axis), ())
    return CumProd(normalize_axis("cumprod", axis, len(a.shape)))(a)


class Prod(Reduction):
    """Product over axes: ``prod``."""

    reads = (0,)

    def compute(self, a: Array) -> Array:
        axes = normalize_axes("prod", self.axes, a.ndim)
        return xp.prod(a, axis=axes, keepdims=self.keepdims, dtype=sum_dtype(a.dtype))

    def gradient(self, out_grad: Tensor, node: Tensor) -> Tensor:
        a = node.inputs[0]
        axes = normalize_axes("prod", self.axes, len(a.shape))
        return expanded(out_grad, a.shape, axes) * _product_of_others(a, axes)


def _product_of_others(a: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return, for each element, the product of all others over ``axes``, without dividing."""
    rest = tuple(axis for axis in range(len(a.shape)) if axis not in axes)
    order = (*rest, *axes)
    last = permute(a, order)
    lead = tuple(a.shape[axis] for axis in rest)
    flat = reshape(last, (*lead, product(a.shape[axis] for axis in axes)))
    if flat.size == 0:
        return a
    along = len(lead)
    before = _shifted(CumProd(along)(flat), along, 1, 1.0)
    after = flip(_shifted(CumProd(along)(flip(flat, along)), along, 1, 1.0), along)
    back = sorted(range(len(order)), key=order.__getitem__)
    return permute(reshape(before * after, last.shape), back)


@op(Prod, methods=["prod"])
def prod(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the product over ``axes`` (None: all); 1 over an empty axis."""
    return Prod(axes, keepdims)(a)
