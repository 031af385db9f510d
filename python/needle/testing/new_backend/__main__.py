"""``python -m needle.testing.new_backend NAME``: write the package and print the next steps.

Exit status 2, with one line of text, if it cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ...errors import NeedleError
from . import INSTALL, KINDS, write_package

NEXT = """{folder}: a package for the device {name}; its README.md explains the next steps:
  {install} -e {folder}
  python -m needle.testing.conformance {name}"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m needle.testing.new_backend")
    parser.add_argument("name", help="of the device: lower-case letters, digits and _")
    parser.add_argument(
        "--kind", choices=KINDS, default="python", help="language of the kernels (default: python)"
    )
    parser.add_argument("--dir", type=Path, help="folder to write (default: needle-NAME)")
    options = parser.parse_args(arguments)
    try:
        folder = write_package(options.name, options.kind, options.dir)
    except (NeedleError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(NEXT.format(folder=folder, name=options.name, install=INSTALL[options.kind]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
