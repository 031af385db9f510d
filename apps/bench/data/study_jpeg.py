"""Load normalised float32 batches from a folder of photographs, mostly a test of decoding.

The limit is the rate of the decoder with the resize on one thread, times the number of cores.
needle's resize is antialiased, which reads more pixels; OpenCV's is not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from apps.bench.harness.case import Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range, short
from apps.bench.harness.turns import Result

from . import ours, peers, pictures
from .epochs import Epochs

TITLE = "JPEG folder: resize 256, crop 224, flip, normalise, float32 NCHW, batches of 64"
BATCH, COUNT = 64, 512
OURS = {"needle, 2 processes": "processes", "needle, 2 threads": "threads"}
TORCH = "torch, 2 workers"
DECODER = "simplejpeg alone, 1 thread"
WITH_RESIZE = "simplejpeg and cv2.resize alone, 1 thread"
LIBRARIES = ("cv2", "simplejpeg")


def prepare(settings: Settings) -> None:
    """Write the files."""
    pictures.photo_folder(settings, settings.pick(COUNT, 16))


def cases(settings: Settings) -> list[Case]:
    """Return the cases: needle with processes and with threads, PyTorch, and the decoder."""
    found = [
        Case(name, partial(open_ours, engine=engine), ours.TWO_THREADS)
        for name, engine in OURS.items()
    ]
    found.append(Case(TORCH, open_torch, ours.ONE_THREAD, ("torch", *LIBRARIES)))
    for name, resize in ((DECODER, False), (WITH_RESIZE, True)):
        opening = partial(open_decoder, resize=resize)
        found.append(Case(name, opening, ours.ONE_THREAD, LIBRARIES))
    return found


def open_ours(settings: Settings, engine: str) -> Subject:
    """Open a case of needle's loader."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
    build = partial(ours.photo_loader, root, settings.pick(BATCH, 8), 2, engine=engine)
    return Epochs(build, ours.tensors, settings.pick(0.5, 0.01))


def open_torch(settings: Settings) -> Subject:
    """Open a case of PyTorch's loader with simplejpeg and OpenCV."""
    photos = peers.Photos(pictures.photo_folder(settings, settings.pick(COUNT, 16)))
    build = partial(peers.torch_loader, photos, settings.pick(BATCH, 8), 2)
    return Epochs(build, peers.torch_arrays, settings.pick(0.5, 0.01))


def open_decoder(settings: Settings, resize: bool) -> Subject:
    """Open a case of reading and decoding every file, with an optional resize."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
    build = partial(Decoded, pictures.files(root)[: settings.pick(300, 16)], resize)
    return Epochs(build, tuple, settings.pick(0.5, 0.01))


class Decoded:
    """An iterable that decodes each file and yields its first pixel as a batch."""

    def __init__(self, paths: list[str], resize: bool) -> None:
        self.paths, self.resize = paths, resize

    def __iter__(self) -> Iterator[Any]:
        for path in self.paths:
            image = peers.read_photo(path)
            image = peers.resized(image, 256) if self.resize else image
            yield image[:1, 0], np.zeros(1)


def targets(result: Result) -> list[Target]:
    """Return the target: 90 % of the decoder's rate."""
    cores = os.cpu_count() or 1
    name, best = result.best(OURS, "rate")
    limit, decoding = (result.median(each, "rate") * cores for each in (WITH_RESIZE, DECODER))
    what = f"JPEG folder, over decoder and resize on one thread x {cores} cores"
    own = f"{name}: {median_and_range(result, name, 'rate')} images/s"
    peer = f"{TORCH}: {median_and_range(result, TORCH, 'rate')}"
    words = f"{short(limit)}; decoding alone {short(decoding)}; {peer}"
    return [Target(what, best / limit, 0.9, own, words)]
