"""Compile a list of transforms into segments that process whole batches.

Adjacent transforms with a native form are fused into one call; the others run in Python. The
result is that of calling the transforms in order, each with the random streams of its position in
the list. A plan is valid for one kind of image (shape, dtype, layout), and a ``Chain`` caches
plans; execute.py runs the segments of a plan. batching/pipeline.py makes and runs chains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from ..samples import native_kernels as native
from ..samples.native_kernels import Array
from ..samples.ticket import Ticket
from .base import Compose, ImageSpec, OneOf, Step, Transform, image_spec, output_of, streams_of
from .execute import (
    ANYWHERE,
    Choice,
    Destination,
    Images,
    PlacedTransform,
    Segment,
    executor_for,
    fitting,
    run_on_device,
    run_segment,
    varies,
)
from .executors import device_executor

LAST_STEP = "permute"
"""The step that permutes the axes; a kernel applies it as the order in which it writes."""
MOST_PLANS = 512
"""The number of plans that a chain caches."""


def placed(transforms: Any, first_stream: int = 0) -> tuple[PlacedTransform, ...]:
    """Return the transforms (a sequence, Compose or None) paired with their random streams."""
    return tuple(_placed(transforms, first_stream, ()))


class Chain:
    """A list of transforms that compiles itself for each kind of image it meets."""

    def __init__(self, parts: Sequence[PlacedTransform]) -> None:
        self.parts = tuple(parts)
        self._plans: dict[ImageSpec | None, Plan] = {}

    @property
    def transforms(self) -> list[Any]:
        """The transforms without their random streams."""
        return [part.transform for part in self.parts]

    @property
    def draws(self) -> bool:
        """True if a transform draws random numbers or might do so."""
        return any(not _is_described(p.transform) or p.transform.words for p in self.parts)

    def plan(self, spec: ImageSpec | None) -> Plan:
        """Return the plan for images of this kind, compiling it on a cache miss."""
        found = self._plans.get(spec)
        if found is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            found = self._plans[spec] = _compile(self, spec)
        return found

    def run(
        self, images: Images, ticket: Ticket, into: Destination = ANYWHERE
    ) -> Array | list[Any]:
        """Return the transformed images: an array ``(n, ...)``, or a list if their shapes differ.

        The array is that of ``into`` if shape and dtype match. An error in one image carries the
        index of its sample.
        """
        if ticket.seed is None and self.draws:
            unseeded = Segment("python", self.parts, None)
            return gathered(run_segment(unseeded, images, ticket, into), into.out)
        pixels = images.pixels
        kind = spec_of(pixels)
        if isinstance(pixels, list):
            several = varies(kind) and len(set(map(image_spec, pixels))) > 1
            if several and (kind is None or not self.plan(kind).is_one_call(into.device)):
                return self._run_by_kind(pixels, ticket, into)
        return self.plan(kind).run(images, ticket, into)

    def on_device(self, images: Array | list[Any], ticket: Ticket, device: str) -> Any | None:
        """Return the transformed images on the device; None if one call cannot do everything."""
        executor = device_executor(device)
        if executor is None or not self.parts or (ticket.seed is None and self.draws):
            return None
        plan = self.plan(spec_of(images))
        if not plan.is_one_call(device):
            return None
        return run_on_device(plan.segments[0], Images(images), ticket, executor)

    def _run_by_kind(
        self, images: list[Any], ticket: Ticket, into: Destination
    ) -> Array | list[Any]:
        """Transform each run of images of one kind by its own plan, which is more often native."""
        made: list[Any] = []
        out = into.out
        in_place = out is not None
        for _, group in groupby(images, key=image_spec):
            alike = list(group)
            rows = slice(len(made), len(made) + len(alike))
            room = None if out is None else out[rows]
            keys = ticket.of(ticket.indices[rows])
            part = self.run(Images(alike), keys, into._replace(out=room))
            in_place = in_place and part is room
            made.extend(part)
        return out if in_place and out is not None else gathered(Images(made), out)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}


@dataclass(frozen=True)
class Plan:
    """A chain compiled for images that ``spec`` describes.

    ``segments`` run one after another, then ``rest``, which is compiled once the images that the
    segments return are known. output: the spec of the result, None if unknown.
    """

    spec: ImageSpec | None
    segments: tuple[Segment, ...]
    rest: Chain | None
    output: ImageSpec | None

    def run(
        self, images: Images, ticket: Ticket, into: Destination = ANYWHERE
    ) -> Array | list[Any]:
        """Transform images of this kind; see ``Chain.run``."""
        for i, segment in enumerate(self.segments):
            last = i == len(self.segments) - 1 and self.rest is None
            place = into if last else into._replace(out=None)
            images = run_segment(segment, images, ticket, place)
        if self.rest is not None:
            return self.rest.run(images, ticket, into)
        return gathered(images, into.out)

    def is_one_call(self, device: str = "cpu") -> bool:
        """Return True if one call of the device's executor does everything."""
        kinds = [segment.kind for segment in self.segments]
        native_all = kinds == ["native"] and self.rest is None and not varies(self.output)
        return native_all and executor_for(device) is not None

    def explain(self, device: str = "cpu") -> str:
        """Describe, one line per segment, what runs natively or in Python, and why."""
        if not self.segments:
            return "no transforms"
        lines = []
        for segment in self.segments:
            names = ", ".join(part.name for part in segment.parts)
            if segment.kind != "native":
                lines += [f"{p.name}: in Python, image by image: {p.why}" for p in segment.parts]
            elif executor_for(device) is not None:
                lines.append(f"{names}: native ({device}), one call for all images of a slice")
            else:
                missing = f"{device} has no executor"
                if device == "cpu":
                    missing = "the compiled kernels are missing"
                lines.append(f"{names}: in Python, by definition: {missing}")
        if self.rest is not None:
            names = ", ".join(part.name for part in self.rest.parts)
            lines.append(f"{names}: decided when the resulting images are known")
        return "\n".join(lines)


