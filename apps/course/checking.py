"""Check exercises: run their tests in a process and give each exercise a state.

Called by __main__.py and proof.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .blocks import open_tags
from .building import build
from .edition import taken_tags
from .outcome import frames_in, gist, place_of
from .processes import STOPPED, UNLIMITED, Guard, run_group
from .registry import Exercise, exercises, needed, part_of

Record = dict[str, Any]
LIMIT = 300
"""Seconds after which a run is stopped; an answer may contain an infinite loop."""

TEXTS_OF_ERRORS = {
    "RecursionError": "the function calls itself for every node, and graphs are deep; use a loop",
    "SyntaxError": "the file does not parse",
    "IndentationError": "the file does not parse",
    "UnboundLocalError": "a variable is read before it has a value",
    "NameError": "a name is not defined; look at the imports at the top of the file",
    "NotImplementedError": "the code calls a function that is not written yet",
    "TypeError: cannot unpack non-iterable NoneType": "the result is None: a return is missing",
}
"""Likely causes of exceptions, by the first words of their message."""


@dataclass
class Result:
    """The result of an exercise: the records of its tests, in order.

    empty: its block is empty. taken: its block holds the solution that ``solve`` put there, for
    which there are no points.
    """

    exercise: Exercise
    records: list[Record]
    empty: bool = False
    taken: bool = False

    @property
    def passed(self) -> int:
        """The number of tests that passed."""
        return sum(record["outcome"] == "passed" for record in self.records)

    @property
    def state(self) -> str:
        """The state: passes, solved (by ``solve``), open (empty), waits, skipped or fails.

        An exercise waits if its tests met the empty block of another exercise. It is skipped if
        this machine lacks a device that the tests need.
        """
        if self.records and self.passed == len(self.records):
            return "solved" if self.taken else "passes"
        if self.empty:
            return "open"
        failed = [record for record in self.records if record["outcome"] != "passed"]
        if failed and all(record.get("open") for record in failed):
            return "waits"
        skipped = failed and all(record["outcome"] == "skipped" for record in failed)
        return "skipped" if skipped else "fails"

    @property
    def fine(self) -> bool:
        """True if all tests pass."""
        return self.state in ("passes", "solved")

    @property
    def waits_for(self) -> list[str]:
        """The other open exercises that its tests met."""
        return sorted({r.get("open", "") for r in self.records} - {"", self.exercise.tag})

    @property
    def points(self) -> int:
        """The points of the exercise, in proportion to the tests that pass."""
        if self.taken:
            return 0
        return self.exercise.points * self.passed // max(len(self.records), 1)

    def first_failure(self) -> Record | None:
        """Return the record of the first test that fails for a reason other than an open block."""
        failed = (record for record in self.records if record["outcome"] != "passed")
        return next((record for record in failed if not record.get("open")), None)


def check(root: Path, chosen: Sequence[Exercise], guard: Guard = UNLIMITED) -> list[Result]:
    """Return the results of the exercises' tests.

    Programs that they need are built first, unless the exercise is open. If a build fails, all
    exercises that need it fail with the compiler's message.
    """
    empty, taken = open_tags(root), taken_tags(root)
    waiting = [exercise for exercise in chosen if exercise.builds and exercise.tag in empty]
    records = [{**_failed(t, ""), "open": e.tag} for e in waiting for t in e.tests]
    left = [exercise for exercise in chosen if exercise not in waiting]
    runnable = []
    for builds in dict.fromkeys(exercise.builds for exercise in left):
        problem = build(root, builds, guard)
        own = [exercise for exercise in left if exercise.builds == builds]
        records += [_failed(t, problem) for exercise in own for t in exercise.tests if problem]
        runnable += [] if problem else own
    records += run_exercises(root, runnable, guard)
    return [Result(e, _records_of(e, records), e.tag in empty, e.tag in taken) for e in chosen]


def run_exercises(root: Path, chosen: Sequence[Exercise], guard: Guard = UNLIMITED) -> list[Record]:
    """Return the records of the exercises' tests; pytest runs once for each backend in use."""
    records: list[Record] = []
    for backend in sorted({part_of(exercise).backend for exercise in chosen}):
        tests = [t for e in chosen if part_of(e).backend == backend for t in e.tests]
        records += run_tests(root, list(dict.fromkeys(tests)), backend, guard)
    return records


def _failed(test: str, error: str, place: str = "") -> Record:
    return {"test": test, "outcome": "failed", "error": error, "place": place}


