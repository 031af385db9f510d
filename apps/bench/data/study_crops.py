"""Crops of photographs with two workers: only the part of a JPEG that is read must be decoded.

PyTorch's loader uses the same decoder and OpenCV for a crop after a resize, and Pillow as
torchvision does for a random box.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import needle.data as data
from apps.bench.harness.case import Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range
from apps.bench.harness.turns import Result

from . import ours, peers, pictures
from .epochs import Epochs, rate_table

TITLE = "JPEG folder, two workers: a crop after a resize, and a random box, batches of 64"
BATCH, COUNT = 64, 1000
CROP, BOX = "resize 256, crop 200, flip", "random box to 224, flip, normalise"
TRANSFORMS = {
    CROP: [data.Resize((256, 256)), data.RandomCrop(size=200), data.RandomFlipHorizontal()],
    BOX: [data.RandomResizedCrop(224), data.RandomFlipHorizontal(), *ours.JPEG_TO_FLOATS[3:]],
}
PEERS = {
    CROP: (peers.photo_to_crop, peers.read_photo, ("cv2", "simplejpeg")),
    BOX: (peers.random_box_to_floats, peers.read_with_pillow, ("PIL",)),
}
GOALS = {CROP: 1.3, BOX: 2.0}


class WholeImages(data.ImageFolder):
    """A class of its own, of which the loader decodes whole images."""


def prepare(settings: Settings) -> None:
    """Write the files."""
    pictures.photo_folder(settings, settings.pick(COUNT, 16))


def cases(settings: Settings) -> list[Case]:
    """Return for each work the cases of needle, of needle with whole images, and of PyTorch."""
    found = []
    for work in TRANSFORMS:
        common: dict[str, Any] = {"group": work}
        whole = partial(open_ours, work=work, folder=WholeImages)
        opening = partial(open_ours, work=work, folder=data.ImageFolder)
        found += [
            Case(f"needle: {work}", opening, ours.TWO_THREADS, same_bytes=work, **common),
            Case(f"whole images: {work}", whole, ours.TWO_THREADS, same_bytes=work, **common),
            Case(
                f"torch: {work}",
                partial(open_torch, work=work),
                ours.ONE_THREAD,
                ("torch", *PEERS[work][2]),
                **common,
            ),
        ]
    return found


def open_ours(settings: Settings, work: str, folder: type[data.ImageFolder]) -> Subject:
    """Open a case of needle's loader, whose batches are NumPy arrays."""
    ours.numpy_batches()
    photos = folder(
        pictures.photo_folder(settings, settings.pick(COUNT, 16)), dtype="uint8", layout="HWC"
    )
    build = partial(
        data.DataLoader,
        photos,
        settings.pick(BATCH, 8),
        shuffle=True,
        seed=ours.SEED,
        num_workers=2,
        transforms=TRANSFORMS[work],
    )
    return Epochs(build, ours.arrays, least=settings.pick(0.5, 0.01))


def open_torch(settings: Settings, work: str) -> Subject:
    """Open a case of PyTorch's loader."""
    root = pictures.photo_folder(settings, settings.pick(COUNT, 16))
    augment, read, _ = PEERS[work]

    def build() -> Any:
        photos = peers.Photos(root, augment, read)
        return peers.torch_loader(photos, settings.pick(BATCH, 8), 2)

    return Epochs(build, peers.torch_arrays, least=settings.pick(0.5, 0.01))


def targets(result: Result) -> list[Target]:
    """Return the goals of both works over PyTorch."""
    return [
        Target(
            f"photographs, 2 workers, {work}: over torch",
            result.ratio(f"needle: {work}", f"torch: {work}", "rate"),
            GOALS[work],
            f"{median_and_range(result, f'needle: {work}', 'rate')} images/s",
            f"torch {median_and_range(result, f'torch: {work}', 'rate')}; needle with whole images "
            f"{median_and_range(result, f'whole images: {work}', 'rate')}",
        )
        for work in TRANSFORMS
    ]


def tables(result: Result) -> list[str]:
    """Return a table of all numbers."""
    note = "torch's crop is resized by OpenCV without antialiasing, its random box by Pillow with."
    return [note, "", *rate_table(result, result.outcomes)]
