"""A folder of photographs to normalised float32 batches: decoding is most of the work.

The limit is the rate of the decoder with the resize on one thread, times the number of cores.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np

from apps.bench.harness.case import Calls, Case, Numbers, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range, short
from apps.bench.harness.turns import Result

from . import ours, peers, pictures
from .epochs import Epochs, rate_table

TITLE = "JPEG folder: resize 256, crop 224, flip, normalise, float32 NCHW, batches of 64"
BATCH, COUNT = 64, 512
WORKERS = (0, 1, 2, 4, 8)
SEQUENTIAL, TWO = "needle, sequential, 1 thread", "needle, 2 processes"
DECODER = "simplejpeg alone, 1 thread"
WITH_RESIZE = "simplejpeg and cv2.resize alone, 1 thread"
LIBRARIES = ("cv2", "simplejpeg")


def prepare(settings: Settings) -> None:
    """Write the files."""
    pictures.photo_folder(settings, settings.pick(COUNT, 16))


def cases(settings: Settings) -> list[Case]:
    """Return the cases of needle with processes and threads, of PyTorch, and of the decoder."""
    found = []
    for engine in ("processes", "threads"):
        for workers in settings.pick(WORKERS, (0, 2)):
            if workers or engine == "processes":
                opening = partial(open_ours, workers=workers, engine=engine if workers else None)
                threads = ours.TWO_THREADS if workers else ours.ONE_THREAD
                name, rounds = our_name(workers, engine), None if workers in (0, 2) else 3
                found.append(Case(name, opening, threads, same_bytes="jpeg", rounds=rounds))
    for workers in settings.pick((0, 2, 4), (2,)):
        opening = partial(open_torch, workers=workers)
        name = f"torch, {workers} workers"
        found.append(Case(name, opening, ours.ONE_THREAD, ("torch", *LIBRARIES)))
    for name, resize in ((DECODER, False), (WITH_RESIZE, True)):
        found.append(Case(name, partial(Decoding, resize=resize), ours.ONE_THREAD, LIBRARIES))
    return found


def our_name(workers: int, engine: str) -> str:
    """Return the name of the case."""
    return f"needle, {workers} {engine}" if workers else SEQUENTIAL


def open_ours(settings: Settings, workers: int, engine: str | None) -> Subject:
    """Open a case of needle's loader."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
    batch, chain = settings.pick(BATCH, 8), ours.JPEG_TO_FLOATS
    build = partial(ours.photo_loader, root, chain, batch, workers, engine=engine)
    return Epochs(build, ours.tensors, least=settings.pick(0.5, 0.01))


def open_torch(settings: Settings, workers: int) -> Subject:
    """Open a case of PyTorch's loader with simplejpeg and OpenCV."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))

    def build() -> Any:
        photos = peers.Photos(root, peers.photo_to_floats)
        return peers.torch_loader(photos, settings.pick(BATCH, 8), workers)

    return Epochs(build, peers.torch_arrays, least=settings.pick(0.5, 0.01))


class Decoding(Subject):
    """Reading and decoding of every file, with an optional resize."""

    def __init__(self, settings: Settings, resize: bool) -> None:
        super().__init__()
        root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
        self.paths, self.resize = pictures.files(root)[: settings.pick(300, 16)], resize
        self.calls = Calls(self.all_files, len(self.paths), 0.01)

    def all_files(self) -> None:
        """Process all files once."""
        for path in self.paths:
            image = peers.read_photo(path)
            if self.resize:
                image = peers.resized(image, 256)
            np.asarray(image[0, 0]).sum()

    def run(self, witness: bool) -> Numbers:
        """Return files per second, and CPU seconds per thousand files."""
        cpu = time.process_time()
        rate = 1e6 / self.calls.run(witness)["us"]
        files = len(self.paths) * self.calls.calls
        return {"rate": rate, "cpu": (time.process_time() - cpu) / files * 1000}


def targets(result: Result) -> list[Target]:
    """Return the targets: 90 % of the decoder's rate, and the gain of workers."""
    cores = os.cpu_count() or 1
    names = [our_name(w, e) for e in ("processes", "threads") for w in WORKERS]
    name, best = result.best(names, "rate")
    limit = result.median(WITH_RESIZE, "rate") * cores
    decoding = result.median(DECODER, "rate") * cores
    peer, _ = result.best([f"torch, {w} workers" for w in (0, 2, 4)], "rate")
    found = [
        Target(
            f"JPEG folder, over decoder and resize on one thread x {cores} cores",
            best / limit,
            0.9,
            f"{name}: {median_and_range(result, name, 'rate')} images/s",
            f"{short(limit)}; decoding alone {short(decoding)}; {peer}: "
            f"{median_and_range(result, peer, 'rate')}",
        )
    ]
    eight = our_name(8, "processes")
    for case, other, words, goal in (
        (TWO, SEQUENTIAL, "2 workers over sequential", 1.85),
        (eight, TWO, "8 workers over 2", 0.9),
    ):
        texts = (median_and_range(result, each, "rate") for each in (case, other))
        own, peer = (f"{text} images/s" for text in texts)
        value = result.ratio(case, other, "rate")
        found.append(Target(f"JPEG folder, {words}", value, goal, own, peer))
    return found


def tables(result: Result) -> list[str]:
    """Return a table of all numbers."""
    note = "needle's resize is antialiased, which reads more pixels; OpenCV's is not."
    return [note, "", *rate_table(result, result.outcomes)]
