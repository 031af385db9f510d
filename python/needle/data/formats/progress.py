"""Progress bars of long transfers. Called by downloads, uploads and packing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any


def progress_bar(
    wanted: bool, total: int | None, title: str, unit: str, **options: Any
) -> AbstractContextManager[Any]:
    """Return tqdm's bar as a context; it gives None if not wanted or tqdm is not installed."""
    if not wanted:
        return nullcontext()
    try:
        from tqdm import tqdm
    except ImportError:
        return nullcontext()
    options = {"disable": None, **options}  # None: shown on a terminal only
    bar: AbstractContextManager[Any] = tqdm(
        desc=title, total=total, unit=unit, leave=False, **options
    )
    return bar
