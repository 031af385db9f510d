"""Batch norm, layer norm and epilogues on WebGPU; see norm*.wgsl.

``optional`` adds the other kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...shapes import compact_strides, product
from ..base import Epilogue, EpilogueGrad, View
from . import sources
from .queue import ROW
from .required import THREADS, RequiredKernels, Strides, chosen, grid, lanes_of, merged, words

VIEWS = 7
"""Number of views in places.wgsl."""
RESIDUAL, RELU, WEIGHT = 1, 2, 1
"""Flags of norm.wgsl, norm_sums.wgsl and norm_grad.wgsl."""


class NormKernels(RequiredKernels):
    """Base class with normalisation, relu's gradient and epilogues."""

    # ---- epilogues ---------------------------------------------------------------------------

    def apply_epilogue(self, a: View, out: View, epilogue: Epilogue) -> None:
        bias = broadcast(epilogue.bias, a.shape)
        self._elementwise(sources.biased_relu(), a.dtype, out, a, bias)

    def relu_grad(self, grad: View, y: View, out: View, bias_grad: View | None) -> None:
        self._elementwise(sources.relu_grad(), grad.dtype, out, grad, y)
        if bias_grad is not None:
            self.reduce("sum", out, _as_last(bias_grad, out.shape))

    # ---- batch norm and layer norm -----------------------------------------------------------

    def batch_norm(
        self,
        x: View,
        weight: View,
        bias: View,
        out: View,
        mean: View,
        var: View,
        eps: float,
        epilogue: Epilogue,
    ) -> None:
        kept = [len(x.shape) - 1]
        mean, var = broadcast(mean, x.shape), broadcast(var, x.shape)
        self._lanes("norm_moments", (mean, x, var), kept)
        self._normalise(x, weight, bias, out, mean, var, eps, epilogue)

    def layer_norm(
        self, x: View, weight: View, bias: View, out: View, mean: View, var: View, eps: float
    ) -> None:
        kept = list(range(len(x.shape) - 1))
        mean, var = broadcast(mean, x.shape), broadcast(var, x.shape)
        self._lanes("norm_moments", (mean, x, var), kept)
        self._normalise(x, weight, bias, out, mean, var, eps, Epilogue())

    def batch_norm_grad(
        self,
        grad: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        x_grad: View,
        weight_grad: View,
        bias_grad: View,
        eps: float,
        epilogue: EpilogueGrad,
    ) -> None:
        mean, var = broadcast(mean, x.shape), broadcast(var, x.shape)
        grad = self._before_relu(grad, x, weight, mean, var, eps, epilogue)
        sums = self._sums((grad, x, mean, var, mean), [len(x.shape) - 1], eps, 0)
        self._write_sums(sums, weight_grad, bias_grad)
        self._input_grad(x_grad, grad, x, weight, mean, var, sums, eps, WEIGHT)

    def layer_norm_grad(
        self,
        grad: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        x_grad: View,
        weight_grad: View,
        bias_grad: View,
        eps: float,
    ) -> None:
        mean, var = broadcast(mean, x.shape), broadcast(var, x.shape)
        views, last = (grad, x, mean, var, broadcast(weight, x.shape)), len(x.shape) - 1
        sums = self._sums(views, [last], eps, 0)
        self._write_sums(sums, weight_grad, bias_grad)
        sums = self._sums(views, list(range(last)), eps, WEIGHT)
        self._input_grad(x_grad, grad, x, weight, mean, var, sums, eps, 0)

    def _before_relu(
        self,
        grad: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        eps: float,
        epilogue: EpilogueGrad,
    ) -> View:
        """Return the gradient of the epilogue's input, given the gradient of its output."""
        if epilogue.bias is not None:
            out = self._compact_like(x)
            self._normalise(x, weight, epilogue.bias, out, mean, var, eps, Epilogue())
            self.relu_grad(grad, out, out, None)
            return out
        if epilogue.result is not None and epilogue.residual_grad is not None:
            self.relu_grad(grad, epilogue.result, epilogue.residual_grad, None)
            return epilogue.residual_grad
        return grad

    def _normalise(
        self,
        x: View,
        weight: View,
        bias: View,
        out: View,
        mean: View,
        var: View,
        eps: float,
        epilogue: Epilogue,
    ) -> None:
        residual = epilogue.residual
        flags = RESIDUAL * (residual is not None) + RELU * epilogue.relu
        rows = broadcast(weight, x.shape), broadcast(bias, x.shape)
        views = (out, x, *rows, mean, var, residual or out)
        self._each("norm", views, 0, (0, 0, flags, *words(eps)))

    def _sums(self, views: Sequence[View], kept: list[int], eps: float, flags: int) -> View:
        """Return the two sums of norm_sums.wgsl, (2, ...); reduced axes have stride 0."""
        shape = views[0].shape
        sizes = tuple(n if i in kept else 1 for i, n in enumerate(shape))
        handle = self.allocate(2 * product(sizes), views[0].dtype)
        whole = View(handle, sizes, compact_strides(sizes), 0, views[0].dtype)
        self._lanes("norm_sums", (broadcast(whole, shape), *views), kept, flags, eps)
        strides = (product(sizes), *broadcast(whole, shape).strides)
        return whole._replace(shape=(2, *shape), strides=strides)

    def _write_sums(self, sums: View, weight_grad: View, bias_grad: View) -> None:
        first = View(sums.handle, bias_grad.shape, (1,), 0, sums.dtype)
        self.copy(first, bias_grad)
        self.copy(first._replace(offset=sums.strides[0]), weight_grad)

    def _input_grad(
        self,
        x_grad: View,
        grad: View,
        x: View,
        weight: View,
        mean: View,
        var: View,
        sums: View,
        eps: float,
        flags: int,
    ) -> None:
        first = sums._replace(shape=sums.shape[1:], strides=sums.strides[1:])
        views = (x_grad, grad, x, broadcast(weight, x.shape), mean, var, first)
        results = sums.strides[0]
        each = product(x.shape) // max(results, 1)
        self._each("norm_grad", views, each, (results, 0, flags, *words(eps)))

    # ---- kernels of places.wgsl --------------------------------------------------------------

    def _each(
        self, name: str, views: Sequence[View], elements: int, settings: Sequence[int]
    ) -> None:
        """Run a kernel with one thread per element and ``settings`` as P[3]."""
        shape = views[0].shape
        if 0 in shape:
            return
        axes = merged(shape, tuple(view.strides for view in views))
        source = sources.kernel(views[0].dtype, "places", "each", name)
        groups = grid(-(-product(shape) // THREADS))
        self._strided(
            source, views, (product(shape), len(axes), 0, elements), settings, axes, groups
        )

    def _lanes(
        self, name: str, views: Sequence[View], kept: list[int], flags: int = 0, eps: float = 0
    ) -> None:
        """Run a kernel in sums.wgsl with one result per element in the kept axes of views[1]."""
        shape = views[1].shape
        reduced = [i for i in range(len(shape)) if i not in kept]
        steps = tuple(view.strides for view in views)
        outer = merged(*chosen(kept, shape, steps))
        inner = merged(*chosen(reduced, shape, steps))
        results = product(tuple(shape[i] for i in kept))
        each = product(tuple(shape[i] for i in reduced))
        if results == 0:
            return
        lanes, across = lanes_of(each), bool(outer) and abs(outer[-1][1][1]) == 1
        source = sources.kernel(views[0].dtype, "places", "sums", name)
        groups = grid(-(-results * lanes // THREADS))
        sizes = results, len(outer), len(inner), each
        self._strided(
            source, views, sizes, (lanes, int(across), flags, *words(eps)), outer + inner, groups
        )

    def _strided(
        self,
        source: str,
        views: Sequence[View],
        sizes: tuple[int, int, int, int],
        settings: Sequence[int],
        axes: Sequence[tuple[int, Strides]],
        groups: tuple[int, int, int],
    ) -> None:
        """Run a kernel of places.wgsl; sizes: results, outer and inner axes, elements of each."""
        missing = VIEWS - len(views)
        results, outer, inner, each = sizes
        parameters = [results, outer, inner, ROW, each, *(view.offset for view in views)]
        parameters += [*([0] * missing), *settings]
        for size, steps in axes:
            parameters += [size, *steps, *([0] * missing)]
        buffers = [view.handle for view in views] + [views[0].handle] * missing
        self.queue.dispatch(source, parameters, buffers, groups)


def broadcast(view: View, shape: tuple[int, ...]) -> View:
    """Broadcast the view to the shape, with stride 0 along repeated axes."""
    missing = len(shape) - len(view.shape)
    kept = [step if n == m else 0 for n, m, step in zip(view.shape, shape[missing:], view.strides)]
    return view._replace(shape=shape, strides=(0,) * missing + tuple(kept))


def _as_last(view: View, shape: tuple[int, ...]) -> View:
    """Return a view (C,) as (1, ..., 1, C), with as many axes as ``shape``."""
    missing = len(shape) - 1
    return view._replace(shape=(1,) * missing + view.shape, strides=(0,) * missing + view.strides)
