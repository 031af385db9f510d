# Trail 15 of 30: Conv2d and its two gradients; each has the other two as gradients.
# Next: src/cpu/conv_taps.h
"""2-D convolution and its two gradients: the gradients of each of these ops are the other two.

The ops take images as NCHW and the weight as the kernels and layers do, (KH, KW, C/groups, O). The
functions ``conv2d``, ``conv2d_input_grad`` and ``conv2d_weight_grad`` take PyTorch's weight, (O,
C/groups, KH, KW), and permute it. ``conv`` is the course's function, with x as NHWC and the
kernels' weight. The kernels get channels-last images, as permuted views, so nothing is copied.
Layers are in ``nn.convolution``, definitions in ``accelerated``.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import accelerated
from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp
from ..backends.base import Epilogue
from ..errors import ShapeError
from ..shapes import Geometry, Shape, Size, as_shape, product
from .elementwise import BiasReLUGrad, relu_grad
from .reduction import summation
from .registry import Array, Parts, op
from .shape import permute

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # NCHW -> NHWC and back
TO_HWIO, TO_OIHW = (2, 3, 1, 0), (3, 2, 0, 1)


def _check(name: str, x: Shape, weight: Shape, groups: int) -> None:
    """Raise ShapeError unless x (N, C, H, W) and weight (KH, KW, C/groups, O) match."""
    layout = "(KH, KW, C, O)" if name == "conv" else "(O, C/groups, KH, KW)"  # the user's layout
    if len(x) != 4 or len(weight) != 4:
        raise ShapeError(
            f"{name}: input and weight {layout} must have 4 axes, got shapes {x} and {weight}; "
            "reshape them"
        )
    per_group, out_channels = weight[2:]
    if groups < 1 or x[1] != per_group * groups or out_channels % groups:
        raise ShapeError(
            f"{name}: input channels must be groups * weight's input channels and groups must "
            f"divide the output channels, got {x[1]} channels for {per_group} * {groups} and "
            f"{out_channels} outputs; change groups, or permute the weight to {layout}"
        )


class _Convolution(TensorOp):
    """Base class of the convolutions; it holds the geometry."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry

    def multiplications(self, inputs: Sequence[Shape], output: Shape) -> int:
        return product(output) * product(inputs[1][:3])

    def _check_grad(self, name: str, grad: Shape, x: Shape, weight: Shape) -> None:
        """Raise ShapeError unless grad has the shape of conv2d's result for x and weight."""
        _check(name, x, weight, self.geometry.groups)
        size = self.geometry.output_size(name, x[2:], weight[:2])
        expected = (x[0], weight[3], *size)
        if tuple(grad) != expected:
            raise ShapeError(
                f"{name}: grad must have the output's shape {expected}, got {tuple(grad)}; pass "
                "the gradient of conv2d's result"
            )

    def _for_x(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor | None:
        """Return conv2d's gradient for x, or None if x requires none, like a network's input."""
        if not x.requires_grad:
            return None
        return Conv2dInputGrad(x.shape, self.geometry)(grad, weight)

    def _for_weight(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor | None:
        """Return conv2d's gradient for weight, or None if none is required."""
        if not weight.requires_grad:
            return None
        return Conv2dWeightGrad(weight.shape, self.geometry)(grad, x)


class Conv2d(_Convolution):
    """x ⋆ weight + bias, then relu if ``relu``; the bias is optional.

    x (N, C, H, W), weight (KH, KW, C/groups, O), bias (O,) -> (N, O, OH, OW).
    """

    def __init__(self, geometry: Geometry, relu: bool = False) -> None:
        super().__init__(geometry)
        self.relu = relu
        result = ("result",) if relu else ()
        self.reads = {0: (1, *result), 1: (0, *result), 2: result}

    def compute(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        _check("conv2d", x.shape, weight.shape, self.geometry.groups)
        if bias is not None and bias.shape != weight.shape[3:]:
            raise ShapeError(
                f"conv2d: bias must have shape ({weight.shape[3]},), one value per output "
                f"channel, got {bias.shape}; reshape it"
            )
        epilogue = Epilogue(bias, relu=self.relu)
        last = accelerated.conv2d(xp.permute_dims(x, TO_LAST), weight, self.geometry, epilogue)
        return xp.permute_dims(last, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        if self.relu:
            return self._relu_gradient(out_grad, node)
        ### BEGIN YOUR SOLUTION [conv2d-op-grad]
        x, weight, *bias = node.inputs
        return (
            self._for_x(out_grad, x, weight),
            self._for_weight(out_grad, x, weight),
            *(summation(out_grad, axes=(0, 2, 3)) for _ in bias),
        )
        ### END YOUR SOLUTION

    def _relu_gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        """Return the gradients of conv2d with relu; masking and the bias's sums are one pass."""
        x, weight, *bias = node.inputs
        if not bias:
            grad = relu_grad(out_grad, node)
            return self._for_x(grad, x, weight), self._for_weight(grad, x, weight)
        grad, bias_grad = BiasReLUGrad(bias[0].shape, channel=1)(out_grad, node)
        return self._for_x(grad, x, weight), self._for_weight(grad, x, weight), bias_grad


@op(Conv2d)
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return the cross-correlation of x (N, C, H, W) with weight (O, C/groups, KH, KW), plus bias.

    bias: (O,). The result is (N, O, OH, OW), OH = (H + 2*padding - dilation*(KH-1) - 1) // stride
    + 1; the padding is zeros.
    Sizes are an int or a pair; group g maps its C/groups input channels to its O/groups outputs.
    ShapeError if shapes or geometry are invalid.
    """
    convolution = Conv2d(Geometry.of("conv2d", stride, padding, dilation, groups))
    weight = _to_hwio("conv2d", x.shape, weight)
    return convolution(x, weight) if bias is None else convolution(x, weight, bias)


def _to_hwio(name: str, x: Shape, weight: Tensor) -> Tensor:
    """Return the weight (O, C/groups, KH, KW) as (KH, KW, C/groups, O)."""
    if len(weight.shape) != 4:
        _check(name, x, weight.shape, 1)
    return permute(weight, TO_HWIO)


class Conv2dInputGrad(_Convolution):
    """The gradient of conv2d for x, also known as transposed convolution; a bilinear op."""

    reads = {0: (1,), 1: (0,)}

    def __init__(self, x_shape: Shape, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.x_shape = tuple(x_shape)

    def compute(self, grad: Array, weight: Array) -> Array:
        self._check_grad("conv2d_input_grad", grad.shape, self.x_shape, weight.shape)
        n, c, h, w = self.x_shape
        x_grad = accelerated.conv2d_input_grad(
            xp.permute_dims(grad, TO_LAST), weight, (n, h, w, c), self.geometry
        )
        return xp.permute_dims(x_grad, TO_FIRST)

    def multiplications(self, inputs: Sequence[Shape], output: Shape) -> int:
        return product(inputs[0]) * product(inputs[1][:3])

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        grad, weight = node.inputs
        for_grad = Conv2d(self.geometry)(out_grad, weight) if grad.requires_grad else None
        return for_grad, self._for_weight(grad, out_grad, weight)


@op(Conv2dInputGrad)
def conv2d_input_grad(
    grad: Tensor,
    weight: Tensor,
    x_shape: Shape,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return conv2d's gradient for x, of shape ``x_shape``.

    grad: (N, O, OH, OW). weight: (O, C/groups, KH, KW).
    """
    name = "conv2d_input_grad"
    geometry = Geometry.of(name, stride, padding, dilation, groups)
    x_shape = as_shape(name, x_shape)
    return Conv2dInputGrad(x_shape, geometry)(grad, _to_hwio(name, x_shape, weight))


class Conv2dWeightGrad(_Convolution):
    """The gradient of conv2d for weight (KH, KW, C/groups, O); a bilinear op."""

    reads = {0: (1,), 1: (0,)}

    def __init__(self, weight_shape: Shape, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.weight_shape = tuple(weight_shape)

    def compute(self, grad: Array, x: Array) -> Array:
        self._check_grad("conv2d_weight_grad", grad.shape, x.shape, self.weight_shape)
        kh, kw, i, o = self.weight_shape
        return accelerated.conv2d_weight_grad(
            xp.permute_dims(grad, TO_LAST), xp.permute_dims(x, TO_LAST), (kh, kw, i, o),
            self.geometry,
        )  # fmt: skip

    def multiplications(self, inputs: Sequence[Shape], output: Shape) -> int:
        return product(inputs[0]) * product(self.weight_shape[:3])

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        grad, x = node.inputs
        for_grad = Conv2d(self.geometry)(x, out_grad) if grad.requires_grad else None
        return for_grad, self._for_x(grad, x, out_grad)


@op(Conv2dWeightGrad)
def conv2d_weight_grad(
    grad: Tensor,
    x: Tensor,
    weight_shape: Shape,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """Return conv2d's gradient for weight, of shape ``weight_shape``, (O, C/groups, KH, KW).

    grad: (N, O, OH, OW). x: (N, C, H, W).
    """
    name = "conv2d_weight_grad"
    geometry = Geometry.of(name, stride, padding, dilation, groups)
    weight_shape = as_shape(name, weight_shape)
    if len(weight_shape) != 4:
        _check(name, x.shape, weight_shape, groups)
    hwio = tuple(weight_shape[axis] for axis in TO_HWIO)
    return permute(Conv2dWeightGrad(hwio, geometry)(grad, x), TO_OIHW)


class Conv(_Convolution):
    """The course's convolution: x (N, H, W, C), weight (KH, KW, C, O) -> (N, OH, OW, O).

    padding defaults to 0 here (and to 1 in the function, as in the course).
    """

    reads = {0: (1,), 1: (0,)}

    def __init__(self, stride: int = 1, padding: int = 0) -> None:
        super().__init__(Geometry.of("conv", stride, padding, 1, 1))

    def compute(self, a: Array, b: Array) -> Array:
        shape = a.shape
        _check("conv", tuple(shape[i] for i in TO_FIRST) if len(shape) == 4 else shape, b.shape, 1)
        return accelerated.conv2d(a, b, self.geometry)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        x, weight = node.inputs
        grad, (n, h, w, c) = permute(out_grad, TO_FIRST), x.shape
        x_grad = weight_grad = None
        if x.requires_grad:
            x_grad = permute(Conv2dInputGrad((n, c, h, w), self.geometry)(grad, weight), TO_LAST)
        if weight.requires_grad:
            weight_grad = self._for_weight(grad, permute(x, TO_FIRST), weight)
        return x_grad, weight_grad


@op(Conv)
def conv(a: Tensor, b: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
    """Return the course's convolution of a (N, H, W, C) with b (KH, KW, C, O): (N, OH, OW, O)."""
    return Conv(stride, padding)(a, b)
