"""Execute one segment of a plan: adjacent transforms applied to a batch of images.

A "native" segment is one call to an executor. A "defined" segment calls ``apply`` for each image,
with parameters drawn for the whole batch; native segments are tested against it. A "python" segment
calls callables for each image. compile.py chooses the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..samples import native_kernels
from ..samples.buffer_pool import empty
from ..samples.native_kernels import Array
from ..samples.pytree import tag_sample
from ..samples.random_source import keyed, reseed_globals
from ..samples.ticket import Indices, Ticket
from .arguments import in_colour_range
from .base import ImageSpec, OneOf, Rows, Sizes, Step, output_of
from .executors import DeviceExecutor, Executor, device_executor

FILLING = ("crop", "affine", "erase")
"""Steps with the value of erased pixels, or of pixels outside the image, as last constant."""


@dataclass(frozen=True)
class Choice:
    """The condition that a OneOf with this random stream chose ``child`` for an image."""

    one_of: OneOf
    stream: int
    child: int


@dataclass(frozen=True)
class PlacedTransform:
    """A transform at its position in a list, with its random stream and the spec of its images.

    choices: the transform runs only for images that satisfy all of these conditions. step: the
    native form. why: the reason why there is no native form. after: the first two sizes of the
    result, if they are the same for all images.
    """

    transform: Any
    stream: int
    choices: tuple[Choice, ...] = ()
    spec: ImageSpec | None = None
    step: Step | None = None
    why: str = ""
    after: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The name of the transform, used in messages."""
        name = getattr(self.transform, "__name__", None)
        return name if isinstance(name, str) else type(self.transform).__name__


@dataclass(frozen=True, eq=False)
class Segment:
    """Adjacent transforms that run in the same way, and the spec of their result if known."""

    kind: str
    parts: tuple[PlacedTransform, ...]
    output: ImageSpec | None
    kept: dict[int, tuple[Sizes, Rows]] = field(default_factory=dict)
    """Cached parameters and the image sizes they are valid for, keyed by the part's index."""

    @cached_property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of one image of the result; None if it varies or is unknown."""
        if self.output is None or varies(self.output):
            return None
        return tuple(size for size in self.output.shape if size is not None)

    @cached_property
    def steps(self) -> list[tuple[str, tuple[float, ...]]]:
        """The native steps of all parts."""
        return [(part.step.name, part.step.constants) for part in self.parts if part.step]


@dataclass(frozen=True)
class Images:
    """The images of a batch: an array ``(N, ...)`` with rows ``indices`` (None: all), or a list."""

    pixels: Array | list[Any]
    indices: Indices | None = None

    def __len__(self) -> int:
        return len(self.pixels if self.indices is None else self.indices)

    def each(self) -> Iterator[Any]:
        """Yield the images as views."""
        if self.indices is None:
            yield from self.pixels
        else:
            for index in self.indices:
                yield self.pixels[index]

    def sizes(self) -> Sizes:
        """Return the heights and widths, int64 ``(n, 2)``."""
        if isinstance(self.pixels, np.ndarray):
            return same_sizes(*self.size(), len(self))
        return np.array([x.shape[:2] for x in self.pixels], np.int64).reshape(-1, 2)

    def size(self) -> tuple[int, int]:
        """Return height and width; the images must be an array."""
        assert isinstance(self.pixels, np.ndarray)
        return (*self.pixels.shape[1:3], 0, 0)[:2]


class Destination(NamedTuple):
    """Where results go: an array (used if it fits), the number of threads (0: all), the device."""

    out: Array | None = None
    threads: int = 0
    device: str = "cpu"


ANYWHERE = Destination()
"""A new array, which all threads write on the CPU."""


def run_segment(segment: Segment, images: Images, ticket: Ticket, into: Destination) -> Images:
    """Run the segment; return an array if the shape of an image is known, else a list."""
    if segment.kind == "python":
        return Images(_call(segment, images, ticket))
    drawn = _drawn(segment, images, ticket)
    executor = executor_for(into.device) if segment.kind == "native" else None
    if executor is None:
        return Images(_define(images, ticket, drawn))
    assert segment.output is not None and segment.row_shape is not None
    shape = (len(images), *segment.row_shape)
    dtype = segment.output.dtype
    out = fitting(into.out, shape, dtype)
    out = empty(shape, dtype) if out is None else out
    _execute(executor, segment, images, ticket, drawn, out, into.threads)
    return Images(out)


def run_on_device(
    segment: Segment, images: Images, ticket: Ticket, executor: DeviceExecutor
) -> Any:
    """Run a native segment and return the images as an array on the executor's device."""
    assert segment.output is not None and segment.row_shape is not None
    out = executor.empty((len(images), *segment.row_shape), segment.output.dtype)
    _execute(executor, segment, images, ticket, _drawn(segment, images, ticket), out, 0)
    return out