def spec_of(images: Array | list[Any]) -> ImageSpec | None:
    """Return the common spec, with sizes None if they differ; None if these are not images."""
    if isinstance(images, np.ndarray):
        return _spec_of_rows(images.shape[1:], images.dtype) if images.ndim == 4 else None
    kinds = set(map(image_spec, images))
    if len(kinds) > 1:
        kinds = {kind and replace(kind, height=None, width=None) for kind in kinds}
    return kinds.pop() if len(kinds) == 1 else None


@lru_cache(maxsize=64)
def _spec_of_rows(shape: tuple[int, int, int], dtype: np.dtype[Any]) -> ImageSpec:
    return ImageSpec(*shape, dtype)


def gathered(images: Images, out: Array | None = None) -> Array | list[Any]:
    """Gather the images into an array, ``out`` if it fits, or a list if their shapes differ."""
    pixels = images.pixels
    if isinstance(pixels, np.ndarray):
        if images.indices is None and (out is None or pixels is out):
            return pixels
        rows = len(images)
        into = fitting(out, (rows, *pixels.shape[1:]), pixels.dtype)
        indices = np.arange(rows) if images.indices is None else images.indices
        return native.gather_rows(pixels, indices, into)
    if not pixels or not all(isinstance(image, np.ndarray) for image in pixels):
        return pixels
    if len({(image.shape, image.dtype) for image in pixels}) > 1:
        return pixels
    return np.stack(pixels, out=fitting(out, (len(pixels), *pixels[0].shape), pixels[0].dtype))


def _compile(chain: Chain, spec: ImageSpec | None) -> Plan:
    parts: list[PlacedTransform] = []
    made, rest = spec, None
    for i, part in enumerate(chain.parts):
        transform = part.transform
        if made is None and parts and (_is_described(transform) or isinstance(transform, OneOf)):
            rest = Chain(chain.parts[i:])  # compiled once the images are known
            break
        parts += _expanded(part, made)
        made = None if made is None else output_of(transform, made)
    return Plan(spec, tuple(_segments(parts)), rest, None if rest else made)


