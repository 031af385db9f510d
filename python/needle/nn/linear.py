"""The affine layer."""

from __future__ import annotations

from typing import Any

from .. import init, ops
from ..autograd import Tensor
from ..backend_selection import Device
from ..errors import ShapeError
from ..shapes import shape_of
from .module import Module, Parameter


class Linear(Module):
    """x (..., in_features) -> x @ weight + bias (..., out_features).

    weight (in_features, out_features) and then bias (1, out_features) are drawn Kaiming uniform.
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
        shape = shape_of("Linear", x)
        if not shape or shape[-1] != self.in_features:
            raise ShapeError(
                f"Linear: the last axis must have in_features={self.in_features}, got shape "
                f"{shape}; flatten or reshape the input"
            )
        lead = shape[:-1]
        rows = 1
        for n in lead:
            rows *= n
        flat = x if len(lead) == 1 else ops.reshape(x, (rows, self.in_features))
        y = ops.matmul(flat, self.weight)
        if self.bias is not None:
            y = y + self.bias
        return y if len(lead) == 1 else ops.reshape(y, (*lead, self.out_features))
