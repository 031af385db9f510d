"""Layers without weights that rearrange or resample the pixels of images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import ops
from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import Geometry, Size, as_int_tuple, pair, shape_of, shape_with
from .module import Module


class _Padding(Module):
    """Base class of layers that add pixels around x (N, C, H, W) or (C, H, W).

    ``padding``: one number for all sides, or (left, right, top, bottom); negative numbers crop.
    ShapeError for other values or another shape.
    """

    mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        name = type(self).__name__
        given = as_int_tuple(name, "padding", padding)
        self.padding = given if isinstance(padding, Iterable) else given * 4
        if len(self.padding) != 4:
            raise ShapeError(
                f"{name}: padding must be an int or (left, right, top, bottom), got {padding}; "
                "pass four ints"
            )

    def extra_repr(self) -> str:
        return f"{self.padding}"

    def forward(self, x: Tensor) -> Tensor:
        shape_with(type(self).__name__, x, "(C, H, W) or (N, C, H, W)", 3, 4)
        return ops.pad(x, self.padding, self.mode)


class ZeroPad2d(_Padding):
    """A layer that pads x (N, C, H, W) or (C, H, W) with zeros.

    ``padding``: one number for all sides, or (left, right, top, bottom); negative numbers crop.
    """

    mode = "constant"


class ReflectionPad2d(_Padding):
    """A layer that pads x (N, C, H, W) or (C, H, W) by reflection, without repeating the border.

    ``padding`` is as in ``ZeroPad2d``, and less than the image's size.
    """

    mode = "reflect"


class ReplicationPad2d(_Padding):
    """A layer that pads x (N, C, H, W) or (C, H, W) by repeating its border pixels.

    ``padding`` is as in ``ZeroPad2d``.
    """

    mode = "replicate"


class _PixelShuffle(Module):
    """Base class of layers that trade r*r channels for r times the height and width."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        (self.factor,) = as_int_tuple(type(self).__name__, "the factor", (factor,))
        if self.factor < 1:
            raise ShapeError(
                f"{type(self).__name__}: the factor must be at least 1, got {factor}; pass a "
                "positive int"
            )

    def extra_repr(self) -> str:
        return f"{self.factor}"

    def split(self, x: Tensor, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of x; ShapeError unless the factor divides the sizes of ``axes``."""
        name, shape = type(self).__name__, shape_of(type(self).__name__, x)
        step = self.factor ** (3 - len(axes))
        if len(shape) < 3 or any(shape[axis] % step for axis in axes):
            what = "C" if len(axes) == 1 else "H and W"
            raise ShapeError(
                f"{name}: the input must be (..., C, H, W) with {what} divisible by {step}, got "
                f"shape {shape}; change the factor or the shape"
            )
        return shape


class PixelShuffle(_PixelShuffle):
    """Map x (..., C*r*r, H, W) to (..., C, H*r, W*r), r = ``upscale_factor`` (Shi et al. 2016).

    Channel c*r*r + i*r + j becomes the pixels (h*r + i, w*r + j) of channel c.
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__(upscale_factor)

    def forward(self, x: Tensor) -> Tensor:
        *lead, channels, height, width = self.split(x, (-3,))
        r, n = self.factor, len(lead)
        y = ops.reshape(x, (*lead, channels // (r * r), r, r, height, width))
        y = ops.permute(y, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
        return ops.reshape(y, (*lead, channels // (r * r), height * r, width * r))


class PixelUnshuffle(_PixelShuffle):
    """Map x (..., C, H*r, W*r) to (..., C*r*r, H, W): the inverse of ``PixelShuffle``."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__(downscale_factor)

    def forward(self, x: Tensor) -> Tensor:
        *lead, channels, height, width = self.split(x, (-2, -1))
        r, n = self.factor, len(lead)
        y = ops.reshape(x, (*lead, channels, height // r, r, width // r, r))
        y = ops.permute(y, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
        return ops.reshape(y, (*lead, channels * r * r, height // r, width // r))


class Unfold(Module):
    """All windows of x (N, C, H, W) as columns: (N, C*KH*KW, windows).

    Row c*KH*KW + i*KW + j has the pixels (i, j) of the windows in channel c; windows are in
    row-major order, as in a convolution with these options. ShapeError for another shape, or if no
    window fits.
    """

    def __init__(
        self, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1
    ) -> None:
        super().__init__()
        self.kernel_size = pair("Unfold", "kernel_size", kernel_size)
        self.geometry = Geometry.of("Unfold", stride, padding, dilation, 1)

    def extra_repr(self) -> str:
        step, padding, dilation, _ = self.geometry
        return f"{self.kernel_size}, dilation={dilation}, padding={padding}, stride={step}"

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_with("Unfold", x, "(N, C, H, W)", 4)
        stride, padding, dilation, _ = self.geometry
        counts = self.geometry.output_size("Unfold", shape[2:], self.kernel_size)
        x = ops.pad(x, ((0, 0), (0, 0), *((width, width) for width in padding)))
        (height, width), (rows, columns) = self.kernel_size, counts
        y = _windows(x, 2, 2, height, rows, stride[0], dilation[0])  # (N, C, KH, OH, W)
        y = _windows(y, 4, 3, width, columns, stride[1], dilation[1])  # (N, C, KH, KW, OH, OW)
        return ops.reshape(y, (shape[0], shape[1] * height * width, rows * columns))


def _windows(
    x: Tensor, axis: int, new: int, size: int, count: int, stride: int, dilation: int
) -> Tensor:
    """Return x with a ``new`` axis of window positions and ``count`` windows along ``axis``."""
    before, span = (slice(None),) * axis, stride * (count - 1) + 1
    starts = [dilation * i for i in range(size)]
    parts = [x[(*before, slice(start, start + span, stride))] for start in starts]
    return ops.stack(parts, new)


class Upsample(Module):
    """A layer that resamples x (N, C, L) or (N, C, H, W) to ``size``, or by ``scale_factor``.

    The options are those of ``ops.interpolate``.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners

    def extra_repr(self) -> str:
        factor = f"scale_factor={self.scale_factor}"
        given = factor if self.size is None else f"size={self.size}"
        return f"{given}, mode={self.mode!r}"

    def forward(self, x: Tensor) -> Tensor:
        return ops.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)
