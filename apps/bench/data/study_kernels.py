"""Compare single transforms and the fused chain with OpenCV, on one thread.

needle runs compiled plans over a batch of 64 images, including the draw of parameters, into the
array of the batch. OpenCV is called image by image and writes into the same array. All work is
done, and timed, in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import needle.data as data
from apps.bench.harness.case import Calls, Case, Subject
from apps.bench.harness.settings import Settings
from apps.bench.harness.target import Target, median_and_range
from apps.bench.harness.turns import Result
from needle.data.samples.ticket import Ticket
from needle.data.transforms import ImageSpec
from needle.data.transforms.compile import Chain, placed
from needle.data.transforms.execute import Destination, Images

from . import ours
from .pictures import MEAN, STD

TITLE = "Single transforms and the fused chain, uint8 images, one thread, µs per image"
BATCH = 64
SIZES = (256, 32)
LIBRARIES = ("needle", "cv2")
TABLE = ((np.arange(256)[:, None] / 255 - MEAN) / STD).astype(np.float32)[:, None]
Image = Any


def small(size: int) -> int:
    """Return the side lengths of a crop and of a resized image."""
    return size * 7 // 8


class OpenCV:
    """The transforms in OpenCV: each method takes an image and writes into ``out``."""

    def __init__(self) -> None:
        import cv2

        cv2.setNumThreads(1)
        self.cv2, self.random = cv2, np.random.default_rng(0)

    def window(self, image: Image) -> Image:
        side = small(image.shape[0])
        top, left = self.random.integers(0, image.shape[0] - side + 1, 2)
        return image[top : top + side, left : left + side]

    def crop(self, image: Image, out: Image) -> None:
        np.copyto(out, self.window(image))

    def flip(self, image: Image, out: Image, code: int = 1) -> None:
        self.cv2.flip(image, code, dst=out)

    def permute(self, image: Image, out: Image) -> None:
        self.cv2.split(image, list(out))

    def resize(self, image: Image, out: Image, area: bool = False) -> None:
        method = self.cv2.INTER_AREA if area else self.cv2.INTER_LINEAR
        self.cv2.resize(image, (small(image.shape[0]),) * 2, dst=out, interpolation=method)

    def colour(self, image: Image, out: Image) -> Image:
        contrast, brightness = 1 + self.random.uniform(-0.2, 0.2, 2)
        shift = (brightness - 1) * 255
        return self.cv2.convertScaleAbs(image, dst=out, alpha=contrast, beta=shift)

    def normalize(self, image: Image, out: Image) -> None:
        """Normalise with the fastest of five variants tried, for large and for small images."""
        if image.shape[0] <= 64:
            self.cv2.split(self.cv2.LUT(image, TABLE), list(out))
            return
        for channel, plane in enumerate(self.cv2.split(image)):
            scale, shift = 1 / 255 / STD[channel], -MEAN[channel] / STD[channel]
            add = partial(self.cv2.addWeighted, plane, scale, plane, 0, shift)
            add(dst=out[channel], dtype=self.cv2.CV_32F)

    def chain(self, image: Image, out: Image, colour: bool = False) -> None:
        crop = self.window(image)
        if self.random.random() < 0.5:
            crop = self.cv2.flip(crop, 1)
        self.normalize(self.colour(crop, None) if colour else crop, out)


@dataclass(frozen=True)
class Work:
    """A transform or chain of needle's, for images of a given size, and its OpenCV equivalent."""

    transforms: Callable[[int], list[Any]]
    opencv: Callable[[OpenCV, Image, Image], object]


TO_FLOATS = [data.ToFloat(), data.Normalize(MEAN, STD), data.ToCHW()]
COLOUR = data.RandomBrightnessContrast(p=1)


def cropped(size: int, *more: Any) -> list[Any]:
    """Return a chain that begins with a random crop."""
    return [data.RandomCrop(size=small(size)), *more]


def resized(size: int, antialias: bool) -> list[Any]:
    """Return a resize to the smaller size."""
    return [data.Resize((small(size),) * 2, antialias=antialias)]


