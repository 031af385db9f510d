"""Checks of exercises: run their tests in a process and give each exercise a state.

Called by __main__.py and proof.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .blocks import open_tags
from .building import build
from .edition import taken_tags
from .outcome import gist
from .registry import Exercise, part_of

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
}
"""Likely causes of exceptions, by their names."""


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
        """One of passes, solved (by ``solve``), open (empty block), waits (for another), fails."""
        if self.records and self.passed == len(self.records):
            return "solved" if self.taken else "passes"
        if self.empty:
            return "open"
        failed = [record for record in self.records if record["outcome"] != "passed"]
        return "waits" if failed and all(record.get("open") for record in failed) else "fails"

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
        """Return the record of the first test that fails for another reason than an open block."""
        failed = (record for record in self.records if record["outcome"] != "passed")
        return next((record for record in failed if not record.get("open")), None)


def check(root: Path, chosen: Sequence[Exercise]) -> list[Result]:
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
        problem = build(root, builds)
        own = [exercise for exercise in left if exercise.builds == builds]
        records += [_failed(t, problem) for exercise in own for t in exercise.tests if problem]
        runnable += [] if problem else own
    records += run_exercises(root, runnable)
    return [Result(e, _records_of(e, records), e.tag in empty, e.tag in taken) for e in chosen]


def run_exercises(root: Path, chosen: Sequence[Exercise]) -> list[Record]:
    """Return the records of the exercises' tests; pytest runs once for each backend in use."""
    records: list[Record] = []
    for backend in sorted({part_of(exercise).backend for exercise in chosen}):
        tests = [t for e in chosen if part_of(e).backend == backend for t in e.tests]
        records += run_tests(root, list(dict.fromkeys(tests)), backend)
    return records


def _failed(test: str, error: str, place: str = "") -> Record:
    return {"test": test, "outcome": "failed", "error": error, "place": place}


def _records_of(exercise: Exercise, records: Sequence[Record]) -> list[Record]:
    """Return the records of an exercise; a parametrised test has many, a broken file has one."""
    found = []
    for test in exercise.tests:
        own = [r for r in records if r["test"] == test or r["test"].startswith(f"{test}[")]
        broken = [r for r in records if "::" not in r["test"] and test.startswith(r["test"])]
        found += own or broken[:1] or [_failed(test, "did not run")]
    return found


def environment_of(root: Path, backend: str) -> dict[str, str]:
    """Return the environment of a process that imports the tree's own needle on this backend."""
    path = os.pathsep.join([str(root / "python"), str(root)])
    return {**os.environ, "NEEDLE_BACKEND": backend, "PYTHONPATH": path}


def run_tests(root: Path, tests: Sequence[str], backend: str) -> list[Record]:
    """Return the records of these pytest node ids, run in the tree ``root`` under ``backend``."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        command += ["-p", "apps.course.recorder", "--course-report", str(report), *tests]
        try:
            done = subprocess.run(
                command,
                cwd=root,
                env=environment_of(root, backend),
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            text = f"stopped after {LIMIT} s; is there an infinite loop?"
            return [_failed(test, text) for test in tests]
        if not report.is_file():
            found = gist(done.stderr or done.stdout)
            return [_failed(test, found["error"], found["place"]) for test in tests]
        records: list[Record] = json.loads(report.read_text("utf-8"))
        return records
