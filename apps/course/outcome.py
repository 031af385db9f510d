"""Which exercise an error speaks of: that of an empty block begins with the tag."""

from __future__ import annotations

import re

from .registry import exercises

PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def gist(text: str) -> dict[str, str]:
    """The error and its place, file:line, in what pytest says of a file it could not import."""
    lines = [line.removeprefix("E ").strip() for line in text.strip().splitlines()]
    places = PLACE.findall(text)
    place = "{}:{}".format(*places[-1]) if places else ""
    return {"error": lines[-1] if lines else "pytest did not start", "place": place}


def open_tag(error: BaseException | None) -> str:
    """The tag of the open exercise that raised ``error``, or one it was raised from; else ""."""
    while error is not None:
        tag = str(error).partition(":")[0]
        if isinstance(error, NotImplementedError) and tag in exercises():
            return tag
        error = error.__cause__ or error.__context__
    return ""
