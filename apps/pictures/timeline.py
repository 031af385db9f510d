"""Draw timelines of a loader: when each worker read samples, and when the program waited.

The samples of the data set ``Slow`` record which worker read them and when; ``recorded`` iterates
over a loader of it with a simulated training step.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle.data import DataLoader, Dataset

from .canvas import Picture, picture

COLOURS = {"waiting": "#ee6677", "computing": "#228833", "reading": "#4477aa"}


@dataclass(frozen=True)
class Span:
    """Work of one ``kind`` by the program or a worker, from ``start`` to ``end`` in seconds."""

    who: str
    kind: str
    start: float
    end: float


class Slow(Dataset):
    """``count`` samples that take ``seconds`` each: int64 (process, thread, start, end) in µs."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__()
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        start = time.monotonic()
        time.sleep(self.seconds)
        times = [round(1e6 * t) for t in (start, time.monotonic())]
        return np.array([os.getpid(), threading.get_ident() % 2**31, *times], dtype=np.int64)


def recorded(loader: DataLoader, computing: float) -> list[Span]:
    """Return the spans of the program and all workers in one epoch of a loader over ``Slow``.

    computing: seconds of simulated work of the program on each batch.
    """
    spans: list[Span] = []
    names: dict[tuple[int, int], str] = {}
    before = time.monotonic()
    for batch in loader:
        arrived = time.monotonic()
        spans.append(Span("program", "waiting", before, arrived))
        for process, thread, start, end in batch.numpy().tolist():
            name = names.setdefault((process, thread), f"worker {len(names) + 1}")
            name = name if loader.num_workers else "program"
            spans.append(Span(name, "reading", start / 1e6, end / 1e6))
        time.sleep(computing)
        before = time.monotonic()
        spans.append(Span("program", "computing", arrived, before))
    return spans


def draw_timeline(spans: list[Span], title: str = "") -> Picture:
    """Draw a row for the program and one for each worker; time runs to the right."""
    people = sorted({span.who for span in spans})
    zero = min(span.start for span in spans)
    figure, axes = picture(10, 0.8 + 0.4 * len(people))
    for kind, colour in COLOURS.items():
        for row, who in enumerate(people):
            bars = [
                (span.start - zero, span.end - span.start)
                for span in spans
                if (span.who, span.kind) == (who, kind)
            ]
            label = kind if bars and kind not in axes.get_legend_handles_labels()[1] else None
            axes.broken_barh(bars, (row - 0.4, 0.8), color=colour, label=label, edgecolor="white")
    axes.set_yticks(range(len(people)), people)
    axes.set_xlabel("seconds")
    axes.set_title(title, fontsize=10)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