FLIP = data.RandomFlipHorizontal()
WORK: dict[str, Work] = {
    "crop": Work(cropped, OpenCV.crop),
    "flip left-right": Work(lambda size: [data.RandomFlipHorizontal(p=1)], OpenCV.flip),
    "flip up-down": Work(lambda size: [data.RandomFlipVertical(p=1)], partial(OpenCV.flip, code=0)),
    "permute to CHW": Work(lambda size: [data.ToCHW()], OpenCV.permute),
    "resize, bilinear": Work(partial(resized, antialias=False), OpenCV.resize),
    "resize, antialiased": Work(
        partial(resized, antialias=True), partial(OpenCV.resize, area=True)
    ),
    "brightness and contrast": Work(lambda size: [COLOUR], OpenCV.colour),
    "normalise to float32 CHW": Work(lambda size: TO_FLOATS, OpenCV.normalize),
    "chain: crop, flip, normalise to CHW": Work(
        lambda size: cropped(size, FLIP, *TO_FLOATS), OpenCV.chain
    ),
    "chain: crop, flip, colour, normalise to CHW": Work(
        lambda size: cropped(size, FLIP, COLOUR, *TO_FLOATS), partial(OpenCV.chain, colour=True)
    ),
}


def cases(settings: Settings) -> list[Case]:
    """Return a case for each library and size, with all its work: imports take longer than runs."""
    return [
        Case(
            f"{library}, {size}",
            partial(open_work, library=library, size=size),
            ours.ONE_THREAD,
            () if library == "needle" else (library,),
        )
        for size in SIZES
        for library in LIBRARIES
    ]


def open_work(settings: Settings, library: str, size: int) -> Subject:
    """Open all work of a library; results are named after the work."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (BATCH, size, size, 3), dtype=np.uint8)
    make = our_call if library == "needle" else opencv_call
    calls = {name: make(work, images) for name, work in WORK.items()}
    least = settings.pick(0.03, 0.001)
    return Calls(calls, least, items=BATCH / 1e3, clock=time.thread_time)  # microseconds per image


def our_call(work: Work, images: Image) -> Callable[[], object]:
    """Return a function that runs a plan over the whole batch into one array, on this thread."""
    plan = Chain(placed(work.transforms(images.shape[1]))).plan(
        ImageSpec(*images.shape[1:], np.uint8)
    )
    ticket = Ticket(0, ours.SEED, 0, np.arange(BATCH))
    out = plan.run(Images(images), ticket, Destination(threads=1))
    return lambda: plan.run(Images(images), ticket, Destination(out, 1))


def opencv_call(work: Work, images: Image) -> Callable[[], object]:
    """Return a function that writes images into the batch's array without further copies."""
    opencv, spec = OpenCV(), ImageSpec(*images.shape[1:], np.uint8)
    made = Chain(placed(work.transforms(images.shape[1]))).plan(spec).output
    assert made is not None
    out = np.empty((BATCH, *made.shape), made.dtype)

    def call() -> None:
        for image, row in zip(images, out):
            work.opencv(opencv, image, row)

    return call


def targets(result: Result) -> list[Target]:
    """Return the targets: transforms as fast as OpenCV's, fused chains twice as fast."""
    found = []
    chains = [name for name in WORK if name.startswith("chain")]
    for size in SIZES:
        pair = (f"cv2, {size}", f"needle, {size}")
        gains = {name: result.ratio(*pair, name) for name in WORK}
        worst = min(set(WORK) - set(chains), key=lambda name: (gains[name], name))
        for name, goal in ((worst, 1.0), *((chain, 2.0) for chain in chains)):
            what = name if name in chains else f"every single transform (worst: {name})"
            peer, own = (f"{median_and_range(result, case, name)} µs" for case in pair)
            words = f"{size} x {size}, {what}: over OpenCV"
            found.append(Target(words, gains[name], goal, own, peer))
    return found
