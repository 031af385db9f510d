"""The homework notebooks, one for each part of the course, made from the registry and sources.

``python -m apps.course student DIR`` writes them into ``DIR/homework``. The text of an exercise is
that of ``apps/course/parts``; its cell names the place of the marked block.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from .blocks import Block, blocks_in, blocks_of
from .registry import Exercise, Part, parts

FOLDER = "homework"
SPECIAL = re.compile(r"(`[^`]*`)|([\\*_<$~\[\]])")
"""Code in backticks, which stays, or a character that Markdown would not show as it is."""

FIRST_CELL = """\
import sys

sys.path.insert(0, "..")
from apps.course.tree import use_tree

use_tree()
from apps.notebook import check, hint, rebuild, start, watch

start()
watch("needle", "apps");"""

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
"""The paragraph that the opening of a part with exercises in C++ ends with."""


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
    """Return the text of a part's notebook file, without outputs."""
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
    task += [as_markdown(text) for text in (exercise.counterpart, exercise.why) if text]
    answers = []
    for number, block in enumerate(blocks, 1):
        order = f" {number}" if len(blocks) > 1 else ""
        place = f"{block.path}:{block.first + 1}"
        python = block.path.endswith(".py")
        place = f"# in {_signature(around(root, block))}, {place}" if python else f"// in {place}"
        answers.append(_code(f"%%exercise {exercise.tag}{order}\n{place}\n"))
    surroundings = "\n\n".join(dict.fromkeys(around(root, block) for block in blocks))
    return [
        _text("\n\n".join([*task, as_markdown(exercise.contract), *_folded(surroundings)])),
        *answers,
        _code(f'check("{exercise.tag}")'),
        _code(f'# hint("{exercise.tag}")  # remove the first # to open a hint'),
    ]


def as_markdown(text: str) -> str:
    """Return plain text of ``parts`` as Markdown that shows the same characters.

    Lines that start with spaces become a block of code, as ``show`` keeps them.
    """
    parts = []
    for indented, lines in groupby(text.split("\n"), lambda line: line.startswith(" ")):
        joined = "\n".join(lines)
        parts.append(f"\n```text\n{joined}\n```\n" if indented else _escaped(joined))
    return "\n".join(parts).strip("\n")


def _escaped(text: str) -> str:
    return SPECIAL.sub(lambda found: found[1] or f"\\{found[2]}", text)


def _signature(source: str) -> str:
    """Return the signature of a Python function, without def and in one line."""
    lines = source.split("\n")
    last = next((i for i, line in enumerate(lines) if line.endswith(":")), 0)
    signature = " ".join(line.strip() for line in lines[: last + 1])
    return signature.removeprefix("def ").rstrip(":").replace("( ", "(").replace(" )", ")")


def _folded(source: str) -> list[str]:
    """Return a collapsed paragraph that shows the functions around an exercise's blocks."""
    if not source:
        return []
    summary = "<summary>The functions that your answer is a part of</summary>"
    return [f"<details>{summary}", f"```text\n{source}\n```", "</details>"]


def around(root: Path, block: Block) -> str:
    """Return the source of the function around a block, with "..." in place of its blocks."""
    text = (root / block.path).read_text("utf-8")
    found = blocks_of(block.path, text)
    lines: list[str | None] = list(text.split("\n"))
    for each in found:
        lines[each.first] = f"{each.indent}..."
        lines[each.first + 1 : each.last] = [None] * (each.last - each.first - 1)
    python = block.path.endswith(".py")
    first = block.first - 1
    while first > 0 and not _begins(lines[first] or "", block.indent if python else ""):
        first -= 1
    while not python and first > 0 and re.match(r"template|[\w/]", lines[first - 1] or ""):
        first -= 1
    indent = len(lines[first] or "") - len((lines[first] or "").lstrip())
    last = block.last + 1
    while last < len(lines) and not _ends(lines[last], indent, python):
        last += 1
    shown = [line for line in lines[first : last + (not python)] if line is not None]
    return textwrap.dedent("\n".join(shown)).strip("\n")


def _begins(line: str, indent: str) -> bool:
    """Return True for the first line of a function: a def, or in C++ one without indentation."""
    if indent:
        return line.lstrip().startswith("def ") and len(line) - len(line.lstrip()) < len(indent)
    return bool(re.match(r"[A-Za-z]", line))


def _ends(line: str | None, indent: int, python: bool) -> bool:
    """Return True for the first line after a function, in C++ for its closing brace."""
    if not line:
        return False
    return len(line) - len(line.lstrip()) <= indent and (python or line.startswith("}"))


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def _code(source: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "metadata": {}, "source": source}
    return {**cell, "execution_count": None, "outputs": []}
