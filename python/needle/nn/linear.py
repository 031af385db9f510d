"""The linear layer, and the affine map that it shares with other layers."""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..array_namespace import Device
from ..autograd import Tensor
from ..errors import ShapeError
from ..shapes import product, shape_of
from .module import Module, Parameter, operands


def affine(owner: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x (..., I) @ weight (I, O) + bias, (O,) or (1, O), by one 2-D matrix product.

    Raise ShapeError, which names the layer ``owner``, if the last axis of x is not I.
    """
    ### BEGIN YOUR SOLUTION [linear]
    shape, inputs = shape_of(owner, x), weight.shape[0]
    if not shape or shape[-1] != inputs:
        raise ShapeError(
            f"{owner}: the last axis must have in_features={inputs}, got shape {shape}; flatten "
            "or reshape the input"
        )
    lead = shape[:-1]
    x, weight, bias = operands(x, weight, bias)
    y = ops.matmul(x if len(lead) == 1 else ops.reshape(x, (product(lead), inputs)), weight)
    if bias is not None:
        y = y + bias
    return y if len(lead) == 1 else ops.reshape(y, (*lead, weight.shape[1]))
    ### END YOUR SOLUTION


class Linear(Module):
    """Affine map: x (..., in_features) -> x @ weight + bias (..., out_features).

    weight (in_features, out_features) and then bias (1, out_features) are drawn, Kaiming uniform.
    In a Sequential, a ReLU directly after this layer runs in the pass that adds the bias.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: Any = "float32",
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.weight = Parameter(init.kaiming_uniform(in_features, out_features, **place))
        self.bias: Tensor | None = None
        if bias:
            drawn = init.kaiming_uniform(out_features, 1, **place)
            self.bias = Parameter(ops.reshape(drawn, (1, out_features)))

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )

    def forward(self, x: Tensor) -> Tensor:
        return affine("Linear", x, self.weight, self.bias)

    def forward_relu(self, x: Tensor) -> Tensor:
        """Return relu(forward(x)), computed in the same pass over memory."""
        y, bias = operands(affine("Linear", x, self.weight, None), self.bias)
        return ops.relu(y) if bias is None else ops.elementwise.BiasReLU()(y, bias)

    fusible = forward
