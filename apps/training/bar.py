"""The progress bar of a run. Called by run.py and range_test.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def bar_of(
    items: Iterable[Any], title: str, unit: str, *, done: int = 0, shown: bool = True
) -> Any:
    """Return an iterator over the items that shows their count, rate and time left on a terminal.

    It is a tqdm bar: ``set_postfix(loss=..., refresh=False)`` sets the text that the next update
    shows after the bar. done: the number of items done before, in a resumed epoch. shown: False
    hides the bar.
    """
    from tqdm import tqdm

    hidden = None if shown else True  # None hides the bar unless stderr is a terminal
    return tqdm(items, title, unit=unit, initial=done, leave=False, disable=hidden)
