"""``a.flat`` where no single stride reaches every element; ``NDArray.flat`` is a view elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import IndexingError
from .interchange import HostArray


class FlatArray:
    """``a.flat`` of an array whose elements no single stride reaches: index by an int, or read."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return int(self._array.size)

    def _place(self, index: int) -> tuple[Any, ...]:
        size = len(self)
        if not -size <= index < size:
            raise IndexingError(f"flat: index {index} is out of range for size {size}")
        return tuple(int(i) for i in np.unravel_index(index % size, self._array.shape))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int | np.integer):
            return self._array[self._place(int(index))]
        return self._array.reshape((len(self),))[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, int | np.integer):
            self._array[self._place(int(index))] = value
            return
        dense = self._array.reshape((len(self),))
        dense[index] = value
        self._array.assign(dense.reshape(self._array.shape))

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def numpy(self) -> HostArray:
        """The elements as a 1-D NumPy array (a copy)."""
        host: HostArray = self._array.numpy()
        return host.reshape(-1)
