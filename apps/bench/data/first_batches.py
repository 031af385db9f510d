"""A program that makes loaders with workers, one after the other, and prints their start-up times.

``python -m apps.bench.data.first_batches needle|torch``; study_startup.py runs it.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

import needle.data as data

from .study_startup import WORKERS, to_first_batch

LOADERS = 5


def main(library: str) -> None:
    """Print the seconds from the construction of each loader to its first batch."""
    build: Any = partial(data.DataLoader, batch_size=16, num_workers=WORKERS)
    if library == "torch":
        torch = importlib.import_module("torch.utils.data")  # before the clock runs
        build = partial(torch.DataLoader, batch_size=16, num_workers=WORKERS)
        build = partial(build, multiprocessing_context="fork")
    numbers = list(range(1000))
    print(*(to_first_batch(build, numbers) for _ in range(LOADERS)))


if __name__ == "__main__":
    main(sys.argv[1])
