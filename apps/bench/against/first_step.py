"""A program whose whole purpose is its first training step: LeNet-5, 64 images.

``python -m apps.bench.against.first_step CONTESTANT THREADS``, timed from outside by
study_start.py.
"""

from __future__ import annotations

import sys

import numpy as np

from .sides import CONTESTANTS


def main(contestant: str, threads: int) -> None:
    """One step; says so."""
    side = CONTESTANTS[contestant](threads)
    images = np.zeros((64, 1, 32, 32), np.float32)
    labels = np.arange(64) % 10
    side.training_step(side.model("lenet5"), side.images(images), side.tensor(labels))()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
