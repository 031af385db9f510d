"""The base class of transforms: picklable objects whose NumPy body takes drawn parameters.

The bodies (``apply``) define the result on every backend. Compose and OneOf combine transforms.
The other files of this folder hold the transforms; compile.py and execute.py run them on whole
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...backends import philox
from ...errors import check_callables
from ...torch_names import PointsToKeywords
from ..samples.pytree import Field
from ..samples.random_source import check_weights, drawn_by_weight, draws, weight_edges

Image = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Rows = Floats
Sizes = npt.NDArray[np.int64]
Size = tuple[int, int]
Range = tuple[float, float]
"""The minimum and maximum of a parameter."""

OPAQUE_STREAMS = 64
"""The number of streams reserved for a callable that does not declare its own number."""


@dataclass(frozen=True)
class ImageSpec:
    """The properties of the images in a chain; height and width are None if they vary.

    dtype: anything that NumPy accepts as a dtype. layout: the order of the axes, "HWC", "CHW" or
    another order of the three letters.
    """

    height: int | None
    width: int | None
    channels: int
    dtype: np.dtype[Any]
    layout: str = "HWC"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of one image, with its axes in the order given by ``layout``."""
        sizes = {"H": self.height, "W": self.width, "C": self.channels}
        return tuple(sizes[axis] for axis in self.layout)

    @property
    def native(self) -> bool:
        """True if native steps accept such images: (H, W, C) of bytes or float32."""
        return self.layout == "HWC" and self.dtype in (np.uint8, np.float32)


@dataclass(frozen=True)
class Step:
    """The native form of a transform: its kernel's name and the constants shared by all images."""

    name: str
    constants: tuple[float, ...] = ()


class Transform(PointsToKeywords):
    """Base class of callables that map an image, a NumPy array (H, W, C), to another.

    A user's transform defines either ``__call__(x)`` or ``words``, ``parameters`` and ``apply``.
    Bytes are in 0..255, floats in 0..1.
    """

    needs_hwc = True
    """True if axes 0, 1 and 2 must be height, width and channels."""
    words = 0
    """The number of random 32-bit words that one image needs."""

    @property
    def streams(self) -> int:
        """The number of random streams that the transform occupies in a list."""
        return 1 if type(self).__call__ is Transform.__call__ else OPAQUE_STREAMS

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return one row of parameters per image, float64 ``(n, k)``, independent of other rows.

        words: uint32 ``(n, self.words)``. sizes: int64 ``(n, 2)``, heights and widths. spec: the
        images' dtype and channels; the colour transforms need it.
        """
        return np.empty((len(sizes), 0))

    def identity(self, sizes: Sizes) -> Rows | None:
        """Return rows that leave images of these sizes unchanged, or None if there are none."""
        return None

    def apply(self, image: Image, row: Rows) -> Image:
        """Return a new image: ``image`` transformed by one row of ``parameters``."""
        raise NotImplementedError(
            f"{type(self).__name__} must define __call__(x), or apply(image, row)"
        )

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec of the result for images of ``spec``; None if it is unknown."""
        return None

    def step(self, spec: ImageSpec) -> Step | None:
        """Return the native form for images of ``spec``; None if only the Python body exists."""
        return None

    def input_size(self, size: Size | None) -> Size | None:
        """Return the smallest (height, width) that suffices as input; None: every pixel counts.

        size: the size of this transform's output that suffices. The answer is not used for
        subclasses of the class that defines the method, which may compute something else.
        """
        return None

    def draw(self, x: Any) -> Rows:
        """Draw the words of one image and return its row of parameters, float64 ``(k,)``."""
        drawn = draws().take(self.streams, self.words)
        size = (*np.shape(x), 0, 0)[:2]
        sizes = np.array([size], dtype=np.int64)
        row: Rows = self.parameters(drawn[None], sizes, image_spec(x))[0]
        return row

    def __call__(self, x: Any) -> Any:
        """Draw parameters, then apply them; raise TypeError for anything but a NumPy array."""
        is_array = isinstance(x, (np.ndarray, np.generic))
        if not is_array:
            raise TypeError(
                f"{type(self).__name__}: the image must be a NumPy array (height, width, "
                f"channels), got {type(x).__module__}.{type(x).__name__}; pass numpy.asarray(image)"
            )
        return self.apply(x, self.draw(x))


