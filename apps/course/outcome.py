"""Which exercise an error speaks of: that of an empty block begins with the tag."""

from __future__ import annotations

from .registry import exercises


def open_tag(error: BaseException | None) -> str:
    """The tag of the open exercise that raised ``error``, or one it was raised from; else ""."""
    while error is not None:
        tag = str(error).partition(":")[0]
        if isinstance(error, NotImplementedError) and tag in exercises():
            return tag
        error = error.__cause__ or error.__context__
    return ""
