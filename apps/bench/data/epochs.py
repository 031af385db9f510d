"""Loaders as subjects: the first batch and epoch from construction, then whole epochs; their table.

Also in timed runs the labels of every batch are summed and a pixel of each image is read, so that
no loader gains time by returning data that was never produced.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from apps.bench.harness.case import Numbers, Subject
from apps.bench.harness.process_tree import cpu_seconds
from apps.bench.harness.target import short, spread, table
from apps.bench.harness.turns import Result

LEAST_SECONDS = 0.5  # least duration of a timed run; short epochs are repeated
STRIDE = 7  # the mean uses every seventh pixel


class Epochs(Subject):
    """A loader as a subject.

    build: returns an iterable whose iteration is one epoch of (images, labels) batches. parts:
    converts a batch to two NumPy arrays. before: called before every epoch, untimed.
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
        """Return samples per second, and CPU seconds of all processes per thousand samples."""
        if self.before is not None:
            self.before()
        if witness:
            return self._witness()
        cpu, seconds, samples, labels = cpu_seconds(os.getpid()), 0.0, 0, 0
        while seconds < self.least:
            if samples and self.before is not None:
                break  # ``before`` is not timed, so run only one epoch
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
        """Stop the loader's workers."""
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


HEAD = (
    "samples/s, median (range)",
    "from construction",
    "CPU s per 1000",
    "first batch, s",
    "peak memory, MiB",
)


def rate_table(result: Result, cases: Iterable[str]) -> list[str]:
    """Return a table with a row for each measured case."""
    rows = []
    for name in cases:
        outcome = result.outcomes.get(name)
        if outcome is None or "rate" not in outcome.values:
            continue
        rows.append(
            [
                name,
                spread(outcome.median("rate"), outcome.span("rate")),
                short(outcome.median("rate_from_construction")),
                short(outcome.median("cpu")),
                short(outcome.median("first_batch")),
                short(outcome.median("pss") / 2**20),
            ]
        )
    return table(("", *HEAD), rows)
