"""Choose an engine for ``num_workers="auto"`` by a short measurement.

Called by dataloader.py. The batches do not depend on the engine.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...contexts import context
from ..batching.pipeline import Pipeline
from ..datasets.stream import shards_of
from ..samples.ticket import Ticket
from ..workers import is_picklable

SHORT_BATCH = 1e-3
"""Seconds; transferring a batch costs up to half as much as preparing one that is shorter."""
WAITING = 0.5
"""A sample that computes for less than this part of its time waits for a disk or a network."""
TOGETHER = 1.5
"""If two threads are this many times as fast as one, they do not wait for the GIL."""
MOST_WORKERS = 8
WAITING_WORKERS = 16
_MEASURED = 0.02  # Seconds of a measurement, unless a single sample takes longer.
_TRIALS = 3  # Number of measurements of two threads.


@dataclass(frozen=True)
class ChosenEngine:
    """An engine, its number of workers, and the reason for the choice."""

    engine: str
    workers: int
    reason: str


def choose(
    pipeline: Pipeline, batch_size: int, seed: int | None, engine: str | None = None
) -> ChosenEngine:
    """Return the engine for a pipeline, after timing its first samples in one and in two threads.

    * Batches that take less than 1 ms are prepared in the calling thread; so are all batches on
    one core, unless reading samples involves waiting.
    * Samples that wait for more than half of their time (disk, network) are read by threads, four
      per core, at most 16.
    * If two threads are at least 1.5 times as fast as one, or the kernels use several cores
      already, there is one thread per core, at most 8.
    * Otherwise there is one process per core, at most 8, or threads if the data set cannot be
      pickled.

    A stream has at most one worker per shard. engine: an engine to use without measuring, with one
    worker per core, at most 8. The global random streams of NumPy and Python are restored
    afterwards.
    """
    cores = available_cores()
    workers = min(cores, MOST_WORKERS)
    if engine is not None:
        chosen = ChosenEngine(engine, workers, f"engine={engine!r} was given")
    elif not pipeline.stream and not len(pipeline.dataset):
        chosen = ChosenEngine("inline", 0, "the data set is empty")
    else:
        with random_state_kept():
            try:
                chosen = _judge(_Probe(pipeline, batch_size, seed), batch_size, cores)
            # the batch that contains the failing sample will raise the error
            except Exception as error:
                reason = f"the measurement failed ({type(error).__name__})"
                chosen = ChosenEngine("processes", workers, reason)
        if chosen.engine == "processes" and not is_picklable(pipeline):
            reason = f"{chosen.reason}, but the data set cannot be pickled for processes"
            chosen = replace(chosen, engine="threads", reason=reason)
    most = shards_of(pipeline.dataset) if pipeline.stream else chosen.workers
    return replace(chosen, workers=min(chosen.workers, most))


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@context
def random_state_kept() -> Iterator[None]:
    """Restore the global random streams of NumPy and Python after the block."""
    arrays, numbers = np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        np.random.set_state(arrays)
        random.setstate(numbers)


class _Probe:
    """A measurement of a pipeline on the first samples of its data set, at most one batch."""

    def __init__(self, pipeline: Pipeline, batch_size: int, seed: int | None) -> None:
        self.pipeline, self.seed = pipeline, seed
        self.most = batch_size if pipeline.stream else min(batch_size, len(pipeline.dataset))
        self.count, self.seconds, self.cores = 1, 0.0, 0.0

    def run(self, times: int = 1) -> None:
        """Prepare the same ``count`` samples ``times`` times."""
        for _ in range(times):
            self.pipeline.prepare(self._ticket())

    def alone(self) -> None:
        """Measure the time of ``count`` samples in this thread and the number of cores they use."""
        self._timed()  # runs imports and fills the caches
        while self.count < self.most and self._timed()[0] < _MEASURED / 4:
            self.count = min(self.most, 4 * self.count)
        runs = [self._timed()]
        while sum(seconds for seconds, _ in runs) < _MEASURED:
            runs.append(self._timed())
        # other programs may disturb a single run
        self.seconds = min(seconds for seconds, _ in runs)
        total = sum(seconds for seconds, _ in runs)
        self.cores = sum(computed for _, computed in runs) / total

    def _timed(self) -> tuple[float, float]:
        began, computed = time.perf_counter(), _computed()
        self.run()
        return time.perf_counter() - began, _computed() - computed

    def together(self) -> float:
        """Return the best measured speed-up of two threads over one."""
        times = max(1, round(_MEASURED / 2 / self.seconds))
        return max(2 * times * self.seconds / self._in_two_threads(times) for _ in range(_TRIALS))

    def _in_two_threads(self, times: int) -> float:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(self.run, [0, 0]))  # starts the threads
            began = time.perf_counter()
            list(threads.map(self.run, [times, times]))
            return time.perf_counter() - began

    def _ticket(self) -> Ticket:
        if self.pipeline.stream:
            return Ticket(0, self.seed, 0, shard=0, start=0, size=self.count)
        return Ticket(0, self.seed, 0, np.arange(self.count))


def _computed() -> float:
    """Return this program's CPU seconds plus the seconds that this thread waited for a core."""
    waited = 0.0
    with suppress(OSError, ValueError, IndexError):  # only Linux has schedstat
        waited = float(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return time.process_time() + waited


def _judge(probe: _Probe, batch_size: int, cores: int) -> ChosenEngine:
    """Return the engine for the measured pipeline, see ``choose``."""
    probe.alone()
    batch, workers = probe.seconds / probe.count * batch_size, min(cores, MOST_WORKERS)
    taken = f"a batch takes {1e3 * batch:.1f} ms"
    if batch < SHORT_BATCH:
        return ChosenEngine("inline", 0, f"{taken}, about as long as it takes to hand one over")
    if probe.cores < WAITING:
        reason = f"{taken}, {100 * (1 - probe.cores):.0f} % of them waiting"
        return ChosenEngine("threads", min(WAITING_WORKERS, 4 * cores), reason)
    if cores == 1:
        return ChosenEngine("inline", 0, f"{taken}, and there is one core")
    if probe.cores >= TOGETHER:
        reason = f"{taken}, and its kernels use {probe.cores:.1f} cores"
        return ChosenEngine("threads", workers, reason)
    faster = probe.together()
    reason = f"{taken}, and two threads are {faster:.1f} times as fast as one"
    return ChosenEngine("threads" if faster >= TOGETHER else "processes", workers, reason)
