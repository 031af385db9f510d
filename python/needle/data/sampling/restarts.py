"""Restarts, which refuses an epoch whose samples an earlier epoch has used up.

ListOrder and the reader of streams iterate through it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class Restarts:
    """The iterator of the latest epoch, which an ``__iter__`` may return again by mistake.

    A copy or a pickle begins without one.
    """

    def __init__(self) -> None:
        self._latest: Callable[[], Any] = lambda: None
        self._gave = False

    def values(self, source: Iterable[Any]) -> Iterator[Any]:
        """Yield the values of ``source``; raise TypeError if an earlier epoch took all of them."""
        found = iter(source)
        if found is not self._latest():
            self._latest, self._gave = _reference(found), False
        empty = True
        while (value := next(found, _END)) is not _END:
            empty, self._gave = False, True
            yield value
        if empty and self._gave:
            raise TypeError(
                "DataLoader: each epoch must give its samples again, got the same "
                f"{type(found).__name__} as in an earlier epoch, which took all of them; have "
                "__iter__ of the sampler or stream return a new iterator each time"
            )

    def __reduce__(self) -> Any:
        return Restarts, ()


def _reference(iterator: Iterator[Any]) -> Callable[[], Any]:
    """Return a weak reference, since an iterator may hold files; a strong one if it allows none."""
    try:
        return weakref.ref(iterator)
    except TypeError:
        return lambda: iterator


_END = object()
