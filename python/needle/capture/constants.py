"""The constants of a recording: calls whose results are kept from replay to replay.

The pass ``constants`` chooses their calls, which read only parameters. ``program`` asks for an
update before each replay.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from operator import attrgetter, getitem
from typing import Any

from ..autograd import Tensor
from ..backends.writes import is_shared, latest, now, written_since
from ..ndarray import NDArray
from .calls import CallList
from .guards import array_in
from .recorded import Recording


class Constants:
    """The calls whose results are kept, with the arrays of the parameters that they have read."""

    def __init__(self, recording: Recording) -> None:
        self._calls = CallList(recording.backend, recording.constants)
        self._parameters = recording.parameters
        for slot in recording.slots:
            if slot.constant:
                slot.bind(recording.backend.allocate(slot.size, slot.dtype))
        self._holders = [bind.location.holder for bind in self._parameters]
        self._keys = [bind.location.key for bind in self._parameters]
        tensors = all(isinstance(bind.location.get(()), Tensor) for bind in self._parameters)
        self._array_of = attrgetter("cached_data") if tensors else array_in
        self._read: list[weakref.ref[NDArray]] = []
        """The arrays that the calls have read; none if a program may write to one unnoticed. The
        references are weak, because an optimiser updates in place arrays that nothing else refers
        to."""
        self._time = 0

    def update(self, leaves: Sequence[Any]) -> None:
        """Run the calls if a parameter's array was replaced or written to.

        Raises StaleRecordingError if a parameter is missing or has another layout.
        """
        if not self._parameters or self._are_known(self._arrays()):
            return
        self._read = []
        for bind in self._parameters:
            bind.run(leaves)
        self._calls.run()
        self._time = now()
        arrays = self._arrays()
        if not any(is_shared(array.view.handle) for array in arrays):
            self._read = [weakref.ref(array) for array in arrays]
        for bind in self._parameters:
            bind.slot.release()

    def buffers(self) -> set[int]:
        """Return the ids of the parameters' buffers."""
        return {id(array.view.handle) for array in self._arrays()}

    def _arrays(self) -> list[Any]:
        """Return the current arrays of the parameters, or nothing if one is missing."""
        try:
            return [*map(self._array_of, map(getitem, self._holders, self._keys))]
        except (KeyError, IndexError, AttributeError):
            return []

    def _are_known(self, arrays: list[Any]) -> bool:
        """Return False if the calls have not read these arrays, or not with these values."""
        if not self._read or [id(read()) for read in self._read] != [*map(id, arrays)]:
            return False
        if latest() > self._time:
            time = now()
            for array in arrays:
                handle = array.view.handle
                if is_shared(handle) or written_since(handle, self._time):
                    return False
            self._time = time
        return True
