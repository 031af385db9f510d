"""Helpers for the process engine's tests: run an engine, request batches, find leaks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from needle.data.batching.pipeline import Pipeline
from needle.data.samples.ticket import Ticket
from needle.data.workers.engine import Completed
from needle.data.workers.processes import ProcessEngine


@contextmanager
def running(dataset: Any, workers: int = 2, **options: Any) -> Iterator[ProcessEngine]:
    """Yield an engine and close it at the end."""
    collate, transforms = options.pop("collate", None), options.pop("transforms", None)
    engine = ProcessEngine(Pipeline(dataset, transforms, collate), workers=workers, **options)
    try:
        yield engine
    finally:
        engine.close()


def ask(engine: ProcessEngine, serial: int, indices: Any, seed: int | None = 3) -> None:
    """Submit one batch."""
    engine.submit(Ticket(0, seed, 0, np.asarray(indices, dtype=np.int64), serial=serial))


def one(engine: ProcessEngine, serial: int, indices: Any) -> Completed:
    """Submit one batch and wait for it."""
    ask(engine, serial, indices)
    return engine.collect(30)


def stream(
    engine: ProcessEngine,
    batches: list[Any],
    first: int = 0,
    pause: Callable[[], None] | None = None,
) -> dict[int, Completed]:
    """Return all batches, with as many in flight as the engine allows."""
    found: dict[int, Completed] = {}
    asked = 0
    while len(found) < len(batches):
        while asked < len(batches) and asked - len(found) < engine.capacity:
            ask(engine, first + asked, batches[asked])
            asked += 1
        done = engine.collect(30)
        found[done.ticket.serial - first] = done
        if pause is not None:
            pause()
    return found


def numbers_are(done: Completed, indices: Any) -> None:
    """Assert that a batch of ``Numbers`` holds these samples."""
    assert done.error is None, done.error
    images, labels = done.batch
    np.testing.assert_array_equal(labels, indices)
    np.testing.assert_array_equal(images.min((1, 2)), indices)
    np.testing.assert_array_equal(images.max((1, 2)), indices)
