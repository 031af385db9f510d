"""Check docs/trail.md: it lists files to read in order, and each file names the next."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "trail.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (\d+) \| `(.+?)` \| (.+?) \|$", PAGE, re.MULTILINE)
FILES = [file for _, file, _ in ROWS]


def text_of(file: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / file).read_text(encoding="utf-8")


def test_the_trail_is_a_weekend_long() -> None:
    assert [int(number) for number, _, _ in ROWS] == [*range(1, len(ROWS) + 1)]
    python = [file for file in FILES if file.endswith(".py")]
    assert len(python) <= 20 and len(FILES) - len(python) <= 10 and len(set(FILES)) == len(FILES)
    lines = sum(len(text_of(file).splitlines()) for file in FILES)
    assert lines <= 6500, f"{lines} lines; choose shorter files for docs/trail.md"


@pytest.mark.parametrize("number, file", [row[:2] for row in ROWS], ids=FILES)
def test_a_file_has_its_number_and_names_the_next(number: str, file: str) -> None:
    following = FILES[int(number) : int(number) + 1]
    header = "\n".join(text_of(file).splitlines()[:2])
    assert f"Trail {number} of {len(FILES)}" in header
    assert all(name in header for name in following)


@pytest.mark.parametrize("file, look_at", [row[1:] for row in ROWS], ids=FILES)
def test_a_file_contains_the_names_to_look_at(file: str, look_at: str) -> None:
    names = [part for name in re.findall(r"`(.+?)`", look_at) for part in name.split(".")]
    source = text_of(file).split("\n", 2)[2]
    assert [name for name in names if not re.search(rf"\b{name}\b", source)] == []


def test_no_other_file_is_marked() -> None:
    sources = [*ROOT.glob("python/**/*.py"), *ROOT.glob("apps/**/*.py"), *ROOT.glob("src/**/*.*")]
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in sources
        if path.suffix in {".py", ".h", ".cc", ".cu"}
        and re.match(r"(#|//) Trail \d", path.read_text(encoding="utf-8"))
    }
    assert marked == set(FILES)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "README.md", "docs/index.md"])
def test_a_page_links_the_trail(page: str) -> None:
    assert re.search(r"\((docs/)?trail\.md\)", text_of(page))