class ImageTransform(Transform):
    """Base class of the built-in transforms, which are one native step on images (H, W, C).

    kernel: the name of the step. unchanged: the row of parameters that leaves an image unchanged,
    None if there is none. sized: True if the constants of the step begin with the new height and
    width.
    """

    kernel: str
    unchanged: tuple[float, ...] | None = None
    sized = False

    def new_size(self, height: int | None, width: int | None) -> tuple[int | None, int | None]:
        """Return height and width of the result; None for values that are unknown."""
        return height, width

    def constants(self, spec: ImageSpec) -> tuple[float, ...]:
        """Return the constants of the step except the new size."""
        return ()

    def keeps_sizes(self, sizes: Sizes) -> bool:
        """Return True if no image of these sizes changes its size."""
        return all(self.new_size(h, w) == (h, w) for h, w in np.unique(sizes, axis=0).tolist())

    def identity(self, sizes: Sizes) -> Rows | None:
        """Return the row ``unchanged`` for every image."""
        return None if self.unchanged is None else np.tile(self.unchanged, (len(sizes), 1))

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec with the new height and width."""
        height, width = self.new_size(spec.height, spec.width)
        return replace(spec, height=height, width=width) if spec.layout == "HWC" else None

    def step(self, spec: ImageSpec) -> Step | None:
        """Return the native step if the constants are known."""
        size = self.new_size(spec.height, spec.width) if self.sized else ()
        known = [each for each in size if each is not None]
        if not spec.native or len(known) < len(size):
            return None
        return Step(self.kernel, tuple(float(each) for each in (*known, *self.constants(spec))))


@dataclass(frozen=True, repr=False)
class Compose(Transform):
    """A sequence of transforms or other callables, applied in order."""

    transforms: Sequence[Callable[[Any], Any]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "transforms", as_transforms("Compose", self.transforms))

    @property
    def needs_hwc(self) -> bool:  # type: ignore[override]
        """True if any of the transforms needs the layout (H, W, C)."""
        return any(getattr(t, "needs_hwc", False) for t in self.transforms)

    @property
    def streams(self) -> int:
        """The total number of streams of all transforms."""
        return sum(streams_of(t) for t in self.transforms)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec of the result after all transforms."""
        now: ImageSpec | None = spec
        for transform in self.transforms:
            now = None if now is None else output_of(transform, now)
        return now

    def __call__(self, x: Any) -> Any:
        """Apply each transform in order, with the random streams of its position in the list."""
        source = draws()
        stream = source.stream
        for transform in self.transforms:
            source.seek(stream)
            stream += streams_of(transform)
            x = transform(x)
        source.seek(stream)
        return x

    def __repr__(self) -> str:
        return f"Compose({list(self.transforms)!r})"


