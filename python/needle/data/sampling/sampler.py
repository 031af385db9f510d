"""The base class of samplers, which yield the indices of one epoch.

The other files of this package hold the samplers. A loader sets the epoch before each pass; it
also accepts any iterable of indices that has a length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np

from ...errors import check_at_least
from ...torch_names import PointsToKeywords
from ..samples.ticket import Indices as Indices


class Sampler(PointsToKeywords):
    """Base class whose ``__iter__`` yields the indices of one epoch and ``__len__`` counts them.

    If a sampler defines ``positions``, a loader resumes at any step without iterating over the
    preceding ones.
    """

    epoch = 0
    repeatable = True
    """True if an epoch always has the same order, which saving a loader's position requires."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__()")

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch; the loader calls this."""
        self.epoch = epoch

    def positions(self, start: int, stop: int) -> Indices | None:
        """Return the indices at positions ``start`` to ``stop`` of this epoch, int64 ``(n,)``.

        Optional: if this returns None (the default), the loader iterates instead. 0 <= start <=
        stop <= len.
        """
        return None


def set_epoch(sampler: Any, epoch: int) -> None:
    """Set the epoch of ``sampler`` if it has ``set_epoch``; other iterables are left alone."""
    tell = getattr(sampler, "set_epoch", None)
    if tell is not None:
        tell(epoch)


class SourceSampler(Sampler):
    """Base class of samplers that yield all indices of ``source``, a data set or a length.

    If the data set grows or shrinks, the new length takes effect in the next epoch.
    """

    def __init__(self, source: Sized | int) -> None:
        check_again(type(self).__name__, "source", source)
        if not (isinstance(source, (int, np.integer)) or hasattr(source, "__len__")):
            raise TypeError(
                f"{type(self).__name__}: a source must have a length, got "
                f"{type(source).__name__}; define __len__, or give the loader a sampler"
            )
        self.source = source
        check_at_least(type(self).__name__, "the length", self.length, 0)

    def __len__(self) -> int:
        return self.length

    @property
    def length(self) -> int:
        """The current number of indices of ``source``."""
        source = self.source
        return int(source) if isinstance(source, (int, np.integer)) else len(source)


def check_again(op: str, name: str, value: Any) -> None:
    """Raise TypeError if ``value`` is an iterator, which is empty in the second epoch."""
    if hasattr(value, "__next__"):
        raise TypeError(
            f"{op}: {name} must give the same values in every epoch, got a {type(value).__name__}, "
            "which gives them only once; make a list of it, or write a class whose __iter__ "
            "starts again"
        )
