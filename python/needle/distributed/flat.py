"""The tensors of a model as one flat vector, sent in a few messages. Called by data_parallel."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..array_namespace import from_numpy, to_numpy
from ..autograd import Tensor
from ..dtypes import is_floating
from ..ndarray import NDArray
from .communicator import Array

BUCKET_BYTES = 1 << 20
"""Size of a bucket in bytes; it is sent while backward computes the next one."""


class NamesTensors(Protocol):
    """The part of ``nn.Module``'s interface that data-parallel training requires of a model."""

    def named_parameters(self) -> Iterable[tuple[str, Any]]:
        """Yield (dotted name, Tensor) of the trainable tensors."""

    def named_buffers(self) -> Iterable[tuple[str, Any]]:
        """Yield (dotted name, Tensor) of tensors that are saved, but not trained."""

    def named_modules(self) -> Iterable[tuple[str, Any]]:
        """Yield (dotted name, module); ``buffer_names`` of a module lists its buffers."""


class Bucket(NamedTuple):
    """A range of the vector, and the numbers of the parameters with gradients in that range."""

    place: slice
    parameters: range


class FlatModel:
    """The layout of a model's gradients and buffers in a flat vector.

    The gradients come first, from the last parameter to the first, as backward completes them. A
    flag per parameter follows, nonzero if it has a gradient, and a flag per buffer, nonzero if it
    has changed. The buffers come last; integers and bools are stored as the increase since the
    beginning of the step.
    """

    def __init__(self, model: NamesTensors) -> None:
        self.model = model
        named = list(model.named_parameters())
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]
        dtypes = [p.dtype for p in self.parameters]
        self.dtype = np.result_type(np.float32, *(d for d in dtypes if is_floating(d)))
        sizes = [p.size for p in self.parameters]
        ends = np.cumsum(sizes[::-1])[::-1]
        self.places = [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes)]
        self.presence = sum(sizes)
        self._holders = [(m, name) for _, m in model.named_modules() for name in m.buffer_names]
        found = self.buffers()
        self._changed = slice(self.presence + len(sizes), self.presence + len(sizes) + len(found))
        self.tail = self._changed.stop
        self.size = self.tail + sum(b.size for b in found)
        self._free: list[Array] = []
        self.buckets = self._buckets(BUCKET_BYTES // self.dtype.itemsize)

    def _buckets(self, length: int) -> list[Bucket]:
        """Return adjacent ranges of the vector in the order in which backward fills them."""
        found, start, after = [], 0, len(self.places)
        for i in reversed(range(1, after)):
            stop = self.places[i].stop
            if stop - start >= length:
                found.append(Bucket(slice(start, stop), range(i, after)))
                start, after = stop, i
        return [*found, Bucket(slice(start, self.size), range(after))]

    def buffers(self) -> list[Any]:
        """Return the current buffers, since a step may replace their tensors."""
        return [getattr(module, name) for module, name in self._holders]

    def description(self) -> str:
        """Return a checksum of the names, shapes and dtypes."""
        named = [*zip(self.names, self.parameters), *self.model.named_buffers()]
        text = repr([(name, tuple(t.shape), str(t.dtype)) for name, t in named])
        return f"{len(named)} arrays, checksum {zlib.crc32(text.encode()):08x}"

    # ---- writing -----------------------------------------------------------------------------

    def new_vector(self) -> Array:
        """Return a vector without gradients, possibly a reused one."""
        vector = self._free.pop() if self._free else np.empty(self.size, self.dtype)
        vector[self.presence :] = 0
        return vector

    def reuse(self, vectors: Iterable[Array]) -> None:
        """Keep vectors that are no longer needed for ``new_vector``."""
        self._free.extend(vectors)

    def clear_gradient(self, vector: Array, i: int) -> None:
        """Write zeros for a missing gradient."""
        vector[self.places[i]] = 0

    def write_gradient(self, vector: Array, i: int, gradient: Any, weight: float) -> None:
        """Write a gradient, multiplied by its weight, at its offset."""
        values = _to_read(gradient.realize_cached_data()).reshape(-1)
        np.multiply(values, weight, out=vector[self.places[i]], casting="same_kind")
        vector[self.presence + i] = 1

    def write_buffers(self, vector: Array, weight: float, before: list[Array]) -> None:
        """Write the buffers, multiplied by a weight; ``before``: their values before the step.

        A weight of 0 writes nothing, since 0 times infinity is NaN.
        """
        if not weight:
            return
        pairs = [(host_copy(b), old) for b, old in zip(self.buffers(), before)]
        vector[self._changed] = [not np.array_equal(value, old) for value, old in pairs]
        start = self.tail
        for value, old in pairs:
            if not is_floating(value.dtype):
                value = value.astype(np.int64) - old
            vector[start : start + value.size] = value.reshape(-1) * weight
            start += value.size

    # ---- reading -----------------------------------------------------------------------------

    def read_gradients(self, vector: Array) -> None:
        """Set every ``.grad`` from the vector, to None if no rank has one."""
        for i, p in enumerate(self.parameters):
            there = vector[self.presence + i] != 0
            values = vector[self.places[i]].reshape(p.shape)
            p.grad = constant(values, p) if there else None

    def read_buffers(self, vector: Array, before: list[Array]) -> None:
        """Set every buffer from the vector; a buffer that no slice has changed keeps its bits."""
        start = self.tail
        for tensor, old, changed in zip(self.buffers(), before, vector[self._changed]):
            value = vector[start : start + old.size].reshape(old.shape)
            start += old.size
            whole = value if is_floating(tensor.dtype) else old + np.rint(value)
            tensor.data = constant(whole if changed else old, tensor)

    def checksums(self) -> tuple[list[str], Array]:
        """Return the names of all parameters and buffers, and a checksum of each, int64."""
        named = [*zip(self.names, self.parameters), *self.model.named_buffers()]
        sums = [zlib.crc32(host_copy(t).tobytes()) for _, t in named]
        return [name for name, _ in named], np.array(sums, np.int64)


def _to_read(array: Any) -> Array:
    """Return the values as a host array to be read immediately, not copied if possible.

    Unlike ``numpy.asarray``, this does not mark the memory as shared permanently.
    """
    shared = array.device.backend.export(array.view) if isinstance(array, NDArray) else None
    return np.asarray(to_numpy(array)) if shared is None else shared


def host_copy(tensor: Any) -> Array:
    """Return a copy of a tensor's values as a NumPy array."""
    return np.array(to_numpy(tensor.realize_cached_data()))


def constant(values: Any, like: Any) -> Any:
    """Return a constant Tensor with a copy of the values, in the dtype and device of ``like``."""
    return Tensor.make_const(from_numpy(values, like.device, like.dtype))
