"""Check docs/backend.md: its examples run, and its tables list the interface's functions."""

import re
from pathlib import Path

from needle.backends.base import BINARY, REDUCE, REQUIRED, UNARY

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "backend.md").read_text(encoding="utf-8")


def names_in(heading: str) -> set[str]:
    """Return the words in the first column of the table under a heading."""
    section = PAGE.split(f"\n{heading}\n")[1].split("\n##")[0]
    rows = re.findall(r"^\| ([\w ]+?) \|", section, re.MULTILINE)[1:]
    return {word for row in rows for word in row.split()}


def test_the_examples_run_from_top_to_bottom() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {})


def test_every_function_and_name_has_its_row() -> None:
    assert re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE) == list(REQUIRED)
    assert names_in("### unary") == set(UNARY)
    assert names_in("### binary") == set(BINARY)
    assert names_in("### reduce") == set(REDUCE)
