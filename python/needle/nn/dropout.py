"""Dropout layer."""

from __future__ import annotations

from .. import init
from ..autograd import Tensor
from ..ops.broadcasting import as_number
from ..shapes import shape_of
from .module import Module


class Dropout(Module):
    """Dropout: in training, zeroes elements with probability p and scales the rest by 1/(1-p).

    Each call draws one mask (also for p = 0) from the global ``np.random`` stream, or from
    ``generator`` on the device of the input. The shape stays. ValueError unless 0 <= p < 1.
    """

    def __init__(self, p: float = 0.5, generator: init.Generator | None = None) -> None:
        super().__init__()
        p = as_number("Dropout", p, "p")
        if not 0.0 <= p < 1.0:
            raise ValueError(
                f"Dropout: p must be in [0, 1), got {p}; pass the probability of dropping"
            )
        self.p = p
        self.generator = generator

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def forward(self, x: Tensor) -> Tensor:
        ### BEGIN YOUR SOLUTION [dropout]
        shape = shape_of("Dropout", x)
        if not self.training:
            return x
        mask = init.randb(
            *shape, p=1 - self.p, device=x.device, dtype=x.dtype, generator=self.generator
        )
        return x * mask / (1 - self.p)
        ### END YOUR SOLUTION
