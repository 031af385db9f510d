"""Functions of real numbers that NumPy lacks or computes inaccurately. Called by ``ops``.

Definitions compute in float64 for every dtype, and round once; the formulas are those of
``src/core/wide_math.h``, which avoid cancellation and overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..backends import numpy_functions
from ..torch_names import publish
from . import registry
from .registry import Elementwise


def _required(name: str, a: registry.Array) -> registry.Array:
    """Apply a required unary function to a floating array, with equal accuracy on NumPy arrays."""
    if isinstance(a, (np.ndarray, np.generic)):  # NumPy's arithmetic on 0-d arrays gives scalars
        return numpy_functions.unary(name, a)
    return getattr(a.__array_namespace__(), name)(a)


def erf(a: registry.Array) -> registry.Array:
    """Return 2/sqrt(pi) times the integral of exp(-t*t) from 0 to a; a is a floating array.

    ``erf`` is one of the required unary functions, so every backend has it.
    """
    return _required("erf", a)


def exp(a: registry.Array) -> registry.Array:
    """Return e**a, more accurately than NumPy, whose float32 errors reach 2.5 ulp."""
    return _required("exp", a)


def log(a: registry.Array) -> registry.Array:
    """Return the logarithm, more accurately than NumPy, whose float32 errors reach 3 ulp."""
    return _required("log", a)


def expm1(a: registry.Array) -> registry.Array:
    """Return e**a - 1, more accurately than NumPy, whose float32 errors reach 2.5 ulp."""
    return _required("expm1", a)


def _in_float64(
    function: Callable[[registry.Array, registry.Array], registry.Array],
) -> Elementwise:
    """Make ``function(xp, a)`` an elementwise operation, computed in float64 and rounded once."""

    def definition(a: registry.Array) -> registry.Array:
        wide = a.astype("float64")
        with np.errstate(all="ignore"):
            return function(wide.__array_namespace__(), wide).astype(a.dtype)

    definition.__name__ = definition.__qualname__ = function.__name__
    definition.__doc__ = function.__doc__
    return registry.elementwise(definition)


@_in_float64
def sigmoid(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return 1 / (1 + e**-a), computed as e**a / (1 + e**a) where a < 0."""
    half = xp.exp(xp.abs(a) * -0.5)
    t = half * half
    return xp.where(a < 0, t, 1.0) / (t + 1.0)


