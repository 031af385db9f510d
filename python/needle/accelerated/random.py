"""Random elements as functions of (seed, draw, position): the same bits on every device.

Element i comes from word i % 4 of Philox block i // 4. The formulas use only operations that
IEEE 754 rounds exactly, in a fixed order (src/core/random_formulas.h has the same). Called by
``init.Generator``; NumPy's global stream, which course programs use, is not touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backends.base import Backend
from ..backends.philox import TENSOR_STREAM, Words, words
from ..shapes import product
from .registry import Array, accelerated

Reals = npt.NDArray[np.float64]

# Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988: numerator
# and denominator near the middle (in 0.180625 - q * q), then in the tails (in sqrt(-log p) - 1.6).
_MIDDLE = (
    (
        *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4),
        *(4.5921953931549871457e4, 1.3731693765509461125e4, 1.9715909503065514427e3),
        *(1.3314166789178437745e2, 3.3871328727963666080e0),
    ),
    (
        *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4),
        *(2.1213794301586595867e4, 5.3941960214247511077e3, 6.8718700749205790830e2),
        *(4.2313330701600911252e1, 1.0),
    ),
)
_TAIL = (
    (
        *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1),
        *(1.27045825245236838258e0, 3.64784832476320460504e0, 5.76949722146069140550e0),
        *(4.63033784615654529590e0, 1.42343711074968357734e0),
    ),
    (
        *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2),
        *(1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e0),
        *(2.05319162663775882187e0, 1.0),
    ),
)


@accelerated()
def random(out: Array, name: str, seed: int, draw: int, a: float, b: float) -> None:
    """Fill ``out`` in row-major order with random numbers of the distribution ``name``.

    ``uniform``: in [a, a + b), multiples of 2**-24 (float32) or 2**-32 (float64), scaled.
    ``normal``: mean a and standard deviation b. ``bernoulli``: b with probability a, else 0.
    seed: in [0, 2**64); draw: modulo 2**32.
    """
    size = product(out.shape)
    blocks = np.arange(-(-size // 4), dtype=np.int64)
    drawn = words(seed, draw, blocks, TENSOR_STREAM, 4).reshape(-1)[:size].reshape(out.shape)
    dtype = np.dtype(str(out.dtype))
    out[...] = _DISTRIBUTIONS[name](drawn, dtype.type, dtype.type(a), dtype.type(b), a)


@random.kernel
def _(backend: Backend, out: Array, name: str, seed: int, draw: int, a: float, b: float) -> None:
    backend.random(name, out.view, seed, draw, a, b)


def _uniform(drawn: Words, dtype: Any, a: Any, b: Any, _: float) -> Any:
    if dtype is np.float32:
        return (drawn >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24) * b + a
    return drawn.astype(np.float64) * 2.0**-32 * b + a


def _normal(drawn: Words, dtype: Any, a: Any, b: Any, _: float) -> Any:
    return standard_normal(drawn).astype(dtype) * b + a


def _bernoulli(drawn: Words, dtype: Any, _: Any, b: Any, probability: float) -> Any:
    return np.where(drawn < probability * 2.0**32, b, dtype(0))


_DISTRIBUTIONS = {"uniform": _uniform, "normal": _normal, "bernoulli": _bernoulli}


def standard_normal(drawn: Words) -> Reals:
    """Return, for each word, the normal distribution's quantile at (word + 1/2) / 2**32."""
    q = (drawn.astype(np.float64) + 0.5) * 2.0**-32 - 0.5
    above, below = (_polynomial(c, 0.180625 - q * q) for c in _MIDDLE)
    middle = above * q / below
    nearer = np.where(q < 0, drawn, ~drawn)
    r = np.sqrt(-_log_share(2.0 * nearer + 1.0)) - 1.6
    above, below = (_polynomial(c, r) for c in _TAIL)
    tail = np.copysign(above / below, q)
    return np.where(np.abs(q) <= 0.425, middle, tail)


def _polynomial(coefficients: Sequence[float], x: Reals) -> Reals:
    total: Reals = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total


def _log_share(odd: Reals) -> Reals:
    """Return log(odd / 2**33), by the series of atanh on [sqrt(1/2), sqrt(2))."""
    x, exponent = np.frexp(odd)
    exponent = exponent.astype(np.float64) - 33.0
    low = x < 0.70710678118654752440
    x, exponent = np.where(low, x * 2.0, x), np.where(low, exponent - 1.0, exponent)
    s = (x - 1.0) / (x + 1.0)
    total: Reals = np.full_like(s, 1.0 / 23.0)
    for n in range(21, 0, -2):
        total = total * (s * s) + 1.0 / n
    logarithm: Reals = exponent * 0.69314718055994530942 + 2.0 * s * total
    return logarithm
