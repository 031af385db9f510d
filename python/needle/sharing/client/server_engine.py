"""The engine and the order of a ``GlobalDataLoader``, which gets its batches from a server.

A ticket names the position and size of a batch. The server decides which samples the batch has, so
the progress of an epoch is one bit per sample, and the engine's answers carry the indices that were
delivered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contexts import finalize
from ...data.batching.collate import Slice
from ...data.batching.pipeline import Pipeline
from ...data.loader.state import Progress
from ...data.samples.pytree import LEAF, Structure, tag_sample
from ...data.samples.random_source import keyed_permutation
from ...data.samples.ticket import Indices, Ticket
from ...data.sampling import batch_count
from ...data.sampling.epoch_order import EpochOrder, EpochTickets
from ...data.workers.engine import Completed, Engine
from ...data.workers.inline import InlineEngine
from ...errors import DataError, WorkerError
from ..wire.protocol import Connector
from .assembly import Assembler
from .joining import ServerAddress
from .session import ServedBatch, Session

CANNOT_SERVE = (WorkerError, TypeError)
"""Errors of a server that is lost, cannot be started, or cannot be given the data set."""


class SampleProgress(Progress):
    """Flags for the delivered samples of an epoch: bool ``(n,)``, in the order of ``indices``."""

    def __init__(
        self,
        epoch: int,
        indices: Indices,
        delivered: npt.NDArray[np.bool_] | None = None,
        position: int = 0,
    ) -> None:
        super().__init__(epoch, position)
        self.indices = indices
        self.delivered = np.zeros(len(indices), bool) if delivered is None else delivered

    def mark(self, ticket: Ticket) -> None:
        """Mark the samples of the ticket's batch as delivered."""
        self.delivered[np.searchsorted(self.indices, ticket.indices)] = True
        self.position += 1


class TaskOrder(EpochOrder):
    """The tickets of a task. The server chooses their samples from the ascending ``indices``."""

    def __init__(self, indices: Indices, batch_size: int, drop_last: bool) -> None:
        self.indices, self.batch_size, self.drop_last = indices, batch_size, drop_last

    def __len__(self) -> int:
        return batch_count(len(self.indices), self.batch_size, self.drop_last)

    def epoch(self, seed: int | None, epoch: int, start: int) -> EpochTickets:
        """Return tickets that contain indices, so that an epoch can be read without a server."""
        assert seed is not None, "a GlobalDataLoader always has a seed"
        order = self.local_rest(seed, SampleProgress(epoch, self.indices))
        size, end = self.batch_size, len(self)

        def tickets(place: int) -> Iterator[Ticket]:
            parts = ((i, order[i * size : (i + 1) * size]) for i in range(place, end))
            return (Ticket(i, seed, epoch, part) for i, part in parts)

        return EpochTickets(tickets, start)

    def rest(self, seed: int | None, progress: SampleProgress) -> EpochTickets:
        """Return the tickets for the remaining samples of the epoch."""
        left, first = self._deliverable(int((~progress.delivered).sum())), progress.position
        size, end = self.batch_size, first + batch_count(left, self.batch_size, False)

        def tickets(place: int) -> Iterator[Ticket]:
            for i in range(place, end):
                rest = left - (i - first) * size
                yield Ticket(i, seed, progress.epoch, size=min(rest, size))

        return EpochTickets(tickets, first)

    def local_rest(self, seed: int, progress: SampleProgress) -> Indices:
        """Return the epoch's remaining indices in random order, to be read in this process."""
        left = np.flatnonzero(~progress.delivered)
        order = left[keyed_permutation(len(left), seed, progress.epoch)]
        return self.indices[order[: self._deliverable(len(order))]]

    def _deliverable(self, left: int) -> int:
        return max(0, left - len(self.indices) % self.batch_size) if self.drop_last else left


