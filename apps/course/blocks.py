"""Marked blocks of source files: found, emptied, filled again. Texts in, texts out.

A block is what lies between two marker lines inside a function body; one tag may mark several.
Which blocks there are to a course is said in ``parts/``, read by ``registry``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

TAG = r"[a-z][a-z0-9-]*"
FOLDERS = ("python/needle", "src", "apps", "examples")
OWN = "apps/course"
SHOW = "python -m apps.course show"


@dataclass(frozen=True)
class Language:
    """How a language marks a block, and the statement that stands for an empty one."""

    begin: re.Pattern[str]
    end: re.Pattern[str]
    empty: str


PYTHON = Language(
    re.compile(rf"^(?P<indent> *)### BEGIN YOUR SOLUTION \[(?P<tag>{TAG})\]$"),
    re.compile(r"^ *### END YOUR SOLUTION$"),
    'raise NotImplementedError("{message}")',
)
CPP = Language(
    re.compile(rf"^(?P<indent> *)/// BEGIN SOLUTION \[(?P<tag>{TAG})\]$"),
    re.compile(r"^ */// END SOLUTION$"),
    '::needle::not_implemented("{message}");',
)
LANGUAGES = {".py": PYTHON, ".cc": CPP, ".h": CPP, ".cu": CPP}


class MarkerError(ValueError):
    """The markers of a file do not pair."""


@dataclass(frozen=True)
class Block:
    """One block: its tag, its file, the lines between the markers ([first, last)), the text."""

    tag: str
    path: str
    first: int
    last: int
    indent: str
    text: str


def blocks_of(path: str, text: str) -> list[Block]:
    """The blocks of one file; MarkerError with the line where markers do not pair."""
    language = LANGUAGES[Path(path).suffix]
    lines = text.split("\n")
    found: list[Block] = []
    opened: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(lines):
        begin, end = language.begin.match(line), language.end.match(line)
        if (begin and opened) or (end and not opened):
            raise MarkerError(f"{path}:{number + 1}: a marker without its partner; put it back")
        if begin:
            opened = number, begin
        elif end and opened:
            first, match = opened[0] + 1, opened[1]
            body = "\n".join(lines[first:number])
            found.append(Block(match["tag"], path, first, number, match["indent"], body))
            opened = None
    if opened:
        raise MarkerError(f"{path}:{opened[0] + 1}: no end marker; put it back")
    return found


def source_files(root: Path) -> Iterator[Path]:
    """The files of a tree that may hold blocks, in order."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            own = path.relative_to(root).as_posix().startswith(OWN)
            if path.suffix in LANGUAGES and not own and "SOLUTION" in path.read_text("utf-8"):
                yield path


def blocks_in(root: Path) -> dict[str, list[Block]]:
    """Tag -> its blocks in a tree, files and lines in order."""
    found: dict[str, list[Block]] = {}
    for path in source_files(root):
        for block in blocks_of(path.relative_to(root).as_posix(), path.read_text("utf-8")):
            found.setdefault(block.tag, []).append(block)
    return found


def emptied(block: Block, title: str) -> str:
    """Return the line that stands in the block while the exercise is open.

    Its message names the command that explains the exercise, so every program that prints the
    error helps the learner without knowing the course.
    """
    language = LANGUAGES[Path(block.path).suffix]
    message = f"{block.tag}: {title}; {SHOW} {block.tag}"
    return block.indent + language.empty.format(message=message)


def is_open(block: Block) -> bool:
    """Whether nothing but the line of an empty block is in it."""
    language = LANGUAGES[Path(block.path).suffix]
    return block.text.strip().startswith(f"{language.empty.split('{')[0]}{block.tag}:")


def open_tags(root: Path) -> set[str]:
    """The tags of which a block is still empty."""
    return {tag for tag, blocks in blocks_in(root).items() if any(map(is_open, blocks))}


def replaced(text: str, blocks: Iterable[Block], bodies: Mapping[int, str]) -> str:
    """``text`` with other lines in its blocks: ``bodies`` by the blocks' first lines."""
    lines = text.split("\n")
    for block in sorted(blocks, key=lambda block: block.first, reverse=True):
        if block.first in bodies:
            lines[block.first : block.last] = bodies[block.first].split("\n")
    return "\n".join(lines)


def fill(root: Path, bodies: Mapping[str, list[str]]) -> None:
    """Writes ``bodies`` (tag -> the text of each of its blocks, in order) into the files.

    MarkerError, before anything is written, if a tag has another number of blocks in the tree.
    """
    found = blocks_in(root)
    by_file: dict[str, list[tuple[Block, str]]] = {}
    for tag, texts in bodies.items():
        blocks = found.get(tag, [])
        if len(blocks) != len(texts):
            raise MarkerError(
                f"{tag}: needs {len(texts)} marked blocks, found {len(blocks)}; put the lines with "
                f"BEGIN ... [{tag}] and END back where they were"
            )
        for block, text in zip(blocks, texts, strict=True):
            by_file.setdefault(block.path, []).append((block, text))
    for path, pairs in by_file.items():
        place = root / path
        new = {block.first: text for block, text in pairs}
        text = replaced(place.read_text("utf-8"), [block for block, _ in pairs], new)
        place.write_text(text, "utf-8")
