"""``Generator``, which computes random numbers on the device, and ``needle.seed``.

``rand``, ``randn``, ``randb`` and ``nn.Dropout`` accept a generator. Without one they draw from
NumPy's global stream on the host, as course programs expect.
"""

from __future__ import annotations

import operator
import random
from typing import Any

import numpy as np

from .. import accelerated
from ..array_namespace import Device, default_dtype
from ..dtypes import numpy_dtype
from ..host_steps import Counter


class Generator:
    """A stream of random arrays with a seed in [0, 2**64) and the same bits on every device.

    A draw depends on the seed, on the number of earlier draws (``draws``, which may be set to
    continue where another run stopped) and on the shape. It does not depend on NumPy's global
    stream, on threads or on the device. Normal numbers are the inverse of the distribution function
    (Wichura's AS 241) at 32 random bits.
    """

    draws = Counter()

    def __init__(self, seed: int) -> None:
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 2**64:
            raise ValueError(
                f"Generator: seed must be in [0, 2**64), got {seed}; reduce it modulo 2**64"
            )
        self.draws = 0

    def draw(self, name: str, shape: Any, a: float, b: float, device: Device, dtype: Any) -> Any:
        """Return an array filled by ``accelerated.random``, cast if ``dtype`` is not floating."""
        wanted = numpy_dtype(dtype, "init", default_dtype)
        real = wanted if wanted.kind == "f" else "float32"
        out = device.empty(shape, dtype=real)
        accelerated.random(out, name, self.seed, self.draws, float(a), float(b))
        self.draws += 1
        return out if wanted.kind == "f" else out.astype(wanted)

    def __repr__(self) -> str:
        return f"Generator({self.seed}, draws={self.draws})"


def seed(number: int) -> None:
    """Seed the global random streams: NumPy's (``numpy.random``) and Python's (``random``).

    Initial weights, dropout masks, the order of a loader without ``seed=`` and augmentation without
    a seed are drawn from NumPy's stream. A ``Generator`` and a loader with ``seed=`` have their own
    seeds and are not affected. ValueError unless ``number`` is in [0, 2**32), the range of NumPy's
    seeds.
    """
    number = operator.index(number)
    if not 0 <= number < 2**32:
        raise ValueError(
            f"seed: the number must be in [0, 2**32), got {number}; reduce it modulo 2**32"
        )
    np.random.seed(number)
    random.seed(number)
