# Trail 20 of 30: Conv2d: a layer is parameters and one call of an op.
# Next: python/needle/optim/sgd.py
"""Convolution layers; the formulas are in ``ops.convolution``."""

from __future__ import annotations

import math
from typing import Any

from .. import init
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..ops import convolution
from ..shapes import Geometry, pair, shape_of
from .module import Module, Parameter

Size = int | tuple[int, int]


class Conv2d(Module):
    """Cross-correlation of x (N, C, H, W), zero padded, giving (N, O, OH, OW).

    The arguments are PyTorch's. The weight (KH, KW, in_channels/groups, out_channels) has the
    layout that the kernels read; ``nn.torch_mapping`` translates. The weight is drawn first,
    Kaiming uniform, then the bias (O,) from U(±1/sqrt(fan_in)), fan_in = KH*KW*in_channels/groups.
    In a Sequential, a ReLU directly after this layer runs in the same pass over memory.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(
                f"{name}: groups must divide in_channels and out_channels, got "
                f"groups={groups} for {in_channels} -> {out_channels}; change one of them"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = pair(name, "kernel_size", kernel_size)
        if min(in_channels, out_channels, *self.kernel_size) < 1:
            raise ShapeError(
                f"{name}: channels and kernel_size must be at least 1, got {in_channels} -> "
                f"{out_channels}, kernel_size={kernel_size}; give positive sizes"
            )
        self.geometry = Geometry.of(name, stride, padding, dilation, groups)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        area = self.kernel_size[0] * self.kernel_size[1]
        fan_in, fan_out = area * (in_channels // groups), area * (out_channels // groups)
        shape = (*self.kernel_size, in_channels // groups, out_channels)
        self.weight = Parameter(init.kaiming_uniform(fan_in, fan_out, shape=shape, **place))
        self.bias: Tensor | None = None
        if bias:
            bound = 1.0 / math.sqrt(fan_in)
            self.bias = Parameter(init.rand(out_channels, low=-bound, high=bound, **place))

    @property
    def stride(self) -> tuple[int, int]:
        """The step of the window, down and across."""
        return self.geometry.stride

    @property
    def padding(self) -> tuple[int, int]:
        """The number of rows and of columns of zeros on each side."""
        return self.geometry.padding

    @property
    def dilation(self) -> tuple[int, int]:
        """The distance between neighbouring weights, down and across."""
        return self.geometry.dilation

    @property
    def groups(self) -> int:
        """The number of groups of channels that are convolved separately."""
        return self.geometry.groups

    def extra_repr(self) -> str:
        stride, padding, dilation, groups = self.geometry
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        parts += [f"stride={stride}, padding={padding}"]
        if dilation != (1, 1):
            parts.append(f"dilation={dilation}")
        if groups != 1:
            parts.append(f"groups={groups}")
        parts.append(f"bias={self.bias is not None}")
        return ", ".join(parts)

    def forward(self, x: Tensor) -> Tensor:
        return self._convolved(x, relu=False)

    def forward_relu(self, x: Tensor) -> Tensor:
        """Return relu(forward(x)), computed in the same pass over memory."""
        return self._convolved(x, relu=True)

    fusible = forward

    def _convolved(self, x: Tensor, relu: bool) -> Tensor:
        shape = shape_of(type(self).__name__, x)
        if len(shape) != 4 or shape[1] != self.in_channels:
            raise ShapeError(
                f"{type(self).__name__}: input must be (N, C, H, W) with C={self.in_channels}, got "
                f"shape {shape}; reshape or permute the input"
            )
        op = convolution.Conv2d(self.geometry, relu)
        y: Tensor = op(x, self.weight) if self.bias is None else op(x, self.weight, self.bias)
        return y


class Conv(Conv2d):
    """The course's convolution: a square kernel, with padding kernel_size // 2 by default.

    An odd kernel at stride 1 keeps the image's size. Of a tuple for kernel_size or stride, the
    first item is taken; Conv2d has rectangular kernels. ``padding``, ``dilation`` and ``groups``
    are not part of the course.
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
        padding: Size | None = None,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        size = kernel_size if isinstance(kernel_size, int) else kernel_size[0]
        step = stride if isinstance(stride, int) else stride[0]
        same = dilation * (size // 2)
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
        )