@_in_float64
def log_sigmoid(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return log(sigmoid(a)), computed as min(a, 0) - log(1 + e**-|a|)."""
    return xp.minimum(a, 0.0) - xp.log1p(xp.exp(-xp.abs(a)))


@_in_float64
def softplus(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return log(1 + e**a), computed as max(a, 0) + log(1 + e**-|a|)."""
    return xp.maximum(a, 0.0) + xp.log1p(xp.exp(-xp.abs(a)))


@_in_float64
def silu(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return a * sigmoid(a).

    Where a < 0, it is a * e**a / (1 + e**a), in an order of operations that keeps tiny results
    accurate.
    """
    half = xp.exp(xp.abs(a) * -0.5)
    return xp.where(a < 0, a * half * half, a) / (half * half + 1.0)


_TAIL = (
    -3.9810282894536325e-9, -7.9921408243152386e-9, 3.2431391451395867e-8, 9.0157641652707701e-8,
    -1.3095639137324552e-7, -6.0255256956728901e-7, 3.494419955627178e-7, 3.4620215324911329e-6,
    -7.2820084305182239e-7, -2.0095652743439783e-5, 4.9485109074707733e-6, 0.00012509784493657835,
    -0.00010515961059899975, -0.00077983197729883681, 0.0018886903351695904,
    0.0025293917810001668, -0.023770514916731507, 0.068308027346289137, -0.11927366341539409,
    0.12964515870269048, -0.047562294353449142, -0.13562110612458054, 1.2530080582697296,
)  # fmt: skip
"""Coefficients of e**(t*t) erfc(t) (1 + 2 t) in (t - 3) / (t + 3), highest power first.

Minimax over 0 <= t <= 28, by Remez exchange, to 2e-17.
"""


def _normal_tail(
    xp: registry.Array, factor: registry.Array | float, a: registry.Array
) -> registry.Array:
    """Return ``factor`` times the standard normal distribution function at -a, a >= 0.

    e**(-a*a/2) is split at a rounded to 1/16, since that has an exact square (Cody 1969).
    """
    near = xp.minimum(a, 40.0)
    head = xp.floor(near * 16 + 0.5) / 16
    root = xp.exp(head * head * -0.25)
    t = near * math.sqrt(0.5)
    u, p = (t - 3.0) / (t + 3.0), 0.0
    for coefficient in _TAIL:
        p = p * u + coefficient
    scaled = factor * (p * 0.5 / (t * 2.0 + 1.0))
    result = scaled * xp.exp((near - head) * (near + head) * -0.5) * root * root
    return xp.where(a > 40.0, factor * xp.zeros_like(a), result)


@_in_float64
def normal_cdf(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return the standard normal distribution function, (1 + erf(a / sqrt 2)) / 2."""
    tail = _normal_tail(xp, 1.0, xp.abs(a))
    return xp.where(a < 0, tail, 1.0 - tail)


@_in_float64
def gelu(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return a times the standard normal distribution function of a."""
    below = _normal_tail(xp, a, xp.abs(a))
    return xp.where(a < 0, below, a * (1.0 - _normal_tail(xp, 1.0, xp.abs(a))))


@_in_float64
def gelu_slope(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return the derivative of ``gelu``: Phi(a) + a phi(a), Phi and phi of the normal distribution.

    e**(-a*a/2) is split as in ``_normal_tail``.
    """
    near = xp.minimum(xp.abs(a), 40.0)
    head = xp.floor(near * 16 + 0.5) / 16
    root = xp.exp(head * head * -0.25)
    tail = _normal_tail(xp, 1.0, near)
    term = near * (1 / math.sqrt(2 * math.pi)) * xp.exp((near - head) * (near + head) * -0.5)
    term = term * root * root
    return xp.where(a < 0, tail - term, (1.0 - tail) + term)


def _gelu_tanh_factors(
    xp: registry.Array, a: registry.Array
) -> tuple[registry.Array, registry.Array]:
    """Return two numbers with product e**-v, v = 2 sqrt(2/pi) (a + 0.044715 a**3), 0 <= a <= 24.

    v is split at ``head``, the nearest 1/16 of a. The coefficients are split after 26 bits, so that
    the products of ``head`` and ``cube`` with the upper parts are exact.
    """
    head = xp.floor(a * 16 + 0.5) / 16
    cube = head * head * head
    squares = a * a + a * head + head * head
    rest = (a - head) * (squares * 0.07135481627260025 + 1.5957691216057308)
    rest = rest + (head * 1.426396435433791e-08 + cube * 5.361872467621785e-10)
    return xp.exp(head * -1.5957691073417664) * xp.exp(-rest), xp.exp(cube * -0.071354815736413)


@_in_float64
def gelu_tanh(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a**3))), computed as a times a sigmoid."""
    most, last = _gelu_tanh_factors(xp, xp.minimum(xp.abs(a), 24.0))
    return xp.where(a < 0, a * most * last, a) / (most * last + 1.0)


@_in_float64
def gelu_tanh_slope(xp: registry.Array, a: registry.Array) -> registry.Array:
    """Return the derivative of ``gelu_tanh``: s (1 + a v' (1 - s)), where s = sigmoid(v(a))."""
    near = xp.minimum(xp.abs(a), 24.0)
    most, last = _gelu_tanh_factors(xp, near)
    above = most * last + 1.0
    step = near * (near * near * 0.21406444881780076 + 1.5957691216057308)
    below = most * (1.0 - step / above) * last
    return xp.where(a < 0, below, step * most * last / above + 1.0) / above


publish(__name__)
