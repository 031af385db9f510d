"""The interface of an engine, which accepts tickets and returns prepared batches in any order.

The loader decides which tickets to submit and in which order it delivers the batches;
batching/pipeline.py prepares a batch; an engine decides where and when that happens. Only one
consumer at a time may call an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from ...errors import WorkerError
from ..batching.collate import Slice
from ..batching.pipeline import Pipeline
from ..samples.ticket import Ticket


@dataclass
class Completed:
    """The answer to a ticket, or to a part of one: either its samples or an ``error``.

    ticket: the submitted ticket, possibly with indices that the engine has chosen; ``NO_TICKET``
    in the answer of a worker. made: the samples, fewer than requested if a stream has ended.
    seconds: the seconds of each stage, summed over all threads and processes.
    """

    ticket: Ticket
    made: Slice = field(default_factory=Slice)
    error: BaseException | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def batch(self) -> Any:
        """The batch as NumPy arrays in tuples, lists and dicts; see ``Slice.batch``."""
        return self.made.batch()

    @property
    def samples(self) -> int:
        """The number of samples in the batch."""
        return self.made.samples


class Engine(ABC):
    """An object that prepares batches by one ``Pipeline``, in this thread, threads or processes.

    The memory of a batch is not overwritten as long as the caller holds a reference to any part of
    it.
    """

    name: str
    capacity: int
    """The maximum number of batches that are submitted but not yet collected; at least 1."""

    @abstractmethod
    def renew(self, pipeline: Pipeline) -> bool:
        """Prepare further batches by ``pipeline``; return True if that discarded all tickets."""

    def start(self) -> None:
        """Start the workers now, which is slow; otherwise the first ``submit`` starts them."""

    @abstractmethod
    def submit(self, ticket: Ticket) -> None:
        """Request a batch without waiting for it; at most ``capacity`` batches may be in flight."""

    @abstractmethod
    def collect(self, timeout: float | None = None) -> Completed:
        """Wait for any batch to complete and return it; the order is arbitrary.

        Raises LoaderTimeout after ``timeout`` seconds (0: do not wait), and WorkerError if the
        workers cannot be kept running. An error of the data set or of a transform is returned in
        ``Completed.error``.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Discard all submitted tickets; none of them is collected afterwards."""

    @abstractmethod
    def close(self) -> None:
        """Stop all threads and processes and free shared memory; a second call is a no-op.

        Any thread may call this. A ``collect`` that waits in another thread then raises
        WorkerError, and so does every later call of the engine.
        """


def closed_meanwhile() -> WorkerError:
    """Return the error for a call to an engine that was closed before or during the call."""
    return WorkerError(
        "DataLoader: the loader was closed while a batch was waited for; call close() after the "
        "last next(), or begin a new epoch"
    )
