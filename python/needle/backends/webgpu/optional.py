"""The optional kernels on WebGPU, each in the .wgsl file with its name.

Convolutions are tiled matrix products. The other kernels run one thread per result or row;
gradients gather instead of scattering, since WGSL has no atomic floats. ``load`` makes one
``WebGpuBackend`` per adapter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...dtypes import DType
from ...shapes import Geometry, compact_strides, product
from ..base import Epilogue, Pair, View
from ..philox import TENSOR_STREAM
from . import sources
from .queue import ROW
from .required import THREADS, grid, merged, words
from .steps import StepKernels

PIECE, PIECES = 1024, 64
"""Minimum length and maximum number of the pieces that split a long K axis and run in parallel."""
DISTRIBUTIONS = ("uniform", "normal", "bernoulli")
NEVER = 3
"""Code in random.wgsl of bernoulli with probability 0."""
MASK = 2**32 - 1


class WebGpuBackend(StepKernels):
    """The WebGPU backend of one adapter."""

    def _threads(
        self,
        name: str,
        count: int,
        dtype: DType,
        views: Sequence[View],
        parameters: Sequence[int],
        *functions: str,
    ) -> None:
        """Run a kernel with one thread per result, ``count`` in all.

        views: the bindings out, a, b, c and d. parameters: two values of P[0], then P[1] and on.
        functions: the .wgsl files that the kernel uses.
        """
        if count:
            source = sources.kernel(dtype, "threads", "each", *functions, name)
            self._run_threads(source, count, views, parameters)

    def _run_threads(
        self, source: str, count: int, views: Sequence[View], parameters: Sequence[int]
    ) -> None:
        buffers = [view.handle for view in views]
        buffers += [views[0].handle] * (5 - len(buffers))
        everything = [count, *parameters[:2], ROW, *parameters[2:]]
        self.queue.dispatch(source, everything, buffers, grid(-(-count // THREADS)))

    # ---- convolutions ------------------------------------------------------------------------

    def conv2d(
        self, x: View, weight: View, out: View, geometry: Geometry, epilogue: Epilogue
    ) -> None:
        kh, kw, c, _ = weight.shape
        rows, columns = product(out.shape[:3]), out.shape[3] // geometry.groups
        parameters = _windows(x, weight, out, geometry, epilogue, (rows, kh * kw * c, columns, 1))
        buffers = (out, x, weight, epilogue.bias or out)
        self._tiles("conv2d", rows, columns, geometry.groups, buffers, parameters)

    def conv2d_input_grad(self, grad: View, weight: View, x_grad: View, geometry: Geometry) -> None:
        kh, kw, columns, o = weight.shape
        rows, k = product(x_grad.shape[:3]), kh * kw * o // geometry.groups
        sizes = (rows, k, columns, 1)
        parameters = _windows(x_grad, weight, grad, geometry, Epilogue(), sizes)
        buffers = (x_grad, grad, weight, grad)
        self._tiles("conv2d_input_grad", rows, columns, geometry.groups, buffers, parameters)

    def conv2d_weight_grad(
        self, grad: View, x: View, weight_grad: View, geometry: Geometry
    ) -> None:
        shape, k = weight_grad.shape, product(grad.shape[:3])
        if k == 0:
            self.fill(weight_grad, 0)
            return
        pieces = min(PIECES, -(-k // PIECE))
        rows, columns = product(shape[:3]), shape[3] // geometry.groups
        target, step = weight_grad, 0
        if pieces > 1:
            step, strides = product(shape), compact_strides(shape)
            handle = self.allocate(pieces * step, grad.dtype)
            target = View(handle, shape, strides, 0, grad.dtype)
        sizes = (rows, -(-k // pieces), columns, pieces)
        parameters = [*_windows(x, target, grad, geometry, Epilogue(), sizes), step, k, 0, 0]
        buffers, batches = (target, x, grad, grad), geometry.groups * pieces
        self._tiles("conv2d_weight_grad", rows, columns, batches, buffers, parameters)
        if pieces > 1:
            parts = target._replace(shape=(pieces, *shape), strides=(step, *target.strides))
            whole = (1, *shape), (0, *weight_grad.strides)
            self.reduce("sum", parts, weight_grad._replace(shape=whole[0], strides=whole[1]))

    def _tiles(
        self,
        name: str,
        rows: int,
        columns: int,
        batches: int,
        views: Sequence[View],
        parameters: Sequence[int],
    ) -> None:
        """Run a tiled product of tile.wgsl that reads its elements from a convolution's windows."""
        if rows * columns == 0:
            return
        source, across = sources.tiles(views[0].dtype, columns, "windows", name)
        groups = (-(-columns // across), -(-rows // 64), batches)
        self.queue.dispatch(source, parameters, [view.handle for view in views], groups)

    # ---- pools -------------------------------------------------------------------------------

    def max_pool2d(self, x: View, out: View, kernel: Pair, stride: Pair, padding: Pair) -> None:
        self._pool("max_pool2d", "pool2d", (out, x), _pool(x, out, x, kernel, stride, padding))

    def max_pool2d_grad(
        self, grad: View, x: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair
    ) -> None:
        parameters = _pool(x, grad, x_grad, kernel, stride, padding)
        self._pool("max_pool2d_grad", "pool2d_grad", (x_grad, x, grad), parameters)

    def avg_pool2d(self, x: View, out: View, kernel: Pair, stride: Pair, padding: Pair) -> None:
        self._pool("avg_pool2d", "pool2d", (out, x), _pool(x, out, x, kernel, stride, padding))

    def avg_pool2d_grad(
        self, grad: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair
    ) -> None:
        parameters = _pool(x_grad, grad, x_grad, kernel, stride, padding)
        self._pool("avg_pool2d_grad", "pool2d_grad", (x_grad, grad, grad), parameters)

    def _pool(
        self, name: str, loops: str, views: Sequence[View], parameters: Sequence[int]
    ) -> None:
        """Run a pool or its gradient; ``loops``: the file with the loops over windows."""
        count, dtype = product(views[0].shape), views[0].dtype
        self._threads(name, count, dtype, views, parameters, "pools", loops)

    # ---- rows and losses ---------------------------------------------------------------------

    def softmax(self, a: View, out: View, axis: int) -> None:
        self._along("softmax", a, out, axis)

    def log_softmax(self, a: View, out: View, axis: int) -> None:
        self._along("log_softmax", a, out, axis)

    def logsumexp(self, a: View, out: View) -> None:
        self._reduce(sources.kernel(a.dtype, "logsumexp", "reduce"), -math.inf, a, out)

    def _along(self, name: str, a: View, out: View, axis: int) -> None:
        """Run a kernel with one thread per row along ``axis``."""
        if 0 not in a.shape:
            rows, parameters = _rows(a, out, axis)
            self._threads(name, rows, a.dtype, (out, a), parameters, "rows", "row_exp")

    def argmax(self, a: View, out: View, axis: int) -> None:
        self._positions("max", a, out, axis)

    def argmin(self, a: View, out: View, axis: int) -> None:
        self._positions("min", a, out, axis)

    def _positions(self, reduction: str, a: View, out: View, axis: int) -> None:
        if 0 not in a.shape:
            rows, parameters = _rows(a, out, axis)
            self._run_threads(sources.positions(reduction, a.dtype), rows, (out, a), parameters)

    def cross_entropy(self, logits: View, labels: View, out: View, smoothing: float) -> None:
        n, classes = logits.shape
        parameters = [0, classes, logits.offset, labels.offset, logits.strides[1], 0]
        parameters += [logits.strides[0], labels.strides[0], out.strides[0], 0]
        parameters += [out.offset, 0, *words(1 - smoothing, smoothing / classes)]
        views = (out, logits, labels)
        self._threads("cross_entropy", n, logits.dtype, views, parameters, "row_exp", "logits")

    def cross_entropy_grad(
        self, grad: View, logits: View, labels: View, out: View, smoothing: float
    ) -> None:
        n, classes = logits.shape
        parameters = [0, classes, logits.offset, labels.offset, logits.strides[1], out.strides[1]]
        parameters += [logits.strides[0], labels.strides[0], out.strides[0], grad.strides[0]]
        parameters += [out.offset, grad.offset, *words(1 - smoothing, smoothing / classes)]
        views = (out, logits, labels, grad)
        self._threads("cross_entropy_grad", n, logits.dtype, views, parameters, "row_exp", "logits")

    # ---- rows by index -----------------------------------------------------------------------

    def gather(self, a: View, index: View, out: View) -> None:
        self._by_index("gather", a, index, out)

    def scatter(self, a: View, index: View, out: View) -> None:
        self._by_index("scatter", a, index, out)

    def scatter_add(self, a: View, index: View, out: View) -> None:
        self._by_index("scatter_add", a, index, out)

    def _by_index(self, name: str, a: View, index: View, out: View) -> None:
        if 0 in out.shape:
            return
        parameters = [len(out.shape) - 1, index.shape[0], out.offset, a.offset, index.offset, 0]
        parameters += [out.strides[0], a.strides[0], index.strides[0], 0]
        for size, step_out, step_a in zip(out.shape[1:], out.strides[1:], a.strides[1:]):
            parameters += [size, step_out, step_a, 0]
        views = (out, a, index)
        self._threads(name, product(out.shape), out.dtype, views, parameters, "indexed")

    def one_hot(self, index: View, out: View) -> None:
        parameters = [out.shape[1], out.offset, index.offset, index.strides[0], *out.strides]
        self._threads("one_hot", product(out.shape), out.dtype, (out, index), parameters)

    # ---- random numbers ----------------------------------------------------------------------

    def random(self, name: str, out: View, seed: int, draw: int, a: float, b: float) -> None:
        count = product(out.shape)
        share = math.ceil(min(max(a, 0.0), 1.0) * 2.0**32)  # the number of words that map to b
        kind = DISTRIBUTIONS.index(name)
        if name == "bernoulli" and share == 0:
            kind = NEVER
        key = [seed & MASK, seed >> 32, draw & MASK, TENSOR_STREAM << 8]
        parameters = [len(out.shape), kind, *map(_signed, key), count, out.offset, *words(a, b)]
        parameters += [_signed((share - 1) & MASK), 0, 0, 0]
        for size, step in zip(out.shape, out.strides):
            parameters += [size, step, 0, 0]
        self._threads("random", -(-count // 4), out.dtype, (out,), parameters, "float64")


def _signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word


def _windows(
    images: View,
    weight: View,
    result: View,
    geometry: Geometry,
    epilogue: Epilogue,
    sizes: Sequence[int],
) -> list[int]:
    """Return the parameters of windows.wgsl."""
    kh, kw, c, o = weight.shape
    bias = epilogue.bias
    flags = int(bias is not None) + 2 * epilogue.relu
    parameters = [*sizes, images.offset, weight.offset, result.offset, bias.offset if bias else 0]
    parameters += [*images.strides, *result.strides, *weight.strides]
    parameters += [*images.shape[1:3], *result.shape[1:3], kh, kw, c, o // geometry.groups]
    parameters += [*geometry.stride, *geometry.padding, *geometry.dilation]
    return [*parameters, bias.strides[0] if bias else 0, flags]


def _rows(a: View, out: View, axis: int) -> tuple[int, list[int]]:
    """Return the row count along an axis and the parameters of rows.wgsl."""
    rest = (*a.shape[:axis], *a.shape[axis + 1 :])
    steps = [(*v.strides[:axis], *v.strides[axis + 1 :]) for v in (a, out)]
    outer = merged(rest, tuple(steps))
    parameters = [len(outer), a.shape[axis], a.offset, out.offset]
    parameters += [a.strides[axis], out.strides[axis]]
    for size, (step_a, step_out) in outer:
        parameters += [size, step_a, step_out, 0]
    return product(rest), parameters


def _pool(x: View, y: View, x_grad: View, kernel: Pair, stride: Pair, padding: Pair) -> list[int]:
    """Return the parameters of a pooling kernel; ``y`` is the result or its gradient."""
    parameters = [0, 0, x.offset, y.offset, x_grad.offset, 0]
    parameters += [*x.strides, *y.strides, *x_grad.strides, *x.shape[1:3], *y.shape[1:3]]
    return [*parameters, x.shape[3], 0, 0, 0, *kernel, *stride, *padding, 0, 0]