def _segments(parts: Sequence[PlacedTransform]) -> Iterator[Segment]:
    for kind, group in groupby(parts, key=_kind):
        for alike in _runs(group):
            last = alike[-1]
            output = None if last.spec is None else output_of(last.transform, last.spec)
            yield Segment(kind, alike, last.spec if last.choices else output)


def _runs(parts: Iterable[PlacedTransform]) -> Iterator[tuple[PlacedTransform, ...]]:
    """Yield the parts in groups; a step that must be the last one of a call ends its group."""
    run: list[PlacedTransform] = []
    for part in parts:
        run.append(part)
        if part.step is not None and part.step.name == LAST_STEP:
            yield tuple(run)
            run = []
    if run:
        yield tuple(run)


def _kind(part: PlacedTransform) -> str:
    if part.step is not None:
        return "native"
    return "python" if part.spec is None or not _is_described(part.transform) else "defined"


def _expanded(part: PlacedTransform, spec: ImageSpec | None) -> list[PlacedTransform]:
    """Return ``part`` placed for ``spec``, or its children if it is a OneOf that can be masked."""
    if isinstance(part.transform, OneOf) and spec is not None:
        children = list(_children(part.transform, part.stream, part.choices))
        opened = [_settled(replace(child, spec=spec)) for child in children]
        if all(_is_masked(child, spec) for child in opened):
            return opened
    return [_settled(replace(part, spec=spec))]


def _settled(part: PlacedTransform) -> PlacedTransform:
    """Return the part with its native step, or the reason why it has none, and its new size."""
    made = None if part.spec is None else output_of(part.transform, part.spec)
    after: Any = None if made is None or varies(made) else made.shape[:2]
    step, why = _native_form(part.transform, part.spec)
    return replace(part, step=step, why=why, after=after)


def _native_form(transform: Any, spec: ImageSpec | None) -> tuple[Step | None, str]:
    """Return the native step, or None and the reason why there is none."""
    if isinstance(transform, OneOf):
        return None, "it chooses among transforms that cannot leave other images unchanged"
    if not _is_described(transform):
        return None, "it is a callable without a native form"
    if spec is None:
        return None, "the kind of its images is unknown"
    step = transform.step(spec)
    if step is not None:
        return step, ""
    if not spec.native:
        return None, f"kernels take uint8 and float32 (H, W, C), not {_words(spec)}"
    return None, f"it has no native form for {_words(spec)}"


def _is_masked(part: PlacedTransform, spec: ImageSpec) -> bool:
    """Return True if this child of a OneOf can run as a step that skips other images."""
    if not _is_described(part.transform) or output_of(part.transform, spec) != spec:
        return False
    if part.step is None:
        return True
    sizes = np.array([[8 if size is None else size for size in (spec.height, spec.width)]])
    return part.transform.identity(sizes) is not None


def _children(one_of: OneOf, stream: int, choices: tuple[Choice, ...]) -> Iterator[PlacedTransform]:
    after = stream + 1
    for number, child in enumerate(one_of.transforms):
        chosen = (*choices, Choice(one_of, stream, number))
        yield from _placed([child], after, chosen)
        after += streams_of(child)


def _placed(transforms: Any, stream: int, choices: tuple[Choice, ...]) -> Iterator[PlacedTransform]:
    inner = transforms.transforms if isinstance(transforms, Compose) else transforms
    for transform in inner or ():
        if isinstance(transform, Compose):
            yield from _placed(transform, stream, choices)
        elif isinstance(transform, OneOf) and choices:
            yield from _children(transform, stream, choices)
        else:
            yield PlacedTransform(transform, stream, choices)
        stream += streams_of(transform)


def _is_described(transform: Any) -> bool:
    """Return True if the transform defines ``parameters`` and ``apply``, but not ``__call__``."""
    return (
        isinstance(transform, Transform)
        and type(transform).__call__ is Transform.__call__
        and not isinstance(transform, (Compose, OneOf))
    )


def _words(spec: ImageSpec) -> str:
    sizes = " x ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.layout} images {sizes} of {spec.dtype}"