@dataclass(frozen=True, repr=False)
class OneOf(Transform):
    """One of the transforms with probability ``p``, drawn uniformly or by ``weights``.

    It occupies one stream for the choice, followed by those of all transforms in order.
    """

    transforms: Sequence[Callable[[Any], Any]]
    p: float = 1.0
    weights: Sequence[float] | None = None
    words = 2  # one word for the decision by p, one for the choice

    def __post_init__(self) -> None:
        children = as_transforms("OneOf", self.transforms)
        if not children:
            raise ValueError("OneOf: transforms must not be empty, got []; give at least one")
        if not 0 <= self.p <= 1:
            raise ValueError(f"OneOf: p must be in [0, 1], got {self.p}; it is a probability")
        object.__setattr__(self, "transforms", children)
        if self.weights is None:
            return
        weights = check_weights("OneOf", tuple(self.weights))
        if len(weights) != len(children) or not weights.any():
            raise ValueError(
                f"OneOf: weights must be {len(children)} numbers of at least 0 with a sum above "
                f"0, got {weights.tolist()}; give one per transform"
            )
        object.__setattr__(self, "weights", tuple(weights.tolist()))

    @property
    def needs_hwc(self) -> bool:  # type: ignore[override]
        """True if any of the transforms needs the layout (H, W, C)."""
        return any(getattr(t, "needs_hwc", False) for t in self.transforms)

    @property
    def streams(self) -> int:
        """One stream for the choice, and the streams of all transforms."""
        return 1 + sum(streams_of(t) for t in self.transforms)

    def parameters(self, words: philox.Words, sizes: Sizes, spec: ImageSpec | None = None) -> Rows:
        """Return the index of the transform chosen for each image, ``(n, 1)``; -1 for none."""
        if self.weights is None:
            which = philox.below(words[:, 1], len(self.transforms))
        else:
            edges = weight_edges(np.asarray(self.weights))
            which = drawn_by_weight(edges, philox.uniform(words[:, 1]))
        return np.where(philox.happens(words[:, 0], self.p), which, -1)[:, None].astype(np.float64)

    def output(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec of the result if all transforms agree on it."""
        made = {output_of(t, spec) for t in self.transforms} | ({spec} if self.p < 1 else set())
        return made.pop() if len(made) == 1 else None

    def __call__(self, x: Any) -> Any:
        """Apply the chosen transform."""
        source = draws()
        start = source.stream
        words = source.take(1, self.words)
        chosen = int(self.parameters(words[None], np.zeros((1, 2), np.int64))[0, 0])
        if chosen >= 0:
            source.seek(start + 1 + sum(streams_of(t) for t in self.transforms[:chosen]))
            x = self.transforms[chosen](x)
        source.seek(start + self.streams)
        return x

    def __repr__(self) -> str:
        weights = "" if self.weights is None else f", weights={list(self.weights)!r}"
        return f"OneOf({list(self.transforms)!r}, p={self.p!r}{weights})"


def streams_of(transform: Any) -> int:
    """Return the number of random streams that a transform or other callable occupies."""
    return int(getattr(transform, "streams", OPAQUE_STREAMS))


def output_of(transform: Any, spec: ImageSpec) -> ImageSpec | None:
    """Return the spec of a transform's result; None for a callable that does not declare one."""
    return transform.output(spec) if isinstance(transform, Transform) else None


def any_size(self: Transform, size: Size | None) -> Size | None:
    """Return ``size``; this is the ``input_size`` of a transform that works at any size."""
    return size


def decode_size(transforms: Iterable[Any], size: Size | None = None) -> Size | None:
    """Return the smallest (height, width) that suffices for the transforms; None: all pixels.

    There is such a size if the first transform that depends on the size is a smooth resize: an
    image at least twice as large is reduced anyway, so the decoder may do part of this. size: the
    size of the last transform's output that suffices.
    """
    for transform in reversed(tuple(transforms)):
        if isinstance(transform, Compose):
            size = decode_size(transform.transforms, size)
        else:
            own = "input_size" in vars(type(transform))
            size = transform.input_size(size) if own else None
    return size


def row_fields(arrays: Sequence[npt.NDArray[Any]], transforms: Sequence[Any]) -> list[Field] | None:
    """Return shape and dtype of samples that are rows of ``arrays``, with the first transformed.

    Return None if the transforms do not declare their output.
    """
    first, *others = (Field(array.shape[1:], array.dtype) for array in arrays)
    if not transforms:
        return [first, *others]
    if arrays[0].ndim != 4:
        return None
    height, width, channels = arrays[0].shape[1:]
    made = Compose(transforms).output(ImageSpec(height, width, channels, arrays[0].dtype))
    if made is None or made.height is None or made.width is None:
        return None
    shape = tuple(size for size in made.shape if size is not None)
    return [Field(shape, made.dtype), *others]


def image_spec(x: Any) -> ImageSpec | None:
    """Return the spec of one image (H, W, C); None for anything else."""
    if not isinstance(x, np.ndarray) or x.ndim != 3:
        return None
    return ImageSpec(x.shape[0], x.shape[1], x.shape[2], x.dtype)


def contains(transforms: Sequence[Any] | None, kind: type[Transform]) -> bool:
    """Return True if the list has a transform of this class, even inside Compose or OneOf."""
    return any(
        isinstance(t, kind) or (isinstance(t, (Compose, OneOf)) and contains(t.transforms, kind))
        for t in transforms or ()
    )


def listed_transforms(op: str, transforms: Any) -> Sequence[Callable[[Any], Any]] | None:
    """Return a list itself, so that later changes take effect, or the functions of a Compose."""
    found = as_transforms(op, transforms or ())
    return transforms if isinstance(transforms, (list, tuple)) else found or None


def as_transforms(op: str, transforms: Any) -> tuple[Callable[[Any], Any], ...]:
    """Return the functions in a list or Compose; TypeError for another type or item."""
    if isinstance(transforms, Compose):
        return tuple(transforms.transforms)
    if callable(transforms) or not isinstance(transforms, Iterable):
        raise TypeError(
            f"{op}: transforms must be a list, got {type(transforms).__name__}; put it in brackets"
        )
    found = tuple(transforms)
    check_callables(op, "transforms", found)
    return found
