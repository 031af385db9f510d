"""Single transforms and the fused chain on one thread, against OpenCV and albumentations.

needle runs compiled plans over a batch of 64 images, including the draw of parameters, into the
array of the batch. OpenCV is called image by image and writes into the same array; results of
albumentations are not copied. Times are those of the one thread that does all work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import needle.data as data
from needle.data.samples.ticket import Ticket
from needle.data.transforms import ImageSpec
from needle.data.transforms.compile import compile_plan
from needle.data.transforms.execute import Destination, Images

from . import ours
from .case import Calls, Case, Subject
from .harness import Result
from .pictures import MEAN, STD
from .settings import Settings
from .target import Target, median_and_range, short, spread, table

TITLE = "Single transforms and the fused chain, uint8 images, one thread, µs an image"
BATCH = 64
SIZES = (256, 32)
Image = Any


@dataclass(frozen=True)
class Work:
    """A transform or chain in needle and in OpenCV, the latter with (image, generator, out)."""

    transforms: Callable[[int], list[Any]]
    opencv: Callable[[Image, np.random.Generator, Image], object]
    albumentations: Callable[[Any, int], list[Any]] | None = None


def small(size: int) -> int:
    """Return the side of a crop and of a resized image."""
    return size * 7 // 8


def window(image: Image, generator: np.random.Generator) -> Image:
    """Return a view of a random crop."""
    side = small(image.shape[0])
    top, left = generator.integers(0, image.shape[0] - side + 1, 2)
    return image[top : top + side, left : left + side]


def cv_crop(image: Image, generator: np.random.Generator, out: Image) -> object:
    return np.copyto(out, window(image, generator))


def cv_flip(image: Image, generator: np.random.Generator, out: Image, code: int = 1) -> object:
    import cv2

    return cv2.flip(image, code, dst=out)


def cv_permute(image: Image, generator: np.random.Generator, out: Image) -> object:
    import cv2

    return cv2.split(image, list(out))


def cv_resize(
    image: Image, generator: np.random.Generator, out: Image, area: bool = False
) -> object:
    import cv2

    side = small(image.shape[0])
    method = cv2.INTER_AREA if area else cv2.INTER_LINEAR
    return cv2.resize(image, (side, side), dst=out, interpolation=method)


def cv_colour(image: Image, generator: np.random.Generator, out: Image) -> object:
    import cv2

    contrast, brightness = 1 + generator.uniform(-0.2, 0.2, 2)
    return cv2.convertScaleAbs(image, dst=out, alpha=contrast, beta=(brightness - 1) * 255)


def cv_normalize(image: Image, generator: np.random.Generator, out: Image) -> None:
    """Normalise with the fastest of five variants tried, for large and for small images."""
    import cv2

    if image.shape[0] <= 64:
        cv2.split(cv2.LUT(image, TABLE), list(out))
        return
    for channel, plane in enumerate(cv2.split(image)):
        scale, shift = 1 / 255 / STD[channel], -MEAN[channel] / STD[channel]
        cv2.addWeighted(plane, scale, plane, 0, shift, dst=out[channel], dtype=cv2.CV_32F)


def cv_chain(image: Image, generator: np.random.Generator, out: Image, colour: bool = True) -> None:
    import cv2

    crop = window(image, generator)
    if generator.random() < 0.5:
        crop = cv2.flip(crop, 1)
    if colour:
        crop = cv_colour(crop, generator, None)
    cv_normalize(crop, generator, out)


TABLE = ((np.arange(256)[:, None] / 255 - MEAN) / STD).astype(np.float32)[:, None]
TO_FLOATS = [data.ToFloat(), data.Normalize(MEAN, STD), data.ToCHW()]
COLOUR = data.RandomBrightnessContrast(p=1)

WORK: dict[str, Work] = {
    "crop": Work(
        lambda size: [data.RandomCrop(size=small(size))],
        cv_crop,
        lambda A, size: [A.RandomCrop(small(size), small(size))],
    ),
    "flip left-right": Work(
        lambda size: [data.RandomFlipHorizontal(p=1)],
        cv_flip,
        lambda A, size: [A.HorizontalFlip(p=1)],
    ),
    "flip up-down": Work(
        lambda size: [data.RandomFlipVertical(p=1)],
        partial(cv_flip, code=0),
        lambda A, size: [A.VerticalFlip(p=1)],
    ),
    "permute to CHW": Work(lambda size: [data.ToCHW()], cv_permute),
    "resize, bilinear": Work(
        lambda size: [data.Resize((small(size),) * 2, antialias=False)],
        cv_resize,
        lambda A, size: [A.Resize(small(size), small(size))],
    ),
    "resize, antialiased": Work(
        lambda size: [data.Resize((small(size),) * 2)], partial(cv_resize, area=True)
    ),
    "brightness and contrast": Work(
        lambda size: [COLOUR],
        cv_colour,
        lambda A, size: [A.RandomBrightnessContrast(p=1)],
    ),
    "normalise to float32 CHW": Work(
        lambda size: TO_FLOATS,
        cv_normalize,
        lambda A, size: [A.Normalize(MEAN, STD), cv_to_chw],
    ),
    "chain: crop, flip, normalise to CHW": Work(
        lambda size: [
            data.RandomCrop(size=small(size)),
            data.RandomFlipHorizontal(),
            *TO_FLOATS,
        ],
        partial(cv_chain, colour=False),
        lambda A, size: [
            A.RandomCrop(small(size), small(size)),
            A.HorizontalFlip(p=0.5),
            A.Normalize(MEAN, STD),
            cv_to_chw,
        ],
    ),
    "chain: crop, flip, colour, normalise to CHW": Work(
        lambda size: [
            data.RandomCrop(size=small(size)),
            data.RandomFlipHorizontal(),
            COLOUR,
            *TO_FLOATS,
        ],
        cv_chain,
        lambda A, size: [
            A.RandomCrop(small(size), small(size)),
            A.HorizontalFlip(p=0.5),
            A.RandomBrightnessContrast(p=1),
            A.Normalize(MEAN, STD),
            cv_to_chw,
        ],
    ),
}
LIBRARIES = ("needle", "cv2", "albumentations")


def cv_to_chw(image: Image) -> Image:
    """Replace albumentations' ToTensorV2 without torch."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def cases(settings: Settings) -> list[Case]:
    """Return a case for each library and size, with all its work: imports take longer than runs."""
    found = []
    for size in SIZES:
        for library in LIBRARIES:
            needs = () if library == "needle" else ("cv2", library)
            opening = partial(AllWork, library=library, size=size)
            found.append(Case(f"{library}, {size}", opening, ours.ONE_THREAD, needs, "kernels"))
    return found


