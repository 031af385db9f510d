"""Small pictures in memory (CIFAR-10's 50 000), cropped, flipped and normalised to float32 NCHW.

The machine's limit is a plain copy of the same bytes: a sample has 3 072 bytes read and 12 288
bytes written, so 15 360 are copied, batch by batch as in a loader.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

import needle.data as data
from apps.bench.harness.case import Calls, Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, versus
from apps.bench.harness.turns import Result

from . import ours, peers, pictures
from .epochs import Epochs

TITLE = "CIFAR-10 in memory: crop, flip, normalise, float32 NCHW, batches of 256"
BATCH = 256
BYTES = 3072 + 12288
FEW = 10_000
"""The pictures of a loader that works sample by sample, fewer to save time."""

OURS = {
    "needle, inline, 2 kernel threads": (0, None),
    "needle, 2 threads": (2, "threads"),
    "needle, 2 processes": (2, "processes"),
}
PER_SAMPLE = {f"torch, per sample, {workers} workers": workers for workers in (0, 2)}
BATCHED = {f"torch, batched operations, {threads} threads": threads for threads in (1, 2)}
COPIES = {f"memory copy of 15 360 B, {threads} threads": threads for threads in (1, 2)}


def cases(settings: Settings) -> list[Case]:
    """Return the cases of needle, PyTorch and the copy."""
    found = []
    for name, (workers, engine) in OURS.items():
        opening = partial(open_ours, workers=workers, engine=engine)
        found.append(Case(name, opening, ours.TWO_THREADS))
    for name, workers in PER_SAMPLE.items():
        opening = partial(open_torch, workers=workers)
        found.append(Case(name, opening, ours.ONE_THREAD, ("torch",), rounds=3))
    for name, threads in BATCHED.items():
        opening = partial(open_batched, threads=threads)
        found.append(Case(name, opening, {}, ("torch",)))
    for name, threads in COPIES.items():
        found.append(Case(name, partial(Copies, threads=threads)))
    return found


def open_ours(settings: Settings, workers: int, engine: str | None) -> Subject:
    """Open a case of needle's loader."""
    small = data.ImageArrays(*pictures.small_pictures(settings), dtype="uint8", layout="HWC")
    options = {"engine": engine, "transforms": ours.SMALL_TO_FLOATS}
    build = partial(ours.loader, small, BATCH, workers, **options)
    return Epochs(build, ours.tensors, settings.pick(0.5, 0.01))


def open_torch(settings: Settings, workers: int) -> Subject:
    """Open a case of PyTorch's loader with a NumPy transform for each sample."""
    images, labels = pictures.small_pictures(settings)
    few = peers.SmallPictures(images[:FEW], labels[:FEW])
    build = partial(peers.torch_loader, few, BATCH, workers)
    return Epochs(build, peers.torch_arrays, settings.pick(0.5, 0.01))


def open_batched(settings: Settings, threads: int) -> Subject:
    """Open a case of torch's operations on whole batches, without a loader."""
    import torch

    torch.set_num_threads(threads)
    build = partial(peers.BatchedSmallPictures, *pictures.small_pictures(settings), BATCH)
    return Epochs(build, peers.torch_arrays, settings.pick(0.5, 0.01))


class Copies(Subject):
    """Copies of a batch's bytes, from a large array into each of four buffers in turn."""

    def __init__(self, settings: Settings, threads: int) -> None:
        batches = settings.pick(50, 2)
        self.source = np.ones((batches, BATCH, BYTES), np.uint8)
        self.buffers = np.ones((4, BATCH, BYTES), np.uint8)
        self.pool = ThreadPoolExecutor(threads)
        self.parts = [
            slice(i * BATCH // threads, (i + 1) * BATCH // threads) for i in range(threads)
        ]
        self.calls = Calls({"epoch": self.epoch}, settings.pick(0.5, 0.01), items=batches * BATCH)

    def epoch(self) -> None:
        """Copy all batches once; each thread copies its rows of each batch."""
        list(self.pool.map(self._rows, self.parts))

    def run(self) -> Numbers:
        """Return samples per second."""
        return {"rate": 1e3 / self.calls.run()["epoch"]}

    def close(self) -> None:
        """Stop the threads."""
        self.pool.shutdown()

    def _rows(self, rows: slice) -> None:
        for i, batch in enumerate(self.source):
            np.copyto(self.buffers[i % 4, rows], batch[rows])


def targets(result: Result) -> list[Target]:
    """Return the targets: compared with torch per sample, torch per batch, and the copy."""
    fastest = result.best(OURS, "rate")[0]
    return [
        versus(
            f"CIFAR-10 in memory, over {what}",
            result,
            (fastest, result.best(against, "rate")[0]),
            goal,
            unit="samples/s",
        )
        for what, against, goal in (
            ("torch's DataLoader, per sample", PER_SAMPLE, 10.0),
            ("torch, batched operations", BATCHED, 3.0),
            ("memory copy of the same bytes", COPIES, 0.5),
        )
    ]
