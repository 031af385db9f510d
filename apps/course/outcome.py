"""The exercise that an error belongs to: the error of an empty block starts with its tag."""

from __future__ import annotations

import re

from .registry import exercises

PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def gist(text: str) -> dict[str, str]:
    """Return the error and its place, file:line, from pytest's report of a failed import."""
    lines = [line.removeprefix("E ").strip() for line in text.strip().splitlines()]
    places = PLACE.findall(text)
    place = "{}:{}".format(*places[-1]) if places else ""
    return {"error": lines[-1] if lines else "pytest did not start", "place": place}


def open_tag(error: BaseException | None) -> str:
    """Return the tag of the open exercise that raised ``error`` or an error in its chain.

    Else "".
    """
    while error is not None:
        tag = str(error).partition(":")[0]
        if isinstance(error, NotImplementedError) and tag in exercises():
            return tag
        error = error.__cause__ or error.__context__
    return ""