class AllWork(Subject):
    """All work of a library; numbers have the names of the work."""

    def __init__(self, settings: Settings, library: str, size: int) -> None:
        super().__init__()
        generator = np.random.default_rng(0)
        images = generator.integers(0, 256, (BATCH, size, size, 3), dtype=np.uint8)
        make = {"needle": our_call, "cv2": opencv_call, "albumentations": albumentations_call}
        least = settings.pick(0.03, 0.001)
        self.calls = {}
        for name, work in WORK.items():
            call = make[library](work, images)
            if call is not None:
                self.calls[name] = Calls(call, BATCH, least, time.thread_time)

    def run(self, witness: bool) -> dict[str, float]:
        """Return microseconds per image for each work."""
        return {name: calls.run(witness)["us"] for name, calls in self.calls.items()}


def our_call(work: Work, images: Image) -> Callable[[], object]:
    """Return a call that runs a plan over the whole batch into one array, on this thread."""
    size = images.shape[1]
    spec = ImageSpec(size, size, 3, images.dtype)
    plan = compile_plan(work.transforms(size), spec)
    ticket = Ticket(0, ours.SEED, 0, np.arange(BATCH))
    out = plan.run(Images(images), ticket, Destination(threads=1))
    return lambda: plan.run(Images(images), ticket, Destination(out, 1))


def opencv_call(work: Work, images: Image) -> Callable[[], object]:
    """Return a call that writes image by image into the batch's array without further copies."""
    import cv2

    cv2.setNumThreads(1)
    generator = np.random.default_rng(0)
    size = images.shape[1]
    made = compile_plan(work.transforms(size), ImageSpec(size, size, 3, images.dtype)).output
    assert made is not None
    out = np.empty((BATCH, *made.shape), made.dtype)

    def call() -> None:
        for image, row in zip(images, out):
            work.opencv(image, generator, row)

    return call


def albumentations_call(work: Work, images: Image) -> Callable[[], object] | None:
    """Return a call of its transforms one after another, without the checks of Compose."""
    import albumentations
    import cv2

    if work.albumentations is None:
        return None
    cv2.setNumThreads(1)
    steps = work.albumentations(albumentations, images.shape[1])

    def one(image: Image) -> Image:
        for step in steps:
            known = isinstance(step, albumentations.BasicTransform)
            image = step(image=image)["image"] if known else step(image)
        return image

    return lambda: [one(image) for image in images]


def gain(result: Result, name: str, size: int) -> float:
    """Return OpenCV's time over needle's."""
    return result.median(f"cv2, {size}", name) / result.median(f"needle, {size}", name)


def targets(result: Result) -> list[Target]:
    """Return the targets: transforms as fast as OpenCV's, fused chains twice as fast."""
    found = []
    for size in SIZES:
        single = [name for name in WORK if not name.startswith("chain")]
        worst = min(single, key=lambda name: (gain(result, name, size), name))
        chains = [name for name in WORK if name.startswith("chain")]
        for name, goal in ((worst, 1.0), *((chain, 2.0) for chain in chains)):
            what = name if goal == 2.0 else f"every single transform (worst: {name})"
            own, peer = (
                median_and_range(result, f"{library}, {size}", name) for library in LIBRARIES[:2]
            )
            found.append(
                Target(
                    f"{size} x {size}, {what}: over OpenCV",
                    gain(result, name, size),
                    goal,
                    f"{own} µs",
                    f"{peer} µs",
                )
            )
    return found


def tables(result: Result) -> list[str]:
    """Return tables of microseconds per image."""
    lines = []
    for size in SIZES:
        rows = []
        for name in WORK:
            cells = []
            for library in LIBRARIES:
                outcome = result.outcomes.get(f"{library}, {size}")
                known = outcome is not None and name in outcome.values
                cells.append(spread(outcome.median(name), outcome.span(name)) if known else "–")
            rows.append([f"{name}, {size} x {size}", *cells, short(gain(result, name, size))])
        lines += table(("µs an image", *LIBRARIES, "OpenCV's over ours"), rows)
    return lines
