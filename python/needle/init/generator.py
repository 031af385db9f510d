"""Generator: random numbers of a seed of their own, computed on the device.

``rand``, ``randn``, ``randb`` and ``nn.Dropout`` accept one. Without a generator they draw from
NumPy's global stream on the host, as programs of the course expect.
"""

from __future__ import annotations

import operator
from typing import Any

from .. import accelerated
from ..array_namespace import Device
from ..dtypes import numpy_dtype


class Generator:
    """A stream of random arrays of one seed in [0, 2**64), with the same bits on every device.

    A draw depends on the seed, on the number of earlier draws (``draws``, which may be set to
    continue where another run stopped) and on the shape. It does not depend on NumPy's global
    stream, on threads or on the device. Normal numbers are the inverse of the distribution function
    (Wichura's AS 241) at 32 random bits.
    """

    def __init__(self, seed: int) -> None:
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"Generator: seed must be in [0, 2**64), got {seed}; take it modulo")
        self.draws = 0

    def draw(self, name: str, shape: Any, a: float, b: float, device: Device, dtype: Any) -> Any:
        """Return a new array of ``accelerated.random``, converted if ``dtype`` is not floating."""
        wanted = numpy_dtype(dtype, "init")
        real = wanted if wanted.kind == "f" else "float32"
        out = device.empty(shape, dtype=real)
        accelerated.random(out, name, self.seed, self.draws, float(a), float(b))
        self.draws += 1
        return out if wanted.kind == "f" else out.astype(wanted)

    def __repr__(self) -> str:
        return f"Generator({self.seed}, draws={self.draws})"
