"""Loaders as subjects: the first batch and epoch from construction, then whole epochs.

Every batch's labels are added up and a pixel of each image is read, also where time counts, so
that no loader gains by giving what was never made.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .case import Numbers, Subject
from .process_tree import cpu_seconds

LEAST_SECONDS = 0.5  # of a timed run; short epochs are repeated until it takes this long
STRIDE = 7  # one of so many pixels counts for the mean


class Epochs(Subject):
    """``build`` makes something whose iteration is one epoch of (images, labels) batches.

    parts: from a batch to the two as NumPy arrays.
    before: called before every epoch, its time not counted.
    """

    def __init__(
        self,
        build: Callable[[], Iterable[Any]],
        parts: Callable[[Any], tuple[Any, Any]],
        *,
        before: Callable[[], None] | None = None,
        least: float = LEAST_SECONDS,
    ) -> None:
        super().__init__()
        self.parts, self.before, self.least = parts, before, least
        if before is not None:
            before()
        started = time.perf_counter()
        self.loader = build()
        batches = iter(self.loader)
        samples, _ = self._look(next(batches))
        first = time.perf_counter() - started
        samples += self._drain(batches)[0]
        whole = time.perf_counter() - started
        self.first = {"first_batch": first, "rate_from_construction": samples / whole}

    def run(self, witness: bool) -> Numbers:
        """Samples a second, and CPU seconds of all processes for a thousand of them."""
        if self.before is not None:
            self.before()
        if witness:
            return self._witness()
        cpu, seconds, samples, labels = cpu_seconds(os.getpid()), 0.0, 0, 0
        while seconds < self.least:
            if samples and self.before is not None:
                break  # what comes before an epoch is not timed, so there is one
            started = time.perf_counter()
            more, their_labels = self._drain(iter(self.loader))
            seconds += time.perf_counter() - started
            samples, labels = samples + more, labels + their_labels
        used = cpu_seconds(os.getpid()) - cpu
        return {
            "rate": samples / seconds,
            "cpu": used / samples * 1000,
            "samples": samples,
            "labels": labels,
        }

    def close(self) -> None:
        """Ends the loader's workers."""
        close = getattr(self.loader, "close", None)
        if close is not None:
            close()

    def _look(self, batch: Any) -> tuple[int, int]:
        images, labels = self.parts(batch)
        (images[:, 0, 0, 0] if images.ndim == 4 else images[:, 0]).sum()
        return len(labels), int(np.sum(labels))

    def _drain(self, batches: Iterable[Any]) -> tuple[int, int]:
        samples = labels = 0
        for batch in batches:
            more, their_labels = self._look(batch)
            samples, labels = samples + more, labels + their_labels
        return samples, labels

    def _witness(self) -> Numbers:
        """One epoch: how many, the labels' sum, a checksum of all bytes, mean and deviation."""
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
