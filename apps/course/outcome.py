"""The exercise and the line that an error belongs to.

The error of an empty block starts with its tag. Called by ``recorder``, which sees exceptions, and
by ``checking``, which reads the report of a stopped process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from .blocks import OWN, blocks_in
from .registry import exercises

SOURCES, TESTS = ("python/", "apps/", "examples/"), "tests/"
PLACE = re.compile(r'File "([^"]+)", line (\d+)|^(?:E +)?(\S+\.py):(\d+): ', re.MULTILINE)


def frames_in(text: str) -> list[tuple[str, int]]:
    """Return the places, (file, line), that a traceback or pytest's report names, in order."""
    return [(a or c, int(b or d)) for a, b, c, d in PLACE.findall(text)]


def gist(text: str, root: Path) -> dict[str, str]:
    """Return the error of a failed import, its place, and the exercise that owns that line.

    text: what pytest has written about it.
    """
    lines = [line.removeprefix("E ").strip() for line in text.strip().splitlines()]
    error = lines[-1] if lines else "pytest did not start"
    return {"error": error, **place_of(frames_in(text), root)}


def place_of(
    frames: Sequence[tuple[str, int]], root: Path, tags: Collection[str] = ()
) -> dict[str, str]:
    """Return where an error occurred, as file:line, and the exercise whose block contains it.

    frames: (file, line), the innermost last. The place is the innermost line in a block of the
    exercises ``tags``, else the innermost one in the sources, else in the tests, else empty.
    """
    blocks = [block for each in blocks_in(root).values() for block in each]
    sources, tests = {"place": "", "owner": ""}, ""
    for file, line in reversed(frames):
        path = root / file
        name = path.relative_to(root).as_posix() if path.is_relative_to(root) else ""
        tests = tests or (f"{name}:{line}" if name.startswith(TESTS) else "")
        if not name.startswith(SOURCES) or name.startswith(OWN):
            continue
        inside = [b.tag for b in blocks if b.path == name and b.first < line <= b.last]
        here = {"place": f"{name}:{line}", "owner": "".join(inside)}
        if not tags or here["owner"] in tags:
            return here
        sources = sources if sources["place"] else here
    return sources if sources["place"] else {"place": tests, "owner": ""}


def open_tag(error: BaseException | None) -> str:
    """Return the tag of the open exercise behind ``error`` or an error in its chain, else ""."""
    while error is not None:
        tag = str(error).partition(":")[0]
        if isinstance(error, NotImplementedError) and tag in exercises():
            return tag
        error = error.__cause__ or error.__context__
    return ""
