"""Check the documentation: examples print what the page shows, and links resolve.

A ```text block that follows a ```python block is the output of that block, or the error that ends
it; "..." in it matches any text. ``python -m tests.docs.test_pages PAGE ...`` writes the current
outputs into pages. README.md, docs/backend.md and the pages on the shared loader have tests of
their own. The site itself is built by `make docs`.
"""

import importlib
import io
import os
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/**/*.md")])
EXECUTED_ELSEWHERE = {"backend.md", "shared_loader.md", "shared_loader_proofs.md"}
PACKAGE = ROOT / "python" / "needle"
BASES = [ROOT, PACKAGE.parent, PACKAGE, PACKAGE / "data"]
BASES += [ROOT / place for place in ("apps", "docs", "src", "tests", "tests/data")]
ALIASES = {name: f"needle.{name}" for name in ("data", "nn", "optim")} | {
    "ndl": "needle",
    "needle": "needle",
}
NOT_OURS = {
    *("src/ndarray_backend_cpu.cc", "optim.py", "apps/models.py"),  # files of the course
    "nn.ModuleList",  # PyTorch's names
    *("build/docs", "dist/", ".venv/bin/python"),  # build results
    *("runs/MODEL-DATA", "runs/bench-against/", "runs/bench-data/"),  # files that programs write
    *(".venv/bin/activate", "tensorboard/"),
}
EXAMPLES = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n+```text\n(?P<output>.*?)^```$)?", re.DOTALL | re.MULTILINE
)
WORDS = {"README.md": 700, "ARCHITECTURE.md": 3000, "docs/shared_loader.md": 800}
"""The maximum number of words on a page, not counting code blocks."""


def with_examples() -> list[Path]:
    """Return the pages of docs/ whose examples are run here."""
    pages = [page for page in (ROOT / "docs").glob("**/*.md") if EXAMPLES.search(page.read_text())]
    return sorted(page for page in pages if page.name not in EXECUTED_ELSEWHERE)


def output_of(code: str, page: Path, line: int, names: dict[str, object], fails: bool) -> str:
    """Run an example that starts at ``line`` of a page, and return what it prints.

    ``fails``: the example ends with an error, whose type and message are returned instead.
    """
    printed = io.StringIO()
    program = compile("\n" * line + code, str(page), "exec")
    with redirect_stdout(printed):
        if not fails:
            exec(program, names)
            return printed.getvalue()
        try:
            exec(program, names)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    raise AssertionError(f"{page.name}, line {line}: the example was to end with an error")


def examples_of(page: Path) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each example of a page with its output; all of them share a namespace."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__main__"}
    for block in EXAMPLES.finditer(text):
        fails = bool(re.match(r"\w*Error: ", block["output"] or ""))
        line = text[: block.start()].count("\n") + 1
        yield block, output_of(block["code"], page, line, names, fails)


def shown(output: str) -> str:
    """Return an output as a page shows it: an error's message is wrapped at 82 columns."""
    if re.match(r"\w*Error: ", output):
        lines = output.splitlines()
        wrap = {"width": 82, "break_long_words": False, "break_on_hyphens": False}
        return "\n".join("\n".join(textwrap.wrap(line, **wrap)) for line in lines) + "\n"  # type: ignore[arg-type]
    return output


def agrees(output: str, page_shows: str) -> bool:
    """Return True if the page shows this output, line breaks aside; "..." matches any text."""
    parts = [re.escape(" ".join(part.split())) for part in page_shows.split("...")]
    pattern = ".*".join(parts)
    return re.fullmatch(pattern, " ".join(output.split())) is not None


@pytest.mark.parametrize("page", with_examples(), ids=lambda page: page.name)
def test_the_examples_of_a_page_run_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for block, output in examples_of(page):
        if block["output"] is not None:
            assert agrees(output, block["output"]), f"{page.name} shows another output:\n{output}"


@pytest.mark.parametrize("name", WORDS)
def test_a_page_is_no_longer_than_it_may_be(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    words = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).split()
    assert len(words) <= WORDS[name], f"{name} has {len(words)} words"


def spoken_of(page: Path) -> Iterator[str]:
    """Yield the text between single backticks of a page, outside of code blocks."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    yield from re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def resolved(dotted: str) -> bool:
    """Return True if a dotted name of needle exists, as an attribute or as a module."""
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
        if path.startswith(".github/") and not (ROOT / ".github").exists():
            continue  # the source archive has no workflows
        if re.fullmatch(r"[\w.-]+/[\w./-]*", path) and path not in NOT_OURS:
            there = any((base / path).exists() or [*base.glob(f"{path}.*")] for base in BASES)
            assert there, f"{page.name}: no {path}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and code hosts generate them."""
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
    listed.remove(ROOT / "hw_notebook.md")  # generated from the notebook, not a page in docs/
    assert listed | {index} == set(PAGES)


def test_the_gallery_of_docs_data_loading_shows_every_augmentation() -> None:
    pytest.importorskip("simplejpeg")
    pytest.importorskip("PIL")
    from docs.pictures import gallery
    from needle.data import transforms

    known = {
        name
        for name, kind in vars(transforms).items()
        if isinstance(kind, type)
        and issubclass(kind, (transforms.Transform, transforms.BatchTransform))
    }
    shown = repr([*gallery.AUGMENTATIONS.values(), *gallery.MIXING.values()])
    unseen = {name for name in known if name not in shown}
    assert unseen <= {"BatchTransform", "Transform", "Compose", "OnBatch", "ToCHW"}
    assert 0 < len(gallery.gallery(gallery.photographs())) < 600_000


def rewrite(page: Path) -> None:
    """Replace the outputs on a page that differ from the current ones."""
    text = page.read_text(encoding="utf-8")
    for block, output in examples_of(page):
        before = block["output"]
        if before is not None and not agrees(output, before):
            after = block[0].replace(f"```text\n{before}```", f"```text\n{shown(output)}```")
            text = text.replace(block[0], after)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    pages = [Path(name).resolve() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for chosen in pages:
            rewrite(chosen)
