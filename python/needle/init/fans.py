"""Initialisers scaled by a unit's number of inputs (fan_in) and outputs (fan_out).

Sources: Glorot & Bengio 2010 (Xavier) and He et al. 2015 (Kaiming). The tensor has shape
(fan_in, fan_out) unless ``shape`` is given; the scale always comes from the fans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..autograd import Tensor
from ..errors import ShapeError, unknown_name
from .basic import rand, randn

GAINS = {"relu": math.sqrt(2.0), "linear": 1.0, "tanh": 5.0 / 3.0}


def _check_fan(op: str, what: str, fan: int) -> None:
    """Raise ShapeError for a fan of 0, by which the scale would be divided."""
    if fan < 1:
        raise ShapeError(
            f"{op}: {what} must be at least 1, got {fan}; give the layer at least one input"
        )


def _gain(nonlinearity: str) -> float:
    if nonlinearity not in GAINS:
        raise unknown_name("nonlinearity", nonlinearity, GAINS)
    return GAINS[nonlinearity]


def xavier_uniform(fan_in: int, fan_out: int, gain: float = 1.0, **kwargs: Any) -> Tensor:
    """Return U(-a, a), a = gain * sqrt(6 / (fan_in + fan_out)); ``kwargs`` as in ``rand``."""
    _check_fan("xavier_uniform", "fan_in + fan_out", fan_in + fan_out)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return rand(fan_in, fan_out, low=-bound, high=bound, **kwargs)


def xavier_normal(fan_in: int, fan_out: int, gain: float = 1.0, **kwargs: Any) -> Tensor:
    """Return N(0, std), std = gain * sqrt(2 / (fan_in + fan_out)); ``kwargs`` as in ``randn``."""
    _check_fan("xavier_normal", "fan_in + fan_out", fan_in + fan_out)
    return randn(fan_in, fan_out, std=gain * math.sqrt(2.0 / (fan_in + fan_out)), **kwargs)


def kaiming_uniform(
    fan_in: int,
    fan_out: int,
    shape: Sequence[int] | None = None,
    nonlinearity: str = "relu",
    **kwargs: Any,
) -> Tensor:
    """Return U(-a, a), a = gain * sqrt(3 / fan_in); the gain is sqrt(2) for relu."""
    ### BEGIN YOUR SOLUTION [kaiming]
    _check_fan("kaiming_uniform", "fan_in", fan_in)
    bound = _gain(nonlinearity) * math.sqrt(3.0 / fan_in)
    dims = (fan_in, fan_out) if shape is None else tuple(shape)
    return rand(*dims, low=-bound, high=bound, **kwargs)
    ### END YOUR SOLUTION


def kaiming_normal(
    fan_in: int,
    fan_out: int,
    shape: Sequence[int] | None = None,
    nonlinearity: str = "relu",
    **kwargs: Any,
) -> Tensor:
    """Return N(0, std), std = gain / sqrt(fan_in); the gain is sqrt(2) for relu."""
    ### BEGIN YOUR SOLUTION [kaiming]
    _check_fan("kaiming_normal", "fan_in", fan_in)
    dims = (fan_in, fan_out) if shape is None else tuple(shape)
    return randn(*dims, std=_gain(nonlinearity) / math.sqrt(fan_in), **kwargs)
    ### END YOUR SOLUTION
