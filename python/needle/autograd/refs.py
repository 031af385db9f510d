"""Reference counts, which show whether only known owners hold an object.

The memory of such an object can be freed early (``discarding``), changed in place (``optim``) or
used again (``capture``). CPython versions differ in what an expression keeps on the stack, so
counts are calibrated once, at import, by the code that later uses them. ``NEEDLE_REFCOUNTS=off``
and a build without the GIL turn all of this off: every object then counts as held, which costs
memory and changes no result.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ..config import refcounts


def _counts(items: Sequence[Any]) -> list[int]:
    return [sys.getrefcount(item) for item in items]


def _measured() -> int:
    """Return the count of an object that only a list or tuple holds; 0 if counts are unreliable."""
    gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    if refcounts.get() == "off" or not gil:
        return 0
    # The interpreter specialises code that runs often, so warm it up and take the smallest count.
    alone = min(_counts(kind([object()]))[0] for _ in range(100) for kind in (list, tuple))
    items = [object()]
    second = items[0]
    return alone if _counts(items) == [alone + 1] and second is items[0] else 0


_ALONE = _measured()

TELL = _ALONE > 0
"""True if reference counts decide behaviour in this process."""


def unheld(items: Sequence[Any], owners: int = 0) -> list[bool]:
    """Return, for each item, True if nothing but ``items`` and ``owners`` objects refers to it.

    No variable of the caller may refer to an item.
    """
    if not TELL:
        return [False] * len(items)
    return [count <= _ALONE + owners for count in _counts(items)]
