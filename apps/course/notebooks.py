"""The homework notebooks: one for each part of the course, made of its registry and its sources.

``python -m apps.course student DIR`` writes them into ``DIR/homework``. The text of an exercise is
that of ``apps/course/parts``; its cell names the place of the marked block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .blocks import Block, blocks_in
from .homework import counterpart
from .registry import Exercise, Part, parts

FOLDER = "homework"

FIRST_CELL = """\
import sys

sys.path.insert(0, "..")
from apps.course.tree import use_tree

use_tree()
from apps.notebook import check, hint, rebuild, start, watch

start()
watch("needle", "apps")"""

OPENING = """\
# Part {number}: {title}

{count} exercises, about {hours:.1f} hours. Run the cells from top to bottom. An exercise has a
task, a cell for your answer, a check and hints. Write the answer into the cell under `%%exercise`
and run it: this writes the marked block of the source file. You may as well edit the file; then
leave the cell empty. Edited modules are reloaded before the next cell runs.{compiled}

The next cell takes needle from this folder's tree and says how much of it is open."""

COMPILED = """

Checks of C++ compile the edited files first, which takes minutes the first time. `rebuild()` does
the same for the kernels of `needle.cpu()` and uses them in this notebook at once."""
"""What the opening of a part says that has exercises in C++."""


def write_notebooks(root: Path, tags: Iterable[str]) -> list[Path]:
    """Write a notebook for each part that has an exercise in ``tags``; return the paths."""
    folder, found, wanted = root / FOLDER, blocks_in(root), set(tags)
    folder.mkdir(exist_ok=True)
    written = []
    for part in parts():
        if wanted.isdisjoint(exercise.tag for exercise in part.exercises):
            continue
        title = re.split("[,:]", part.title)[0].replace(" ", "_").replace("+", "p")
        path = folder / f"part{part.number}_{title}.ipynb"
        path.write_text(notebook_text(root, part, found), "utf-8")
        written.append(path)
    return written


def notebook_text(root: Path, part: Part, blocks: dict[str, list[Block]]) -> str:
    """Return a part's notebook as the text of its file, without outputs."""
    minutes = sum(exercise.minutes for exercise in part.exercises)
    cells = [
        _text(
            OPENING.format(
                number=part.number,
                title=part.title,
                count=len(part.exercises),
                hours=minutes / 60,
                compiled=COMPILED if any(each.builds for each in part.exercises) else "",
            )
        ),
        _code(FIRST_CELL),
    ]
    for exercise in part.exercises:
        cells += _exercise_cells(root, exercise, blocks.get(exercise.tag, []))
    cells += [_code(part.closing)] if part.closing else []
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number:03}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _exercise_cells(root: Path, exercise: Exercise, blocks: Sequence[Block]) -> list[Any]:
    """Return the cells of an exercise: task, answer, check and hint."""
    built_on = ", ".join(f"`{tag}`" for tag in exercise.prerequisites)
    about = f"*About {exercise.minutes} minutes, {exercise.points} points"
    about += f"; builds on {built_on}.*" if built_on else ".*"
    task = [f"## {exercise.title} (`{exercise.tag}`)", about]
    task += [text for text in (counterpart(exercise), exercise.why) if text]
    answers = []
    for number, block in enumerate(blocks, 1):
        order = f" {number}" if len(blocks) > 1 else ""
        comment = "#" if block.path.endswith(".py") else "//"
        place = f"{comment} in {_around(root, block)}{block.path}:{block.first + 1}"
        answers.append(_code(f"%%exercise {exercise.tag}{order}\n{place}\n"))
    return [
        _text("\n\n".join([*task, exercise.contract])),
        *answers,
        _code(f'check("{exercise.tag}")'),
        _code(f'# hint("{exercise.tag}")  # remove the first # to open a hint'),
    ]


def _around(root: Path, block: Block) -> str:
    """Return the signature of the Python function that a block is in, followed by a comma."""
    if not block.path.endswith(".py"):
        return ""
    lines = (root / block.path).read_text("utf-8").split("\n")[: block.first]
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if line.lstrip().startswith("def ") and len(line) - len(line.lstrip()) < len(block.indent):
            rest = lines[number : number + 12]
            last = next((i for i, each in enumerate(rest) if each.rstrip().endswith(":")), 0)
            signature = " ".join(each.strip() for each in rest[: last + 1])
            return signature.removeprefix("def ").rstrip(":") + ", "
    return ""


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "metadata": {}, "source": source}
    return {**cell, "execution_count": None, "outputs": []}
