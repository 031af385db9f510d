"""A task as the server sees it: what it may still be given, what is on the way, what it holds.

Credits are batches; the server draws ahead for a task as far as they reach. Which index comes next
is the planner's, how a sample gets ready feed.py's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from .sample import Sample

Indices = npt.NDArray[np.int64]


class Task:
    """One loader's epoch after epoch, in batches of ``batch_size`` of ``indices`` (rising)."""

    def __init__(
        self, name: str, indices: Indices, *, batch_size: int, drop_last: bool, credits: int
    ) -> None:
        self.name, self.indices = name, indices
        self.batch_size, self.drop_last, self.credits = batch_size, drop_last, credits
        self.epoch, self.generation = 0, -1
        self.left: Indices = indices[:0]
        self.delivered = self.hits = self.batches = 0
        self._granted = 0  # batches that may be sent in this generation
        self._sent = 0
        self._drawn = self._to_draw = 0
        self._line: deque[Sample] = deque()  # drawn, not sent, in the order of the draws
        self._held: dict[int, list[Sample]] = {}  # of batches sent, by number
        self._ended = True
        self._first = self._latest = time.monotonic()

    # ---- epochs

    def begin(self, epoch: int, generation: int, done: npt.NDArray[np.bool_]) -> None:
        """Starts ``epoch``, of which the indices at ``done`` have been delivered before."""
        self.epoch, self.generation = epoch, generation
        self.left = self.indices[~done]
        to_draw = len(self.left)
        if self.drop_last:
            to_draw = max(0, to_draw - len(self.indices) % self.batch_size)
        self._granted, self._sent, self._drawn, self._to_draw = self.credits, 0, 0, to_draw
        self._ended = False

    def drop(self) -> list[Sample]:
        """Forgets the epoch; what was held, which is to be released."""
        held = [*self._line, *(sample for batch in self._held.values() for sample in batch)]
        self._line.clear()
        self._held.clear()
        self._ended = True
        return held

    # ---- how far ahead it may be

    @property
    def ahead(self) -> int:
        """How many samples it may be ahead at most."""
        return self.credits * self.batch_size

    @property
    def room(self) -> int:
        """How many samples may be drawn for it now."""
        if self._ended or len(self._held) >= 2 * self.credits:  # it takes and never releases
            return 0
        return min(self._unused, self._to_draw - self._drawn)

    @property
    def urgent(self) -> bool:
        """Whether half of what it may be ahead is used up, so that it should not wait for others.

        As long as it is not, it waits for a round with them, which is one reading for all.
        """
        return self.room > 0 and 2 * self._unused > self.ahead

    def grant(self, batches: int) -> None:
        """The loader has used so many batches: as many more may come."""
        self._granted = min(self._granted + batches, self._sent + self.credits)

    def take(self, sample: Sample, *, hit: bool) -> None:
        """A sample has been drawn for it; hit: no reading was needed for that."""
        self._line.append(sample)
        self._drawn += 1
        self.hits += hit

    # ---- what can be sent

    def ready(self) -> Iterator[tuple[int, list[Sample]]]:
        """Batches that can be sent now, numbered; they are held until released."""
        while self._line:
            size = min(self.batch_size, self._to_draw - self._sent_samples)
            part = list(islice(self._line, size))
            if len(part) < size or not all(sample.ready for sample in part):
                return
            for _ in part:
                self._line.popleft()
            number, self._sent = self._sent, self._sent + 1
            self._held[number] = part
            self.batches += 1
            self.delivered += size
            self._latest = time.monotonic()
            yield number, part

    def end_to_tell(self) -> bool:
        """Whether the last batch has been sent and nobody was told yet; once."""
        if self._ended or self._drawn < self._to_draw or self._line:
            return False
        self._ended = True
        return True

    def release(self, number: int) -> list[Sample]:
        """What a batch held; nothing for one that is not there."""
        return self._held.pop(number, [])

    @property
    def _unused(self) -> int:
        return self._granted * self.batch_size - self._drawn

    @property
    def _sent_samples(self) -> int:
        return self._drawn - len(self._line)

    # ---- what is to be told

    def state(self) -> dict[str, Any]:
        """For people and programs that ask."""
        seconds = max(self._latest - self._first, 1e-9)
        return {
            "task": self.name,
            "epoch": self.epoch,
            "size": len(self.indices),
            "drawn": len(self.indices) - len(self.left) + self._drawn,
            "waiting": len(self._line),
            "held": sum(map(len, self._held.values())),
            "credits": max(0, self._granted - self._sent),
            "delivered": self.delivered,
            "hits": self.hits,
            "rate": self.delivered / seconds if self.delivered else 0.0,
        }
