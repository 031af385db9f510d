"""The maintainers' check of the whole course (``make test-course``).

It checks that blocks, registry, tests and notebook have the same tags; that all tests of an
exercise run into its block while it is empty; and that they pass with its solution and those of its
prerequisites alone, so that no test needs a block that its exercise does not build on. It works on
a copy of the tree; the tree itself is only read.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from .blocks import blocks_in, fill
from .building import build
from .checking import Record, environment_of, run_exercises
from .edition import empty_blocks, put_back, solutions_of, write_edition
from .registry import Exercise, exercises, needed

TESTS = "tests/exercises"
NOTEBOOK = "hw_notebook"
GENERATORS = ("apps.notebook", "needle.ops.stubs")
"""Programs that generate files of the tree."""
Problems = list[str]


def marked_tests(root: Path) -> dict[str, set[str]]:
    """Return the node ids of the tests marked ``@pytest.mark.exercise(tag)``, by tag."""
    found: dict[str, set[str]] = {}
    for path in sorted((root / TESTS).glob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            for call in function.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.exercise":
                    tag = ast.literal_eval(call.args[0])
                    found.setdefault(tag, set()).add(
                        f"{path.relative_to(root).as_posix()}::{function.name}"
                    )
    return found


def notebook_tags(root: Path) -> dict[str, list[str]]:
    """Return the tags in calls of ``exercises(...)`` in the notebook and its source, in order."""
    cells = json.loads((root / f"{NOTEBOOK}.ipynb").read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    texts = {
        f"{NOTEBOOK}.py": (root / f"{NOTEBOOK}.py").read_text("utf-8"),
        f"{NOTEBOOK}.ipynb": "\n".join(code),
    }
    return {name: _named(text) for name, text in texts.items()}


def _named(text: str) -> list[str]:
    """Return the arguments of the calls of ``exercises`` in a program."""
    calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    own = (call for call in calls if ast.unparse(call.func) == "exercises")
    return [ast.literal_eval(argument) for call in own for argument in call.args]


def sets_differ(root: Path) -> Problems:
    """Return the differences between the tags of sources, registry, tests and notebook."""
    known, marked, shown = exercises(), marked_tests(root), notebook_tags(root)
    sides = {"sources": set(blocks_in(root)), "registry": set(known), "tests": set(marked)}
    sides |= {name: set(tags) for name, tags in shown.items()}
    every = set().union(*sides.values())
    problems = [
        f"{name}: no {sorted(every - side)}" for name, side in sides.items() if every - side
    ]
    for name, tags in shown.items():
        twice = sorted({tag for tag in tags if tags.count(tag) > 1})
        problems += [f"{name}: names {tag} twice" for tag in twice]
    for tag in set(known) & set(marked):
        if set(known[tag].tests) != marked[tag]:
            differ = sorted(set(known[tag].tests) ^ marked[tag])
            problems.append(f"{tag}: registry and tests differ in {differ}")
    return problems


def prove(root: Path, chosen: Sequence[Exercise]) -> int:
    """Print each problem and then their number; return the exit status."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        work = Workbench(root, Path(folder))
        steps: list[tuple[str, Callable[[], Problems]]] = [
            (
                "sources, registry, tests and notebook have the same tags",
                partial(sets_differ, root),
            ),
            ("two student trees are equal, and a solved one equals the source", work.same_again),
        ]
        for number, level in enumerate(levels(chosen)):
            name = f"exercises empty, {number} levels below them"
            steps.append((f"{len(level)} {name}", partial(work.empty_together, level)))
        for exercise in chosen:
            steps.append(
                (
                    f"{exercise.tag} solved with its prerequisites",
                    partial(work.solved_next, exercise),
                )
            )
        steps.append(("everything is empty", partial(work.all_empty, chosen)))
        problems: Problems = []
        for name, step in steps:
            found = step()
            print(
                f"{time.perf_counter() - begun:6.0f} s  {name}: {'no' if found else 'yes'}",
                flush=True,
            )
            problems += found
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


def levels(chosen: Sequence[Exercise]) -> list[list[Exercise]]:
    """Return the exercises by levels; no exercise builds on another one of its level."""
    depth: dict[str, int] = {}
    for tag, exercise in exercises().items():
        depth[tag] = 1 + max((depth[each] for each in exercise.prerequisites), default=-1)
    found: dict[int, list[Exercise]] = {}
    for exercise in chosen:
        found.setdefault(depth[exercise.tag], []).append(exercise)
    return [found[each] for each in sorted(found)]