@lru_cache(maxsize=64)
def same_sizes(height: int, width: int, count: int) -> Sizes:
    """Return the sizes of ``count`` images of equal size, read-only int64 ``(count, 2)``."""
    sizes = np.full((count, 2), (height, width), np.int64)
    sizes.setflags(write=False)
    return sizes


def varies(spec: ImageSpec | None) -> bool:
    """Return True if the size of images with this spec varies or is unknown."""
    return spec is None or spec.height is None or spec.width is None


def executor_for(device: str) -> Executor | None:
    """Return the executor of a device; None if NumPy runs the steps by their definitions."""
    if device != "cpu":
        return device_executor(device)
    return native_kernels.run_images if native_kernels.has("run_images") else None


def fitting(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """Return ``out`` if it has this shape and dtype and contiguous rows, else None."""
    if out is None or out.shape != shape or out.dtype != dtype:
        return None
    return out if len(out) == 0 or out[0].flags.c_contiguous else None


def _execute(
    executor: Executor,
    segment: Segment,
    images: Images,
    ticket: Ticket,
    drawn: _Draws,
    out: Any,
    threads: int,
) -> None:
    count = len(images)
    if not count:
        return
    if not _values_fit(segment, images):
        _define(images, ticket, drawn)  # raises the error of the transform, if there is one
    rows = [entry.for_all[drawn.first : drawn.first + count] for entry in drawn.entries]
    try:
        executor(segment.steps, rows, images.pixels, images.indices, out, threads)
    except (ValueError, IndexError):
        _define(images, ticket, drawn)  # raises the error of the transform itself
        raise


def _values_fit(segment: Segment, images: Images) -> bool:
    """Return False if a step might refuse the values of images that are not bytes.

    A colour transform requires floats in 0..1, to which kernels clip; Normalize requires images in
    the unit of its mean and std. Bounds for the values before each step are derived from those of
    the images.
    """
    names = {name for name, _ in segment.steps}
    given = segment.parts[0].spec
    bytes_given = given is None or given.dtype == np.uint8
    if "colour" not in names and ("normalize" not in names or bytes_given):
        return True
    least: Any = 0
    most: Any = 255
    if not bytes_given:
        pixels = [image for image in images.each() if image.size]
        least = min((image.min() for image in pixels), default=0)
        most = max((image.max() for image in pixels), default=0)
    for part, (name, constants) in zip(segment.parts, segment.steps):
        assert part.spec is not None
        before = least, most
        if name == "colour" and part.spec.dtype != np.uint8 and not in_colour_range(least, most):
            return False
        if name == "to_float" and part.spec.dtype == np.uint8:
            least, most = least / 255, most / 255
        elif name == "normalize":
            mean, std = np.asarray(part.transform.mean), np.asarray(part.transform.std)
            least, most = (least - mean) / std, (most - mean) / std
            if not part.transform.fits(least, most):
                return False
        elif name in FILLING:
            least, most = np.minimum(least, constants[-1]), np.maximum(most, constants[-1])
        if part.choices:
            least, most = np.minimum(least, before[0]), np.maximum(most, before[1])
    return True


@dataclass(frozen=True)
class _Drawn:
    """The parameters of one part, and a mask of the images to which it applies (None: all)."""

    part: PlacedTransform
    rows: Rows
    chosen: npt.NDArray[np.bool_] | None
    sizes: Sizes

    @cached_property
    def for_all(self) -> Rows:
        """Return parameters for all images; those of images not chosen leave them unchanged."""
        if self.chosen is None:
            return np.ascontiguousarray(self.rows, np.float64)
        unchanged = self.part.transform.identity(self.sizes)
        return np.ascontiguousarray(np.where(self.chosen[:, None], self.rows, unchanged))


class _Draws(NamedTuple):
    """The parameters of all parts, in which the images of this call begin at row ``first``."""

    entries: list[_Drawn]
    first: int = 0


def _drawn(segment: Segment, images: Images, ticket: Ticket) -> _Draws:
    """Draw the parameters, in one call for a run of images of equal size."""
    run = ticket.run
    if run is None or not isinstance(images.pixels, np.ndarray):
        return _Draws(_draw(segment, images.sizes(), ticket))
    size = images.size()
    entries = run.once(
        (segment, ticket.seed, ticket.epoch, size),
        lambda: _draw(segment, same_sizes(*size, len(run.indices)), ticket.of(run.indices)),
    )
    return _Draws(entries, ticket.row)


def _draw(segment: Segment, sizes: Sizes, ticket: Ticket) -> list[_Drawn]:
    chosen: dict[int, Indices] = {}
    drawn = []
    for place, part in enumerate(segment.parts):
        mask = _mask(part.choices, sizes, ticket, chosen) if part.choices else None
        drawn.append(_Drawn(part, _rows(segment, place, sizes, ticket), mask, sizes))
        sizes = _sizes_after(part, sizes)
    return drawn


def _rows(segment: Segment, place: int, sizes: Sizes, ticket: Ticket) -> Rows:
    """Return the parameters of a part, from the cache if it draws no random numbers."""
    part = segment.parts[place]
    transform = part.transform
    count: int = transform.words
    if count:
        rows: Rows = transform.parameters(ticket.words(part.stream, count), sizes, part.spec)
        return rows
    known = segment.kept.get(place)
    if known is None or known[0] is not sizes:
        rows = transform.parameters(np.empty((len(sizes), 0), np.uint32), sizes, part.spec)
        known = segment.kept[place] = sizes, rows
    return known[1]


def _mask(
    choices: Sequence[Choice], sizes: Sizes, ticket: Ticket, known: dict[int, Indices]
) -> npt.NDArray[np.bool_] | None:
    mask = None
    for choice in choices:
        if choice.stream not in known:
            words = ticket.words(choice.stream, choice.one_of.words)
            known[choice.stream] = choice.one_of.parameters(words, sizes)[:, 0].astype(np.int64)
        here = known[choice.stream] == choice.child
        mask = here if mask is None else mask & here
    return mask


def _sizes_after(part: PlacedTransform, sizes: Sizes) -> Sizes:
    """Return the first two sizes of each image after a transform."""
    # an image that is masked out keeps its size
    if part.choices or part.spec is None or not len(sizes):
        return sizes
    if part.after is not None:
        return same_sizes(*part.after, len(sizes))
    if not varies(part.spec):
        return sizes  # the size of the result is unknown
    found, places = np.unique(sizes, axis=0, return_inverse=True)
    after = []
    for row in found:
        height, width = row.tolist()
        made = output_of(part.transform, replace(part.spec, height=height, width=width))
        after.append(row if made is None else np.array(made.shape[:2], np.int64))
    return np.array(after, np.int64)[places.reshape(-1)]


def _define(images: Images, ticket: Ticket, drawn: _Draws) -> list[Any]:
    """Apply every part's ``apply``, with the drawn parameters, to each image."""

    def defined(image: Any, place: int) -> Any:
        row = drawn.first + place
        for entry in drawn.entries:
            if entry.chosen is None or entry.chosen[row]:
                image = entry.part.transform.apply(image, entry.rows[row])
        return image

    return _each(images, ticket, defined)


def _call(segment: Segment, images: Images, ticket: Ticket) -> list[Any]:
    """Call every part on each image; the callables draw their own random numbers."""
    seed, epoch = ticket.seed, ticket.epoch
    copy = isinstance(images.pixels, np.ndarray)  # a callable may modify its argument

    def called(image: Any, place: int) -> Any:
        image = image.copy() if copy else image
        if seed is None:
            for part in segment.parts:
                image = part.transform(image)
            return image
        sample = int(ticket.indices[place])
        with keyed(seed, epoch, sample) as source:
            for part in segment.parts:
                source.seek(part.stream)
                reseed_globals(seed, epoch, sample, 1 + part.stream)
                image = part.transform(image)
        return image

    return _each(images, ticket, called)


def _each(images: Images, ticket: Ticket, transformed: Callable[[Any, int], Any]) -> list[Any]:
    """Collect ``transformed(image, index)`` of every image; errors carry the sample's index."""
    made = []
    for place, image in enumerate(images.each()):
        try:
            made.append(transformed(image, place))
        except BaseException as error:
            tag_sample(error, int(ticket.indices[place]))
            raise
    return made
