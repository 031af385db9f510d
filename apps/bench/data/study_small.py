"""Small pictures in memory (CIFAR-10's 50 000), cropped, flipped and normalised to float32 NCHW.

The machine's limit is a plain copy of the same bytes: a sample has 3 072 bytes read and 12 288
bytes written, so 15 360 are copied, batch by batch as in a loader.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from apps.bench.harness.case import Calls, Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range
from apps.bench.harness.turns import Result

from . import ours, peers, pictures
from .epochs import Epochs, rate_table

TITLE = "CIFAR-10 in memory: crop, flip, normalise, float32 NCHW, batches of 256"
BATCH = 256
BYTES = 3072 + 12288

OURS = {
    "needle, inline, 1 kernel thread": (0, None, ours.ONE_THREAD),
    "needle, inline, 2 kernel threads": (0, None, ours.TWO_THREADS),
    "needle, 1 thread": (1, "threads", ours.TWO_THREADS),
    "needle, 2 threads": (2, "threads", ours.TWO_THREADS),
    "needle, 4 threads": (4, "threads", ours.TWO_THREADS),
    "needle, 1 process": (1, "processes", ours.TWO_THREADS),
    "needle, 2 processes": (2, "processes", ours.TWO_THREADS),
    "needle, 4 processes": (4, "processes", ours.TWO_THREADS),
}
PER_SAMPLE = tuple(f"torch, per sample, {workers} workers" for workers in (0, 2, 4))
BATCHED = tuple(f"torch, batched operations, {threads} threads" for threads in (1, 2))
GRAIN = tuple(f"grain, per sample, {workers} workers" for workers in (0, 2))
COPIES = tuple(f"memory copy of 15 360 B, {threads} threads" for threads in (1, 2))


def cases(settings: Settings) -> list[Case]:
    """Return the cases of needle, PyTorch, grain and the copy."""
    found = [
        Case(
            name,
            partial(open_ours, workers=w, engine=e),
            env,
            same_bytes="small",
            same_mean="small",
        )
        for name, (w, e, env) in OURS.items()
    ]
    for name in ("needle, inline, 2 kernel threads", "needle, 2 processes"):
        workers, engine, threads = OURS[name]
        opening = partial(open_ours, workers=workers, engine=engine, plain=True)
        found.append(Case(name + ", NumPy batches", opening, threads, same_bytes="small"))
    one = ours.ONE_THREAD
    for name, workers in zip(PER_SAMPLE, (0, 2, 4)):
        opening = partial(open_torch, workers=workers)
        found.append(Case(name, opening, one, ("torch",), same_mean="small", rounds=3))
    for name, threads in zip(BATCHED, (1, 2)):
        opening = partial(open_batched, threads=threads)
        found.append(Case(name, opening, {}, ("torch",), same_mean="small"))
    for name, workers in zip(GRAIN, (0, 2)):
        opening = partial(open_grain, workers=workers)
        found.append(Case(name, opening, one, ("grain",), same_mean="small", rounds=3))
    for name, threads in zip(COPIES, (1, 2)):
        found.append(Case(name, partial(Copies, threads=threads)))
    return found


def open_ours(settings: Settings, workers: int, engine: str | None, plain: bool = False) -> Subject:
    """Open a case of needle's loader. plain: batches are NumPy arrays instead of Tensors."""
    if plain:
        ours.numpy_batches()
    images, labels = pictures.small_pictures(settings)
    build = partial(ours.small_loader, images, labels, BATCH, workers, engine)
    parts = ours.arrays if plain else ours.tensors
    return Epochs(build, parts, least=settings.pick(0.5, 0.01))


def few(settings: Settings, count: int) -> peers.SmallPictures:
    """Return pictures for loaders that work sample by sample; fewer, to save time."""
    images, labels = pictures.small_pictures(settings)
    return peers.SmallPictures(images[:count], labels[:count])


def open_torch(settings: Settings, workers: int) -> Subject:
    """Open a case of PyTorch's loader with a NumPy transform for each sample."""
    build = partial(peers.torch_loader, few(settings, 10_000), BATCH, workers)
    return Epochs(build, peers.torch_arrays, least=settings.pick(0.5, 0.01))


def open_batched(settings: Settings, threads: int) -> Subject:
    """Open a case of torch's operations on whole batches, without a loader."""
    import torch

    torch.set_num_threads(threads)
    images, labels = pictures.small_pictures(settings)
    build = partial(peers.BatchedSmallPictures, images, labels, BATCH)
    return Epochs(build, peers.torch_arrays, least=settings.pick(0.5, 0.01))


def open_grain(settings: Settings, workers: int) -> Subject:
    """Open a case of grain's loader with the same transform for each sample."""
    build = partial(peers.grain_loader, few(settings, 5_000), BATCH, workers)
    return Epochs(build, ours.arrays, least=settings.pick(0.5, 0.01))


class Copies(Subject):
    """Copies of a batch's bytes from a large array into four buffers in turn."""

    def __init__(self, settings: Settings, threads: int) -> None:
        super().__init__()
        batches = settings.pick(50, 2)
        self.source = np.ones((batches, BATCH, BYTES), np.uint8)
        self.buffers = np.ones((4, BATCH, BYTES), np.uint8)
        self.pool = ThreadPoolExecutor(threads)
        self.parts = [
            slice(i * BATCH // threads, (i + 1) * BATCH // threads) for i in range(threads)
        ]
        self.calls = Calls(self.epoch, batches * BATCH, settings.pick(0.5, 0.01))

    def epoch(self) -> None:
        """Copy all batches once; each thread copies its rows of each batch."""
        list(self.pool.map(self._rows, self.parts))

    def run(self, witness: bool) -> Numbers:
        """Return samples per second."""
        return {"rate": 1e6 / self.calls.run(witness)["us"]}

    def close(self) -> None:
        """Stop the threads."""
        self.pool.shutdown()

    def _rows(self, rows: slice) -> None:
        for i, batch in enumerate(self.source):
            np.copyto(self.buffers[i % 4, rows], batch[rows])


def targets(result: Result) -> list[Target]:
    """Return the targets: compared with torch per sample, torch per batch, and the copy."""
    name, best = result.best(OURS, "rate")
    found = []
    for what, against, goal in (
        ("torch's DataLoader, per sample", PER_SAMPLE, 10.0),
        ("torch, batched operations", BATCHED, 3.0),
        ("memory copy of the same bytes", COPIES, 0.5),
    ):
        peer, rate = result.best(against, "rate")
        found.append(
            Target(
                f"CIFAR-10 in memory, over {what}",
                best / rate,
                goal,
                f"{name}: {median_and_range(result, name, 'rate')} samples/s",
                f"{peer}: {median_and_range(result, peer, 'rate')}",
            )
        )
    return found


def tables(result: Result) -> list[str]:
    """Return a table of all numbers."""
    return rate_table(result, result.outcomes)
