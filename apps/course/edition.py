"""Student trees: copies of the source tree with empty blocks and the solutions kept aside.

The solutions lie in ``.course/solutions.json`` of the copy, so ``solve`` needs nothing else.
Answers that a solution replaces are kept next to it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

from .blocks import Block, blocks_in, emptied, fill, is_open
from .registry import exercises

ROOT = Path(__file__).resolve().parents[2]
STATE = ".course"
SOLUTIONS, TAKEN = "solutions.json", "taken.json"

COMPILED = ("*.so", "*.pyd", "*.dylib", "*.pyc", "__pycache__")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", *COMPILED)
WRONG = Path("tests/exercises/wrong")
"""The wrong answers of the proof. A student tree lacks them, because most differ from the solution
in one word."""
LEFT_OUT_ON_TOP = {"build", "dist", "runs", "data", STATE}


class EditionError(ValueError):
    """Raised if a student tree cannot be written, or if a command needs one."""


def is_student_tree(root: Path) -> bool:
    """Return True if ``write_edition`` wrote the tree ``root``."""
    return (root / STATE / SOLUTIONS).is_file()


def write_edition(
    source: Path, target: Path, tags: Collection[str], with_solutions: bool = True
) -> None:
    """Copy ``source`` to ``target``, a new folder, with empty blocks of ``tags``.

    Without solutions the copy only lists the tags, and ``solve`` refuses.
    """
    if is_student_tree(source):
        raise EditionError(
            f"{source} is a student tree itself; write one from the full source tree"
        )
    if target.exists() and any(target.iterdir()):
        raise EditionError(f"{target} is not empty and may hold answers; give a new folder")
    target = target.resolve()
    if target.is_relative_to(source / "python") or target == source:
        raise EditionError(f"{target} lies within the sources; give a folder elsewhere")

    def left_out(folder: str, names: list[str]) -> set[str]:
        top = LEFT_OUT_ON_TOP if Path(folder) == source else set()
        own = {name for name in names if Path(folder, name).resolve() in (target, source / WRONG)}
        return set(LEFT_OUT(folder, names)) | (top & set(names)) | own

    shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
    if not (source / "python").is_dir():  # ``source`` is an installed package
        without = shutil.ignore_patterns(source.name, *COMPILED)
        shutil.copytree(source.parent, target / "python" / "needle", ignore=without)
    solutions = {tag: blocks for tag, blocks in blocks_in(target).items() if tag in tags}
    kept = {
        tag: [block.text for block in blocks if with_solutions]
        for tag, blocks in sorted(solutions.items())
    }
    state = target / STATE
    state.mkdir()
    (state / SOLUTIONS).write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    empty_blocks(target, solutions)


def empty_blocks(root: Path, blocks: dict[str, list[Block]]) -> None:
    """Empty these blocks of a tree."""
    known = exercises()
    fill(root, {tag: [emptied(b, known[tag].title) for b in each] for tag, each in blocks.items()})


def solutions_of(root: Path) -> dict[str, list[str]]:
    """Return the stored solutions as the texts of each tag's blocks; {} if they are withheld.

    Raises EditionError if ``root`` is not a student tree.
    """
    if not is_student_tree(root):
        raise EditionError(
            f"{root} is not a student tree; write one with "
            "'python -m apps.course student DIR' and work there"
        )
    found: dict[str, list[str]] = json.loads((root / STATE / SOLUTIONS).read_text("utf-8"))
    return found


def put_back(root: Path, tags: Collection[str]) -> list[Path]:
    """Fill the blocks of ``tags`` with their solutions; return the files that keep old answers."""
    solutions = solutions_of(root)
    missing = [tag for tag in tags if tag not in solutions]
    if missing:
        raise EditionError(f"{', '.join(missing)}: already solved in this tree")
    held = [tag for tag in tags if not solutions[tag]]
    if held:
        raise EditionError(
            f"{', '.join(held)}: this tree has no solutions; ask the person who gave it to you"
        )
    taken = sorted({*_recorded_as_taken(root), *(tag for tag in tags if tag not in _own(root))})
    kept = [path for tag in tags if (path := _keep_attempt(root, tag))]
    fill(root, {tag: solutions[tag] for tag in tags})
    (root / STATE / TAKEN).write_text(json.dumps(taken) + "\n", "utf-8")
    return kept


def _own(root: Path) -> set[str]:
    """Return the tags where the learner's own answer happens to equal the solution."""
    return _equal_to_solutions(root) - _recorded_as_taken(root)


def _recorded_as_taken(root: Path) -> set[str]:
    path = root / STATE / TAKEN
    return set(json.loads(path.read_text("utf-8"))) if path.is_file() else set()


def _keep_attempt(root: Path, tag: str) -> Path | None:
    """Save the answer in the blocks of ``tag``, unless they are open."""
    blocks = blocks_in(root).get(tag, [])
    texts = [block.text for block in blocks if not is_open(block)]
    if not texts or texts == solutions_of(root)[tag]:
        return None
    folder = root / STATE / "attempts"
    folder.mkdir(exist_ok=True)
    number = len(list(folder.glob(f"{tag}.*.txt"))) + 1
    path = folder / f"{tag}.{number}.txt"
    path.write_text("\n\n".join(texts) + "\n", "utf-8")
    return path


def taken_tags(root: Path) -> set[str]:
    """Return the tags of the blocks that ``put_back`` filled with their solutions.

    The set is empty outside a student tree. The learner's own answers are not listed, even if they
    equal the solution.
    """
    if not is_student_tree(root):
        return set()
    return _equal_to_solutions(root) & _recorded_as_taken(root)


def _equal_to_solutions(root: Path) -> set[str]:
    found = blocks_in(root)
    return {
        tag
        for tag, texts in solutions_of(root).items()
        if [block.text for block in found.get(tag, [])] == texts
    }
