"""Transposed convolution, and convolutions of signals (N, C, L) as images with one row.

Both use ``Conv2d`` and its gradients, so they run on the kernels of ``conv2d``. The functions take
PyTorch's weights and permute them; layers call ``transposed`` with the weight as kernels read it.
"""

from __future__ import annotations

from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import Geometry, Shape, Size, pair, row_pair, shape_of
from .convolution import TO_HWIO, Conv2dInputGrad, conv2d
from .padding import Pad
from .registry import op
from .shape import expand_dims, permute, reshape, squeeze


def transposed(
    name: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    geometry: Geometry,
    output_padding: tuple[int, int],
) -> Tensor:
    """Return the adjoint of conv2d with ``geometry``, applied to x (N, C, H, W), plus bias (O,).

    weight: (KH, KW, O/groups, C). The errors name ``name``.
    """
    stride, padding, dilation, groups = geometry
    shape, filters = _checked(name, x, weight, groups), weight.shape
    for more, step, spread in zip(output_padding, stride, dilation, strict=True):
        if not 0 <= more < max(step, spread):
            raise ShapeError(
                f"{name}: output_padding must be at least 0 and less than stride or dilation, got "
                f"{output_padding} with stride={stride} and dilation={dilation}; lower it"
            )
    # each whole stride in output_padding is one more row of zeros in the input
    down, across = (m // s for m, s in zip(output_padding, stride, strict=True))
    if down or across:
        x = Pad(((0, 0), (0, 0), (0, down), (0, across)))(x)
    size = [
        (shape[2 + i] - 1) * stride[i]
        - 2 * padding[i]
        + dilation[i] * (filters[i] - 1)
        + output_padding[i]
        + 1
        for i in (0, 1)
    ]
    if min(size) < 1:
        raise ShapeError(
            f"{name}: the output must have at least one element per axis, got size {tuple(size)} "
            f"from input {shape}; lower the padding or use a larger input"
        )
    y: Tensor = Conv2dInputGrad((shape[0], filters[2] * groups, *size), geometry)(x, weight)
    if bias is None:
        return y
    if shape_of(name, bias) != (filters[2] * groups,):
        raise ShapeError(
            f"{name}: bias must have shape ({filters[2] * groups},), one value per output channel, "
            f"got {shape_of(name, bias)}; reshape it"
        )
    return y + reshape(bias, (1, -1, 1, 1))


def _checked(name: str, x: Tensor, weight: Tensor, groups: int) -> Shape:
    shape, filters = shape_of(name, x), shape_of(name, weight)
    if len(shape) != 4 or len(filters) != 4:
        raise ShapeError(
            f"{name}: the input must be (N, C, H, W) and the weight have 4 axes, got shapes "
            f"{shape} and {filters}; reshape them"
        )
    if shape[1] != filters[3] or groups < 1 or shape[1] % groups:
        raise ShapeError(
            f"{name}: the weight's first axis must be the input's channels, and groups must divide "
            f"it, got {filters[3]} for {shape[1]} channels with groups={groups}; change one of them"
        )
    return shape


@op(Conv2dInputGrad)
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Return the transposed convolution of x (N, C, H, W) with weight (C, O/groups, KH, KW).

    The adjoint of conv2d, plus bias (O,): (N, O, OH, OW) with OH = (H - 1)*stride - 2*padding +
    dilation*(KH - 1) + output_padding + 1 (Zeiler et al. 2010). Sizes are an int or a pair.
    ShapeError if shapes or geometry are invalid.
    """
    name = "conv_transpose2d"
    geometry = Geometry.of(name, stride, padding, dilation, groups)
    filters = shape_of(name, weight)
    hwio = permute(weight, TO_HWIO) if len(filters) == 4 else weight
    return transposed(name, x, hwio, bias, geometry, pair(name, "output_padding", output_padding))


@op(Conv2dInputGrad)
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """Return the transposed convolution of x (N, C, L) with weight (C, O/groups, K), plus bias.

    The adjoint of conv1d: (N, O, OL), with the sizes of ``conv_transpose2d``. ShapeError if shapes
    or geometry are invalid.
    """
    name = "conv_transpose1d"
    geometry = _across_all(name, stride, padding, dilation, groups)
    more = row_pair(name, "output_padding", output_padding, 0)
    rows = _one_row(name, x)
    filters = permute(_one_row(name, weight, "weight (C, O/groups, K)"), TO_HWIO)
    return squeeze(transposed(name, rows, filters, bias, geometry, more), 2)


@op(Conv2dInputGrad)
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return the cross-correlation of x (N, C, L) with weight (O, C/groups, K), plus bias (O,).

    The result is (N, O, OL), OL = (L + 2*padding - dilation*(K-1) - 1) // stride + 1. ShapeError if
    shapes or geometry are invalid.
    """
    rows = _one_row("conv1d", x)
    filters = _one_row("conv1d", weight, "weight (O, C/groups, K)")
    geometry = _across_all("conv1d", stride, padding, dilation, groups)
    return squeeze(conv2d(rows, filters, bias, *geometry), 2)


def _across_all(name: str, stride: Size, padding: Size, dilation: Size, groups: int) -> Geometry:
    """Return a signal's geometry, treating it as an image with one row."""
    return Geometry(
        row_pair(name, "stride", stride, 1),
        row_pair(name, "padding", padding, 0),
        row_pair(name, "dilation", dilation, 1),
        groups,
    )


def _one_row(name: str, x: Tensor, what: str = "input (N, C, L)") -> Tensor:
    shape = shape_of(name, x)
    if len(shape) != 3:
        raise ShapeError(f"{name}: the {what} must have 3 axes, got shape {shape}; reshape it")
    return expand_dims(x, 2)
