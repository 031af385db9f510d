"""GlobalDataLoader: a ``DataLoader`` that gets samples from a server shared by many tasks.

It checks its options and gives DataLoader the order and the engine of server_engine.py.
wire/descriptions.py divides the transforms between server and loader.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...data.batching.collate import default_collate
from ...data.loader import options
from ...data.loader.dataloader import DataLoader
from ...data.loader.engine_holder import EngineHolder
from ...data.loader.iteration import LoaderIterator
from ...data.samples.random_source import check_seed
from ...data.samples.ticket import check_indices
from ...data.sampling import check_batch_size
from ...data.workers.pickling import stamp_of
from ...errors import DataError
from ..serving.feed import ServerOptions
from ..wire.descriptions import check_shareable, divide, shared_names
from ..wire.protocol import marks_of_text, marks_to_text, pack_marks
from .assembly import Assembler
from .joining import END_SECONDS, ServerAddress, await_end
from .server_engine import (
    CANNOT_SERVE,
    SampleProgress,
    ServerEngine,
    TaskConnection,
    TaskOrder,
)

SHARE = ("decoded", "prepared")
STATE_VERSION = 1
_numbers = itertools.count(1)


class GlobalDataLoader(DataLoader):
    """A shuffling ``DataLoader`` that shares reads with other tasks on this machine.

    In every epoch each task sees each of its own indices once, in a uniformly random order. As far
    as that allows, the server gives tasks the same index at the same time, and reads its sample
    once.

    source: a data set, or the address of a server (a name, or the path of its socket). A data set's
    server is found by the contents of the set; if none is running, one is started, which ends with
    its last task. A class can define a method ``fingerprint()`` that returns what its samples
    depend on. indices: the samples of this task, by default all. task: its name, which must be
    unique among the tasks of the server. share: "decoded" runs the transforms up to the first
    random one on the server, and each task augments for itself with DataLoader's random numbers,
    which depend on (seed, epoch, index). "prepared" runs all transforms on the server: it costs
    less, but tasks that get an index in the same round see the same augmentation. Random numbers
    that a data set draws itself are shared in either case. fallback: True reads the rest of an
    epoch in this process if the server dies, or if none can be started or reached. If ``source`` is
    an address, pass the data set to read from instead; it must have the server's fingerprint. False
    raises LoaderServerError or WorkerError, after which ``next()`` continues with another server.

    num_workers, cache_bytes, spill_bytes, name: options of a server that this loader starts.
    num_workers processes read samples (by default one per core). cache_bytes of samples stay in
    memory beyond those in use (by default 1 GiB), and spill_bytes in a file beyond these (by
    default none). name replaces the name derived from the contents of the data set, for a private
    server. Such a name does not depend on resource limits, priority and environment, which the
    server inherits from the process that starts it.
    credits: batches drawn ahead, by default 4. More credits let tasks of uneven speed share more
    reads, and take more memory. prefetch: how many of these batches are assembled ahead.
    The other options are those of DataLoader; a missing seed is drawn from ``np.random``.

    ``close()``, the end of ``with loader:``, or dropping the loader ends the task. Raises
    ValueError for options that contradict each other, DataError if the server refuses the task.
    """

    _order: TaskOrder
    _fixed = options.FIXED | {"share", "fallback", "credits", "task", "indices"}

    def __init__(
        self,
        source: Any,
        batch_size: int = 1,
        shuffle: bool = True,
        *,
        task: str | None = None,
        indices: Iterable[int] | npt.NDArray[np.integer[Any]] | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        device: Any = None,
        share: str = "decoded",
        fallback: Any = False,
        num_workers: int | None = None,
        cache_bytes: int | None = None,
        spill_bytes: int | None = None,
        name: str | None = None,
        credits: int = 4,
        prefetch: int = 2,
        timeout: float | None = None,
        on_error: str = "raise",
    ) -> None:
        if shuffle is not True:
            raise ValueError(
                f"GlobalDataLoader: shuffle must be True, got {shuffle!r}; tasks can share samples "
                "only in random order; use DataLoader for samples in order"
            )
        address = source if isinstance(source, (str, os.PathLike)) else None
        dataset = _data_set(source, address, fallback)
        check_batch_size("GlobalDataLoader", batch_size)
        self.share = options.one_of("share", share, SHARE)
        self.credits = _check_credits(credits, options.prefetch_count("server", prefetch, timeout))
        settings = _server_options(
            address,
            num_workers=num_workers,
            cache_bytes=cache_bytes,
            spill_bytes=spill_bytes,
            name=name,
        )
        compose = options.composed(dataset, options.divided(transforms)[0])
        self._division = divide(compose, share)
        self._address = ServerAddress(address, dataset, settings, name)
        length = self._address.length() if dataset is None else len(dataset)
        self.fallback = fallback is not False
        self.task = task or f"task-{os.getpid()}-{next(_numbers)}"
        self.indices = _index_set(indices, length)
        if seed is None:
            seed = int(np.random.randint(0, 2**32, dtype=np.uint32))
        super().__init__(
            _Absent(length) if dataset is None else dataset,
            batch_size,
            collate=collate,
            transforms=transforms,
            drop_last=drop_last,
            seed=check_seed("GlobalDataLoader", seed),
            device=device,
            on_error=on_error,
        )
        vars(self).update(engine="server", shuffle=True, prefetch=prefetch, timeout=timeout)
        self._next: SampleProgress = SampleProgress(0, self.indices)
        self._connection = TaskConnection(
            self._address,
            partial(Assembler, self._division.own, collate, threads=1),
            prefetch,
            self._registration(),
            pack_marks(np.isin(np.arange(length), self.indices)),
        )
        try:
            self._connection.session()  # a refusal is raised here, not in a training loop
        except CANNOT_SERVE:
            if not self.fallback:
                raise
        # computed now, since reading a first sample may fill a cache in the data set
        self._stamp = stamp_of(self.dataset)

    def _registration(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "batch_size": self.batch_size,
            "drop_last": bool(self.drop_last),
            "credits": self.credits,
            "share": self.share,
            "shared": self._division.shared,
            "decode_at": self._division.decode_at,
        }

    def __iter__(self) -> LoaderIterator:
        """Start the next epoch, or continue where ``load_state_dict`` left off."""
        with self._engine.locked():
            self._check_unchanged()
            progress, self._next = self._next, SampleProgress(self._next.epoch + 1, self.indices)
            tickets = self._order.rest(self.seed, progress)
            return self._begin(progress, tickets, self._engine_for(progress))

    def make_order(self) -> TaskOrder:
        """Return a new order of the samples of this task."""
        return TaskOrder(self.indices, self.batch_size, self.drop_last)

    def _check_unchanged(self) -> None:
        """Raise ValueError if the data set is no longer the one that the server was given."""
        if stamp_of(self.dataset) != self._stamp:
            raise ValueError(
                "GlobalDataLoader: the data set must not change after the server has received it, "
                "got one that has changed; make a new loader for it"
            )

    def set_epoch(self, epoch: int) -> None:
        """Make the next ``iter()`` start this epoch; without a call, epochs advance by one."""
        with self._engine.locked():
            super().set_epoch(epoch)
            self._next = SampleProgress(self._next.epoch, self.indices)

    def _engine_for(self, progress: SampleProgress) -> EngineHolder:
        """Return a new engine holder for each epoch; the session belongs to the latest epoch."""
        skip, fallback = self.on_error == "skip", self._pipeline if self.fallback else None
        make = partial(ServerEngine, self._connection, self._order, progress, skip, fallback)
        holder = EngineHolder(make)
        holder.lock = self._engine.lock  # iterators share the session
        holder.running()
        return holder

    def _owns_batches(self) -> bool:
        if self.fallback and not super()._owns_batches():
            return False
        return not self._batch_transforms and self._pipeline.collate is default_collate

    # ---- progress and state

    def state_dict(self) -> dict[str, Any]:
        """Return the seed, the epoch, and the samples that were delivered, as JSON values.

        Each sample takes one bit, compressed. The order of the remaining samples is drawn again
        after resuming.
        """
        progress = self._latest_progress()
        assert isinstance(progress, SampleProgress)
        return {
            **self._identity(),
            "seed": self.seed,
            "epoch": progress.epoch,
            "position": progress.position,
            "done": marks_to_text(progress.delivered),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume: the next ``iter()`` yields the remaining samples of the epoch, with this seed.

        The state can also be loaded with another server. Raises ValueError for a state of another
        kind or size.
        """
        for name, value in self._identity().items():
            found = state.get(name) if isinstance(state, dict) else None
            if found != value:
                raise ValueError(
                    f"GlobalDataLoader.load_state_dict: {name} must be {value!r}, got {found!r}; "
                    "make the loader with the options that it was saved with"
                )
        epoch, position = state.get("epoch"), state.get("position")
        if not (isinstance(epoch, int) and isinstance(position, int) and min(epoch, position) >= 0):
            raise ValueError(
                "GlobalDataLoader.load_state_dict: epoch and position must be non-negative "
                f"integers, got {epoch!r} and {position!r}; pass what state_dict() returned"
            )
        try:
            done = marks_of_text(state.get("done"), len(self.indices))
        except DataError as error:
            raise ValueError(str(error)) from None
        seed = check_seed("GlobalDataLoader.load_state_dict", state.get("seed"))
        with self._engine.locked():
            vars(self).update(seed=seed)
            self._next, self._current = SampleProgress(epoch, self.indices, done, position), None

    def _identity(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "kind": "global",
            "batch_size": self.batch_size,
            "size": len(self.indices),
        }

    # ---- the server

    def server_status(self) -> dict[str, Any]:
        """Return the server's tasks, reads and memory; raise LoaderServerError if it is gone."""
        with self._engine.lock:
            return self._connection.session().status()

    def explain(self) -> str:
        """Describe which transforms the server runs for all tasks and which run in this process."""
        shared = shared_names(self._division.shared) or "none"
        own = ", ".join(part.name for part in self._division.own.parts) or "none"
        return (
            f"task {self.task!r} at {self._address.path}, share={self.share!r}\n"
            f"run by the server, once for all tasks: {shared}\nrun here: {own}"
        )

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "GlobalDataLoader: a loader whose batches come from a server cannot be copied or "
            "pickled; make a second loader"
        )

    def close(self) -> None:
        """End the task. A server that a loader has started ends with its last task."""
        if self._connection.close():
            await_end(self._address.path, END_SECONDS)


