"""The constants of a recording, whose results are kept from replay to replay.

The pass ``constants`` chooses their calls, which read only parameters. ``program`` asks for an
update before each replay.
"""

from __future__ import annotations

import weakref
from functools import partial
from operator import attrgetter
from typing import Any

from ..autograd import Tensor
from ..backends.writes import is_shared, latest, now, written_since
from ..ndarray import NDArray
from .recorded import Leaves, Recording
from .state import Location, array_in

_array_of = attrgetter("cached_data")


class Constants:
    """The calls whose results are kept, with the arrays of the parameters that they have read."""

    def __init__(self, recording: Recording) -> None:
        self._calls = [call.linked(recording.backend) for call in recording.constants]
        self._parameters = recording.parameters
        for slot in recording.slots:
            if slot.constant:
                slot.bind(recording.backend.allocate(slot.size, slot.dtype))
        self._in_dicts, self._elsewhere = _split([bind.location for bind in self._parameters])
        self._ids: dict[int, int] = {}
        """The id of each parameter's array, which is removed when the array dies."""
        self._references: list[weakref.ref[NDArray]] = []
        """Weak references, because an optimiser updates in place arrays that nothing else refers
        to. Their callbacks are not Python functions, in which a Ctrl-C would be lost."""
        self._time = 0
        self._shared = False
        """True if a program may write to an array unnoticed; then no call is skipped."""

    def update(self, leaves: Leaves) -> None:
        """Run the calls if a parameter's array was replaced or written to.

        Raises StaleRecordingError if a parameter is missing or has another layout.
        """
        if not self._parameters or self._is_known(leaves):
            return
        self._ids = {}
        for bind in self._parameters:
            bind.run(leaves)
            bind.slot.update_views()
        for kernel, args in self._calls:
            kernel(*args)
        self._time = now()
        arrays = self._find(leaves)
        self._ids = ids = dict(enumerate(map(id, arrays)))
        self._references = [weakref.ref(a, partial(ids.pop, i)) for i, a in enumerate(arrays)]
        self._shared = any(is_shared(array.view.handle) for array in arrays)
        for bind in self._parameters:
            bind.slot.release()

    def buffers(self, leaves: Leaves) -> set[int]:
        """Return the ids of the parameters' buffers."""
        return {id(array.view.handle) for array in self._find(leaves)}

    def _find(self, leaves: Leaves) -> list[Any]:
        """Return the current arrays of the parameters, or another object where one is missing."""
        arrays = [*map(_array_of, map(dict.get, *self._in_dicts))] if self._in_dicts[0] else []
        return arrays + [array_in(place.get(leaves)) for place in self._elsewhere]

    def _is_known(self, leaves: Leaves) -> bool:
        known = [*self._ids.values()]
        if not known or self._shared or [*map(id, self._find(leaves))] != known:
            return False
        if latest() > self._time:
            time = now()
            for array in self._find(leaves):
                handle = array.view.handle
                if is_shared(handle) or written_since(handle, self._time):
                    return False
            self._time = time
        return True


def _split(places: list[Location]) -> tuple[tuple[list[Any], list[Any]], list[Location]]:
    """Return the holders and keys of Tensors in dicts, and all other locations."""
    in_dicts = [p for p in places if isinstance(p.holder, dict) and isinstance(p.get(()), Tensor)]
    others = [place for place in places if place not in in_dicts]
    return ([p.holder for p in in_dicts], [p.key for p in in_dicts]), others
