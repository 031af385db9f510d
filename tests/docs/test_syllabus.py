"""Compare docs/syllabus.md's hours and tags with the exercises; its ten weeks cover all of them."""

import re

from source_tree import ROOT

from apps.course.registry import exercises, needed

PAGE = (ROOT / "docs" / "syllabus.md").read_text("utf-8")


def rows(heading: str) -> list[dict[str, str]]:
    """Return the rows of the table under a heading."""
    lines = re.split(rf"^## {heading}$", PAGE, flags=re.M)[1].strip().splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [dict(zip(table[0], cells, strict=True)) for cells in table[2 : _end(lines)]]


def _end(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if "|" not in line), len(lines))


def tags(text: str) -> list[str]:
    """Return the tags of a cell: parts by number, tags, and ranges `a` to `b`."""
    every, found = list(exercises()), list[str]()
    for first, last in re.findall(r"`([\w-]+)`(?: to `([\w-]+)`)?", text):
        if first.isdigit():
            found += [tag for tag in every if exercises()[tag].part == int(first)]
        else:
            found += every[every.index(first) : every.index(last or first) + 1]
    return found


def test_the_hours_are_those_of_the_exercises() -> None:
    for heading in ("Ten weeks", "A weekend", "Only the loader"):
        for row in rows(heading):
            minutes = sum(exercises()[tag].minutes for tag in tags(row["exercises"]))
            assert abs(minutes / 60 - float(row["hours"])) <= 0.051, (heading, row, minutes / 60)


def test_ten_weeks_have_every_exercise_once() -> None:
    assert sorted(tag for row in rows("Ten weeks") for tag in tags(row["exercises"])) == sorted(
        exercises()
    )


def test_the_loader_needs_one_exercise_of_another_part() -> None:
    chosen = [tag for row in rows("Only the loader") for tag in tags(row["exercises"])]
    assert {exercises()[tag].part for tag in chosen} == {8}
    others = {each for tag in chosen for each in needed(tag) if exercises()[each].part != 8}
    assert others == {"record"}
