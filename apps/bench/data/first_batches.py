"""Make loaders with workers, one after the other, and print their start-up times.

``python -m apps.bench.data.first_batches needle|torch COUNT``; study_startup.py runs it.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

import needle.data as data

from .study_startup import WORKERS, to_first_batch


def main(library: str, count: int) -> None:
    """Print the seconds from the construction of each loader to its first batch."""
    build: Any = partial(data.DataLoader, batch_size=16, num_workers=WORKERS)
    if library == "torch":
        torch = importlib.import_module("torch.utils.data")  # before the clock runs
        build = partial(torch.DataLoader, batch_size=16, num_workers=WORKERS)
        build = partial(build, multiprocessing_context="fork")
    numbers = list(range(1000))
    print(*(to_first_batch(build, numbers) for _ in range(count)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
