"""Progress bars for long transfers. Called by downloads, uploads and packing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def progress_bar(
    wanted: bool, total: int | None, title: str, unit: str, **options: Any
) -> AbstractContextManager[Any]:
    """Return a tqdm bar as a context manager, which yields None if unwanted or tqdm is missing."""
    if not wanted:
        return nullcontext()
    try:
        from tqdm import tqdm
    except ImportError:
        return nullcontext()
    options = {"disable": None, **options}  # None disables the bar unless it writes to a terminal
    bar: AbstractContextManager[Any] = tqdm(
        desc=title, total=total, unit=unit, leave=False, **options
    )
    return bar
