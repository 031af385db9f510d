"""Select the tree from which a notebook imports needle; the first cell calls ``use_tree``.

A notebook runs the needle of the tree that contains it, never an installed one, also in a student
tree with open exercises.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .blocks import open_tags
from .edition import ROOT, is_student_tree
from .registry import exercises

VIEWS = 4
"""The part that implements needle's own arrays; until it is solved, only NumPy's work."""


def use_tree(root: Path = ROOT) -> None:
    """Make ``import needle`` use this tree's sources, and print which tree it is.

    If exercises of part 4 are open, use NumPy's arrays (NEEDLE_BACKEND=np). Raises ImportError if
    needle has already been imported from elsewhere.
    """
    source = root / "python"
    imported = getattr(sys.modules.get("needle"), "__file__", None)
    if imported is not None and source not in Path(imported).parents:
        raise ImportError(
            f"needle has already been imported from {Path(imported).parent}; restart the kernel "
            "and run this cell first"
        )
    sys.path[:0] = [str(source), str(root)]
    empty = open_tags(root)
    if any(exercises()[tag].part == VIEWS for tag in empty if tag in exercises()):
        os.environ.setdefault("NEEDLE_BACKEND", "np")
    print(f"needle from {source}{_described(root, len(empty))}")


def _described(root: Path, count: int) -> str:
    if is_student_tree(root):
        return f": a student tree, {count} of {len(exercises())} exercises open"
    return ": the full sources, every exercise solved"
