"""Settings of the documentation site, read by Sphinx; `make docs` builds it into build/docs.

The source folder is the repository's root, so pages link to each other on the site as they do in
the repository. Two things are changed here: links to folders, which a site cannot show, become
plain text, and docstrings, which are plain text with ``code`` and lists, become reStructuredText.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from needle import __version__
from needle.ops import REGISTRY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = PROJECT["name"]
version = release = __version__
author = project_copyright = PROJECT["authors"][0]["name"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = [
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *("hw_notebook.ipynb", "docs/*.md", "docs/api/*.md", "docs/internals/*.md", "apps/**/*.md"),
]
exclude_patterns = [".*", "build", "dist", "runs", "data", "**/node_modules"]

html_theme = "furo"
html_title = f"needle {version}"
html_extra_path = ["redirect"]  # the site's index.html redirects to docs/index.html
html_theme_options = {"dark_css_variables": {"mystnb-source-border-color": "#3f4244"}}
html_static_path, html_css_files = ["style"], ["tables.css"]
html_js_files = [(name, {"defer": "defer"}) for name in ("keyboard.js", "versions.js")]
html_copy_source = False

myst_heading_anchors = 3
nb_execution_mode = "force"  # the notebook is committed without outputs
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_render_markdown_format = "gfm"  # tables in outputs

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")


def without_folders(text: str, folder: Path) -> str:
    """Return a page's text with its links to folders as plain text; the page is in ``folder``."""

    def words(link: re.Match[str]) -> str:
        return link[1] if (folder / link[2]).is_dir() else link[0]

    return LINK.sub(words, text)


def as_restructured(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText, with accidental markup escaped.

    ``code`` in double backticks stays, everything else is text; paragraphs that are indented
    become literal blocks, and lines that begin with "* " or "- " lists.
    """
    made: list[str] = []
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        if paragraph.startswith("    "):
            made += ["::", "", *paragraph.splitlines(), ""]
            continue
        for part in re.split(r"\n(?=[*-] )", paragraph):
            mark = part[:2] if part.startswith(("* ", "- ")) else ""
            made += [*(mark + _escaped(part[len(mark) :])).splitlines(), ""]
    return made


def _escaped(text: str) -> str:
    """Return the text with markup escaped outside ``code``."""
    parts = re.split(r"(``.+?``)", text, flags=re.DOTALL)
    return "".join(
        part if part.startswith("``") else re.sub(r"([\\*`_|<>])", r"\\\1", part) for part in parts
    )


def families() -> str:
    """Return the reference text for every family of ops in the registry."""
    names = sorted({row.family for row in REGISTRY.values()})
    blocks = (
        f"### {name}\n\n```{{eval-rst}}\n.. automodule:: needle.ops.{name}\n```\n" for name in names
    )
    return "\n".join(blocks)


def setup(app: Any) -> None:
    """Connect the two changes to Sphinx, which calls this function."""

    def read(app: Any, name: str, source: list[str]) -> None:
        text = without_folders(source[0], Path(app.srcdir, name).parent)
        source[0] = text.replace("<!-- here: the families of ops -->", families())

    def docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: Any) -> None:
        lines[:] = as_restructured(lines)

    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", docstring)
