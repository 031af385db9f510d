"""The exercises of the course and their order, read from ``parts/*.toml``, a file for each part.

This module neither reads sources nor runs tests; ``python -m apps.course prove`` compares the
registry with both.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10
    try:
        import tomli as tomllib  # type: ignore[no-redef]
    except ImportError:
        tomllib = None  # type: ignore[assignment]

FOLDER = Path(__file__).resolve().parent / "parts"


@dataclass(frozen=True)
class Exercise:
    """An exercise, with the fields of its table in the part's file.

    minutes: expected time. prerequisites: tags whose code the solution or the tests call. contract:
    what the block must do. why: why it matters, in two sentences and perhaps a formula. hints: from
    a nudge to nearly the answer. tests: pytest node ids. explanation: what to remember, in ideas
    rather than the reference's variable names. homework: the question of the public course that it
    corresponds to, a row of docs/course.md, if any. rate: the timing to report, if any. builds:
    names for ``building.build`` that the tests need; a part may give them for all.
    """

    tag: str
    part: int
    title: str
    minutes: int
    points: int
    contract: str
    hints: tuple[str, ...]
    tests: tuple[str, ...]
    explanation: str
    why: str = ""
    homework: str = ""
    prerequisites: tuple[str, ...] = ()
    rate: str = ""
    builds: tuple[str, ...] = ()

    @property
    def counterpart(self) -> str:
        """A sentence that names the corresponding question in the public course, or ""."""
        return f"In the public course: {self.homework}." if self.homework else ""


@dataclass(frozen=True)
class Part:
    """A part of the course.

    backend: the NEEDLE_BACKEND of its tests ("np" needs no compiler). closing: the code of the last
    cell of its notebook, which uses the answers.
    """

    number: int
    title: str
    backend: str
    exercises: tuple[Exercise, ...]
    closing: str = ""


class RegistryError(ValueError):
    """An invalid file of ``parts/``, or an unknown exercise."""


def read_table(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file; RegistryError names the file and the line of a mistake."""
    if tomllib is None:
        raise ImportError("the course needs tomli on Python 3.10; pip install 'needle[train]'")
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise RegistryError(f"{path.name}: {error}") from error
    return table


def read_part(path: Path) -> Part:
    """Read the part that a file describes; RegistryError names the file and what is wrong."""
    table = read_table(path)
    number = table["part"]
    try:
        common = {"builds": table.get("builds", [])}
        rows = table["exercise"].items()
        exercises = tuple(_exercise(number, tag, {**common, **row}) for tag, row in rows)
    except (KeyError, TypeError) as error:
        raise RegistryError(f"{path.name}: {error}; correct the table") from error
    closing = table.get("closing", "").strip()
    return Part(number, table["title"], table.get("backend", "np"), exercises, closing)


def _exercise(part: int, tag: str, row: dict[str, Any]) -> Exercise:
    known = {field.name for field in fields(Exercise)} - {"tag", "part"}
    unknown = set(row) - known
    if unknown:
        raise KeyError(f"{tag}: unknown {sorted(unknown)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    texts = {k: v.strip() for k, v in values.items() if isinstance(v, str)}
    return Exercise(tag=tag, part=part, **{**values, **texts})


@cache
def parts() -> tuple[Part, ...]:
    """Return all parts in course order."""
    read = (read_part(path) for path in sorted(FOLDER.glob("*.toml")))
    return tuple(sorted(read, key=lambda part: part.number))


@cache
def exercises() -> dict[str, Exercise]:
    """Return the exercises by tag in course order; RegistryError if one builds on a later one."""
    found: dict[str, Exercise] = {}
    for part in parts():
        for exercise in part.exercises:
            late = [tag for tag in exercise.prerequisites if tag not in found]
            if exercise.tag in found or late:
                raise RegistryError(
                    f"{exercise.tag}: defined twice, or needs the later {late}; correct parts/"
                )
            found[exercise.tag] = exercise
    return found


def part_of(exercise: Exercise) -> Part:
    """Return the part that an exercise belongs to."""
    return next(part for part in parts() if part.number == exercise.part)


def needed(tag: str) -> set[str]:
    """Return all tags that ``tag`` builds on, directly or through others."""
    direct = exercises()[tag].prerequisites
    return set(direct).union(*(needed(each) for each in direct))


def select(words: list[str]) -> list[Exercise]:
    """Return the exercises given by tags, part numbers, ranges ("1-3") or "all", in course order.

    RegistryError for any other word; its message names similar tags.
    """
    chosen: set[str] = set()
    for word in words:
        chosen |= _tags(word)
    return [exercise for tag, exercise in exercises().items() if tag in chosen]


def _tags(word: str) -> set[str]:
    if word == "all":
        return set(exercises())
    if word in exercises():
        return {word}
    low, _, high = word.partition("-")
    if low.isdigit() and (not high or high.isdigit()):
        numbers = range(int(low), int(high or low) + 1)
        found = {tag for tag, exercise in exercises().items() if exercise.part in numbers}
        if found:
            return found
    near = difflib.get_close_matches(word, exercises(), n=5)
    numbers = [exercise.part for exercise in exercises().values()]
    raise RegistryError(
        f"{word} is neither an exercise nor a part; "
        + (f"similar: {', '.join(near)}; " if near else "")
        + f"give parts from {min(numbers)} to {max(numbers)}, such as 1 4 or 1-4, or exercises "
        "that `python -m apps.course list` shows"
    )
