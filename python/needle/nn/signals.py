"""Convolution of signals (N, C, L), which are images with one row, and transposed convolutions.

The formulas are in ``ops.convolution`` and ``ops.transposed_convolution``.
"""

from __future__ import annotations

from typing import Any

from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..ops.transposed_convolution import transposed
from ..shapes import Size
from .convolution import Conv2d
from .module import operands
from .window import WindowLayer


class Conv1d(Conv2d):
    """Cross-correlation of x (N, C, L), padded, giving (N, O, OL).

    ``Conv2d`` of images with one row: the same options, with one size each. The weight is (1, K,
    in_channels/groups, out_channels).
    """

    axes = 1


class ConvTranspose2d(WindowLayer):
    """Transposed convolution of x (N, C, H, W), giving (N, O, OH, OW) (Zeiler et al. 2010).

    The adjoint of the convolution with the same options: OH = (H - 1)*stride - 2*padding +
    dilation*(KH - 1) + output_padding + 1. The arguments are PyTorch's. The weight (KH, KW,
    out_channels/groups, in_channels) has the layout that the kernels read. It is drawn first,
    Kaiming uniform, then the bias (O,) from U(±1/sqrt(fan_in)), fan_in = KH*KW*out_channels/groups
    as in PyTorch. ShapeError for options or inputs that do not fit.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        if isinstance(padding, str):
            raise ShapeError(
                f"{type(self).__name__}: padding must be sizes, got {padding!r}; pass an int"
            )
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups)
        self.more = self.sizes("output_padding", output_padding, 0)
        self.draw(out_channels, in_channels, bias, device, dtype)

    @property
    def output_padding(self) -> tuple[int, ...]:
        """The number of rows and of columns added to the output on one side."""
        return self.more[-self.axes :]

    def extra_repr(self) -> str:
        extra = f", output_padding={self.output_padding}" if any(self.more) else ""
        return super().extra_repr() + extra

    def forward(self, x: Tensor) -> Tensor:
        images, weight, bias = operands(self.images(x), self.weight, self.bias)
        y = transposed(type(self).__name__, images, weight, bias, self.geometry, self.more)
        return self.result(y)


class ConvTranspose1d(ConvTranspose2d):
    """Transposed convolution of x (N, C, L), giving (N, O, OL).

    ``ConvTranspose2d`` of images with one row: the same options, with one size each. The weight is
    (1, K, out_channels/groups, in_channels).
    """

    axes = 1
