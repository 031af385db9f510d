"""What an engine is: it takes requests for batches and hands them back prepared, in any order.

The loader decides what to ask for and in which order the answers leave it; how a batch is made is
pipeline.py's; an engine decides only where and when. One consumer, in one thread, calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import LoaderTimeout
from ..samples.ticket import IndexRun

STAGES = ("read", "decode", "augment", "collate", "wait_slot", "wait_data")
"""The stages whose time and samples a loader counts."""

AT_ONCE = -(1 << 63)
"""What ``Pipeline.prepare`` calls ``progress`` with where it reads a slice's samples together."""


@dataclass(slots=True)
class Request:
    """One batch to prepare.

    serial: its number in the engine's life, never used twice. seed None: random numbers from the
    global stream, which only the inline engine offers. indices: int64 ``(n,)`` of a map dataset,
    in the batch's order; for a stream None, and ``count`` samples of ``shard`` from ``start`` on.
    run: has ``indices`` as its rows from ``row`` on, where it is known what comes after them.
    """

    serial: int
    seed: int | None
    epoch: int
    indices: npt.NDArray[np.int64] | None
    shard: int = 0
    start: int = 0
    count: int = 0
    run: IndexRun | None = None
    row: int = 0


@dataclass
class Completed:
    """The answer to one request: ``batch`` (NumPy arrays in tuples, lists, dicts) or ``error``.

    A stream that has ended gives ``samples`` below the request's count; ``batch`` is None for 0.
    seconds: by stage, summed over everyone who worked on it.
    """

    serial: int
    batch: Any = None
    error: BaseException | None = None
    samples: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


class Engine(ABC):
    """Prepares batches by one ``Pipeline``; inline, in threads or in processes.

    A batch is the caller's for as long as anything of it is referenced; nothing overwrites it.
    """

    name: str
    capacity: int
    """The batches that may be asked for and not yet collected; at least 1."""

    def start(self) -> None:
        """Begins workers now, which takes a while; the first ``submit`` would."""

    @abstractmethod
    def submit(self, request: Request) -> None:
        """Asks for a batch; does not wait for it. At most ``capacity`` are under way."""

    @abstractmethod
    def collect(self, timeout: float | None = None) -> Completed:
        """The next batch that is complete, whichever it is; waits for one.

        Raises LoaderTimeout after ``timeout`` seconds (0: takes what is there), WorkerError for a
        worker that died and is not replaced. A failure of the data set or a transform is in
        ``Completed.error``.
        """

    def take(self) -> Completed | None:
        """The next batch that is complete, as ``collect``; None at once where there is none."""
        try:
            return self.collect(0)
        except LoaderTimeout:
            return None

    def descriptors(self) -> list[int]:
        """Those of which one is readable when ``collect(0)`` may have something new.

        For who waits for other things as well. None where nothing is prepared meanwhile.
        """
        return []

    @abstractmethod
    def cancel(self) -> None:
        """Forgets what was asked for: nothing submitted before is ever collected after."""

    @abstractmethod
    def close(self) -> None:
        """Ends threads and processes and frees what they shared; twice is once."""
