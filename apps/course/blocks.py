"""Functions that find, empty and fill the marked blocks of source files.

A block is the text between two marker lines inside a function body; a tag may mark several blocks.
``parts/``, read by ``registry``, lists the tags of the course.
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
    """The markers of a language, and the statement of an empty block, which raises an error.

    WGSL cannot raise errors; the program that reads the file raises instead.
    """

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
WGSL = Language(CPP.begin, CPP.end, "// NotImplementedError: {message}")
LANGUAGES = {".py": PYTHON, ".cc": CPP, ".h": CPP, ".cu": CPP, ".wgsl": WGSL}


class MarkerError(ValueError):
    """Raised if a file has a marker without its partner."""


@dataclass(frozen=True)
class Block:
    """A block: its tag, its file, the lines [first, last) between the markers, and its text."""

    tag: str
    path: str
    first: int
    last: int
    indent: str
    text: str


def blocks_of(path: str, text: str) -> list[Block]:
    """Return the blocks of a file; MarkerError, with the line, if a marker has no partner."""
    language = LANGUAGES[Path(path).suffix]
    lines = text.split("\n")
    found: list[Block] = []
    opened: tuple[int, re.Match[str]] | None = None
    for number, line in enumerate(lines):
        begin, end = language.begin.match(line), language.end.match(line)
        if (begin and opened) or (end and not opened):
            raise MarkerError(f"{path}:{number + 1}: a marker has no partner; restore both")
        if begin:
            opened = number, begin
        elif end and opened:
            first, match = opened[0] + 1, opened[1]
            body = "\n".join(lines[first:number])
            found.append(Block(match["tag"], path, first, number, match["indent"], body))
            opened = None
    if opened:
        raise MarkerError(f"{path}:{opened[0] + 1}: the end marker is missing; restore it")
    return found


def source_files(root: Path) -> Iterator[Path]:
    """Yield the files of a tree that may contain blocks, in order."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            own = path.relative_to(root).as_posix().startswith(OWN)
            if path.suffix in LANGUAGES and not own and "SOLUTION" in path.read_text("utf-8"):
                yield path


def blocks_in(root: Path) -> dict[str, list[Block]]:
    """Return the blocks of a tree by tag, in order of files and lines."""
    found: dict[str, list[Block]] = {}
    for path in source_files(root):
        for block in blocks_of(path.relative_to(root).as_posix(), path.read_text("utf-8")):
            found.setdefault(block.tag, []).append(block)
    return found


def emptied(block: Block, title: str) -> str:
    """Return the line that fills the block while the exercise is open.

    It raises an error whose message names the command that explains the exercise, so learners see
    it in any program.
    """
    language = LANGUAGES[Path(block.path).suffix]
    message = f"{block.tag}: {title}; {SHOW} {block.tag}"
    return block.indent + language.empty.format(message=message)


def is_open(block: Block) -> bool:
    """Return True if the block holds nothing but the statement of an empty block."""
    language = LANGUAGES[Path(block.path).suffix]
    return block.text.strip().startswith(f"{language.empty.split('{')[0]}{block.tag}:")


def open_tags(root: Path) -> set[str]:
    """Return the tags that have an empty block."""
    return {tag for tag, blocks in blocks_in(root).items() if any(map(is_open, blocks))}


def replaced(text: str, blocks: Iterable[Block], bodies: Mapping[int, str]) -> str:
    """Return ``text`` with its blocks replaced by ``bodies``, keyed by the blocks' first lines."""
    lines = text.split("\n")
    for block in sorted(blocks, key=lambda block: block.first, reverse=True):
        if block.first in bodies:
            lines[block.first : block.last] = bodies[block.first].split("\n")
    return "\n".join(lines)


def fill(root: Path, bodies: Mapping[str, list[str]]) -> None:
    """Write ``bodies``, the texts of each tag's blocks in order, into the files.

    Raise MarkerError, and write nothing, if the number of a tag's blocks in the tree differs.
    """
    found = blocks_in(root)
    by_file: dict[str, list[tuple[Block, str]]] = {}
    for tag, texts in bodies.items():
        blocks = found.get(tag, [])
        if len(blocks) != len(texts):
            raise MarkerError(
                f"{tag}: expected {len(texts)} marked blocks, found {len(blocks)}; restore the "
                f"lines with BEGIN ... [{tag}] and END"
            )
        for block, text in zip(blocks, texts, strict=True):
            by_file.setdefault(block.path, []).append((block, text))
    for path, pairs in by_file.items():
        place = root / path
        new = {block.first: text for block, text in pairs}
        text = replaced(place.read_text("utf-8"), [block for block, _ in pairs], new)
        place.write_text(text, "utf-8")
