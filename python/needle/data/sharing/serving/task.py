"""The tasks of a server and the samples that they wait for or hold.

A task has a number of credits, in batches: the server draws ahead for it until they are used up.
The planner chooses the indices, feed.py prepares the samples, connection.py sends the batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ...samples.ticket import Indices
from .reading import Sample


class Task:
    """The epochs of one loader: batches of ``batch_size`` out of ``indices`` (rising)."""

    def __init__(
        self, name: str, indices: Indices, *, batch_size: int, drop_last: bool, credits: int
    ) -> None:
        self.name, self.indices = name, indices
        self.batch_size, self.drop_last, self.credits = batch_size, drop_last, credits
        self.epoch, self.generation = 0, -1
        self.left: Indices = indices[:0]
        self.delivered = self.hits = 0
        self.notices: deque[str] = deque()  # to be sent: samples that delay the task
        self._granted = self._sent = 0  # batches of this generation
        self._drawn = self._to_draw = 0  # samples of this generation
        self._queue: deque[Sample] = deque()  # drawn and not sent, in the order of the draws
        self._held: dict[int, list[Sample]] = {}  # of batches that were sent, by number
        self._first = self._latest = time.monotonic()

    def begin(self, epoch: int, generation: int, done: npt.NDArray[np.bool_]) -> None:
        """Start ``epoch`` without the indices at ``done``, which were delivered before."""
        self.epoch, self.generation = epoch, generation
        self.left = self.indices[~done]
        self._to_draw = len(self.left)
        if self.drop_last:
            self._to_draw = max(0, self._to_draw - len(self.indices) % self.batch_size)
        self._granted, self._sent, self._drawn = self.credits, 0, 0

    def drop(self) -> list[Sample]:
        """Forget the epoch and return the samples that were held, for the caller to release."""
        held = [*self._queue, *(sample for batch in self._held.values() for sample in batch)]
        self._queue.clear()
        self._held.clear()
        self._to_draw = self._drawn
        return held

    # ---- credits

    @property
    def most_ahead(self) -> int:
        """The most samples that may be drawn and not used."""
        return self.credits * self.batch_size

    @property
    def room(self) -> int:
        """The number of samples that may be drawn for the task now."""
        if len(self._held) >= 2 * self.credits:  # it takes batches and never releases them
            return 0
        return min(self._unused, self._to_draw - self._drawn)

    @property
    def urgent(self) -> bool:
        """True if half of the credits are used up, so that the task should get samples soon.

        Until then it waits for other tasks to have room too, since a common round shares reads.
        """
        return self.room > 0 and 2 * self._unused > self.most_ahead

    def grant(self, batches: int) -> None:
        """Return the credits of batches that the loader has used."""
        self._granted = min(self._granted + batches, self._sent + self.credits)

    def take(self, sample: Sample, *, hit: bool) -> None:
        """Add a drawn sample. hit: it needed no read of its own."""
        self._queue.append(sample)
        self._drawn += 1
        self.hits += hit

    @property
    def _unused(self) -> int:
        return self._granted * self.batch_size - self._drawn

    def waits_for(self, sample: Sample) -> bool:
        """Return True if the sample was drawn and not sent."""
        return any(each is sample for each in self._queue)

    # ---- batches

    def ready_batches(self) -> Iterator[tuple[int, list[Sample]]]:
        """Yield the batches that can be sent, with their numbers; they are held until released."""
        while self._queue:
            sent = self._drawn - len(self._queue)
            size = min(self.batch_size, self._to_draw - sent)
            batch = list(islice(self._queue, size))
            if len(batch) < size or not all(sample.ready for sample in batch):
                return
            for _ in batch:
                self._queue.popleft()
            number, self._sent = self._sent, self._sent + 1
            self._held[number] = batch
            self.delivered += size
            self._latest = time.monotonic()
            yield number, batch

    def release(self, number: int) -> list[Sample]:
        """Return the samples of a batch that the loader has released; none if it is unknown."""
        return self._held.pop(number, [])

    def status(self) -> dict[str, Any]:
        """Return the state of the task as JSON values."""
        seconds = max(self._latest - self._first, 1e-9)
        return {
            "task": self.name,
            "epoch": self.epoch,
            "size": len(self.indices),
            "drawn": len(self.indices) - len(self.left) + self._drawn,
            "waiting": len(self._queue),
            "held": sum(map(len, self._held.values())),
            "credits": max(0, self._granted - self._sent),
            "delivered": self.delivered,
            "hits": self.hits,
            "rate": self.delivered / seconds if self.delivered else 0.0,
        }