class _Absent:
    """A placeholder for a data set that only the server holds."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        raise IndexError("GlobalDataLoader: the samples are read by the server")


def _data_set(source: Any, address: Any, fallback: Any) -> Any:
    """Return the data set if ``source`` or ``fallback`` is one, else None."""
    if address is None and fallback not in (True, False):
        raise ValueError(
            "GlobalDataLoader: fallback must be True or False if source is the data set, got "
            f"{type(fallback).__name__}"
        )
    if address is not None and fallback is True:
        raise ValueError(
            "GlobalDataLoader: fallback=True needs the data set, got an address; pass the data set "
            "itself: fallback=dataset"
        )
    dataset = source if address is None else fallback
    if dataset is False:
        return None
    check_shareable(dataset)
    return dataset


def _index_set(indices: Any, length: int) -> npt.NDArray[np.int64]:
    """Return ``indices``, by default all, in ascending order; ValueError for duplicates."""
    if indices is None:
        return np.arange(length)
    given = indices if isinstance(indices, np.ndarray) else np.array(list(indices))
    if given.dtype == bool and given.shape == (length,):
        given = np.flatnonzero(given)
    found = np.unique(check_indices("GlobalDataLoader", given, length))
    if len(found) != len(given) or not len(found):
        raise ValueError(
            "GlobalDataLoader: there must be at least one index and no duplicates, got "
            f"{len(given)} indices, {len(found)} of them distinct; pass each index once"
        )
    return found


def _check_credits(credits: Any, prefetch: int) -> int:
    if not isinstance(credits, int) or not 2 <= credits <= 1024:
        raise ValueError(f"GlobalDataLoader: credits must be an int in [2, 1024], got {credits!r}")
    if prefetch > credits:
        raise ValueError(
            f"GlobalDataLoader: prefetch must not exceed the {credits} credits of this task, got "
            f"{prefetch}; lower prefetch or pass credits={prefetch}"
        )
    return credits


def _server_options(address: Any, **given: Any) -> ServerOptions:
    """Return the options of a server to start; ValueError if an address is given as well."""
    for name, value in given.items():
        if address is not None and value is not None:
            raise ValueError(
                f"GlobalDataLoader: {name} applies only to a server that this loader starts, got "
                f"{name}={value!r} and an address; leave it out, or pass the data set itself"
            )
        count = value is None or (isinstance(value, int) and value >= 0)
        if name.endswith("_bytes") and not count:
            raise ValueError(f"GlobalDataLoader: {name} must be a number of bytes, got {value!r}")
    workers, cache, spill = given["num_workers"], given["cache_bytes"], given["spill_bytes"]
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    return ServerOptions(
        options.worker_count(workers),
        1 << 30 if cache is None else cache,
        spill=spill or 0,
        until_last=True,
    )
