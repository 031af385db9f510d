"""``python -m needle``: facts about this installation, and the programs that come with needle.

``info`` prints what a bug report needs. Every other command is a program of ``apps/``:
``python -m needle train --data digits`` runs ``apps/train.py``.
"""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

from . import __version__
from .array_namespace import all_devices
from .testing.installation import describe, facts

PACKAGE = Path(__file__).resolve().parent
ROOTS = (PACKAGE / "programs", PACKAGE.parents[1])
"""Folders that may hold ``apps/``: the first in an installed package, the second in a clone."""


def root() -> Path:
    """Return the folder that holds ``apps/``; SystemExit if this installation has no programs."""
    for folder in ROOTS:
        if (folder / "apps" / "train.py").is_file():
            return folder
    raise SystemExit(
        "python -m needle: this installation has no programs; install a wheel, or run in a clone"
    )


def programs() -> dict[str, str]:
    """Map the name of each program in ``apps/`` to the first sentence of its docstring."""
    files = {path.stem: path for path in root().glob("apps/*.py")}
    files |= {path.parent.name: path for path in root().glob("apps/*/__main__.py")}
    trees = {name: ast.parse(files[name].read_text("utf-8")) for name in sorted(files)}
    return {name: _summary(tree) for name, tree in trees.items() if _is_program(tree)}


def _is_program(tree: ast.Module) -> bool:
    """Return True if the file defines ``main`` with arguments."""
    return any(
        isinstance(part, ast.FunctionDef) and part.name == "main" and part.args.args
        for part in tree.body
    )


def _summary(tree: ast.Module) -> str:
    line = (ast.get_docstring(tree) or "").partition("\n")[0]
    return line.partition(": python ")[0].rstrip(".")


def main(arguments: list[str]) -> int:
    """Run the command; return the exit status."""
    command = arguments[0] if arguments else "--help"
    if command == "info":
        print(describe({"needle": __version__, **facts(all_devices())}))
        return 0
    known = programs()
    if command in ("-h", "--help"):
        print("usage: python -m needle COMMAND [OPTION ...]\n")
        known["info"] = "Versions, devices and settings of this installation, for a bug report"
        print("\n".join(f"  {name:<16}{known[name]}" for name in sorted(known)))
        return 0
    if command.partition(".")[0] not in known:
        print(
            f"python -m needle: no command {command!r}; there are info, {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    sys.path.insert(0, str(root()))
    sys.argv[:] = arguments
    runpy.run_module(f"apps.{command}", run_name="__main__", alter_sys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
