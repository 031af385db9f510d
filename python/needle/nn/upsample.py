"""Resampling layer; the formulas are in ``ops.interpolation``."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ops
from ..autograd import Tensor
from .module import Module


class Upsample(Module):
    """Resampling of x (N, C, L) or (N, C, H, W) to ``size``, or by ``scale_factor``.

    The options are those of ``ops.interpolate``.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> None:
        super().__init__()
        self.size, self.scale_factor = size, scale_factor
        self.mode, self.align_corners = mode, align_corners

    def extra_repr(self) -> str:
        given = f"size={self.size}" if self.size else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"

    def forward(self, x: Tensor) -> Tensor:
        return ops.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)
