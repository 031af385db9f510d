"""Two-dimensional convolution (cross-correlation) and its two gradients.

Images are (N, H, W, C), weights (KH, KW, C/groups, O); output channel o reads the input channels
of its group. Shapes are checked, and NCHW is translated, by ``ops.convolution``, which calls this.
The definitions turn the windows into rows of a matrix ("im2col") and multiply.
"""

from __future__ import annotations

from collections.abc import Callable

from ..backends.base import Backend, Pair
from .registry import Array, accelerated, empty, full
from .windows import Geometry, crop, pad, windows

Image = tuple[int, int, int, int]


def _rows(x: Array, geometry: Geometry, groups: int) -> Array:
    """(groups, N*OH*OW, KH*KW*C/groups): each window's values, one row a window."""
    ### BEGIN YOUR SOLUTION [im2col]
    xp = x.__array_namespace__()
    view = windows(pad(x, geometry.padding), geometry)
    n, oh, ow, kh, kw, c = view.shape
    grouped = xp.reshape(view, (n * oh * ow, kh * kw, groups, c // groups))
    shape = (groups, n * oh * ow, kh * kw * (c // groups))
    return xp.reshape(xp.permute_dims(grouped, (2, 0, 1, 3)), shape)
    ### END YOUR SOLUTION


def _matrix(weight: Array, groups: int) -> Array:
    """(groups, KH*KW*C/groups, O/groups): each group's weights as a matrix."""
    xp = weight.__array_namespace__()
    kh, kw, c, o = weight.shape
    return xp.permute_dims(xp.reshape(weight, (kh * kw * c, groups, o // groups)), (1, 0, 2))


def _by_group(grad: Array, groups: int) -> Array:
    """(groups, N*OH*OW, O/groups) from grad (N, OH, OW, O)."""
    xp = grad.__array_namespace__()
    n, oh, ow, o = grad.shape
    return xp.permute_dims(xp.reshape(grad, (n * oh * ow, groups, o // groups)), (1, 0, 2))


@accelerated
def conv2d(
    x: Array, weight: Array, stride: Pair, padding: Pair, dilation: Pair, groups: int
) -> Array:
    """(N, OH, OW, O) from x (N, H, W, C) and weight (KH, KW, C/groups, O).

    out[n, p, q, o] = sum over i, j, c of weight[i, j, c, o] times the padded
    x[n, p*stride + i*dilation, q*stride + j*dilation, c].
    """
    ### BEGIN YOUR SOLUTION [conv2d]
    xp = x.__array_namespace__()
    geometry = Geometry("conv2d", x.shape[1:3], weight.shape[:2], stride, padding, dilation)
    product = xp.matmul(_rows(x, geometry, groups), _matrix(weight, groups))
    shape = (x.shape[0], *geometry.out, weight.shape[3])
    return xp.reshape(xp.permute_dims(product, (1, 0, 2)), shape)
    ### END YOUR SOLUTION


@conv2d.kernel
def _(
    backend: Backend,
    x: Array,
    weight: Array,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    geometry = Geometry("conv2d", x.shape[1:3], weight.shape[:2], stride, padding, dilation)
    out = empty(x, (x.shape[0], *geometry.out, weight.shape[3]))
    backend.conv2d(x._view, weight._view, out._view, stride, padding, dilation, groups)
    return out


@accelerated
def conv2d_bias(
    x: Array,
    weight: Array,
    bias: Array,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """conv2d(x, weight) + bias (O,): a pass over the result saved where a kernel does both."""
    return conv2d(x, weight, stride, padding, dilation, groups) + bias


def _with_bias(name: str) -> Callable[..., Array]:
    """The adapter of a kernel that adds a bias and may do more to the sums."""

    def run(
        backend: Backend,
        x: Array,
        weight: Array,
        bias: Array,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
    ) -> Array:
        geometry = Geometry("conv2d", x.shape[1:3], weight.shape[:2], stride, padding, dilation)
        out = empty(x, (x.shape[0], *geometry.out, weight.shape[3]))
        settings = (stride, padding, dilation, groups)
        getattr(backend, name)(x._view, weight._view, bias._view, out._view, *settings)
        return out

    return run


conv2d_bias.kernel(_with_bias("conv2d_bias"))


@accelerated
def conv2d_relu(
    x: Array,
    weight: Array,
    bias: Array,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """relu(conv2d_bias(...)): another pass saved, and the sums themselves are never stored."""
    y = conv2d_bias(x, weight, bias, stride, padding, dilation, groups)
    return y.__array_namespace__().maximum(y, 0)


conv2d_relu.kernel(_with_bias("conv2d_relu"))


@accelerated
def conv2d_input_grad(
    grad: Array,
    weight: Array,
    x_shape: Image,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """x_grad (N, H, W, C) = ``x_shape`` from grad (N, OH, OW, O): each tap adds what it read."""
    ### BEGIN YOUR SOLUTION [conv2d-input-grad]
    xp = grad.__array_namespace__()
    n, h, w, c = x_shape
    (kh, kw), (ph, pw) = weight.shape[:2], padding
    geometry = Geometry("conv2d", (h, w), (kh, kw), stride, padding, dilation)
    rows = xp.matmul(_by_group(grad, groups), xp.matrix_transpose(_matrix(weight, groups)))
    rows = xp.reshape(rows, (groups, n, *geometry.out, kh * kw, c // groups))
    parts = xp.permute_dims(rows, (4, 1, 2, 3, 0, 5))
    padded = full(grad, (n, h + 2 * ph, w + 2 * pw, c), 0.0)
    for tap, (down, across) in enumerate(geometry.taps()):
        part = xp.reshape(parts[tap], (n, *geometry.out, c))
        padded[:, down, across, :] = padded[:, down, across, :] + part
    return crop(padded, padding)
    ### END YOUR SOLUTION


@conv2d_input_grad.kernel
def _(
    backend: Backend,
    grad: Array,
    weight: Array,
    x_shape: Image,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    out = empty(grad, x_shape)
    backend.conv2d_input_grad(
        grad._view, weight._view, out._view, stride, padding, dilation, groups
    )
    return out


@accelerated
def conv2d_weight_grad(
    grad: Array,
    x: Array,
    weight_shape: Image,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    """weight_grad (KH, KW, C/groups, O) = ``weight_shape`` from grad (N, OH, OW, O) and x."""
    ### BEGIN YOUR SOLUTION [conv2d-weight-grad]
    xp = grad.__array_namespace__()
    kh, kw, c, o = weight_shape
    geometry = Geometry("conv2d", x.shape[1:3], (kh, kw), stride, padding, dilation)
    columns = xp.matrix_transpose(_rows(x, geometry, groups))
    product = xp.matmul(columns, _by_group(grad, groups))
    return xp.reshape(xp.permute_dims(product, (1, 0, 2)), (kh, kw, c, o))
    ### END YOUR SOLUTION


@conv2d_weight_grad.kernel
def _(
    backend: Backend,
    grad: Array,
    x: Array,
    weight_shape: Image,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    groups: int,
) -> Array:
    out = empty(grad, weight_shape)
    backend.conv2d_weight_grad(grad._view, x._view, out._view, stride, padding, dilation, groups)
    return out
