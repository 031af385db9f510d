"""A sample that is to be read, or has been prepared, and who waits for it or holds it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Sample:
    """``number``: this preparation of sample ``index``; another one has another number.

    holders: tasks that wait for it or look at it, until it is ``cached``, which counts them then.
    record, offset, nbytes: how and where it lies. error: why it could not be read. alone: it is
    read by itself, since one of its chunk failed. takers: tasks that have been given it.
    """

    number: int
    index: int
    holders: int = 0
    cached: bool = False
    alone: bool = False
    record: int = -1
    offset: int = -1
    nbytes: int = 0
    error: BaseException | None = None
    takers: set[str] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether nothing is to be waited for."""
        return self.offset >= 0 or self.error is not None
