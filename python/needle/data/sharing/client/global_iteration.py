"""One epoch of a GlobalDataLoader: batches from its session, or from this process alone."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import DataError, LoaderServerError
from ...batching.collate import to_tensors
from ...loader.dataloader import DataLoader
from ...loader.delivery import transformed
from ...loader.iteration import LoaderIterator, name_sample
from ...samples.pytree import tag_sample
from ...samples.random_source import keyed_permutation
from ...samples.ticket import Ticket
from ...samples.timing import Clock
from .epochs import Epoch
from .session import Delivery

Places = npt.NDArray[np.int64]


class GlobalIterator:
    """The batches of one epoch, by ``next()``; threads that share it get different ones.

    A loader has one task: its latest iterator takes it over, an older one raises RuntimeError.
    After an error the next ``next()`` goes on: with the batch after one that could not be read,
    at a new connection where the server was lost.
    """

    def __init__(self, loader: Any, epoch: Epoch) -> None:
        self._loader, self._epoch = loader, epoch
        self._key = object()  # who the session works for; not self, which it would keep alive
        loader._user = self._key
        self._begun = False
        self._failed: Places | None = None
        self._local: LoaderIterator | None = None
        self._local_order: Places | None = None

    @property
    def epoch(self) -> int:
        """The number of this epoch."""
        return self._epoch.number

    @property
    def position(self) -> int:
        """How many batches have been handed out."""
        return self._epoch.position

    @property
    def finished(self) -> bool:
        """Whether the last batch has been handed out and the end was told."""
        return self._epoch.finished

    def __iter__(self) -> GlobalIterator:
        return self

    def __next__(self) -> Any:
        with self._loader._lock:
            if self._epoch.finished:
                raise StopIteration
            if self._failed is not None:
                self._epoch.mark(self._failed)
                self._failed = None
            while True:
                found = self._from_server() if self._local is None else self._from_here()
                if found is not None:
                    return found[0]
                if self._local is None or self._epoch.finished:
                    self._epoch.finished = True
                    raise StopIteration

    # ---- with a server

    def _from_server(self) -> tuple[Any] | None:
        """The next batch, in brackets; None at the end, or where it goes on without the server."""
        loader, started = self._loader, time.perf_counter()
        try:
            while True:
                delivery = self._delivery()
                if delivery is None:
                    return None
                places = np.searchsorted(loader.indices, delivery.blocks.indices)
                self._raise_errors(delivery, places)
                loader._stats.skipped += len(delivery.failed)
                if delivery.samples:
                    break
                self._epoch.mark(places)  # nothing of it could be read
        except LoaderServerError:
            loader._drop_session()
            self._begun = False
            loader._user = self._key
            if not loader.fallback:
                raise
            self._read_locally()
            return self._from_here()
        loader._stats.add({"wait_data": time.perf_counter() - started})
        batch = self._delivered(delivery)
        self._epoch.mark(places)
        return (batch,)

    def _delivery(self) -> Delivery | None:
        loader = self._loader
        if loader._user is not self._key:
            raise RuntimeError(
                "GlobalDataLoader: another iterator of this loader has begun, and a task has one "
                "epoch at a time; make a second loader"
            )
        session = loader._running_session()
        if not self._begun:
            session.begin(self._epoch.number, self._epoch.done)
            self._begun = True
        found: Delivery | None = session.next(loader.timeout)
        return found

    def _raise_errors(self, delivery: Delivery, places: Places) -> None:
        skip = self._loader.on_error == "skip"
        for place, error in delivery.failed:
            if not (skip and isinstance(error, DataError)):
                tag_sample(error, int(delivery.blocks.indices[place]))
                self._raise(error, places)
        if delivery.error is not None:
            self._raise(delivery.error, places)

    def _raise(self, error: BaseException, places: Places) -> None:
        self._failed = places
        name_sample(error, self._loader.dataset)
        raise error

    def _delivered(self, delivery: Delivery) -> Any:
        """The batch as the user gets it."""
        loader, clock = self._loader, Clock()
        batch = delivery.batch
        if loader.batch_transforms:
            with clock.measure("augment"):
                ticket = Ticket(0, loader.seed, self._epoch.number, delivery.blocks.indices)
                batch = transformed(batch, loader.batch_transforms, ticket)
        with clock.measure("deliver"):
            batch = to_tensors(batch, loader.device, loader.owns_batches)
        stats = loader._stats
        stats.samples, stats.batches = stats.samples + delivery.samples, stats.batches + 1
        stats.add(delivery.seconds)
        stats.add(clock.seconds)
        return batch

    # ---- without

    def _from_here(self) -> tuple[Any] | None:
        """As ``_from_server``, of what is read in this process."""
        assert self._local is not None and self._local_order is not None
        before, size = self._local.position, self._loader.batch_size
        found = next(self._local, self)
        now = self._local.position
        if now > before:
            self._epoch.mark(self._local_order[before * size : now * size])
        if found is self:
            self._epoch.finished = True
            return None
        return (found,)

    def _read_locally(self) -> None:
        """The rest of the epoch will be read in this process, in an order of its own."""
        loader = self._loader
        left = np.flatnonzero(~self._epoch.done)
        order = left[keyed_permutation(len(left), loader.seed, self._epoch.number)]
        if loader.drop_last:
            order = order[: max(0, len(order) - len(loader.indices) % loader.batch_size)]
        inner = DataLoader(
            loader.dataset,
            loader.batch_size,
            sampler=loader.indices[order],
            collate=loader.collate,
            transforms=loader.transforms,
            batch_transforms=loader.batch_transforms,
            seed=loader.seed,
            device=loader.device,
            on_error=loader.on_error,
        )
        inner.set_epoch(self._epoch.number)
        self._local, self._local_order = iter(inner), order
