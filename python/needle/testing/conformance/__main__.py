"""``python -m needle.testing.conformance NAME``: prints the table; exit status 0 when all is well.

2 when the backend is unknown or cannot be used here.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from ...errors import NeedleError
from . import run


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the suite as the command line says and returns the exit status."""
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
    options = parser.parse_args(arguments)
    try:
        for module in options.modules:
            importlib.import_module(module)
        report = run(options.name, options.known, options.only)
    except (NeedleError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report.table())
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
