"""The pages of the documentation: their Python examples run, their links lead somewhere.

The examples of README.md, docs/backend.md and docs/shared_loader.md have tests of their own, which
also look at what is printed. The site itself is built by `make docs`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/**/*.md")])
EXECUTED_ELSEWHERE = {"backend.md", "shared_loader.md"}
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
