"""One epoch of a loader: requests go to the engine, answers leave it in order, or as they come.

epoch_order.py lists the batches and state.py counts them; the engine and the pipeline prepare
them.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import LoaderTimeout, WorkerError
from ..batching.collate import to_tensors
from ..samples.pytree import tagged_sample
from ..samples.random_source import BATCH_STREAM, keyed
from ..samples.timing import Clock
from ..sampling.epoch_order import Work
from ..workers.engine import Completed, Engine, Request
from .state import Progress


class LoaderIterator:
    """The batches of one epoch, by ``next()``; threads that share it get different ones.

    A loader has one engine, so a second iterator of it takes the engine over, and the first one
    takes it back at its next ``next()``: both give their batches, at the price of preparing anew
    what had been prepared ahead. What an iterator has asked for is cancelled when it is dropped.
    """

    def __init__(self, loader: Any, progress: Progress) -> None:
        self._loader, self._progress = loader, progress
        self._key = object()  # who the engine works for; not self, which it would keep alive
        self._asked: dict[int, tuple[Work, Request]] = {}
        self._line: deque[Work] = deque()  # taken from the order, not handed out yet
        self._ready: dict[int, tuple[Work, Request, Completed]] = {}
        self._failed: Work | None = None
        self._next_place = progress.low
        self._pass = loader.order.epoch(progress.epoch, progress.low)
        weakref.finalize(self, loader._engine_released, self._key).atexit = False

    @property
    def epoch(self) -> int:
        """The number of this epoch."""
        return self._progress.epoch

    @property
    def position(self) -> int:
        """How many batches have been handed out."""
        return self._progress.position

    @property
    def finished(self) -> bool:
        """Whether the last batch has been handed out and the end was told."""
        return self._progress.finished

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        with self._loader._lock:
            return self._next()

    def _next(self) -> Any:
        if self._progress.finished:
            raise StopIteration
        engine = self._take_over()
        self._pass_failed()
        while True:
            self._ask(engine)
            if not self._line:
                self._finish()
                raise StopIteration
            work, request, answer = self._answered(engine)
            if answer.error is not None:
                self._failed = work
                name_sample(answer.error, self._loader.dataset)
                try:
                    raise answer.error
                finally:  # the traceback must not keep this iterator alive
                    del answer, request
            if work.indices is not None:
                self._loader._stats.skipped += len(work.indices) - answer.samples
            if not self._pass.answered(work, answer.samples):
                self._progress.mark(work.place)
                continue
            if engine.capacity > 1:
                self._ask(engine)  # the workers go on while the program uses the batch
            batch = self._delivered(work, request, answer)
            self._progress.mark(work.place)
            return batch

    def _take_over(self) -> Engine:
        """The engine, with all that this iterator still waits for asked of it."""
        engine: Engine = self._loader._running_engine()
        if self._loader._engine_user is not self._key:
            self._loader._engine_user = self._key
            engine.cancel()
            self._asked.clear()
            for work in self._line:
                if work.place not in self._ready:
                    self._submit(engine, work)
        return engine

    def _ask(self, engine: Engine) -> None:
        while len(self._line) < engine.capacity:
            work = self._pass.next()
            if work is None:
                return
            for place in range(self._next_place, work.place):  # a stream's ended shards
                self._progress.mark(place)
            self._next_place = work.place + 1
            if not self._progress.done(work.place):
                self._line.append(work)
                self._submit(engine, work)

    def _submit(self, engine: Engine, work: Work) -> None:
        loader = self._loader
        request = Request(
            loader._new_serial(),
            loader.seed,
            self._progress.epoch,
            work.indices,
            work.shard,
            work.start,
            work.count,
            work.run,
            work.row,
        )
        self._asked[request.serial] = (work, request)
        engine.submit(request)

    def _answered(self, engine: Engine) -> tuple[Work, Request, Completed]:
        """The answer that is to be handed out next; waits for it."""
        started = time.perf_counter()
        while (place := self._next_out()) is None:
            self._collect(engine, started)
        if engine.capacity > 1:
            self._loader._stats.add({"wait_data": time.perf_counter() - started})
        found = self._ready.pop(place)
        self._line.remove(found[0])
        return found

    def _next_out(self) -> int | None:
        if self._loader.ordered:
            place = self._line[0].place
            return place if place in self._ready else None
        return next(iter(self._ready), None)

    def _collect(self, engine: Engine, started: float) -> None:
        timeout = self._loader.timeout
        left = None if timeout is None else timeout - (time.perf_counter() - started)
        try:
            answer = engine.collect(None if left is None else max(left, 0.0))
        except LoaderTimeout as error:
            raise LoaderTimeout(
                f"DataLoader: batch {self._line[0].place} of epoch {self.epoch} was not ready "
                f"within timeout={timeout} s; raise it, or see needle.data.loader.doctor(loader)"
            ) from error
        except WorkerError:
            self._loader.close()  # a later next() starts anew
            raise
        work, request = self._asked.pop(answer.serial)
        self._ready[work.place] = (work, request, answer)

    def _delivered(self, work: Work, request: Request, answer: Completed) -> Any:
        """The batch as the user gets it."""
        loader, clock = self._loader, Clock()
        stays = not loader.batch_transforms
        batch = loader.pipeline.finish(answer.batch, request, clock, stays=stays)
        if loader.batch_transforms:
            with clock.measure("augment"):
                batch = transformed_batch(loader, batch, self._progress.epoch, work.first)
        if loader.valid_mask:
            batch = with_mask(batch, work)
        with clock.measure("deliver"):
            batch = to_tensors(batch, loader.device, loader.owns_batches)
        stats = loader._stats
        stats.samples, stats.batches = stats.samples + answer.samples, stats.batches + 1
        stats.add(answer.seconds)
        stats.add(clock.seconds)
        return batch

    def _pass_failed(self) -> None:
        """Whoever goes on after an error goes on with the batch after it."""
        if self._failed is not None:
            self._progress.mark(self._failed.place)
            self._failed = None

    def _finish(self) -> None:
        self._progress.finished = True
        self._loader._engine_released(self._key)


def transformed_batch(loader: Any, batch: Any, epoch: int, first: int) -> Any:
    """``batch`` after ``loader.batch_transforms``; the index of its first sample keys the draws."""
    if loader.seed is None:
        return _in_turn(loader.batch_transforms, batch)
    with keyed(loader.seed, epoch, first) as draws:
        draws.seek(BATCH_STREAM // 2)  # not the numbers of the first sample
        return _in_turn(loader.batch_transforms, batch)


def _in_turn(transforms: Any, batch: Any) -> Any:
    for transform in transforms:
        batch = transform(batch)
    return batch


def name_sample(error: BaseException, dataset: Any) -> None:
    """Adds to the traceback (from Python 3.11 on) which sample the error came up at."""
    index = tagged_sample(error)
    if index is not None and hasattr(error, "add_note") and not hasattr(error, "__notes__"):
        error.add_note(f"(at sample {index} of {type(dataset).__name__})")


def with_mask(batch: Any, work: Work) -> Any:
    """The batch with bool ``(n,)`` after its fields; of a dict as its field "valid"."""
    assert work.indices is not None
    valid = np.ones(len(work.indices), bool) if work.valid is None else work.valid
    if isinstance(batch, Mapping):
        return {**batch, "valid": valid}
    if type(batch) in (tuple, list):
        return type(batch)([*batch, valid])
    return (batch, valid)