def _records_of(exercise: Exercise, records: Sequence[Record]) -> list[Record]:
    """Return the records of an exercise; a parametrised test has many, a broken file has one."""
    found = []
    for test in exercise.tests:
        own = [r for r in records if r["test"] == test or r["test"].startswith(f"{test}[")]
        broken = [r for r in records if "::" not in r["test"] and test.startswith(r["test"])]
        found += own or broken[:1]
    return found


def environment_of(root: Path, backend: str, guard: Guard = UNLIMITED) -> dict[str, str]:
    """Return the environment of a process that imports the tree's own needle on this backend."""
    path = os.pathsep.join([str(root / "python"), str(root)])
    given = os.environ if guard.environment is None else guard.environment
    kept = {name: value for name, value in given.items() if name != "PYTEST_ADDOPTS"}
    return {**kept, "NEEDLE_BACKEND": backend, "PYTHONPATH": path}


def run_tests(
    root: Path, tests: Sequence[str], backend: str, guard: Guard = UNLIMITED
) -> list[Record]:
    """Return the records of these pytest node ids, run in the tree ``root`` under ``backend``.

    If a test ends the process, or a file cannot be imported, the remaining tests run in another
    process, except those that build on the exercise at fault.
    """
    records: list[Record] = []
    left = list(tests)
    while left:
        if not guard.limit(LIMIT):
            return records + [_failed(test, NO_TIME) for test in left]
        found, finished = _run_once(root, left, backend, guard)
        named = {record["test"].partition("[")[0] for record in found}
        rest = [t for t in left if t not in named and t.partition("::")[0] not in named]
        late = set() if finished else _tests_behind({t for r in found for t in r.get("tags", ())})
        records += found + [_failed(test, NOT_RUN) for test in rest if test in late]
        complete = finished and all("::" in test for test in named)
        left = [] if complete or rest == left else [test for test in rest if test not in late]
    named = {record["test"].partition("[")[0] for record in records}
    rest = [test for test in tests if not {test, test.partition("::")[0]} & named]
    return records + [_failed(test, "did not run") for test in rest]


NO_TIME = "not run: the time for all exercises is used up"
NOT_RUN = "not run: a test of the exercise, or of one that it builds on, was stopped"


def _tests_behind(tags: set[str]) -> set[str]:
    """Return the tests of these exercises and of those that build on them."""
    behind = (e for e in exercises().values() if tags & {e.tag, *needed(e.tag)})
    return {test for exercise in behind for test in exercise.tests}


def _run_once(
    root: Path, tests: Sequence[str], backend: str, guard: Guard
) -> tuple[list[Record], bool]:
    """Run pytest once; return the records, at least one, and True if pytest finished."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        command = [*guard.prefix, sys.executable, "-m", "pytest", "-q", "--tb=short"]
        command += ["-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "apps.course.recorder"]
        command += ["--course-report", str(report), *tests]
        environment = environment_of(root, backend, guard)
        done = run_group(command, guard.limit(LIMIT), root, environment)
        lines = report.read_text("utf-8").splitlines() if report.is_file() else []
        trace = Path(f"{report}.trace")
        stack = trace.read_text("utf-8", "replace") if trace.is_file() else ""
    found: dict[str, Record] = {row["test"]: row for row in map(json.loads, lines)}
    finished = found.pop("", None) is not None
    records = [{**r, **_ended(r, root, stack, done.returncode)} for r in found.values()]
    if not records and not finished:
        said, begun = done.stderr or done.stdout, {"outcome": "running"}
        untold = stack or not said
        problem = _ended(begun, root, stack, done.returncode) if untold else gist(said, root)
        records = [{**_failed(test, ""), **problem} for test in tests]
    return records, finished


def _ended(record: Record, root: Path, stack: str, status: int) -> Record:
    """Return a record's fields for a test in which the process ended, from its stack; else {}."""
    if record["outcome"] != "running":
        return {}
    error = f"the process ended with {_signal_or_status(status)} before the test did"
    if stack.startswith("Timeout") or status == STOPPED:
        error = "stopped after a minute; it waits for something, or a loop never ends"
    frames = frames_in(stack.partition("most recent call first")[2])[::-1]
    return {"outcome": "failed", "error": error, **place_of(frames, root, record.get("tags", ()))}


def _signal_or_status(status: int) -> str:
    """Return the name of the signal that ended a process or a shell's child, else the status."""
    number = -status if status < 0 else status - 128
    known = {each.value: each.name for each in signal.Signals}
    return known.get(number, f"exit status {status}")
