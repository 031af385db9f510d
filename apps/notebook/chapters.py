"""Show tables of the exercises that belong to a section of the notebook."""

from __future__ import annotations

from apps.course import progress
from apps.course.edition import ROOT, is_student_tree
from apps.course.registry import select

from .homework import Page


def exercises(*tags: str) -> Page:
    """Return a table of exercises: tag, title, minutes, and in a student tree the state of each.

    RegistryError for an unknown tag.
    """
    states = progress.states(ROOT) if is_student_tree(ROOT) else {}
    lines = [
        "| exercise | what | minutes |" + " |" * bool(states),
        "|---|---|---:|" + "---|" * bool(states),
    ]
    for each in (exercise for tag in tags for exercise in select([tag])):
        state = f" {progress.WORDS[states[each.tag]]} |" if states else ""
        lines.append(f"| `{each.tag}` | {each.title} | {each.minutes} |{state}")
    return Page("\n".join(lines))
