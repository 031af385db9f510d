"""Dropout."""

from __future__ import annotations

from .. import init
from ..autograd import Tensor
from ..shapes import shape_of
from .module import Module


class Dropout(Module):
    """In training: zeroes each element with probability p and scales the rest by 1/(1-p).

    The mask is one draw of the global ``np.random`` stream a call (also for p = 0), or of
    ``generator``, which draws it on the device of the input.
    """

    def __init__(self, p: float = 0.5, generator: init.Generator | None = None) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"Dropout: p must be in [0, 1), got {p}; give the share to drop")
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
