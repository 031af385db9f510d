"""Import Conv and ConvTranspose for sequences and images, and compute a window's padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import ops
from ...autograd import Tensor
from ..call import Call, operator
from .shape import pad

Pads = tuple[list[int], list[int]]


def spatial(call: Call, name: str, default: int, count: int, least: int = 1) -> list[int]:
    """Return an attribute that has one size for each of ``count`` spatial axes."""
    values = call.listed(name)
    values = [default] * count if values is None else values
    if len(values) != count or min(values, default=least) < least:
        raise call.refuse(f"{name} must be {count} numbers of {least} or more, got {values}")
    return values


def window_pads(call: Call, x: Tensor, reach: Sequence[int], stride: Sequence[int]) -> Pads:
    """Return the padding before and after each spatial axis, from ``pads`` or ``auto_pad``.

    reach: the extent of a window with its dilation.
    """
    count = len(reach)
    mode = call.choice("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if mode == "NOTSET":
        pads = spatial(call, "pads", 0, 2 * count, least=0)
        return pads[:count], pads[count:]
    before, after = [0] * count, [0] * count
    if mode == "VALID":
        return before, after
    for i, (size, span, step) in enumerate(zip(x.shape[2:], reach, stride, strict=True)):
        total = max((-(-size // step) - 1) * step + span - size, 0)
        less, more = total // 2, total - total // 2
        before[i], after[i] = (less, more) if mode == "SAME_UPPER" else (more, less)
    return before, after


def _geometry(call: Call) -> tuple[int, list[int], list[int]]:
    """Return the number of spatial axes, the strides and the dilations of a convolution."""
    x, weight = tuple(call.x.shape), tuple(call.tensor(1).shape)
    count = len(weight) - 2
    if count not in (1, 2) or len(x) != len(weight):
        raise call.refuse(
            f"sequences (N, C, L) or images (N, C, H, W) are supported, got an input of shape {x} "
            f"and a weight of shape {weight}"
        )
    kernel = call.listed("kernel_shape")
    if kernel is not None and tuple(kernel) != weight[2:]:
        raise call.refuse(f"kernel_shape {kernel} must agree with the weight's {weight[2:]}")
    return count, spatial(call, "strides", 1, count), spatial(call, "dilations", 1, count)


def _reaches(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    return [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]


@operator("Conv")
def _conv(call: Call) -> Tensor:
    x, weight, bias = call.x, call.tensor(1), call.optional(2)
    count, stride, dilation = _geometry(call)
    before, after = window_pads(call, x, _reaches(weight.shape[2:], dilation), stride)
    sizes = [n + b + a for n, b, a in zip(x.shape[2:], before, after, strict=True)]
    call.sized((*x.shape[:2], *sizes))
    call.sized((x.shape[0], weight.shape[0], *sizes))
    if before != after:
        x, before = pad(call, x, [0, 0, *before, 0, 0, *after], 0.0), [0] * count
    conv: Any = ops.conv2d if count == 2 else ops.conv1d
    found: Tensor = conv(x, weight, bias, stride, before, dilation, call.get("group", 1))
    return found


@operator("ConvTranspose")
def _conv_transpose(call: Call) -> Tensor:
    """Return the adjoint of a convolution (its input gradient), cropped and padded as in ONNX."""
    x, weight, bias = call.x, call.tensor(1), call.optional(2)
    count, stride, dilation = _geometry(call)
    groups = call.get("group", 1)
    extra = spatial(call, "output_padding", 0, count, least=0)
    reach = _reaches(weight.shape[2:], dilation)
    whole = [s * (n - 1) + r for s, n, r in zip(stride, x.shape[2:], reach, strict=True)]
    before, after = _transposed_pads(call, x, whole, extra, stride)
    channels = weight.shape[1] * groups
    call.sized((x.shape[0], channels, *whole))
    conv: Any = ops.conv_transpose2d if count == 2 else ops.conv_transpose1d
    y: Tensor = conv(x, weight, None, stride, groups=groups, dilation=dilation)
    ends = [e - a for e, a in zip(extra, after, strict=True)]
    y = pad(call, y, [0, 0, *(-b for b in before), 0, 0, *ends], 0.0)
    if bias is None:
        return y
    if tuple(bias.shape) != (channels,):
        raise call.refuse(f"the bias must have shape ({channels},), got {tuple(bias.shape)}")
    return y + ops.reshape(bias, (1, channels, *[1] * count))


def _transposed_pads(
    call: Call, x: Tensor, whole: Sequence[int], extra: Sequence[int], stride: Sequence[int]
) -> Pads:
    """Return the crop of the full result before and after each spatial axis."""
    count = len(whole)
    mode = call.choice("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    wanted = call.listed("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = spatial(call, "pads", 0, 2 * count, least=0) if mode == "NOTSET" else [0] * 2 * count
        return pads[:count], pads[count:]
    if wanted is None:
        wanted = [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
    if len(wanted) != count:
        raise call.refuse(f"output_shape must name {count} sizes, got {wanted}")
    totals = [w + e - size for w, e, size in zip(whole, extra, wanted, strict=True)]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (less, more) if mode == "SAME_UPPER" else (more, less)
