# Trail 20 of 30: Conv2d: a layer is parameters and one call of an op.
# Next: python/needle/optim/sgd.py
"""Convolution layers of images, and of signals (N, C, L), which are images with one row.

The formulas are in ``ops.convolution`` and ``ops.transposed_convolution``.
"""

from __future__ import annotations

from typing import Any

from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..ops import convolution
from ..ops.transposed_convolution import transposed
from ..shapes import Size, as_int_tuple, pair
from .module import operands
from .window import WindowLayer


class Conv2d(WindowLayer):
    """Cross-correlation of padded x (N, C, H, W), which gives (N, O, OH, OW).

    The arguments are PyTorch's; ``padding`` may be "same" or "valid", ``padding_mode`` "zeros",
    "reflect", "replicate" or "circular". The weight (KH, KW, in_channels/groups, out_channels) has
    the layout that the kernels read; ``nn.torch_mapping`` translates. The weight is drawn first,
    Kaiming uniform, then the bias (O,) from U(±1/sqrt(fan_in)), fan_in = KH*KW*in_channels/groups.
    In a Sequential, a ReLU directly after this layer runs in the same pass over memory.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode
        )
        self.draw(in_channels, out_channels, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self._convolved(x, relu=False)

    def forward_relu(self, x: Tensor) -> Tensor:
        """Return relu(forward(x)), computed in the same pass over memory."""
        return self._convolved(x, relu=True)

    fusible = forward

    def _convolved(self, x: Tensor, relu: bool) -> Tensor:
        x, weight, bias = operands(self.images(x), self.weight, self.bias)
        op = convolution.Conv2d(self.geometry, relu)
        y: Tensor = op(x, weight) if bias is None else op(x, weight, bias)
        return self.result(y)


class Conv(Conv2d):
    """The course's convolution: a square kernel, with padding kernel_size // 2 by default.

    An odd kernel at stride 1 keeps the image's size. If kernel_size or stride is a tuple, its first
    item is used; Conv2d has rectangular kernels. ``padding``, ``dilation`` and ``groups`` are not
    part of the course.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
        *,
        padding: Size | str | None = None,
        dilation: Size = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
    ) -> None:
        size = as_int_tuple("Conv", "kernel_size", kernel_size)[0]
        step = as_int_tuple("Conv", "stride", stride)[0]
        down, across = pair("Conv", "dilation", dilation)
        same = down * (size // 2), across * (size // 2)
        super().__init__(
            in_channels,
            out_channels,
            size,
            stride=step,
            padding=same if padding is None else padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
            device=device,
            dtype=dtype,
            padding_mode=padding_mode,
        )


class Conv1d(Conv2d):
    """Cross-correlation of padded x (N, C, L), which gives (N, O, OL).

    It is ``Conv2d`` on images with one row: the same options, with one size each. The weight is (1,
    K, in_channels/groups, out_channels).
    """

    axes = 1


class ConvTranspose2d(WindowLayer):
    """Transposed convolution of x (N, C, H, W) to (N, O, OH, OW) (Zeiler et al. 2010).

    The adjoint of the convolution with the same options: OH = (H - 1)*stride - 2*padding +
    dilation*(KH - 1) + output_padding + 1. The arguments are PyTorch's. The weight (KH, KW,
    out_channels/groups, in_channels) has the layout that the kernels read. It is drawn first,
    Kaiming uniform, then the bias (O,) from U(±1/sqrt(fan_in)), fan_in = KH*KW*out_channels/groups
    as in PyTorch. ShapeError for invalid options or inputs.
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
                f"{type(self).__name__}: padding must be an int or a tuple of ints, got "
                f"{padding!r}; pass an int"
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
    """Transposed convolution of x (N, C, L) to (N, O, OL).

    It is ``ConvTranspose2d`` on images with one row: the same options, with one size each. The
    weight is (1, K, out_channels/groups, in_channels).
    """

    axes = 1
