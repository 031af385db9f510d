"""Format the course commands' output: an exercise, the list of all, the results of a check."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from .blocks import Block
from .checking import NOT_RUN, TEXTS_OF_ERRORS, Record, Result
from .registry import Exercise, Part

WIDTH = 88


def exercise_page(exercise: Exercise, blocks: Sequence[Block], hints: int, done: bool) -> str:
    """Return an exercise's page: place, task, time, open hints and, if done, the explanation."""
    head = f"{exercise.tag}: {exercise.title}"
    lines = [head, "-" * len(head)]
    points = _count(exercise.points, "point")
    lines += [f"part {exercise.part}, about {exercise.minutes} minutes, {points}"]
    if exercise.prerequisites:
        lines += [f"builds on: {', '.join(exercise.prerequisites)}"]
    lines += [exercise.counterpart] if exercise.homework else []
    lines += [f"where: {block.path}:{block.first + 1}" for block in blocks]
    lines += ["", exercise.why, "", exercise.contract]
    for number, hint in enumerate(exercise.hints[:hints], 1):
        lines += ["", f"hint {number} of {len(exercise.hints)}: {hint}"]
    left = len(exercise.hints) - hints
    lines += [""]
    if left and not done:
        lines += [f"{_count(left, 'hint')} left: python -m apps.course hint {exercise.tag}"]
    if done:
        lines += [explanation(exercise)]
    else:
        lines += [f"check it: python -m apps.course check {exercise.tag}"]
    return wrapped("\n".join(lines))


def explanation(exercise: Exercise) -> str:
    """Return the explanation of an exercise, wrapped."""
    return wrapped(f"what to remember:\n{exercise.explanation}")


def wrapped(text: str) -> str:
    """Return ``text`` with wrapped lines; lines that start with spaces are kept."""
    return "\n".join(
        line if line.startswith(" ") else textwrap.fill(line, WIDTH, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def list_page(parts: Iterable[Part]) -> str:
    """Return a line for every exercise, by parts."""
    lines: list[str] = []
    for part in parts:
        minutes = sum(exercise.minutes for exercise in part.exercises)
        lines += [f"part {part.number}: {part.title} (about {minutes / 60:.1f} hours)"]
        lines += [
            f"  {e.tag:<22} {e.title:<52} {e.minutes:>3} min {e.points:>2} points"
            for e in part.exercises
        ]
    return "\n".join(lines)


def score_table(results: Sequence[Result]) -> str:
    """Return a line for each exercise, the sum, and a failing case of each exercise that fails."""
    rows = [f"{'exercise':<22} {'state':<8} {'tests':>7} {'points':>7}"]
    for r in results:
        tests = f"{r.passed}/{len(r.records)}"
        points = f"{r.points}/{r.exercise.points}"
        waits = f"   waits for {', '.join(r.waits_for)}" if r.state == "waits" else ""
        rows += [f"{r.exercise.tag:<22} {r.state:<8} {tests:>7} {points:>7}{waits}"]
    passed = sum(r.passed for r in results)
    sums = f"{passed}/{sum(len(r.records) for r in results)}"
    points = f"{sum(r.points for r in results)}/{sum(r.exercise.points for r in results)}"
    rows += [f"{'':<22} {'':<8} {sums:>7} {points:>7}"]
    for failure, tags in _causes(results):
        rows += ["", *failing_case(failure)]
        if len(tags) > 1:
            also = f"it also fails {', '.join(tags[1:])}"
            rows += textwrap.wrap(also, WIDTH, initial_indent="  ", subsequent_indent="  ")
        if failure["outcome"] != "skipped":
            rows += [
                "",
                f"for a hint: python -m apps.course hint {failure.get('owner') or tags[0]}",
            ]
    return "\n".join(rows)


def _causes(results: Sequence[Result]) -> list[tuple[Record, list[str]]]:
    """Return the first failure of each exercise, and all exercises that fail at its line.

    A syntax error, or a wrong answer that others build on, makes many exercises fail.
    """
    found: dict[str, tuple[Record, list[str]]] = {}
    for result in results:
        if (failure := result.first_failure()) and (result.state != "open" or len(results) == 1):
            place, error = failure.get("place", ""), failure.get("error", "")
            same = error + place if place or error == NOT_RUN else failure["test"]
            found.setdefault(same, (failure, []))[1].append(result.exercise.tag)
    return list(found.values())


def failing_case(record: Record) -> list[str]:
    """Return a failing test in a few lines."""
    skipped = record["outcome"] == "skipped"
    lines = [f"{'cannot run here' if skipped else 'first failing case'}: {record['test']}"]
    if record.get("case"):
        return lines + [f"  {line}" for line in record["case"]]
    error = record.get("error", "").strip().split("\n")
    lines += [f"  {line}" for line in error[:6]]
    if record.get("place"):
        owner = f", in the answer to {record['owner']}" if record.get("owner") else ""
        lines += [f"  at {record['place']}{owner}"]
    causes = (text for words, text in TEXTS_OF_ERRORS.items() if error[0].startswith(words))
    return lines + [f"  likely cause  {text}" for text in causes]
