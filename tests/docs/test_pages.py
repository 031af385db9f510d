"""The pages of the documentation: their Python examples run, their links lead somewhere.

The examples of README.md, docs/backend.md and docs/shared_loader.md have tests of their own, which
also look at what is printed. The site itself is built by `make docs`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/**/*.md")])
EXECUTED_ELSEWHERE = {"backend.md", "shared_loader.md"}
PACKAGE = ROOT / "python" / "needle"
BASES = [ROOT, PACKAGE.parent, PACKAGE, PACKAGE / "data", PACKAGE / "data" / "server"]
BASES += [ROOT / place for place in ("apps", "docs", "src", "tests", "tests/data")]
ALIASES = {name: f"needle.{name}" for name in ("data", "nn", "optim")} | {
    "ndl": "needle",
    "needle": "needle",
}
NOT_OURS = {
    *("src/ndarray_backend_cpu.cc", "optim.py", "apps/models.py"),  # the course's
    "nn.ModuleList",  # PyTorch's
    *("build/docs", "dist/"),  # what is built
}
EXAMPLES = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def with_examples() -> list[Path]:
    """The pages of docs/ whose examples are run here."""
    pages = [page for page in (ROOT / "docs").glob("**/*.md") if EXAMPLES.search(page.read_text())]
    return sorted(page for page in pages if page.name not in EXECUTED_ELSEWHERE)


@pytest.mark.parametrize("page", with_examples(), ids=lambda page: page.name)
def test_the_examples_of_a_page_run_from_top_to_bottom(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "__main__"}
    for block in EXAMPLES.finditer(text):
        line = text[: block.start()].count("\n") + 1
        exec(compile("\n" * line + block[1], str(page), "exec"), names)


def spoken_of(page: Path) -> Iterator[str]:
    """What stands between single backticks in a page's text, outside of blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def resolved(dotted: str) -> bool:
    """Whether a dotted name of needle exists, as an attribute or as a module."""
    first, *names = dotted.split(".")
    found = importlib.import_module(ALIASES[first])
    for i, name in enumerate(names):
        if not hasattr(found, name) and isinstance(found, ModuleType):
            with suppress(ImportError):
                importlib.import_module(".".join([ALIASES[first], *names[: i + 1]]))
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_and_files_that_a_page_speaks_of_exist(page: Path) -> None:
    for code in spoken_of(page):
        name = re.match(rf"(?:{'|'.join(ALIASES)})(?:\.\w+)+", code)
        assert not name or name[0] in NOT_OURS or resolved(name[0]), f"{page.name}: {name[0]}"
        path = code.partition(" ")[0].partition(":")[0]
        if re.fullmatch(r"[\w.-]+/[\w./-]*", path) and path not in NOT_OURS:
            there = any((base / path).exists() or [*base.glob(f"{path}.*")] for base in BASES)
            assert there, f"{page.name}: no {path}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and code hosts make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```(?!{toctree}).*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: no {path}"
        assert not anchor or anchor in anchors(target), f"{page.name}: no #{anchor} in {path}"


def test_every_page_is_in_the_table_of_contents_and_every_entry_is_a_page() -> None:
    index = ROOT / "docs" / "index.md"
    trees = re.findall(r"^```{toctree}\n(.*?)^```$", index.read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for tree in trees for line in tree.splitlines() if line and line[0] != ":"]
    entries = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
    listed = {(index.parent / f"{entry}.md").resolve() for entry in entries}
    listed.remove(ROOT / "hw_notebook.md")  # the notebook
    assert listed | {index} == set(PAGES)
