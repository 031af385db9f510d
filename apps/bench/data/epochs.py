"""Measure loaders by timing whole epochs.

The labels of every batch are summed and a pixel of each image is read, also in timed runs, so that
no loader gains time by returning data that was never produced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from apps.bench.harness.case import Numbers, Subject


class Epochs(Subject):
    """A measurement of a loader.

    build: returns an iterable whose iteration is one epoch of (images, labels) batches. parts:
    converts a batch to two NumPy arrays. least: the minimum duration of a timed run in seconds;
    short epochs are repeated.
    """

    def __init__(
        self,
        build: Callable[[], Iterable[Any]],
        parts: Callable[[Any], tuple[Any, Any]],
        least: float,
    ) -> None:
        self.parts, self.least, self.loader = parts, least, build()
        self.whole = self._epoch()  # starts the workers

    def run(self) -> Numbers:
        """Return samples per second; RuntimeError if an epoch lacks samples or repeats some."""
        seconds, samples = 0.0, 0
        while seconds < self.least:
            started = time.perf_counter()
            seen = self._epoch()
            seconds += time.perf_counter() - started
            samples += seen[0]
            if seen != self.whole:
                raise RuntimeError(f"an epoch had {seen} samples and labels, not {self.whole}")
        return {"rate": samples / seconds}

    def close(self) -> None:
        """Stop the loader's workers."""
        close = getattr(self.loader, "close", None)
        if close is not None:
            close()

    def _epoch(self) -> tuple[int, int]:
        """Return the number of samples and the sum of their labels."""
        samples = labels = 0
        for batch in self.loader:
            images, their_labels = self.parts(batch)
            (images[:, 0, 0, 0] if images.ndim == 4 else images[:, 0]).sum()
            samples, labels = samples + len(their_labels), labels + int(np.sum(their_labels))
        return samples, labels
