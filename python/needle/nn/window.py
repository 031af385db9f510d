"""Base class of convolution layers: sizes and padding."""

from __future__ import annotations

import math
from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError, UnknownNameError, check_choice
from ..shapes import Geometry, pair, row_pair, shape_of
from .module import Module, Parameter

Sides = tuple[tuple[int, int], tuple[int, int]]
MODES = ("zeros", "reflect", "replicate", "circular")
NONE: Sides = ((0, 0), (0, 0))


class WindowLayer(Module):
    """Base class of layers that move a window (KH, KW) over images; signals have one row.

    ``axes`` is 2 for images and 1 for signals, whose sizes are reported without that of the row.
    """

    axes = 2
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        name = type(self).__name__
        self.in_channels, self.out_channels = in_channels, out_channels
        self.window = self.sizes("kernel_size", kernel_size, 1)
        self._check_channels(groups)
        check_choice(name, "padding_mode", padding_mode, MODES, UnknownNameError)
        stride, dilation = self.sizes("stride", stride, 1), self.sizes("dilation", dilation, 1)
        if min(*stride, *dilation) < 1:
            raise ShapeError(
                f"{name}: stride and dilation must be at least 1, got {stride} and {dilation}; "
                "pass positive ints"
            )
        if not isinstance(padding, str):
            padding = self.sizes("padding", padding, 0)
            if min(padding) < 0:
                raise ShapeError(
                    f"{name}: padding must not be negative, got {padding}; crop the input instead"
                )
        sides = sides_of(name, padding, self.window, stride, dilation)
        zeros, self.border = (sides, NONE) if padding_mode == "zeros" else (NONE, sides)
        self.padding_mode, self.given_padding = padding_mode, padding
        # kernels pad both sides equally, so the excess at the start is cropped from the result
        self.geometry = Geometry(stride, (zeros[0][1], zeros[1][1]), dilation, groups)
        self.cut = (zeros[0][1] - zeros[0][0], zeros[1][1] - zeros[1][0])

    def draw(
        self, inputs: int, outputs: int, bias: bool, device: Device | None, dtype: Any
    ) -> None:
        """Draw the weight (KH, KW, inputs/groups, outputs), Kaiming uniform, then the bias (O,)."""
        area, groups = math.prod(self.window), self.groups
        fan_in, fan_out = area * (inputs // groups), area * (outputs // groups)
        shape = (*self.window, inputs // groups, outputs)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = Parameter(init.kaiming_uniform(fan_in, fan_out, shape=shape, **place))
        self.bias = None
        if bias:
            bound = 1.0 / math.sqrt(fan_in)
            self.bias = Parameter(init.rand(self.out_channels, low=-bound, high=bound, **place))

    def sizes(self, name: str, value: Any, row: int) -> tuple[int, int]:
        """Return a size option as a pair; in a 1-d layer, ``row`` is the first."""
        owner = type(self).__name__
        return pair(owner, name, value) if self.axes == 2 else row_pair(owner, name, value, row)

    def _check_channels(self, groups: int) -> None:
        name, channels = type(self).__name__, (self.in_channels, self.out_channels)
        if groups < 1 or any(count % groups for count in channels):
            raise ShapeError(
                f"{name}: groups must divide in_channels and out_channels, got "
                f"groups={groups} for {channels[0]} -> {channels[1]}; change one of them"
            )
        if min(*channels, *self.window) < 1:
            raise ShapeError(
                f"{name}: channels and kernel_size must be at least 1, got {channels[0]} -> "
                f"{channels[1]}, kernel_size={self.kernel_size}; pass positive sizes"
            )

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """The size of the window, down and across."""
        return self.window[-self.axes :]

    @property
    def stride(self) -> tuple[int, ...]:
        """The step of the window, down and across."""
        return self.geometry.stride[-self.axes :]

    @property
    def padding(self) -> tuple[int, ...] | str:
        """The number of rows and of columns added on each side, or "same" or "valid"."""
        given = self.given_padding
        return given if isinstance(given, str) else given[-self.axes :]

    @property
    def dilation(self) -> tuple[int, ...]:
        """The distance between neighbouring weights, down and across."""
        return self.geometry.dilation[-self.axes :]

    @property
    def groups(self) -> int:
        """The number of groups of channels that are convolved separately."""
        return self.geometry.groups

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        parts += [f"stride={self.stride}, padding={self.padding!r}"]
        if self.geometry.dilation != (1, 1):
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        parts.append(f"bias={self.bias is not None}")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode!r}")
        return ", ".join(parts)

    def images(self, x: Tensor) -> Tensor:
        """Return the input as images (N, C, H, W); ShapeError for another shape."""
        shape = shape_of(type(self).__name__, x)
        if len(shape) != 2 + self.axes or shape[1] != self.in_channels:
            layout = "(N, C, H, W)" if self.axes == 2 else "(N, C, L)"
            raise ShapeError(
                f"{type(self).__name__}: input must be {layout} with C={self.in_channels}, got "
                f"shape {shape}; reshape or permute the input"
            )
        x = x if self.axes == 2 else ops.expand_dims(x, 2)
        if self.border == NONE:
            return x
        return ops.pad(x, ((0, 0), (0, 0), *self.border), self.padding_mode)

    def result(self, y: Tensor) -> Tensor:
        """Crop the kernels' excess padding, and drop the axis of a signal's single row."""
        if any(self.cut):
            y = y[:, :, self.cut[0] :, self.cut[1] :]
        return y if self.axes == 2 else ops.squeeze(y, 2)


def sides_of(
    owner: str,
    padding: Any,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> Sides:
    """Return the rows (above, below) and the columns (left, right) that ``padding`` adds.

    "same" keeps the size at stride 1, with the odd row or column at the end; "valid" adds nothing.
    ShapeError for "same" with another stride, UnknownNameError for another name.
    """
    if padding == "same":
        if stride != (1, 1):
            raise ShapeError(f"{owner}: padding='same' needs stride 1, got {stride}; pass a number")
        down, across = (d * (k - 1) for d, k in zip(dilation, kernel, strict=True))
        return (down // 2, down - down // 2), (across // 2, across - across // 2)
    if isinstance(padding, str) and padding != "valid":
        raise UnknownNameError(
            f"{owner}: padding must be an int, a tuple of ints, 'same' or 'valid', got "
            f"{padding!r}; choose one"
        )
    rows, columns = (0, 0) if padding == "valid" else pair(owner, "padding", padding)
    return (rows, rows), (columns, columns)
