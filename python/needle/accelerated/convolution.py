# Trail 14 of 30: conv2d is defined as a product: windows become rows of a matrix.
# Next: python/needle/ops/convolution.py
"""Two-dimensional convolution (cross-correlation) and its two gradients.

Images are (N, H, W, C), weights (KH, KW, C/groups, O); output channel o reads the input channels
of its group. Called by ``ops.convolution``, which checks the shapes and translates from NCHW. The
definitions turn the windows into rows of a matrix ("im2col") and multiply.
"""

from __future__ import annotations

from ..backends.base import NO_EPILOGUE, Backend, Epilogue
from ..shapes import Geometry
from .epilogue import apply_epilogue, views_of
from .registry import Array, accelerated, empty, full
from .windows import Windows, crop, pad, view_windows

Image = tuple[int, int, int, int]


def _rows(x: Array, windows: Windows) -> Array:
    """Return (groups, N*OH*OW, KH*KW*C/groups), which has the values of one window in each row."""
    ### BEGIN YOUR SOLUTION [im2col]
    xp = x.__array_namespace__()
    groups = windows.geometry.groups
    view = view_windows(pad(x, windows.geometry.padding), windows)
    n, oh, ow, kh, kw, c = view.shape
    grouped = xp.reshape(view, (n * oh * ow, kh * kw, groups, c // groups))
    shape = (groups, n * oh * ow, kh * kw * (c // groups))
    return xp.reshape(xp.permute_dims(grouped, (2, 0, 1, 3)), shape)
    ### END YOUR SOLUTION


def _matrix(weight: Array, groups: int) -> Array:
    """Return (groups, KH*KW*C/groups, O/groups): each group's weights as a matrix."""
    xp = weight.__array_namespace__()
    kh, kw, c, o = weight.shape
    return xp.permute_dims(xp.reshape(weight, (kh * kw * c, groups, o // groups)), (1, 0, 2))


def _by_group(grad: Array, groups: int) -> Array:
    """Return (groups, N*OH*OW, O/groups) from grad (N, OH, OW, O)."""
    xp = grad.__array_namespace__()
    n, oh, ow, o = grad.shape
    return xp.permute_dims(xp.reshape(grad, (n * oh * ow, groups, o // groups)), (1, 0, 2))


def _convolved(x: Array, weight: Array, geometry: Geometry) -> Array:
    """Return the result of ``conv2d`` without an epilogue."""
    ### BEGIN YOUR SOLUTION [conv2d]
    xp = x.__array_namespace__()
    windows = Windows("conv2d", x.shape[1:3], weight.shape[:2], geometry)
    product = xp.matmul(_rows(x, windows), _matrix(weight, geometry.groups))
    shape = (x.shape[0], *windows.out, weight.shape[3])
    return xp.reshape(xp.permute_dims(product, (1, 0, 2)), shape)
    ### END YOUR SOLUTION


@accelerated()
def conv2d(x: Array, weight: Array, geometry: Geometry, epilogue: Epilogue = NO_EPILOGUE) -> Array:
    """Return epilogue(x ⋆ weight), (N, OH, OW, O); x (N, H, W, C), weight (KH, KW, C/groups, O).

    out[n, p, q, o] = sum over i, j, c of weight[i, j, c, o] times the padded
    x[n, p*stride + i*dilation, q*stride + j*dilation, c].
    """
    return apply_epilogue.definition(_convolved(x, weight, geometry), epilogue)


@conv2d.kernel
def _(
    backend: Backend, x: Array, weight: Array, geometry: Geometry, epilogue: Epilogue = NO_EPILOGUE
) -> Array:
    if epilogue.residual is not None:
        return apply_epilogue.definition(conv2d(x, weight, geometry), epilogue)
    size = geometry.output_size("conv2d", x.shape[1:3], weight.shape[:2])
    out = empty(x, (x.shape[0], *size, weight.shape[3]))
    backend.conv2d(x.view, weight.view, out.view, geometry, views_of(epilogue))
    return out


@accelerated()
def conv2d_input_grad(grad: Array, weight: Array, x_shape: Image, geometry: Geometry) -> Array:
    """Return the gradient with respect to x, of ``x_shape``, for grad (N, OH, OW, O)."""
    ### BEGIN YOUR SOLUTION [conv2d-input-grad]
    xp = grad.__array_namespace__()
    n, h, w, c = x_shape
    (kh, kw), (ph, pw), groups = weight.shape[:2], geometry.padding, geometry.groups
    windows = Windows("conv2d", (h, w), (kh, kw), geometry)
    rows = xp.matmul(_by_group(grad, groups), xp.matrix_transpose(_matrix(weight, groups)))
    rows = xp.reshape(rows, (groups, n, *windows.out, kh * kw, c // groups))
    parts = xp.permute_dims(rows, (4, 1, 2, 3, 0, 5))
    padded = full(grad, (n, h + 2 * ph, w + 2 * pw, c), 0.0)
    for tap, (down, across) in enumerate(windows.taps()):
        part = xp.reshape(parts[tap], (n, *windows.out, c))
        padded[:, down, across, :] = padded[:, down, across, :] + part
    return crop(padded, geometry.padding)
    ### END YOUR SOLUTION


@conv2d_input_grad.kernel
def _(backend: Backend, grad: Array, weight: Array, x_shape: Image, geometry: Geometry) -> Array:
    out = empty(grad, x_shape)
    backend.conv2d_input_grad(grad.view, weight.view, out.view, geometry)
    return out


@accelerated()
def conv2d_weight_grad(grad: Array, x: Array, weight_shape: Image, geometry: Geometry) -> Array:
    """Return the gradient with respect to weight, for grad (N, OH, OW, O) and x (N, H, W, C)."""
    ### BEGIN YOUR SOLUTION [conv2d-weight-grad]
    xp = grad.__array_namespace__()
    kh, kw, c, o = weight_shape
    windows = Windows("conv2d", x.shape[1:3], (kh, kw), geometry)
    columns = xp.matrix_transpose(_rows(x, windows))
    product = xp.matmul(columns, _by_group(grad, geometry.groups))
    return xp.reshape(xp.permute_dims(product, (1, 0, 2)), (kh, kw, c, o))
    ### END YOUR SOLUTION


@conv2d_weight_grad.kernel
def _(backend: Backend, grad: Array, x: Array, weight_shape: Image, geometry: Geometry) -> Array:
    out = empty(grad, weight_shape)
    backend.conv2d_weight_grad(grad.view, x.view, out.view, geometry)
    return out
