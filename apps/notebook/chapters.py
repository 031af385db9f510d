"""Tables of the exercises that belong to a section of the notebook."""

from __future__ import annotations

from collections.abc import Sequence

from apps.course import progress
from apps.course.edition import ROOT, is_student_tree
from apps.course.registry import Exercise, select

HEAD = "| exercise | what | minutes |"


class Chapter:
    """A table of exercises: tag, title, minutes, and in a student tree the state of each."""

    def __init__(self, exercises: Sequence[Exercise]) -> None:
        self.exercises = tuple(exercises)
        self.states = progress.states(ROOT) if is_student_tree(ROOT) else {}

    def __repr__(self) -> str:
        lines = [
            HEAD + (" |" if self.states else ""),
            "|---|---|---:|" + "---|" * bool(self.states),
        ]
        for each in self.exercises:
            state = f" {progress.WORDS[self.states[each.tag]]} |" if self.states else ""
            lines.append(f"| `{each.tag}` | {each.title} | {each.minutes} |{state}")
        return "\n".join(lines)

    def _repr_markdown_(self) -> str:
        return repr(self)


def exercises(*tags: str) -> Chapter:
    """Return the table of these exercises; RegistryError for an unknown tag."""
    return Chapter([each for tag in tags for each in select([tag])])
