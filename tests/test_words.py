"""Docstrings start with their object: "Return the ...", "Base class of ...", never "Whether ...".

The opening words below start a sentence fragment that leaves out its subject or its verb.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OPENINGS = frozenset("How Of So That Those What Where Whether Which Who Whom Whose".split())


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of every docstring, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        constant = node.value if isinstance(node, ast.Expr) else None
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
            yield node.lineno, constant.value.strip()


def bad_openings(source: str) -> list[str]:
    """Return "line: first line" of each docstring that starts with one of OPENINGS."""
    return [
        f"{line}: {text.splitlines()[0]}"
        for line, text in docstrings(source)
        if (opening := re.match(r"\w+", text)) and opening[0] in OPENINGS
    ]


@pytest.mark.parametrize("folder", ["python/needle", "apps", "tests", "examples"])
def test_docstrings_start_with_their_object(folder: str) -> None:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found += [f"{name}:{each}" for each in bad_openings(path.read_text(encoding="utf-8"))]
    assert not found, (
        'start with the object, such as "Return True if ..." for "Whether ...":\n'
        + "\n".join(found)
    )


def test_bad_openings_are_found() -> None:
    source = '"""What is here."""\nx = 1\n"""Which x."""\ndef f():\n    """Return x. Of y."""\n'
    assert bad_openings(source) == ["1: What is here.", "3: Which x."]
