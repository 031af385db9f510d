"""A folder of photographs to normalised float32 batches: decoding is most of the work.

The goal is the rate of the decoder with the resize on one thread, times the number of cores.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Any

import numpy as np

from . import ours, peers, pictures
from .case import Calls, Case, Numbers, Subject
from .epochs import Epochs
from .harness import Result
from .loader_tables import rate_table
from .settings import Settings
from .target import Target, median_and_range, short

TITLE = "JPEG folder: resize 256, crop 224, flip, normalise, float32 NCHW, batches of 64"
BATCH, COUNT = 64, 512
WORKERS = (0, 1, 2, 4)
DECODER = "simplejpeg alone, 1 thread"
WITH_RESIZE = "simplejpeg and cv2.resize alone, 1 thread"
JPEG_LIBRARIES = ("cv2", "simplejpeg")


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
    opening = partial(open_ours, workers=2, engine="processes", antialias=False)
    name = "needle, 2 processes, not antialiased"
    found.append(Case(name, opening, ours.TWO_THREADS, rounds=3))
    for workers in settings.pick((0, 2, 4), (2,)):
        opening = partial(open_torch, workers=workers)
        needs = ("torch", *JPEG_LIBRARIES)
        found.append(Case(f"torch, {workers} workers", opening, ours.ONE_THREAD, needs))
    for name, resize in ((DECODER, False), (WITH_RESIZE, True)):
        opening = partial(Decoding, resize=resize)
        found.append(Case(name, opening, ours.ONE_THREAD, JPEG_LIBRARIES))
    return found


def our_name(workers: int, engine: str) -> str:
    """Return the name of the case."""
    return f"needle, {workers} {engine}" if workers else "needle, sequential, 1 thread"


def open_ours(
    settings: Settings, workers: int, engine: str | None, antialias: bool = True
) -> Subject:
    """Open a case of needle's loader."""
    import needle.data as data

    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
    resize = data.Resize((256, 256), antialias=antialias)
    transforms = [resize, *ours.JPEG_TO_FLOATS[1:]]
    batch = settings.pick(BATCH, 8)
    build = partial(ours.photo_loader, root, transforms, batch, workers, engine=engine)
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
    """Return the target: at least 90 % of the decoder's rate times the number of cores."""
    cores = os.cpu_count() or 1
    names = [our_name(w, e) for e in ("processes", "threads") for w in WORKERS]
    name, best = result.best(names, "rate")
    limit = result.median(WITH_RESIZE, "rate") * cores
    decoding = result.median(DECODER, "rate") * cores
    peer, _ = result.best([f"torch, {w} workers" for w in (0, 2, 4)], "rate")
    return [
        Target(
            f"JPEG folder, over decoder and resize on one thread x {cores} cores",
            best / limit,
            0.9,
            f"{name}: {median_and_range(result, name, 'rate')} images/s",
            f"{short(limit)}; decoding alone {short(decoding)}; {peer}: "
            f"{median_and_range(result, peer, 'rate')}",
        )
    ]


def tables(result: Result) -> list[str]:
    """Return a table of all numbers."""
    note = "needle's resize is antialiased unless noted, which reads more pixels; OpenCV's is not."
    return [note, "", *rate_table(result, result.outcomes)]