class Workbench:
    """A student tree in ``folder``; each step of the proof empties or fills its blocks."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.tree = root, folder, folder / "tree"
        write_edition(root, self.tree, set(exercises()))
        self.solutions = solutions_of(self.tree)
        self._clock = time.time_ns()

    def set_open(
        self, tags: Collection[str], answers: Mapping[str, list[str]] | None = None
    ) -> None:
        """Empty the blocks of ``tags`` and fill all others, with ``answers`` or the solutions.

        Unchanged files keep their modification time, so that no build repeats for them.
        """
        paths = {self.tree / block.path for each in blocks_in(self.tree).values() for block in each}
        before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
        bodies = {**self.solutions, **(answers or {})}
        fill(self.tree, {tag: texts for tag, texts in bodies.items() if tag not in tags})
        found = blocks_in(self.tree)
        empty_blocks(self.tree, {tag: found[tag] for tag in tags})
        # Python detects stale bytecode by the source's size and its modification time in whole
        # seconds. So each state gets its own second, later than all files built before.
        self._clock = max(self._clock + 2 * 10**9, time.time_ns())
        for path, (text, moment) in before.items():
            changed = path.read_bytes() != text
            os.utime(path, ns=(self._clock,) * 2 if changed else (moment,) * 2)

    def run(self, chosen: Sequence[Exercise]) -> list[Record]:
        """Build what the exercises need; return the records of their tests."""
        problem = build(self.tree, {name for exercise in chosen for name in exercise.builds})
        if problem:
            raise RuntimeError(f"the student tree does not build: {problem}")
        return run_exercises(self.tree, chosen)

    def empty_together(self, level: Sequence[Exercise]) -> Problems:
        """Check that the tests of one level's open exercises run into their empty blocks."""
        self.set_open({exercise.tag for exercise in level})
        owner = {test: exercise.tag for exercise in level for test in exercise.tests}
        problems = []
        for record in self.run(level):
            tag = owner[record["test"].partition("[")[0]]
            if record.get("open") != tag:
                got = record.get("error") or "a pass"
                problems.append(f"{tag} empty: {record['test']} should meet the block, got {got}")
        return problems

    def solved_next(self, exercise: Exercise) -> Problems:
        """Check that an exercise's tests pass when only it and its prerequisites are solved.

        Tests that cannot run on this machine are printed.
        """
        self.set_open(set(exercises()) - needed(exercise.tag) - {exercise.tag})
        problems = []
        for record in self.run([exercise]):
            said = f"{record['test']}: {record.get('error')}"
            if record["outcome"] == "skipped":
                print(said)
            elif record["outcome"] != "passed":
                problems.append(f"{exercise.tag} with its prerequisites: {said}")
        return problems

    def all_empty(self, chosen: Sequence[Exercise]) -> Problems:
        """Check that every test names an open exercise when all are open."""
        self.set_open(set(exercises()))
        return [
            f"all empty: {record['test']} should name an open exercise, got {record.get('error')}"
            for record in self.run(chosen)
            if not record.get("open")
        ]

    def same_again(self) -> Problems:
        """Check that two student trees are equal.

        One of them must equal its source after all solutions are restored and files regenerated.
        """
        again = self.folder / "again"
        write_edition(self.root, again, set(exercises()))
        problems = _differences(self.tree, again, "regenerated")
        put_back(again, list(exercises()))
        environment = {**environment_of(again, "np"), "PYTHONDONTWRITEBYTECODE": "1"}
        for name in GENERATORS:
            done = subprocess.run(
                [sys.executable, "-m", name],
                cwd=again,
                env=environment,
                capture_output=True,
                text=True,
            )
            problems += [] if done.returncode == 0 else [f"{name}: {done.stderr[-500:]}"]
        return problems + _differences(self.root, again, "solved and generated again")


def _differences(one: Path, other: Path, what: str) -> Problems:
    """Return the files of ``other`` that ``one`` lacks or that differ."""
    problems = []
    for path in sorted(path for path in other.rglob("*") if path.is_file()):
        name = path.relative_to(other)
        if name.parts[0] == ".course" and not (one / name).is_file():
            continue
        if not (one / name).is_file() or (one / name).read_bytes() != path.read_bytes():
            problems.append(f"{what}: {name} differs")
    return problems
