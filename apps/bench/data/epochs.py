"""Loaders as subjects: whole epochs are timed.

Also in timed runs the labels of every batch are summed and a pixel of each image is read, so that
no loader gains time by returning data that was never produced.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from apps.bench.harness.case import Numbers, Subject

STRIDE = 7  # the mean uses every seventh pixel


class Epochs(Subject):
    """A loader as a subject.

    build: returns an iterable whose iteration is one epoch of (images, labels) batches. parts:
    converts a batch to two NumPy arrays. least: seconds that a timed run lasts, which repeats short
    epochs.
    """

    def __init__(
        self,
        build: Callable[[], Iterable[Any]],
        parts: Callable[[Any], tuple[Any, Any]],
        least: float,
    ) -> None:
        self.parts, self.least, self.loader = parts, least, build()
        self._drain()  # the first epoch starts the workers

    def run(self, witness: bool) -> Numbers:
        """Return samples per second."""
        if witness:
            return self._witness()
        seconds, samples, labels = 0.0, 0, 0
        while seconds < self.least:
            started = time.perf_counter()
            more, their_labels = self._drain()
            seconds += time.perf_counter() - started
            samples, labels = samples + more, labels + their_labels
        return {"rate": samples / seconds, "samples": samples, "labels": labels}

    def close(self) -> None:
        """Stop the loader's workers."""
        close = getattr(self.loader, "close", None)
        if close is not None:
            close()

    def _drain(self) -> tuple[int, int]:
        samples = labels = 0
        for batch in self.loader:
            images, their_labels = self.parts(batch)
            (images[:, 0, 0, 0] if images.ndim == 4 else images[:, 0]).sum()
            samples, labels = samples + len(their_labels), labels + int(np.sum(their_labels))
        return samples, labels

    def _witness(self) -> Numbers:
        """Return sample count, label sum, checksum of all bytes, mean and deviation of an epoch."""
        samples = labels = code = values = 0
        total = squares = 0.0
        for batch in self.loader:
            images, their_labels = self.parts(batch)
            pixels = np.ascontiguousarray(images)
            code = zlib.crc32(pixels.view(np.uint8).reshape(-1), code)
            some = pixels.reshape(-1)[::STRIDE].astype(np.float64)
            total, squares = total + float(some.sum()), squares + float(some @ some)
            values += some.size
            samples, labels = samples + len(their_labels), labels + int(np.sum(their_labels))
        mean = total / values
        spread = max(squares / values - mean * mean, 0.0) ** 0.5
        return {
            "samples": samples,
            "labels": labels,
            "bytes": code,
            "mean": mean,
            "deviation": spread,
        }
