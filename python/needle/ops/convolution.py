"""2-D convolution and its two gradients, each an op whose gradients are the other two.

conv2d and its gradients speak PyTorch's layouts (x NCHW, weight OIHW); ``conv`` is the course's
(x NHWC, weight KKIO). The kernels are channels last: the layouts meet them as permuted views, so
nothing is copied. Layers are in ``nn.convolution``, definitions in ``accelerated``.
"""

from __future__ import annotations

from typing import Any

from .. import accelerated
from ..array_namespace import array_api as xp
from ..autograd import Tensor, TensorOp
from ..errors import ShapeError
from ..shapes import conv_output_size, pair
from .elementwise import BiasReLUGrad
from .reduction import summation
from .registry import op
from .shape import permute

Array = Any
Pair = tuple[int, int]
Size = int | Pair
Shape = tuple[int, ...]
Parts = tuple[Tensor | None, ...]

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # NCHW -> NHWC and back
TO_HWIO, TO_OIHW = (2, 3, 1, 0), (3, 2, 0, 1)


class _Convolution(TensorOp):
    """What the family shares: the geometry, in the order the kernels take it."""

    def __init__(
        self, stride: Size = 1, padding: Size = 0, dilation: Size = 1, groups: int = 1
    ) -> None:
        self.geometry = (
            pair("conv2d", "stride", stride),
            pair("conv2d", "padding", padding),
            pair("conv2d", "dilation", dilation),
            groups,
        )

    def _check(self, name: str, x: Shape, weight: Shape, grad: Shape | None = None) -> None:
        """x NCHW, weight OIHW (and grad) fit each other and the geometry; ShapeError if not."""
        stride, padding, dilation, groups = self.geometry
        if len(x) != 4 or len(weight) != 4:
            raise ShapeError(
                f"{name}: input and weight must have 4 axes, got shapes {x} and {weight}; reshape"
            )
        out_channels, per_group = weight[:2]
        if groups < 1 or x[1] != per_group * groups or out_channels % groups:
            raise ShapeError(
                f"{name}: input channels must be groups * weight's input channels and groups must "
                f"divide the output channels, got {x[1]} channels for {per_group} * {groups} and "
                f"{out_channels} outputs; change the weight or groups"
            )
        size = tuple(
            conv_output_size(name, x[2 + i], weight[2 + i], stride[i], padding[i], dilation[i])
            for i in (0, 1)
        )
        expected = (x[0], out_channels, *size)
        if grad is not None and tuple(grad) != expected:
            raise ShapeError(
                f"{name}: grad must have the output's shape {expected}, got {tuple(grad)}; pass "
                "the gradient of conv2d's result"
            )

    def _for_x(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor | None:
        """conv2d's gradient for x; None where nobody wants it (a net's input images)."""
        return Conv2dInputGrad(x.shape, *self.geometry)(grad, weight) if x.requires_grad else None

    def _for_weight(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor | None:
        """conv2d's gradient for weight; None where nobody wants it."""
        if not weight.requires_grad:
            return None
        return Conv2dWeightGrad(weight.shape, *self.geometry)(grad, x)


class Conv2d(_Convolution):
    """y = weight ⋆ x + bias, linear in each: ``conv2d``."""

    def compute(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        self._check("conv2d", x.shape, weight.shape)
        operands = xp.permute_dims(x, TO_LAST), xp.permute_dims(weight, TO_HWIO)
        if bias is None:
            return xp.permute_dims(accelerated.conv2d(*operands, *self.geometry), TO_FIRST)
        if bias.shape != (weight.shape[0],):
            raise ShapeError(
                f"conv2d: bias must have shape ({weight.shape[0]},), one value an output "
                f"channel, got {bias.shape}; reshape it"
            )
        return xp.permute_dims(self._with_bias(*operands, bias), TO_FIRST)

    def _with_bias(self, x: Array, weight: Array, bias: Array) -> Array:
        """The fused operation, channels last."""
        return accelerated.conv2d_bias(x, weight, bias, *self.geometry)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        ### BEGIN YOUR SOLUTION [conv2d-op-grad]
        x, weight, *bias = node.inputs
        return (
            self._for_x(out_grad, x, weight),
            self._for_weight(out_grad, x, weight),
            *(summation(out_grad, axes=(0, 2, 3)) for _ in bias),
        )
        ### END YOUR SOLUTION


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
    """Cross-correlation of x (N, C, H, W) with weight (O, C/groups, KH, KW), plus bias (O,).

    Gives (N, O, OH, OW), OH = (H + 2*padding - dilation*(KH-1) - 1) // stride + 1, zero padded.
    Sizes are an int or a pair; group g maps its C/groups input channels to its O/groups outputs.
    ShapeError where shapes or geometry do not fit.
    """
    convolution = Conv2d(stride, padding, dilation, groups)
    return convolution(x, weight) if bias is None else convolution(x, weight, bias)


class Conv2dReLU(Conv2d):
    """max(weight ⋆ x + bias, 0): ``conv2d_relu``."""

    def _with_bias(self, x: Array, weight: Array, bias: Array) -> Array:
        return accelerated.conv2d_relu(x, weight, bias, *self.geometry)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        x, weight, bias = node.inputs
        grads = BiasReLUGrad(bias.shape, channel=1)(out_grad, node)
        return self._for_x(grads[0], x, weight), self._for_weight(grads[0], x, weight), grads[1]


@op(Conv2dReLU)
def conv2d_relu(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """relu(conv2d(x, weight, bias, ...)), computed while the sums are at hand; the same errors."""
    return Conv2dReLU(stride, padding, dilation, groups)(x, weight, bias)


class Conv2dInputGrad(_Convolution):
    """The adjoint of conv2d in x, also known as transposed convolution; bilinear."""

    def __init__(self, x_shape: Shape, *geometry: Any, **options: Any) -> None:
        super().__init__(*geometry, **options)
        self.x_shape = tuple(x_shape)

    def compute(self, grad: Array, weight: Array) -> Array:
        self._check("conv2d_input_grad", self.x_shape, weight.shape, grad.shape)
        n, c, h, w = self.x_shape
        x_grad = accelerated.conv2d_input_grad(
            xp.permute_dims(grad, TO_LAST),
            xp.permute_dims(weight, TO_HWIO),
            (n, h, w, c),
            *self.geometry,
        )
        return xp.permute_dims(x_grad, TO_FIRST)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        grad, weight = node.inputs
        return (
            Conv2d(*self.geometry)(out_grad, weight),
            self._for_weight(grad, out_grad, weight),
        )


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
    """conv2d's gradient for x: grad (N, O, OH, OW), weight (O, C/groups, KH, KW) -> ``x_shape``."""
    return Conv2dInputGrad(x_shape, stride, padding, dilation, groups)(grad, weight)


class Conv2dWeightGrad(_Convolution):
    """The adjoint of conv2d in weight; bilinear."""

    def __init__(self, weight_shape: Shape, *geometry: Any, **options: Any) -> None:
        super().__init__(*geometry, **options)
        self.weight_shape = tuple(weight_shape)

    def compute(self, grad: Array, x: Array) -> Array:
        self._check("conv2d_weight_grad", x.shape, self.weight_shape, grad.shape)
        o, i, kh, kw = self.weight_shape
        weight_grad = accelerated.conv2d_weight_grad(
            xp.permute_dims(grad, TO_LAST),
            xp.permute_dims(x, TO_LAST),
            (kh, kw, i, o),
            *self.geometry,
        )
        return xp.permute_dims(weight_grad, TO_OIHW)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        grad, x = node.inputs
        return Conv2d(*self.geometry)(x, out_grad), self._for_x(grad, x, out_grad)


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
    """conv2d's gradient for weight: grad (N, O, OH, OW), x (N, C, H, W) -> ``weight_shape``."""
    return Conv2dWeightGrad(weight_shape, stride, padding, dilation, groups)(grad, x)


class Conv(_Convolution):
    """The course's convolution on the kernels' own layouts; padding defaults to 0 here (and to 1
    in the function, as in the course)."""

    def __init__(self, stride: int = 1, padding: int = 0) -> None:
        super().__init__(stride, padding)

    def compute(self, a: Array, b: Array) -> Array:
        if len(a.shape) == len(b.shape) == 4:
            n, h, w, c = a.shape
            kh, kw, i, o = b.shape
            self._check("conv", (n, c, h, w), (o, i, kh, kw))
        else:
            self._check("conv", a.shape, b.shape)
        return accelerated.conv2d(a, b, *self.geometry)

    def gradient(self, out_grad: Tensor, node: Tensor) -> Parts:
        x, weight = permute(node.inputs[0], TO_FIRST), permute(node.inputs[1], TO_OIHW)
        grad = permute(out_grad, TO_FIRST)
        x_grad = Conv2dInputGrad(x.shape, *self.geometry)(grad, weight)
        weight_grad = Conv2dWeightGrad(weight.shape, *self.geometry)(grad, x)
        return permute(x_grad, TO_LAST), permute(weight_grad, TO_HWIO)


@op(Conv)
def conv(a: Tensor, b: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
    """The course's convolution: a (N, H, W, C) with b (KH, KW, C, O) gives (N, OH, OW, O)."""
    return Conv(stride, padding)(a, b)
