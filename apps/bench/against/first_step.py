"""A program that does one training step of LeNet-5 with 64 images.

``python -m apps.bench.against.first_step CONTESTANT THREADS``; study_start.py times it.
"""

from __future__ import annotations

import sys

import numpy as np

from .sides import CONTESTANTS


def main(contestant: str, threads: int) -> None:
    """Do one step and print a line."""
    side = CONTESTANTS[contestant](threads)
    images = np.zeros((64, 1, 32, 32), np.float32)
    labels = np.arange(64) % 10
    side.training_step(side.model("lenet5"), side.images(images), side.tensor(labels))()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
