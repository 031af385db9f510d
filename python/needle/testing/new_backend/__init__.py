"""Generate backend packages in which the ten functions are empty.

Call ``write_package(name, kind, folder)``, or ``python -m needle.testing.new_backend NAME`` on the
command line. The files come from ``templates``: ``common`` and the folders of the kind. The
contracts of the functions are copied from ``backends.base``.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from ... import backends
from ...backends.base import REQUIRED, Backend
from ...errors import NeedleError, unknown_name
from ..conformance.required import required_cases

__all__ = ["KINDS", "package_files", "write_package"]

TEMPLATES = Path(__file__).parent / "templates"
FOLDERS = {"python": ("python",), "cpp": ("compiled", "cpp"), "cuda": ("compiled", "cuda")}
"""The template folders of each kind, in addition to ``common``."""
KINDS = tuple(FOLDERS)
INSTALL = {
    "python": "pip install --no-deps",
    **dict.fromkeys(KINDS[1:], "pip install --no-build-isolation --no-deps"),
}
"""By kind, the command that installs the package; pip fetches what a pure Python one is built with.
"""
BESIDE_THE_TEN = ("export",)
"""Rows of optional services that cannot pass before arrays can be created."""


def write_package(name: str, kind: str = "python", folder: str | Path | None = None) -> Path:
    """Write the package of the device ``name`` into ``folder`` (``needle-NAME``).

    Return the folder. NeedleError if the name is taken or not an identifier, the kind is unknown,
    or the folder has files.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NeedleError(
            f"new_backend: a name must consist of lower-case letters, digits and _, got {name!r}; "
            "choose another one"
        )
    if name in backends.names():
        raise NeedleError(f"new_backend: the device {name!r} already exists; choose another name")
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    target = Path(f"needle-{name}" if folder is None else folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise NeedleError(f"new_backend: {target} must be a new or empty folder; give another one")
    for path, text in package_files(name, kind).items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
    return target


def package_files(name: str, kind: str) -> dict[str, str]:
    """Return the text of every file of the package by its path, with forward slashes."""
    values = {
        "name": name,
        "package": f"needle_{name}",
        "class": "".join(part.capitalize() for part in name.split("_")) + "Backend",
        "kind": kind,
        "install": INSTALL[kind],
        "functions": "\n\n".join(_skeletons()),
        "known_failures": "\n".join(_rows()),
        **{f"contract:{each}": _contract(each) for each in REQUIRED},
    }
    folders = [TEMPLATES / part for part in ("common", *FOLDERS[kind])]
    files = {
        path.relative_to(folder).as_posix().removesuffix(".in"): path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted(folder.rglob("*.in"))
    }
    return {
        path.replace("package/", f"needle_{name}/"): re.sub(
            r"@([a-z_:]+)@", lambda found: values[found[1]], text
        )
        for path, text in files.items()
    }


def _rows() -> list[str]:
    """Return the conformance rows that fail while the functions are empty."""
    return [*dict.fromkeys(case.row for case in required_cases()), *BESIDE_THE_TEN]


def _skeletons() -> Iterator[str]:
    """Yield the ten functions as methods with the base class's signature and contract."""
    for name in REQUIRED:
        lines = inspect.getsource(getattr(Backend, name)).rstrip().split("\n")
        body = [line for line in lines if "@abstractmethod" not in line]
        yield "\n".join(
            [*body, f'        raise NotImplementedError("{name}: still to be written")']
        )


def _contract(name: str) -> str:
    """Return the base class's docstring as a C++ comment."""
    text = inspect.getdoc(getattr(Backend, name)) or ""
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
    lines = [line for part in paragraphs for line in textwrap.wrap(part, 96)]
    return "\n".join(f"// {line}" for line in lines)