class TaskConnection:
    """A task's session, opened on demand, and reopened with a new server if the last one was lost.

    values, raw: contents of the REGISTER frame. The session belongs to the engine that claimed it
    last.
    """

    def __init__(
        self,
        address: ServerAddress,
        assembler: Callable[[], Assembler],
        prefetch: int,
        values: dict[str, Any],
        raw: bytes,
    ) -> None:
        self.address, self._user = address, object()
        self._assembler, self._prefetch = assembler, prefetch
        self._values, self._raw = values, raw
        self._session: Session | None = None
        self._finalizer: Any = None

    def claim(self) -> object:
        """Return a key that opens the session until the next ``claim``."""
        self._user = object()
        return self._user

    def session(self, user: object = None) -> Session:
        """Return the session. Raises the errors of ``ServerAddress.connected``.

        user: a key of ``claim``; a stale key raises RuntimeError.
        """
        if user is not None and user is not self._user:
            raise RuntimeError(
                "GlobalDataLoader: a task has one epoch at a time, and another iterator of this "
                "loader has begun; make a second loader"
            )
        if self._session is None:
            self._session = self.address.connected(self._registered)
            self._finalizer = finalize(self, self._session.close)
        return self._session

    def _registered(self, connector: Connector) -> Session:
        session = Session(connector, self._assembler(), self._prefetch)
        try:
            session.register(self._values, self._raw)
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> bool:
        """End the session; return True if its server shuts down as well."""
        session, self._session = self._session, None
        if session is None:
            return False
        self._finalizer()
        return session.ended_server


class ServerEngine(Engine):
    """An engine that collects the batches of one epoch from a server.

    skip: leave out samples that raise DataError. fallback: the pipeline that reads the rest of the
    epoch in this process if the server is lost; None raises LoaderServerError instead. The newest
    engine has the session; ``collect`` of an older one raises RuntimeError.
    """

    name = "server"
    capacity = 2

    def __init__(
        self,
        connection: TaskConnection,
        order: TaskOrder,
        progress: SampleProgress,
        skip: bool,
        fallback: Pipeline | None,
    ) -> None:
        self._connection, self._order, self._progress = connection, order, progress
        self._skip, self._fallback = skip, fallback
        self._key = connection.claim()
        self._submitted: deque[Ticket] = deque()
        self._begun = False
        self._local: InlineEngine | None = None
        self._local_rest: Indices = np.empty(0, np.int64)

    def renew(self, pipeline: Pipeline) -> bool:
        """Return False: samples that have come from the server stay valid."""
        return False

    def submit(self, ticket: Ticket) -> None:
        """Queue the ticket; the server sends batches while the task has credits."""
        if self._local is None:
            self._submitted.append(ticket)
        else:
            indices, self._local_rest = np.split(self._local_rest, [ticket.size])
            self._local.submit(ticket.of(indices))

    def collect(self, timeout: float | None = None) -> Completed:
        """Return the server's next batch; its ticket names the samples delivered."""
        if self._local is None:
            try:
                return self._from_server(timeout)
            except CANNOT_SERVE:
                self._connection.close()
                self._begun = False
                if self._fallback is None:
                    raise
                self._read_locally(self._fallback)
        assert self._local is not None
        return self._local.collect()

    def _from_server(self, timeout: float | None) -> Completed:
        session, seed = self._connection.session(self._key), self._submitted[0].seed
        if not self._begun:
            assert seed is not None, "a GlobalDataLoader always has a seed"
            session.begin(seed, self._progress.epoch, self._progress.delivered)
            self._begun = True
        served = session.next(timeout)
        ticket = self._submitted.popleft().of(served.blocks.indices)
        samples = len(ticket.indices) - len(served.failed)
        made = Slice(Structure(LEAF, ("other",)), [served.batch], samples)
        return Completed(ticket, made, self._error_of(served), served.seconds)

    def _error_of(self, served: ServedBatch) -> BaseException | None:
        for place, error in served.failed:
            if not (self._skip and isinstance(error, DataError)):
                tag_sample(error, int(served.blocks.indices[place]))
                return error
        return served.error

    def _read_locally(self, pipeline: Pipeline) -> None:
        """Read the rest of the epoch in this process, in a locally drawn order."""
        submitted, self._submitted = self._submitted, deque()
        seed = submitted[0].seed
        assert seed is not None, "a GlobalDataLoader always has a seed"
        self._local = InlineEngine(pipeline)
        self._local_rest = self._order.local_rest(seed, self._progress)
        for ticket in submitted:
            self.submit(ticket)

    def cancel(self) -> None:
        """Drop the submitted tickets; the next ``collect`` starts with the rest of the epoch."""
        self._submitted.clear()
        self._begun, self._local = False, None

    def close(self) -> None:
        """Drop the submitted tickets. The session belongs to the loader and stays open."""
        self.cancel()
