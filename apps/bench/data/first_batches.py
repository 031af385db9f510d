"""A program that makes loaders with workers, one after the other, and prints their start-up times.

``python -m apps.bench.data.first_batches needle|torch``; study_startup.py runs it.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import needle.data as data

from . import peers
from .study_startup import WORKERS, to_first_batch

LOADERS = 5


def main(library: str) -> None:
    """Print the seconds from the construction of each loader to its first batch."""
    build: Any = partial(data.DataLoader, num_workers=WORKERS)
    if library == "torch":
        build = partial(peers.torch_loader, workers=WORKERS, multiprocessing_context="fork")
    print(*(to_first_batch(lambda dataset: build(dataset, 16), []) for _ in range(LOADERS)))


if __name__ == "__main__":
    main(sys.argv[1])
