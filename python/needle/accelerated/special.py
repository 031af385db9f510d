"""Elementwise functions that NumPy lacks: the error function. Called by ``ops`` (erf, gelu)."""

from __future__ import annotations

import numpy as np

from ..backends.numpy_backend import erf as numpy_erf
from . import registry


def erf(a: registry.Array) -> registry.Array:
    """Return 2/sqrt(pi) times the integral of exp(-t*t) from 0 to a; a is a floating array.

    ``erf`` is one of the required unary functions, so every backend has it.
    """
    if isinstance(a, (np.ndarray, np.generic)):  # arithmetic on 0-d arrays gives the latter
        return numpy_erf(a)
    return a.__array_namespace__().erf(a)
