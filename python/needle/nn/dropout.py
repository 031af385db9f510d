"""Dropout of elements and of whole channels."""

from __future__ import annotations

from .. import init, ops
from ..autograd import Tensor, as_operand
from ..ops.broadcasting import as_number, constant_like
from ..shapes import shape_of, shape_with
from .module import Module


class Dropout(Module):
    """Dropout: in training, zeroes elements with probability p and scales the rest by 1/(1-p).

    Each call draws one mask (also for p = 0) from the global ``np.random`` stream, or from
    ``generator`` on the device of the input. p = 1 gives zeros and draws nothing. ValueError unless
    0 <= p <= 1.
    """

    shown_in_repr = ("p",)

    def __init__(self, p: float = 0.5, generator: init.Generator | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        p = as_number(name, p, "p")
        if not 0.0 <= p <= 1.0:
            raise ValueError(
                f"{name}: p must be in [0, 1], got {p}; pass the probability of dropping"
            )
        self.p = p
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.p == 1.0:  # nothing is kept, so 1/(1-p) has nothing to scale
            shape_of("Dropout", x)
            x = as_operand(x)
            return ops.where(constant_like(x, (), 0.0), x, 0.0)
        ### BEGIN YOUR SOLUTION [dropout]
        shape = shape_of("Dropout", x)
        if not self.training:
            return x
        mask = init.randb(
            *shape, p=1 - self.p, device=x.device, dtype=x.dtype, generator=self.generator
        )
        return x * mask / (1 - self.p)
        ### END YOUR SOLUTION


class Dropout2d(Dropout):
    """Dropout of whole channels of each sample in x (N, C, H, W) (Tompson et al. 2015).

    In training, a channel is zeroed with probability p, and scaled by 1/(1-p) otherwise. The mask
    (N, C, 1, 1) is drawn as in ``Dropout``. ShapeError for another shape.
    """

    def forward(self, x: Tensor) -> Tensor:
        shape = shape_with("Dropout2d", x, "(N, C, H, W)", 4, remedy="reshape it, or use Dropout")
        if not self.training or self.p == 1.0:
            return super().forward(x)
        x = as_operand(x)
        return x * super().forward(constant_like(x, (*shape[:2], 1, 1), 1.0))
