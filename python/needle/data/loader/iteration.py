"""A running epoch: tickets go to the engine, and batches are delivered in the order of the epoch.

sampling/epoch_order.py lists the tickets, an engine prepares the batches, this file turns them
into Tensors, and state.py counts those that were delivered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contexts import finalize
from ...errors import LoaderTimeout, WorkerError
from ..batching.collate import Slice
from ..batching.pipeline import Pipeline
from ..samples.pytree import tagged_sample
from ..samples.random_source import BATCH_STREAM, keyed
from ..samples.tensor_hook import to_tensors
from ..samples.ticket import SERIALS, Ticket
from ..samples.timing import Clock, add_seconds
from ..sampling.epoch_order import EpochTickets
from ..workers.engine import Completed, Engine
from .engine_holder import EngineHolder
from .state import Progress
from .statistics import Stats


@dataclass(frozen=True)
class Delivery:
    """The last steps for a batch: remaining sample transforms, batch transforms, mask, Tensors.

    owned: nothing else references the arrays of a batch, so Tensors may take over their memory.
    """

    pipeline: Pipeline
    batch_transforms: Sequence[Callable[..., Any]]
    device: Any
    owned: bool

    def __call__(self, made: Slice, ticket: Ticket, clock: Clock) -> Any:
        """Return the finished batch."""
        stays = not self.batch_transforms
        batch = self.pipeline.finish(made, ticket, clock, stays=stays)
        if self.batch_transforms:
            with clock.measure("augment"):
                batch = transformed(batch, self.batch_transforms, ticket)
        if ticket.valid is not None:
            batch = _with_mask(batch, ticket.valid)
        with clock.measure("deliver"):
            return to_tensors(batch, self.device, self.owned)


class LoaderIterator:
    """An iterator over the batches of one epoch; threads that share it get different batches.

    A loader has one engine. A second iterator takes over the engine, and the first one takes it
    back at its next ``next()``: both yield all their batches, but prefetched batches are prepared
    again. (A server's engine is not given back; see ``GlobalDataLoader``.) Dropping an iterator
    cancels its submitted tickets.

    tickets: the batches to submit. progress: counts the delivered batches. holder: owns the
    engine. delivery: finishes a batch. timeout: seconds to wait for a batch.
    """

    def __init__(
        self,
        tickets: EpochTickets,
        progress: Progress,
        holder: EngineHolder,
        delivery: Delivery,
        stats: Stats,
        timeout: float | None,
    ) -> None:
        self._tickets, self._progress, self._holder = tickets, progress, holder
        self._delivery, self._stats, self._timeout = delivery, stats, timeout
        # identifies this iterator to the engine holder without keeping the iterator alive
        self._key = object()
        # tickets taken from the order but not delivered, keyed by place
        self._waiting: dict[int, Ticket] = {}
        self._ready: dict[int, Completed] = {}  # Completed batches, keyed by place.
        self._answer: Completed | None = None  # The batch to deliver next, when it is complete.
        self._failed: Ticket | None = None
        finalize(self, self._holder.release, self._key).atexit = False

    @property
    def epoch(self) -> int:
        """The number of this epoch."""
        return self._progress.epoch

    @property
    def position(self) -> int:
        """The number of batches that have been delivered."""
        return self._progress.position

    @property
    def finished(self) -> bool:
        """True once the last batch has been delivered and StopIteration raised."""
        return self._progress.finished

    def __iter__(self) -> LoaderIterator:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(
            "DataLoader: a running epoch cannot be copied or pickled; copy the loader, or save "
            "loader.state_dict()"
        )

    def __next__(self) -> Any:
        with self._holder.locked():
            batch = _END if self._progress.finished else self._next()
        if batch is _END:
            raise StopIteration
        return batch

    def _next(self) -> Any:
        """Return the next batch, or ``_END`` after the last."""
        engine = self._take_engine()
        if self._failed is not None:  # after an error, the epoch continues with the next batch
            self._progress.mark(self._failed)
            self._failed = None
        batch = _NONE
        while batch is _NONE:
            if self._answer is None:
                self._submit_ahead(engine)
                if not self._waiting:
                    self._progress.finished = True
                    self._holder.release(self._key)
                    return _END
                self._await_answer(engine)
            assert self._answer is not None
            batch = self._delivered(engine, self._answer)
        return batch

    def _delivered(self, engine: Engine, answer: Completed) -> Any:
        """Return the batch of an answer, or ``_NONE`` if it has none."""
        ticket, stats = answer.ticket, self._stats
        if answer.error is not None:
            self._failed, self._answer = ticket, None
            error = _raisable(answer.error, self._delivery.pipeline.dataset)
            try:
                raise error
            finally:  # so that the traceback does not keep this iterator alive
                del answer, error
        complete = self._tickets.answered(ticket, answer.samples)
        clock, batch = Clock(), _NONE
        if complete and engine.capacity > 1:
            self._submit_ahead(engine)  # keeps the workers busy while the program uses the batch
        try:
            if complete:
                batch = self._delivery(answer.made, ticket, clock)
                stats.samples, stats.batches = stats.samples + answer.samples, stats.batches + 1
                add_seconds(stats.seconds, answer.seconds)
                add_seconds(stats.seconds, clock.seconds)
            stats.skipped += max(0, len(ticket.indices) - answer.samples)
            self._progress.mark(ticket)
            self._answer = None
        except KeyboardInterrupt:  # the next call prepares the batch again
            self._waiting = {ticket.place: ticket, **self._waiting}
            self._answer = None
            self._holder.forget(self._key)
            raise
        except BaseException as error:
            self._failed, self._answer = ticket, None
            if isinstance(error, StopIteration):
                raise _raisable(error, self._delivery.pipeline.dataset) from error
            raise
        return batch

    def _take_engine(self) -> Engine:
        """Return the engine, after resubmitting the tickets that another iterator has cancelled."""
        engine, taken = self._holder.taken_by(self._key)
        for ticket in list(self._waiting.values()):
            new = ticket.serial < 0  # an interrupt came before the ticket was submitted
            if (taken or new) and ticket.place not in self._ready:
                self._submit(engine, ticket)
        return engine

    def _submit_ahead(self, engine: Engine) -> None:
        """Submit tickets until ``engine.capacity`` of them are in flight or the order has ended."""
        ### BEGIN YOUR SOLUTION [loader-loop]
        while len(self._waiting) < engine.capacity:
            ticket = self._tickets.next()
            if ticket is None:
                return
            self._waiting[ticket.place] = ticket
            self._submit(engine, ticket)
        ### END YOUR SOLUTION

    def _submit(self, engine: Engine, ticket: Ticket) -> None:
        ticket = ticket._replace(serial=next(SERIALS))
        self._waiting[ticket.place] = ticket
        try:
            engine.submit(ticket)
        except BaseException as error:
            self._lost(engine, error)
            raise

    def _await_answer(self, engine: Engine) -> None:
        """Wait for the batch that is to be delivered next, and set it as the answer."""
        started = time.perf_counter()
        while (place := self._next_out()) is None:
            self._collect(engine, started)
        if engine.capacity > 1:
            waited = {"wait_data": time.perf_counter() - started}
            add_seconds(self._stats.seconds, waited)
        # A Ctrl-C can arrive in any Python call, so there must be none in these three statements.
        self._answer = self._ready[place]
        del self._waiting[place]
        del self._ready[place]

    def _next_out(self) -> int | None:
        """Return the place of the next batch to deliver, or None if that batch is not ready."""
        ### BEGIN YOUR SOLUTION [loader-loop]
        place = next(iter(self._waiting))
        return place if place in self._ready else None
        ### END YOUR SOLUTION

    def _collect(self, engine: Engine, started: float) -> None:
        timeout = self._timeout
        left = None if timeout is None else timeout - (time.perf_counter() - started)
        try:
            answer = engine.collect(None if left is None else max(left, 0.0))
        except LoaderTimeout as error:
            raise LoaderTimeout(
                f"DataLoader: batch {next(iter(self._waiting))} of epoch {self.epoch} was not "
                f"ready within timeout={timeout} s; raise timeout, or see "
                "needle.data.doctor(loader)"
            ) from error
        except BaseException as error:
            self._lost(engine, error)
            raise
        self._ready[answer.ticket.place] = answer

    def _lost(self, engine: Engine, error: BaseException) -> None:
        """Make the next call resubmit all tickets, since the engine may have lost some."""
        self._holder.forget(self._key)
        if isinstance(error, WorkerError) and self._holder.engine is engine:
            self._holder.close()  # the next call starts new workers


_END, _NONE = object(), object()


def _raisable(error: BaseException, dataset: Any) -> BaseException:
    """Return the error with its sample's index in the traceback (from Python 3.11 on).

    StopIteration would end the loop that calls ``next``, so it becomes the cause of a RuntimeError.
    """
    index = tagged_sample(error)
    if isinstance(error, StopIteration):
        made = RuntimeError("DataLoader: a sample, transform or collate raised StopIteration")
        made.__cause__, error = error, made
    with suppress(Exception):  # a user's exception class may reject notes
        if index is not None and hasattr(error, "add_note") and not hasattr(error, "__notes__"):
            error.add_note(f"(at sample {index} of {type(dataset).__name__})")
    return error


def transformed(batch: Any, transforms: Sequence[Callable[..., Any]], ticket: Ticket) -> Any:
    """Apply the batch transforms, with draws keyed by the batch's first sample."""
    seed = ticket.seed
    with nullcontext() if seed is None else keyed(seed, ticket.epoch, ticket.first) as draws:
        if draws is not None:
            draws.seek(BATCH_STREAM // 2)  # the first sample has drawn from the preceding streams
        for transform in transforms:
            batch = transform(batch)
    return batch


def _with_mask(batch: Any, valid: npt.NDArray[np.bool_]) -> Any:
    """Return the batch with bool ``(n,)`` as its last field, or as field "valid" of a dict."""
    if isinstance(batch, Mapping):
        return {**batch, "valid": valid}
    if type(batch) in (tuple, list):
        return type(batch)([*batch, valid])
    return (batch, valid)
