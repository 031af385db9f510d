"""docs/syllabus.md: its tables follow the exercises of the course and their times.

``python -m tests.docs.test_syllabus`` writes the tables anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from apps.course.registry import Exercise, exercises, parts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "syllabus.md"
LAB = 75
"""Minutes of a lab; the exercises of a week that begin later are its homework."""

WEEKS = (
    ("The gradient of a program", "scalar-add", "1–3"),
    ("Ops and their gradients", "unbroadcast", "18"),
    ("Layers, initial values, optimisers", "kaiming", "19–21"),
    ("Arrays: strides and views", "compact-strides", "4–7"),
    ("Kernels in C++", "kernel-one-hot", "8–12"),
    ("Registers and caches", "gemm-register-tile", "13"),
    ("Kernels in CUDA", "cuda-one-hot", ""),
    ("Convolution and ResNet", "windows", "14–17, 22, 23"),
    ("Data: orders, batches, workers", "idx-header", "24–30"),
    ("A backend of one's own", "lists-places", ""),
)
"""Subject, first exercise and files of the trail, by week."""

WEEKEND = (
    ("Saturday morning", "0"),
    ("Saturday afternoon", "1"),
    ("Sunday morning", "4"),
    ("Sunday afternoon", "7"),
)


def hours(chosen: Iterable[Exercise]) -> str:
    return f"{sum(exercise.minutes for exercise in chosen) / 60:.1f} h"


def span(chosen: list[Exercise]) -> str:
    """Return the first and last exercise of some, with their number and time."""
    ends = dict.fromkeys((chosen[0].tag, chosen[-1].tag))
    return f"{' to '.join(f'`{tag}`' for tag in ends)}: {len(chosen)}, {hours(chosen)}"


def weeks() -> Iterator[list[Exercise]]:
    """Yield the exercises of each week; together they are all exercises, in order."""
    every = list(exercises().values())
    tags = [exercise.tag for exercise in every]
    starts = [tags.index(first) for _, first, _ in WEEKS]
    for start, stop in zip(starts, [*starts[1:], len(tags)], strict=True):
        yield every[start:stop]


def weeks_table() -> str:
    lines = ["| week | in the lab | homework |", "|---|---|---|"]
    for number, ((subject, _, trail), chosen) in enumerate(zip(WEEKS, weeks(), strict=True), 1):
        begun = [sum(e.minutes for e in chosen[:i]) for i in range(len(chosen))]
        count = sum(minutes < LAB for minutes in begun)
        numbers = list(dict.fromkeys(str(exercise.part) for exercise in chosen))
        about = f"part{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"
        about += f"; trail {trail}" if trail else ""
        cells = (f"{number}. {subject}<br>{about}", span(chosen[:count]), span(chosen[count:]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parts_table(rows: Iterable[tuple[str, str]]) -> str:
    by_number = {str(part.number): part for part in parts()}
    lines = ["| when | part | exercises |", "|---|---|---|"]
    for when, number in rows:
        part = by_number[number]
        lines.append(f"| {when} | {number}: {part.title} | {span(list(part.exercises))} |")
    return "\n".join(lines)


def loader_table() -> str:
    (part,) = (part for part in parts() if part.title.startswith("data"))
    rows = [f"| `{e.tag}` | {e.title} | {e.minutes} |" for e in part.exercises]
    return "\n".join(["| exercise | subject | minutes |", "|---|---|---:|", *rows])


TABLES = {
    "weeks": weeks_table,
    "weekend": lambda: parts_table(WEEKEND),
    "loader": loader_table,
}


def with_tables(text: str) -> str:
    """Return the page with its tables written anew."""
    for name, made in TABLES.items():
        head, mark, rest = text.partition(f"<!-- table: {name} -->\n\n")
        text = head + mark + made() + "\n\n" + re.sub(r"\A(?:\|.*\n)*\n?", "", rest)
    return text


def test_the_tables_are_those_of_the_exercises() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "run python -m tests.docs.test_syllabus"


def test_every_exercise_belongs_to_one_week() -> None:
    assert [e.tag for week in weeks() for e in week] == list(exercises())
    assert all(2 <= sum(e.minutes for e in week) / 60 <= 8 for week in weeks())


def test_the_loader_builds_on_no_other_part() -> None:
    (part,) = (part for part in parts() if part.title.startswith("data"))
    own = {exercise.tag for exercise in part.exercises}
    assert all(own.issuperset(exercise.prerequisites) for exercise in part.exercises)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
