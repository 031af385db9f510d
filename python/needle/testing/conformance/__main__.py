"""Command line of the conformance suite, ``python -m needle.testing.conformance NAME``.

It prints the table. The exit status is 0 if the report is ok, 1 if not, and 2 if the backend is
unknown or cannot be used here.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...errors import NeedleError
from . import Report, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite with these command-line arguments; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m needle.testing.conformance")
    parser.add_argument("name", help="a registered backend, such as cpu or cpu_numpy")
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="import MODULE first, which registers the backend (may be repeated)",
    )
    parser.add_argument("--only", metavar="PREFIX", help="only rows whose name starts so")
    parser.add_argument(
        "--known-failure",
        dest="known",
        action="append",
        default=[],
        metavar="ROW",
        help="a row that may fail, and must (may be repeated)",
    )
    parser.add_argument(
        "--shrink",
        type=Path,
        metavar="FILE",
        help="remove the rows that pass from the list of known failures in FILE, one per line",
    )
    options = parser.parse_args(arguments)
    try:
        for module in options.modules:
            importlib.import_module(module)
        report = run(options.name, options.known, options.only)
        if options.shrink:
            report = shrunk(report, options.shrink)
    except (NeedleError, ImportError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report.table())
    return 0 if report.ok else 1


def shrunk(report: Report, path: Path) -> Report:
    """Remove rows that pass from the file of known failures; return the report without them."""
    repaired = set(report.repaired)
    kept = [name for name in path.read_text(encoding="utf-8").split() if name not in repaired]
    path.write_text("".join(f"{name}\n" for name in kept), encoding="utf-8")
    return replace(report, known_failures=report.known_failures - repaired)


if __name__ == "__main__":
    sys.exit(main())
