"""The interface of an engine: it takes tickets and hands back prepared batches, in any order.

The loader decides which tickets to submit and in which order the batches leave it;
batching/pipeline.py prepares a batch; an engine decides where and when that happens. One consumer
at a time calls an engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from ...errors import WorkerError
from ..samples.pytree import Slice
from ..samples.ticket import Ticket


@dataclass
class Completed:
    """The answer to a ticket, or to a part of one: the samples, or the ``error`` instead of them.

    ticket: the one that was submitted, or the same with the indices that an engine has chosen;
    ``NO_TICKET`` from a worker. made: the samples; of a stream that has ended fewer than the ticket
    asked for. seconds: by stage, summed over all threads and processes.
    """

    ticket: Ticket
    made: Slice = field(default_factory=Slice)
    error: BaseException | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def batch(self) -> Any:
        """The batch, NumPy arrays in tuples, lists and dicts; None for no samples."""
        return self.made.batch()

    @property
    def samples(self) -> int:
        """The number of samples in the batch."""
        return self.made.samples


class Engine(ABC):
    """Prepares batches by one ``Pipeline``: in the calling thread, in threads or in processes.

    A batch belongs to the caller for as long as anything of it is referenced; nothing overwrites
    it.
    """

    name: str
    capacity: int
    """The number of batches that may be submitted and not yet collected; at least 1."""

    def start(self) -> None:
        """Start the workers now, which takes a while; otherwise the first ``submit`` does."""

    @abstractmethod
    def submit(self, ticket: Ticket) -> None:
        """Ask for a batch without waiting for it. At most ``capacity`` are under way."""

    @abstractmethod
    def collect(self, timeout: float | None = None) -> Completed:
        """Return the next batch that is complete, in any order; wait for one.

        Raises LoaderTimeout after ``timeout`` seconds (0: do not wait), WorkerError if workers
        cannot be kept running. An error of the data set or of a transform is returned in
        ``Completed.error``.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Forget all submitted tickets: none of them is collected afterwards."""

    @abstractmethod
    def close(self) -> None:
        """End threads and processes and free shared memory; a second call does nothing.

        Any thread may call it. A ``collect`` that waits in another thread raises WorkerError, and
        so does every later call.
        """


def closed_meanwhile() -> WorkerError:
    """Return the error of a call during or after which another thread has closed the engine."""
    return WorkerError(
        "DataLoader: the loader was closed while a batch was waited for; call close() after the "
        "last next(), or begin a new epoch"
    )
