"""Wrong answers that the tests of the exercises must reject, naming the cause.

Maintainers write them in ``tests/exercises/wrong/*.toml``, a file for each part, with a table for
each wrong answer; a student tree has none of them:

    [[topo-sort]]
    mistake = "what the learner did"
    answer = '''...'''  # the block, dedented; a list if the exercise has several blocks
    cause = "words that the verdict must say"

``python -m apps.course prove --wrong`` puts each into a tree in which all other exercises are
solved and checks it as a learner would. Exercises of one level do not build on each other
(``proof.levels``), so their wrong answers share a tree and a run.
"""

from __future__ import annotations

import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from .blocks import Block, blocks_in
from .checking import Result, check
from .edition import WRONG
from .pages import failing_case
from .proof import Problems, Workbench, levels
from .registry import Exercise, RegistryError, exercises, read_table

FEWEST = 3
"""Wrong answers that an exercise must have."""


@dataclass(frozen=True)
class Wrong:
    """A wrong answer: the exercise's tag, the mistake, the texts of the blocks, and its cause."""

    tag: str
    mistake: str
    answer: tuple[str, ...]
    cause: str


def wrong_answers(root: Path) -> dict[str, list[Wrong]]:
    """Return the wrong answers of the tree by tag; RegistryError names a table that is invalid."""
    found: dict[str, list[Wrong]] = {}
    for path in sorted((root / WRONG).glob("*.toml")):
        for tag, rows in read_table(path).items():
            if tag not in exercises() or tag in found:
                raise RegistryError(f"{path.name}: {tag} is not an exercise, or is in two files")
            found[tag] = [_wrong(path.name, tag, row) for row in rows]
    return found


def _wrong(name: str, tag: str, row: Mapping[str, str | list[str]]) -> Wrong:
    if set(row) != {"mistake", "answer", "cause"} or not all(row.values()):
        raise RegistryError(f"{name}: {tag}: expected mistake, answer and cause, got {sorted(row)}")
    answer = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
    texts = tuple(textwrap.dedent(text).strip("\n") for text in answer)
    return Wrong(tag, str(row["mistake"]), texts, str(row["cause"]))


def prove_wrong(root: Path, chosen: Sequence[Exercise]) -> int:
    """Print each wrong answer that is accepted or refused without its cause; return the status."""
    begun = time.perf_counter()
    found = wrong_answers(root)
    problems = [
        f"{exercise.tag}: {count} wrong answers; write {FEWEST} in {WRONG}"
        for exercise in chosen
        if (count := len(found.get(exercise.tag, []))) < FEWEST
    ]
    rounds = list(_rounds(found, chosen))
    total, done = sum(map(len, rounds)), 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Workbench(root, Path(folder))
        for together in rounds:
            problems += refused(bench, together)
            done += len(together)
            spent = time.perf_counter() - begun
            print(f"{spent:6.0f} s  {done} of {total} wrong answers checked", flush=True)
    for problem in sorted(problems):
        print(problem)
    print(f"{total} wrong answers, {len(problems)} problems")
    return 1 if problems else 0


def _rounds(
    found: Mapping[str, Sequence[Wrong]], chosen: Sequence[Exercise]
) -> Iterator[list[Wrong]]:
    """Yield groups of wrong answers that may share a tree: one for each exercise of a level."""
    for level in levels([exercise for exercise in chosen if exercise.tag in found]):
        for row in zip_longest(*(found[exercise.tag] for exercise in level)):
            yield [wrong for wrong in row if wrong is not None]


def refused(bench: Workbench, together: Sequence[Wrong]) -> Problems:
    """Check wrong answers of exercises that do not build on each other, in one tree.

    An answer that crashes or has a syntax error may prevent the tests of the others from running;
    these are checked again, one at a time.
    """
    shown = blocks_in(bench.tree)
    bench.set_open((), {each.tag: _indented(each, shown[each.tag]) for each in together})
    problems: Problems = []
    results = check(bench.tree, [exercises()[each.tag] for each in together])
    for wrong, result in zip(together, results, strict=True):
        if len(together) > 1 and any("seconds" not in record for record in result.records):
            problems += refused(bench, [wrong])
        elif problem := _problem(wrong, result):
            problems.append(f"{wrong.tag}, {wrong.mistake}: {problem}")
    return problems


def _indented(wrong: Wrong, blocks: Sequence[Block]) -> list[str]:
    """Return the texts of the answer with the indents of its blocks."""
    if len(wrong.answer) != len(blocks):
        raise RegistryError(
            f"{wrong.tag}, {wrong.mistake}: got {len(wrong.answer)} texts for {len(blocks)} blocks"
        )
    pairs = zip(wrong.answer, blocks, strict=True)
    return [textwrap.indent(text, block.indent) for text, block in pairs]


def _problem(wrong: Wrong, result: Result) -> str:
    """Return "" if the verdict on the wrong answer says its cause."""
    failure = result.first_failure()
    if failure is None:
        met = f"; it waits for {result.waits_for}" if result.waits_for else ""
        return f"accepted; strengthen the exercise's tests{met}"
    if failure["outcome"] == "skipped":
        print(f"{wrong.tag}, {wrong.mistake}: {failure['error']}")
        return ""
    verdict = "\n".join(failing_case(failure)[1:])
    if _plain(wrong.cause) in _plain(verdict):
        return ""
    return f"refused without the words {wrong.cause!r}:\n{verdict}"


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
