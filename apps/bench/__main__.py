"""Time needle's devices beside PyTorch in a short run: python -m apps.bench

It is the study ``short`` of ``python -m apps.bench.against``, the thorough comparison, whose
options it takes, and prints the table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .against.__main__ import BENCHMARK
from .harness import program

OUT = Path("runs/bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    defaults = [*("--threads", str(os.cpu_count() or 1)), *("--rounds", "15"), *("--out", str(OUT))]
    status = program.main(BENCHMARK, ["short", "--eager", *defaults, *given])
    folder = program.parse(BENCHMARK, [*defaults, *given]).out
    print((folder / "DETAILS.md").read_text(encoding="utf-8"))
    return status


if __name__ == "__main__":
    sys.exit(main())
