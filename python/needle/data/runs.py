"""Batches in a row, whose indices are known together: what they need is worked out for all at once.

A call of NumPy costs as much for a batch of small pictures as for a dozen of them. order.py makes
runs, segments.py and pipeline.py keep there what they have drawn and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import numpy.typing as npt


class Run:
    """The indices of batches that follow each other, int64 ``(n,)``."""

    __slots__ = ("_kept", "indices")

    def __init__(self, indices: npt.NDArray[np.int64]) -> None:
        self.indices = indices
        self._kept: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` gave the first time for this key; of two threads at once both may call it.

        It must be a function of the indices and the key alone.
        """
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = make()
        return found
