"""Generator: random tensors of a seed of their own, drawn on the device.

``rand``, ``randn``, ``randb`` and ``nn.Dropout`` take one; without, they draw from NumPy's global
stream on the host, as the course's programs expect.
"""

from __future__ import annotations

import operator
from typing import Any

from .. import accelerated
from ..array_namespace import Device
from ..dtypes import numpy_dtype


class Generator:
    """The draws of a seed, in [0, 2**64): the same bits on every device, with or without kernels.

    A draw depends on the seed, on how many draws came before (``draws``, which may be set, to go
    on where another run stopped) and on the shape; not on NumPy's global stream, threads or
    device. Normal numbers are the inverse of the distribution (Wichura's AS 241) at 32 bits.
    """

    def __init__(self, seed: int) -> None:
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"Generator: seed must be in [0, 2**64), got {seed}; take it modulo")
        self.draws = 0

    def draw(self, name: str, shape: Any, a: float, b: float, device: Device, dtype: Any) -> Any:
        """A new array of ``accelerated.random``; other dtypes than floats are converted."""
        wanted = numpy_dtype(dtype, "init")
        real = wanted if wanted.kind == "f" else "float32"
        out = device.empty(shape, dtype=real)
        accelerated.random(out, name, self.seed, self.draws, float(a), float(b))
        self.draws += 1
        return out if wanted.kind == "f" else out.astype(wanted)

    def __repr__(self) -> str:
        return f"Generator({self.seed}, draws={self.draws})"
