"""DataLoader: batches of a dataset, in this process or by workers, resumable at any step.

Its options are checked in options.py, the batches of an epoch listed by epoch_order.py, prepared by
pipeline.py in one of engines/, handed out by iteration.py, counted by state.py.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backend_selection import default_device
from ...backend_selection import device as find_device
from ..batching.collate import default_collate
from ..batching.pipeline import Pipeline
from ..datasets.dataset import Dataset, in_memory_of
from ..samples.random_source import check_seed
from ..sampling import (
    RandomSampler,
    Sampler,
    SequentialSampler,
    check_batch_size,
    set_epoch,
)
from ..sampling.epoch_order import (
    DrawnOrder,
    Order,
    PlacedOrder,
    StreamOrder,
    find_order,
)
from ..transforms.executors import pinning
from ..workers import make_engine
from ..workers.engine import Engine
from . import options
from .iteration import LoaderIterator
from .state import (
    Progress,
    check_resumable,
    read_state,
    write_state,
)
from .statistics import Stats


class DataLoader:
    """Iterates over ``dataset`` in batches; each ``iter()`` is one epoch.

    By default as the course's: everything in this process, shuffling draws one
    ``np.random.permutation(len)`` an epoch, the short last batch is kept, a batch is a tuple of
    Tensors on the default device.

    dataset: anything with ``__getitem__`` and ``__len__``, or a stream (``IterableDataset``).
    sampler: indices instead of shuffle. batch_sampler: lists of indices, instead of batch_size,
    shuffle, sampler and drop_last. collate: from a list of samples to a batch (arrays in its
    result become Tensors). transforms: run on each sample's first field, or on a sample that is
    not a tuple or list; augment: by the "worker", in this ("main") process for whole batches, or
    on the "device". batch_transforms: then called with a whole batch, as NumPy arrays.
    seed: order and the transforms' random numbers become functions of (seed, epoch, index), and
    the loader's state can be saved. device: a device or its name, for the batches.

    num_workers: 0 prepares in this thread. With workers batches are the same, byte for byte, for
    any number and engine; where no seed is given one is drawn from ``np.random`` now.
    engine: "processes" (the default with workers), which get the dataset as it is now, or
    "threads". start_method: of processes, "forkserver", "spawn" or "fork". prefetch: batches
    asked for ahead, 2 by default; for each worker where a batch cannot be made in slices.
    persistent_workers: workers stay for the next epoch. ordered: False hands out what is ready.
    timeout: seconds to wait for a batch, then LoaderTimeout. restart_workers: replace one that
    died, else WorkerError. valid_mask: appends bool ``(n,)``, False for samples that only fill up
    (``DistributedSampler``). on_error: "skip" leaves out samples that raise DataError.

    ``close()``, ``with loader:``, or dropping the loader ends its workers; iterating after
    ``close`` starts new ones. Raises ValueError where options contradict each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int = 0,
        engine: str | None = None,
        start_method: str | None = None,
        prefetch: int | None = None,
        persistent_workers: bool = True,
        collate: Callable[[list[Any]], Any] | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        augment: str = "worker",
        batch_transforms: Sequence[Callable[..., Any]] | None = None,
        drop_last: bool = False,
        seed: int | None = None,
        device: Any = None,
        ordered: bool = True,
        timeout: float | None = None,
        restart_workers: bool = True,
        valid_mask: bool = False,
        on_error: str = "raise",
    ) -> None:
        self.dataset, self.shuffle, self.collate = dataset, shuffle, collate
        self.stream = options.is_stream(dataset)
        self.device = None if device is None else find_device(device)
        self.batch_size = check_batch_size("DataLoader", batch_size)
        self.drop_last, self.ordered, self.timeout = drop_last, bool(ordered), timeout
        self.num_workers = options.check_workers(num_workers)
        self.engine = options.check_engine(engine, self.num_workers, start_method)
        self.prefetch = options.check_waiting(self.engine, prefetch, timeout)
        self.start_method, self.restart_workers = start_method, bool(restart_workers)
        self.persistent_workers = bool(persistent_workers)
        self.transforms = options.check_transforms(dataset, transforms)
        self.batch_transforms = options.check_batch_transforms(batch_transforms)
        self.augment = options.check_choice("augment", augment, options.AUGMENT)
        self.on_error = options.check_choice("on_error", on_error, options.ON_ERROR)
        self.valid_mask = options.check_mask(valid_mask, on_error)
        self.seed = None if seed is None else check_seed("DataLoader", seed)
        options.check_order(self, sampler, batch_sampler)
        if self.stream:
            options.check_stream(self, sampler, batch_sampler)
        self.seed_drawn = self.seed is None and self.num_workers > 0
        if self.seed_drawn:
            self.seed = int(np.random.randint(0, 2**32, dtype=np.uint32))
        self._own_order = sampler is None and batch_sampler is None
        self.batch_sampler = batch_sampler
        self.sampler = self._default_sampler() if sampler is None else sampler
        self.order = self._find_order()
        self.pipeline = self._make_pipeline()
        self._stats = Stats(workers=self.num_workers)
        self._next = Progress(0)
        self._current: Progress | None = None
        self._engine: Engine | None = None
        self._engine_user: object = None
        self._closing: Any = None  # the finalizer that closes the engine
        self._process = os.getpid()
        self._lock = threading.RLock()  # an engine has one consumer at a time
        self._serials = itertools.count()
        if self.engine != "inline":
            self._running_engine()  # what cannot reach the workers is told here, not in a loop

    def __len__(self) -> int:
        """The number of batches in an epoch; TypeError for a stream, which does not know."""
        return len(self.order)

    def __iter__(self) -> LoaderIterator:
        """Starts the next epoch, or goes on where ``load_state_dict`` put it."""
        progress, self._next = self._next, Progress(self._next.epoch + 1)
        self._current = progress
        return LoaderIterator(self, progress)

    @cached_property
    def owns_batches(self) -> bool:
        """Whether nobody else refers to a batch's arrays, so that Tensors may take their memory.

        What a user's collate, fetch or batch transform returns may be held elsewhere.
        """
        if self.batch_transforms or self.valid_mask or self.pipeline.collate is not default_collate:
            return False
        if self.engine == "processes" or in_memory_of(self.dataset) is not None:
            return True
        return getattr(type(self.dataset), "fetch", None) in (None, Dataset.fetch)

    # ---- where it is -------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch under way, else the one that the next ``iter()`` starts."""
        return self._place().epoch

    @property
    def ordering(self) -> list[npt.NDArray[np.int64]] | None:
        """The indices of the latest epoch's batches, in order.

        None before a shuffled epoch has begun, and where a user's sampler decides.
        """
        order = self.order
        if isinstance(order, DrawnOrder):
            return None if order.drawn is None else order.split(order.drawn)
        if not isinstance(order, PlacedOrder) or (self.shuffle and self._current is None):
            return None
        set_epoch(order.sampler, 0 if self._current is None else self._current.epoch)
        return order.split(order.sampler.positions(0, len(order.sampler)))

    def set_epoch(self, epoch: int) -> None:
        """The next ``iter()`` starts this epoch. Optional: epochs advance by themselves."""
        if epoch < 0:
            raise ValueError(f"DataLoader.set_epoch: epoch must not be negative, got {epoch}")
        self._next, self._current = Progress(int(epoch)), None

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, as JSON values: seed, epoch, position (batches delivered).

        After the last batch but before the end of the ``for`` the position is ``len(loader)``:
        a resumed loader then gives no more batch in that epoch. With ordered=False, "ahead" has
        the [start, stop) runs of batches delivered before their turn, which the position counts
        too. Of a stream the position counts every shard's turn, also of those at their end. A
        batch that raised is not delivered until the next one was asked for. Raises ValueError
        for a loader that shuffles without a seed, whose order nothing can repeat.
        """
        check_resumable(self, "state_dict")
        return write_state(self, self._place())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next ``iter()`` gives the batches that were left, reading no skipped sample.

        Also with other workers or another engine than the state was saved with. The seed comes
        from the state. Raises ValueError if the state is of another kind, or of a loader with
        another batch size or a dataset of another length.
        """
        check_resumable(self, "load_state_dict")
        self.seed, self._next = read_state(self, state)
        self._current = None
        if self._own_order:
            self.sampler = self._default_sampler()
            self.order = self._find_order()

    def _place(self) -> Progress:
        current = self._current
        return self._next if current is None or current.finished else current

    # ---- what it does ------------------------------------------------------------------------

    def stats(self, reset: bool = False) -> Stats:
        """Seconds and samples by stage since the loader was made, or the last ``reset``."""
        found = self._stats.copy()
        if reset:
            self._stats = Stats(workers=self.num_workers)
        return found

    def explain(self) -> str:
        """In words: the engine, and where which transforms run and why."""
        where = {"inline": "in this thread", "threads": f"in {self.num_workers} threads"}.get(
            self.engine, f"by {self.num_workers} workers ({self.engine})"
        )
        return f"batches of {self.batch_size} are prepared {where}\n{self.pipeline.explain()}"

    def _default_sampler(self) -> Sampler | None:
        if self.stream:
            return None
        length = len(self.dataset)
        return RandomSampler(length, self.seed) if self.shuffle else SequentialSampler(length)

    def _find_order(self) -> Order:
        if self.stream:
            return StreamOrder(self.dataset, self.batch_size, self.drop_last)
        return find_order(self.sampler, self.batch_sampler, self.batch_size, self.drop_last)

    def _make_pipeline(self) -> Pipeline:
        device = (self.device or default_device()).name if self.augment == "device" else "cpu"
        return Pipeline(
            self.dataset,
            self.transforms,
            self.collate,
            augment=self.augment,
            on_error=self.on_error,
            device=device,
        )

    # ---- the engine --------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the workers and frees what they shared; twice is once."""
        if self._closing is not None:
            self._closing()
        self._engine = self._engine_user = self._closing = None

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _running_engine(self) -> Engine:
        if self._engine is not None and self._process != os.getpid():
            self._closing.detach()  # its workers are those of the program that we are a fork of
            self._engine = self._engine_user = None
        if self._engine is None:
            engine = make_engine(
                self.engine,
                self.pipeline,
                workers=self.num_workers,
                prefetch=self.prefetch,
                start_method=self.start_method,
                restart_workers=self.restart_workers,
                pin=pinning((self.device or default_device()).name),
            )
            self._closing = weakref.finalize(self, engine.close)  # also at the program's end
            self._engine, self._process = engine, os.getpid()
        return self._engine

    def _engine_released(self, user: object) -> None:
        """An iterator is at its end, or was dropped: nothing of its is prepared any more."""
        if self._engine is None or self._engine_user is not user:
            return
        self._engine_user = None
        if self._process != os.getpid() or not self._closing.alive:
            return  # the program is at its end, or this is a forked copy of it
        if self.persistent_workers:
            self._engine.cancel()
        else:
            self.close()

    def _new_serial(self) -> int:
        return next(self._serials)

    def __getstate__(self) -> dict[str, Any]:
        own = {"_engine": None, "_engine_user": None, "_closing": None, "_lock": None}
        return {**self.__dict__, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()
