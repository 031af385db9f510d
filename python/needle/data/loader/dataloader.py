# Trail 30 of 30: DataLoader: batches in order, and the state that resumes them.
# This is the last file.
"""DataLoader, which yields batches of a dataset and can resume at any step.

options.py checks the options, sampling/epoch_order.py lists the batches of an epoch, one of the
engines in workers/ prepares the batches, iteration.py delivers them and state.py counts them.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ...array_namespace import default_device
from ...array_namespace import device as find_device
from ...contexts import uninterrupted
from ...errors import check_callables
from ...torch_names import PointsToAttributes
from ..batching.collate import default_collate
from ..batching.pipeline import Pipeline
from ..datasets.dataset import Dataset, in_memory_of
from ..datasets.stream import shards_of
from ..samples.random_source import check_seed
from ..sampling import RandomSampler, Sampler, SequentialSampler, check_batch_size, set_epoch
from ..sampling.epoch_order import (
    DrawnOrder,
    EpochOrder,
    EpochTickets,
    ListOrder,
    PositionOrder,
    StreamOrder,
    find_order,
)
from ..sampling.restarts import Restarts
from ..transforms.executors import pinning
from ..workers import make_engine
from ..workers.engine import Engine
from . import options
from .choice import ChosenEngine, choose
from .engine_holder import EngineHolder
from .iteration import Delivery, LoaderIterator
from .state import Progress, is_count, read_state
from .statistics import Stats

STATE_VERSION = 1


class DataLoader(PointsToAttributes):
    """An iterable over batches of ``dataset``; each ``iter()`` is one epoch.

    The defaults are those of the course: everything runs in this process, shuffling draws one
    ``np.random.permutation(len)`` per epoch, the short last batch is kept, and a batch is a tuple
    of Tensors on the default device.

    The data and its order:

    * dataset: an object with ``__getitem__`` and ``__len__``, or a stream (``IterableDataset``).
    * sampler: an iterable of indices; replaces shuffle.
    * batch_sampler: an iterable of lists of indices; replaces batch_size, shuffle, sampler and
      drop_last.
    * seed: makes the order and the random numbers of the transforms functions of (seed, epoch,
      index); the state of the loader can then be saved.

    From samples to a batch:

    * collate: a function from a list of samples to a batch; arrays in its result become Tensors.
    * transforms: functions applied to each sample's first field, or to a sample that is not a
      tuple or list. The last ones may transform whole batches of NumPy arrays: ``MixUp``,
      ``CutMix``, ``OnBatch(function)``.
    * augment: where the transforms of samples run: in the "worker", in the "main" process on whole
      batches, or on the "device".
    * on_error: "skip" skips samples that raise DataError.
    * device: the device of the batches, or its name.

    Workers:

    * num_workers: the number of workers; 0 prepares batches in this thread, "auto" measures some
      samples now and chooses the engine and the number of workers (``choose`` in choice.py
      documents the rule; ``loader.explain()`` gives the reason). The batches are the same, byte for
      byte, for any number of workers and either engine. With workers and no seed, a seed is drawn
      from ``np.random`` now.
    * engine: "processes" (the default with workers), each with a copy of the dataset, or "threads".
    * prefetch: the number of batches prepared ahead, 2 by default; it counts per worker if a batch
      cannot be prepared in slices.
    * timeout: seconds to wait for a batch before LoaderTimeout is raised.

    The workers are kept for the next epoch, and a worker that dies is replaced. ``close()``,
    ``with loader:``, or dropping the loader stops the workers; iterating after ``close`` starts
    new ones. Whatever changes in the dataset, the samplers, the transforms or collate takes effect
    in the next epoch: ``iter()`` compares their state, arrays by a checksum, with that of the
    workers' copies, and starts new workers if they differ. Options cannot be set, which raises
    AttributeError. Raises ValueError if options contradict each other.
    """

    _fixed = options.FIXED

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        *,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        num_workers: int | str = 0,
        engine: str | None = None,
        prefetch: int | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        augment: str = "worker",
        drop_last: bool = False,
        seed: int | None = None,
        device: Any = None,
        timeout: float | None = None,
        on_error: str = "raise",
    ) -> None:
        self.dataset, self.shuffle, self.collate = dataset, shuffle, collate
        self._stream = options.is_stream(dataset)
        self.device = None if device is None else find_device(device)
        self.batch_size = check_batch_size("DataLoader", batch_size)
        self.drop_last, self.timeout = drop_last, timeout
        auto = num_workers == "auto"
        self.num_workers = options.worker_count(1 if auto else num_workers)
        self.engine = options.engine_name(engine, self.num_workers)
        self.prefetch = options.prefetch_count(self.engine, prefetch, timeout)
        of_samples, self._batch_transforms = options.divided(transforms)
        self.transforms = options.composed(dataset, of_samples)
        check_callables("DataLoader", "functions collate", [] if collate is None else [collate])
        self.augment = options.one_of("augment", augment, options.AUGMENT)
        self.on_error = options.one_of("on_error", on_error, options.ON_ERROR)
        self.seed = None if seed is None else check_seed("DataLoader", seed)
        options.check_order(
            self._stream,
            batch_sampler is not None,
            sampler is not None,
            batch_size=self.batch_size != 1,
            shuffle=shuffle,
            drop_last=drop_last,
        )
        if self._stream:
            options.check_shards(dataset, self.num_workers)
        self.seed_drawn = self.seed is None and self.num_workers > 0
        if self.seed_drawn:
            self.seed = int(np.random.randint(0, 2**32, dtype=np.uint32))
        self._makes_sampler = sampler is None and batch_sampler is None
        self.batch_sampler = batch_sampler
        self.sampler = self._default_sampler() if sampler is None else sampler
        self._restarts = Restarts()
        self._order = self.make_order()
        options.check_mask(self._masked(), on_error)
        self._pipeline = self.make_pipeline()
        self._choice: ChosenEngine | None = None
        if auto:
            size = getattr(batch_sampler, "batch_size", self.batch_size)
            self._choice = choose(self._pipeline, size, self.seed, engine)
            self.engine, self.num_workers = self._choice.engine, self._choice.workers
        self._stats = Stats(workers=self.num_workers)
        self._next = Progress(0)
        self._current: Progress | None = None
        self._engine = EngineHolder(self._engine_maker())
        if self.engine != "inline":
            self._engine.running()  # raises pickling errors now instead of in the loop

    def _is_fixed(self, name: str) -> bool:
        """Return True for an option of a created loader, even if its class is a program's."""
        return "_engine" in vars(self)

    def __len__(self) -> int:
        """Return the number of batches in an epoch; raise TypeError for a stream."""
        return len(self._order)

    def __iter__(self) -> LoaderIterator:
        """Start the next epoch, or continue at the position set by ``load_state_dict``."""
        with self._engine.locked():
            self._renew()
            progress, self._next = self._next, Progress(self._next.epoch + 1)
            tickets = self._order.epoch(self.seed, progress.epoch, progress.position)
            return self._begin(progress, tickets, self._engine)

    def _renew(self) -> None:
        """Have the order and the engine see what has changed since the last epoch."""
        self._order = self.make_order()
        options.check_mask(self._masked(), self.on_error)
        self._pipeline = self.make_pipeline().with_plans_of(self._pipeline)
        self._engine.renew(self._engine_maker(), self._pipeline)

    def _begin(
        self, progress: Progress, tickets: EpochTickets, engine: EngineHolder
    ) -> LoaderIterator:
        self._current = progress
        delivery = Delivery(
            self._pipeline, self._batch_transforms, self.device, self._owns_batches()
        )
        return LoaderIterator(tickets, progress, engine, delivery, self._stats, self.timeout)

    def _owns_batches(self) -> bool:
        """Return True if nothing else references the arrays of a batch.

        A user's collate, fetch or batch transform may keep a reference to what it returns.
        """
        collates = self._pipeline.collate is not default_collate
        if self._batch_transforms or collates or self._masked():
            return False
        if self.engine == "processes" or in_memory_of(self.dataset) is not None:
            return True
        return getattr(type(self.dataset), "fetch", None) in (None, Dataset.fetch)

    def _masked(self) -> bool:
        """Return True if the sampler requests a mask of the valid samples in each batch."""
        return bool(getattr(getattr(self._order, "sampler", None), "valid_mask", False))

    # ---- position ---------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the running epoch, or of the epoch that the next ``iter()`` starts."""
        return self._latest_progress().epoch

    @property
    def ordering(self) -> list[npt.NDArray[np.int64]] | None:
        """The indices of the latest epoch's batches, in order.

        None before the first shuffled epoch has begun, and with a sampler that has no
        ``positions``.
        """
        order = self._order
        if isinstance(order, DrawnOrder):
            return None if order.drawn is None else order.split(order.drawn)
        if not isinstance(order, PositionOrder) or (self.shuffle and self._current is None):
            return None
        set_epoch(order.sampler, 0 if self._current is None else self._current.epoch)
        return order.split(order.sampler.positions(0, len(order.sampler)))

    def set_epoch(self, epoch: int) -> None:
        """Make the next ``iter()`` start this epoch; without a call, epochs advance by one."""
        if not is_count(operator.index(epoch)):
            name = type(self).__name__
            raise ValueError(f"{name}.set_epoch: epoch must not be negative, got {epoch}")
        with self._engine.locked():
            self._next, self._current = Progress(int(epoch)), None

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's position as JSON values: seed, epoch, number of batches delivered.

        After the last batch, but before the ``for`` loop ends, the position is ``len(loader)``: a
        resumed loader then yields no further batch in that epoch. For a stream, the position
        counts the turns of all shards, including those that have ended. A batch that raised an
        error counts as delivered once the next one is requested. Raises ValueError if the loader
        shuffles without a seed, since its order cannot be repeated.
        """
        self._check_resumable("state_dict")
        progress = self._latest_progress()
        position = {"epoch": progress.epoch, "position": progress.position}
        return {**self._identity(), "seed": self.seed, **position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next ``iter()`` continue at the saved position.

        Preceding samples are not read. The workers and the engine may differ from those of the
        saved loader. The seed is taken from the state. Raises ValueError if the state is not a
        DataLoader's, or was saved with another batch size or dataset length.
        """
        self._check_resumable("load_state_dict")
        batches = len(self._order) if isinstance(self._order, PositionOrder) else None
        seed, progress = read_state(state, self.seed, self.seed_drawn, self._identity(), batches)
        with self._engine.locked():
            self._next, self._current = progress, None
            vars(self).update(seed=seed)
            if self._makes_sampler:
                vars(self).update(sampler=self._default_sampler())
                self._order = self.make_order()

    def _check_resumable(self, method: str) -> None:
        decides = self.sampler if self.batch_sampler is None else self.batch_sampler
        if not getattr(decides, "repeatable", True):
            raise ValueError(
                f"DataLoader.{method}: a shuffled order can be repeated only with a seed, got "
                f"seed=None; make the {'loader' if self.shuffle else 'sampler'} with seed=0"
            )

    def _identity(self) -> dict[str, int]:
        """Return the entries of a state that must match this loader."""
        size = self._order.batch_size if isinstance(self._order, PositionOrder) else self.batch_size
        identity = {"version": STATE_VERSION, "batch_size": size}
        if isinstance(self._order, StreamOrder):
            return {**identity, "shards": self._order.shards}
        return {**identity, "length": len(self.dataset)}

    def _latest_progress(self) -> Progress:
        current = self._current
        return self._next if current is None or current.finished else current

    # ---- description ------------------------------------------------------------------------

    def stats(self, reset: bool = False) -> Stats:
        """Return the seconds and samples of each stage since the start or the last ``reset``."""
        return self._stats.copy(reset)

    def explain(self) -> str:
        """Describe the engine, and where each transform runs and why."""
        where = {"inline": "in this thread", "threads": f"in {self.num_workers} threads"}.get(
            self.engine, f"by {self.num_workers} workers ({self.engine})"
        )
        why = "" if self._choice is None else f" (chosen since {self._choice.reason})"
        text = f"batches of {self.batch_size} are prepared {where}{why}"
        return f"{text}\n{self._pipeline.explain()}"

    def _default_sampler(self) -> Sampler | None:
        if self._stream:
            return None
        source = self.dataset
        return RandomSampler(source, self.seed) if self.shuffle else SequentialSampler(source)

    def make_order(self) -> EpochOrder:
        """Return a new order of the batches, with the options of this loader."""
        if self._stream:
            return StreamOrder(shards_of(self.dataset), self.batch_size, self.drop_last)
        found = find_order(self.sampler, self.batch_sampler, self.batch_size, self.drop_last)
        if isinstance(found, ListOrder):
            found.restarts = self._restarts
        return found

    def make_pipeline(self) -> Pipeline:
        """Return a new pipeline with the options of this loader."""
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

    def _engine_maker(self) -> Callable[[], Engine]:
        return partial(
            make_engine,
            self.engine,
            self._pipeline,
            workers=self.num_workers,
            prefetch=self.prefetch,
            pin=pinning((self.device or default_device()).name),
        )

    def close(self) -> None:
        """Stop the workers and free their shared memory; a second call is a no-op."""
        self._engine.close()

    def __enter__(self) -> DataLoader:
        return self

    @uninterrupted
    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of a copy, which begins with this loader's next epoch."""
        return {
            **self.__dict__,
            "_current": None,
            "_next": copy.deepcopy(self._next),
            "_stats": Stats(workers=self.num_workers),
            "_engine": copy.copy(self._engine),
        }
