"""Labels and token ids as in the course: whole numbers of any dtype, including floats.

Called by the layers that take such numbers, ``SoftmaxLoss`` and ``Embedding``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import unmasked
from ..errors import DTypeError
from ..host_steps import host_step


@host_step
def whole_numbers(what: str, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return ``values`` on the host, with floats cast to int64; the op checks other dtypes.

    DTypeError, whose message starts with ``what`` (layer and argument), for NaN or a fraction.
    """
    host = unmasked(what, values)
    if host.dtype.kind != "f":
        return host
    whole = np.isfinite(host) & (host == np.floor(host))
    if not whole.all():
        wrong = host[~whole].reshape(-1)[0]
        raise DTypeError(f"{what} must be whole numbers, got {wrong}; pass integers")
    return host.astype(np.int64)
