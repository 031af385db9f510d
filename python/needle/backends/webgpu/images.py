"""Augment image batches on WebGPU, with steps given as lists; see images.wgsl.

The compiled CPU module lowers the steps to passes, as it does for CUDA (src/data/lower.h). ``load``
returns an ``ImageBackend`` if that module is built.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray as NumpyArray

from ...dtypes import DType
from ...shapes import product
from .. import native
from ..base import View
from .memory import WORD, Buffer
from .optional import WebGpuBackend
from .required import is_compact

Step = tuple[str, tuple[float, ...]]
Lower = Callable[..., tuple[list[list[int]], NumpyArray[np.uint32]]]

FIRST_STEP = 16
"""Number of parameters that a pass has before those of its steps."""
LARGEST = 2**31
"""Number of elements that a signed 32-bit offset can address."""


class Images(NamedTuple):
    """Images on the device.

    places: (offset, height, width, three strides) of each image, in elements.
    """

    handle: Buffer
    places: NumpyArray[np.int64]
    channels: int
    dtype: DType
    packed: bool
    """True if bytes are packed, four to a word."""


@lru_cache(maxsize=1)
def lowering() -> Lower | None:
    """Return the compiled function that lowers steps to passes, or None if it is not built."""
    try:
        module = importlib.import_module(native.MODULE)
    except ImportError:
        return None
    found: Lower | None = getattr(module.data, "lower_images", None)
    return found


class ImageBackend(WebGpuBackend):
    """A backend for one adapter that also has the augmentation kernel."""

    def run_images(
        self,
        steps: Sequence[Step],
        parameters: Sequence[NumpyArray[np.float64]],
        images: Any,
        indices: NumpyArray[np.int64] | None,
        out: View,
    ) -> None:
        is_view = isinstance(images, View)
        batch = _on_device(images, indices) if is_view else self._sent(images, indices)
        if len(out.shape) != 4 or out.shape[0] != len(batch.places) or not is_compact(out):
            raise ValueError(
                "run_images: out must have 4 axes, one row per image, and be compact, got shape "
                f"{out.shape} for {len(batch.places)} images"
            )
        if not len(batch.places):
            return
        lower = lowering()
        assert lower is not None, "load makes an ImageBackend only where the module is built"
        floats, floats_out = (_is_float(dtype) for dtype in (batch.dtype, out.dtype))
        shape = out.shape[1:]
        passes, words = lower(
            list(steps), list(parameters), batch.places, batch.channels, floats, shape, floats_out
        )
        self._run_passes(batch, passes, words, out)

    def _run_passes(
        self, batch: Images, passes: list[list[int]], words: NumpyArray[np.uint32], out: View
    ) -> None:
        """Run the passes, each on the contiguous output of the one before."""
        records = self.queue.take(max(words.size, 1))
        self.queue.write(records, 0, words)
        table = View(records, (words.size,), (1,), 0, np.dtype(np.int32))
        count, source, offset, packed = len(batch.places), batch.handle, 0, batch.packed
        for i, numbers in enumerate(passes):
            channels, height, width = numbers[:3]
            size = height * width * channels
            target, first = out.handle, out.offset
            if i + 1 < len(passes):
                target, first = self.queue.take(count * size), 0
            steps = [numbers[at : at + 3] for at in range(FIRST_STEP, len(numbers), 3)]
            parameters = [int(packed), 0, *numbers[:FIRST_STEP], first, offset, size, 0]
            parameters += [value for step in steps for value in (*step, 0)]
            views = [View(handle, (), (), 0, out.dtype) for handle in (target, source)]
            threads = count * height * width * (1 if channels == 3 else channels)
            dtype = np.dtype(np.float32)
            self._threads("images", threads, dtype, (*views, table), parameters, "float64")
            source, offset, packed = target, 0, False

    def _sent(self, images: Any, indices: NumpyArray[np.int64] | None) -> Images:
        """Copy host images, an array (N, H, W, C) or a list of (H, W, C), to the device."""
        if isinstance(images, np.ndarray):
            rows = images if indices is None else images[indices]
            images = list(rows)
            flat = rows.reshape(-1)
        else:
            _require_one_kind(images)
            pixels = [image.reshape(-1) for image in images]
            flat = np.concatenate(pixels) if pixels else np.empty(0, np.uint8)
        dtype = flat.dtype
        _is_float(dtype)
        places = _dense_places([image.shape for image in images])
        channels = images[0].shape[2] if len(images) else 1
        if flat.size >= LARGEST:
            raise ValueError(
                f"run_images: on this device a batch must have fewer than 2**31 elements, got "
                f"{flat.size}; use smaller batches"
            )
        data = np.frombuffer(flat.tobytes() + bytes(-flat.nbytes % WORD), "<u4")
        handle = self.queue.take(max(data.size, 1))
        if data.size:
            self.queue.write(handle, 0, data)
        return Images(handle, places, channels, dtype, dtype == np.uint8)


def _require_one_kind(images: Sequence[NumpyArray[Any]]) -> None:
    """Raise ValueError unless all images are (H, W, C) with one dtype and channel count."""
    kinds = {(image.ndim, image.shape[2:], image.dtype) for image in images}
    if len(kinds) > 1 or any(ndim != 3 for ndim, *_ in kinds):
        found = ", ".join(f"{image.dtype} {image.shape}" for image in images[:4])
        raise ValueError(
            "run_images: the images in a list must be (H, W, C) with one dtype and number of "
            f"channels, got {found}; convert them first"
        )


def _on_device(images: View, indices: NumpyArray[np.int64] | None) -> Images:
    """Describe images that are already on the device, without a copy."""
    if len(images.shape) != 4 or indices is not None:
        raise ValueError(
            "run_images: images on a device must be (N, H, W, C) and take no indices, got shape "
            f"{images.shape}; pass None for indices"
        )
    count, height, width, channels = images.shape
    first, *strides = images.strides
    row = [height, width, *strides]
    places = np.array([[images.offset + i * first, *row] for i in range(count)], np.int64)
    return Images(images.handle, places.reshape(count, 6), channels, images.dtype, False)


def _dense_places(shapes: Sequence[tuple[int, int, int]]) -> NumpyArray[np.int64]:
    """Return the ``places`` of contiguous images stored one after the other."""
    sizes = [product(shape) for shape in shapes]
    offsets = np.cumsum([0, *sizes])[:-1]
    places = [[at, h, w, w * c, c, 1] for at, (h, w, c) in zip(offsets, shapes)]
    return np.array(places, np.int64).reshape(len(shapes), 6)


def _is_float(dtype: DType) -> bool:
    """Return True for float32 and False for uint8; raise ValueError for other dtypes."""
    if dtype not in (np.dtype(np.uint8), np.dtype(np.float32)):
        raise ValueError(
            f"run_images: images must be uint8 or float32, got {dtype}; convert them first"
        )
    return dtype == np.float32
