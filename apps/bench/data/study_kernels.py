"""Single transforms and the fused chain on one thread, against OpenCV and albumentations.

Ours are compiled plans over a batch of 64 images, parameters drawn, into the batch's array; OpenCV
is called image by image and writes there too; albumentations' results are left where they are.
Times are the thread's own, since everything happens in one.
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

from . import ours
from .case import Calls, Case, Subject
from .harness import Result
from .pictures import MEAN, STD
from .settings import Settings
from .target import Target, short, spread, table

TITLE = "Single transforms and the fused chain, uint8 images, one thread, µs an image"
BATCH = 64
SIZES = (256, 32)
Image = Any


@dataclass(frozen=True)
class Work:
    """One transform (or chain) in needle, and in OpenCV: of (image, generator, out)."""

    transforms: Callable[[int], list[Any]]
    opencv: Callable[[Image, np.random.Generator, Image], object]
    albumentations: Callable[[Any, int], list[Any]] | None = None


def small(size: int) -> int:
    """The side of a crop, and of a resized image."""
    return size * 7 // 8


def window(image: Image, generator: np.random.Generator) -> Image:
    """A view of a crop anywhere."""
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
    """Of five ways tried the quickest for large images, and the quickest for small ones."""
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
    """What stands for albumentations' ToTensorV2, without torch."""
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def cases(settings: Settings) -> list[Case]:
    """A case is a library and a size, with all its work: importing costs more than running."""
    found = []
    for size in SIZES:
        for library in LIBRARIES:
            needs = () if library == "needle" else ("cv2", library)
            opening = partial(AllWork, library=library, size=size)
            found.append(Case(f"{library}, {size}", opening, ours.ONE_THREAD, needs, "kernels"))
    return found


class AllWork(Subject):
    """Every work of a library; numbers are named by it."""

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
        """Microseconds an image by work."""
        return {name: calls.run(witness)["us"] for name, calls in self.calls.items()}


def our_call(work: Work, images: Image) -> Callable[[], object]:
    """A plan over the whole batch into one array, on this thread."""
    size = images.shape[1]
    spec = ImageSpec(size, size, 3, images.dtype)
    plan = compile_plan(work.transforms(size), spec)
    keys = Ticket(0, ours.SEED, 0, np.arange(BATCH))
    out = plan.run(images, None, keys, threads=1)
    return lambda: plan.run(images, None, keys, out, 1)


def opencv_call(work: Work, images: Image) -> Callable[[], object]:
    """Image by image into the batch's array, without a copy more."""
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
    """Its transforms one after another, without the checks that Compose adds."""
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
    """OpenCV's time over ours."""
    return result.median(f"cv2, {size}", name) / result.median(f"needle, {size}", name)


def targets(result: Result) -> list[Target]:
    """Every transform as quick as OpenCV's, the fused chains twice as quick."""
    found = []
    for size in SIZES:
        single = [name for name in WORK if not name.startswith("chain")]
        worst = min(single, key=lambda name: (gain(result, name, size), name))
        chains = [name for name in WORK if name.startswith("chain")]
        for name, goal in ((worst, 1.0), *((chain, 2.0) for chain in chains)):
            what = name if goal == 2.0 else f"every single transform (worst: {name})"
            own, peer = (result.median(f"{library}, {size}", name) for library in LIBRARIES[:2])
            found.append(
                Target(
                    f"{size} x {size}, {what}: over OpenCV",
                    gain(result, name, size),
                    goal,
                    f"{short(own)} µs",
                    f"{short(peer)} µs",
                )
            )
    return found


def tables(result: Result) -> list[str]:
    """Microseconds an image."""
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


def draw(axes: Any, result: Result) -> None:
    """How many times as quick as OpenCV."""
    names = list(WORK)
    for offset, size in ((0.2, 256), (-0.2, 32)):
        places = np.arange(len(names))[::-1] + offset
        values = [gain(result, name, size) for name in names]
        axes.barh(places, values, height=0.38, label=f"{size} x {size}")
    axes.set_yticks(np.arange(len(names))[::-1], names, fontsize=6)
    axes.axvline(1, color="grey", linestyle=":", linewidth=1)
    axes.set_xscale("log")
    axes.set_xticks([], minor=True)
    axes.set_xticks([0.5, 1, 2, 5, 10, 20], ["½", "1", "2", "5", "10", "20"])
    axes.set(xlabel="times as quick as OpenCV", title="Transforms on one thread")
    axes.legend(fontsize=7)
