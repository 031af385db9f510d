"""Store a learner's progress in ``.course``: opened hints, results of checks, solutions taken.

The full source tree stores no progress, as every exercise is solved there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .blocks import Block, blocks_in, is_open
from .checking import Result
from .edition import STATE, is_student_tree, solutions_of, taken_tags
from .rates import Rate
from .registry import Exercise, Part, exercises, parts

FILE = "progress.json"
MARKS = {
    "own": "✓",
    "given": "·",
    "solved": "s",
    "changed": "?",
    "fails": "✗",
    "waits": "…",
    "skipped": "–",
    "open": " ",
}
WORDS = {
    "own": "passes",
    "given": "solved from the start",
    "solved": "solved by solve",
    "changed": "not checked since the last edit",
    "fails": "fails",
    "waits": "waits for an earlier exercise",
    "skipped": "cannot be checked on this machine",
    "open": "open",
}
"""The states of an exercise: their marks in ``progress``, and their meaning."""


@dataclass
class Entry:
    """The stored progress of an exercise.

    text: digest of its blocks at the last check. minutes: time before its checks, see ``remember``.
    rate: GFLOP/s of its code, of the library's kernel and of the core's peak at the last check.
    """

    state: str = ""
    hints: int = 0
    text: str = ""
    minutes: float = 0.0
    rate: tuple[float, ...] = ()


LONGEST_BREAK = 45
"""Minutes without a command after which a learner is taken to have done something else."""


def load(root: Path) -> dict[str, Entry]:
    """Return the entries by tag; empty if nothing was done yet."""
    path = root / STATE / FILE
    if not path.is_file():
        return {}
    return {tag: Entry(**row) for tag, row in json.loads(path.read_text("utf-8")).items()}


def save(root: Path, entries: dict[str, Entry]) -> None:
    """Write the entries; do nothing outside a student tree."""
    if is_student_tree(root):
        rows = {tag: asdict(entry) for tag, entry in entries.items()}
        (root / STATE / FILE).write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def begin(root: Path) -> None:
    """Start to count the time of an exercise when the learner reads its task."""
    save(root, load(root))


def _minutes_since_last(root: Path) -> float:
    """Return the minutes since the last command stored something; 0 after a break."""
    path = root / STATE / FILE
    minutes = (time.time() - path.stat().st_mtime) / 60 if path.is_file() else 0.0
    return minutes if 0 < minutes < LONGEST_BREAK else 0.0


def remember_rate(root: Path, tag: str, rate: Rate | str) -> None:
    """Store the rate of an exercise's code."""
    entries = load(root)
    if isinstance(rate, Rate) and tag in entries:
        entries[tag].rate = (rate.own, rate.reference, rate.peak)
        save(root, entries)


def remember(root: Path, results: Sequence[Result]) -> None:
    """Store a check's results; if it checked one exercise, add the minutes since the last check."""
    entries, blocks = load(root), blocks_in(root)
    if len(results) == 1:
        entry = entries.setdefault(results[0].exercise.tag, Entry())
        entry.minutes = round(entry.minutes + _minutes_since_last(root), 2)
    for result in results:
        entry = entries.setdefault(result.exercise.tag, Entry())
        entry.state = result.state
        entry.text = _digest(blocks.get(result.exercise.tag, []))
    save(root, entries)


def open_hint(root: Path, exercise: Exercise) -> int:
    """Open the next hint; return the number of open hints."""
    entries = load(root)
    entry = entries.setdefault(exercise.tag, Entry())
    entry.minutes = round(entry.minutes + _minutes_since_last(root), 2)
    entry.hints = min(entry.hints + 1, len(exercise.hints))
    save(root, entries)
    return entry.hints


def states(root: Path) -> dict[str, str]:
    """Return the state of each tag, a key of ``MARKS``."""
    entries, blocks = load(root), blocks_in(root)
    own, taken = solutions_of(root), taken_tags(root)
    return {
        tag: "solved"
        if tag in taken
        else _state(blocks.get(tag, []), entries.get(tag, Entry()))
        if tag in own
        else "given"
        for tag in exercises()
    }


def _state(blocks: list[Block], entry: Entry) -> str:
    if any(map(is_open, blocks)):
        return "open"
    if entry.text != _digest(blocks):
        return "changed"
    return {"passes": "own", "": "changed"}.get(entry.state, entry.state)


def _digest(blocks: list[Block]) -> str:
    return hashlib.sha256("\0".join(block.text for block in blocks).encode()).hexdigest()[:16]


def drawn(root: Path) -> str:
    """Return the progress as text: a line for each part, a mark for each exercise, what is next."""
    found = states(root)
    lines = [_part_line(part, found) for part in parts() if part.exercises]
    used = {state for state in found.values() if state != "open"}
    if used:
        lines += ["", "   ".join(f"{MARKS[s]} {WORDS[s]}" for s in WORDS if s in used)]
    return "\n".join([*lines, "", *coming(found)])


def coming(found: dict[str, str], after: str = "") -> list[str]:
    """Return the next exercise, in two lines, from the states of all exercises.

    This is the first exercise after ``after`` in the same part whose prerequisites are done. If
    there is none, it is the first exercise of the course that is not done.
    """
    left = [tag for tag, state in found.items() if state not in DONE and state != "skipped"]
    tag = next((tag for tag in left if _can_follow(tag, after, left)), left[0] if left else None)
    if tag is None:
        return ["All exercises are done. Next: docs/backend.md, how to write a backend."]
    exercise = exercises()[tag]
    return [
        f"next: {tag}, {exercise.title} (about {exercise.minutes} minutes)",
        f"      python -m apps.course show {tag}",
    ]


def _can_follow(tag: str, after: str, left: list[str]) -> bool:
    """Return True if ``tag`` can be done now and comes after ``after`` in its part."""
    tags = list(exercises())
    if not after or tags.index(tag) < tags.index(after):
        return False
    exercise = exercises()[tag]
    return exercise.part == exercises()[after].part and not set(exercise.prerequisites) & set(left)


DONE = {"own", "given", "solved"}


def points_of(part: Part, found: Mapping[str, str]) -> tuple[int, int]:
    """Return the earned points and all points of a part, given the states of all exercises."""
    earned = sum(exercise.points for exercise in part.exercises if found[exercise.tag] == "own")
    return earned, sum(exercise.points for exercise in part.exercises)


def _part_line(part: Part, found: dict[str, str]) -> str:
    own = [found[exercise.tag] for exercise in part.exercises]
    points, most = points_of(part, found)
    marks = "".join(f"[{MARKS[state]}]" for state in own)
    done = sum(state in DONE for state in own)
    return (
        f"part {part.number}  {part.title:<44} {done:>2} of {len(own):>2}  "
        f"{points:>3}/{most:<3} points  {marks}"
    )
