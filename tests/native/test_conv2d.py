"""conv2d and its two gradients against explicit sums in NumPy float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from kernel_views import FLOATS, empty_view, numpy_of, view_of
from layout_runs import close, results, same_for_any_threads

from needle.backends.base import NO_EPILOGUE, Epilogue, View
from needle.shapes import Geometry


class Case(NamedTuple):
    x: tuple[int, int, int, int]  # N, H, W, C
    kernel: tuple[int, int]
    outputs: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    @property
    def geometry(self) -> Geometry:
        return Geometry(self.stride, self.padding, self.dilation, self.groups)

    @property
    def weight(self) -> tuple[int, int, int, int]:
        return (*self.kernel, self.x[3] // self.groups, self.outputs)

    @property
    def out(self) -> tuple[int, int, int, int]:
        sizes = [
            (self.x[1 + i] + 2 * self.padding[i] - self.dilation[i] * (self.kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in range(2)
        ]
        return self.x[0], sizes[0], sizes[1], self.outputs


CASES = [
    Case((1, 1, 1, 1), (1, 1), 1),
    Case((2, 9, 7, 3), (3, 3), 5, padding=(1, 1)),
    Case((2, 9, 7, 16), (3, 2), 20, (2, 1), (1, 0), (1, 2)),
    Case((1, 8, 8, 12), (3, 2), 18, (2, 3), (2, 1), (2, 1), groups=3),
    Case((1, 12, 13, 24), (3, 3), 40, padding=(1, 1), groups=2),
    Case((2, 5, 5, 4), (1, 1), 8),
    Case((2, 6, 5, 40), (1, 1), 8, (2, 2), groups=2),
    Case((256, 1, 8, 40), (1, 1), 20),  # several ranges of pixels, packed from the image
    Case((3, 6, 5, 8), (3, 3), 8, padding=(1, 1), groups=8),  # depthwise
    Case((2, 6, 5, 70), (3, 3), 70, (2, 2), (1, 1), groups=70),
    Case((2, 7, 19, 40), (3, 2), 40, (1, 2), (1, 1), (1, 2), groups=40),  # several pixels at once
    Case((1, 6, 6, 4), (3, 3), 8, padding=(1, 1), groups=4),  # two filters per channel
    Case((1, 4, 4, 2), (2, 2), 4, (3, 3)),  # the stride skips pixels
    Case((1, 4, 4, 16), (1, 1), 16, (2, 2)),  # no tap reads some pixels
    Case((1, 3, 3, 2), (2, 2), 4, padding=(3, 3)),  # windows that contain only padding
    Case((0, 5, 5, 4), (3, 3), 8, padding=(1, 1)),
    Case((1, 11, 10, 70), (3, 3), 33, padding=(1, 1)),  # k in several slices
    Case((2, 40, 30, 2), (5, 5), 6, padding=(2, 2)),  # several ranges of pixels
    # planes in bands of different heights
    Case((2, 70, 48, 3), (3, 5), 7, padding=(1, 2), dilation=(2, 1)),
    Case((1, 3, 40, 24), (2, 3), 2, padding=(1, 0)),  # few outputs
    Case((2, 18, 21, 24), (3, 3), 40, padding=(1, 1)),  # incomplete Winograd tiles
    Case((5, 32, 32, 1), (5, 5), 6),  # LeNet-5's: a row of taps is contiguous
    Case((5, 14, 14, 6), (5, 5), 16),
    Case((5, 32, 32, 3), (7, 7), 16, (4, 4), (3, 3)),  # pixels that no window covers
    Case((6, 11, 10, 1), (4, 3), 1, (1, 2), (0, 2), (2, 1)),
    Case((5, 10, 9, 3), (3, 3), 21, (1, 1), (2, 2), (1, 2)),  # taps that are not contiguous
    # depthwise, one and a half vectors
    Case((4, 9, 21, 20), (3, 3), 20, (1, 2), (1, 1), groups=20),
    Case((2, 1, 1, 40), (3, 3), 64, padding=(1, 1)),  # only the centre tap reads the image
    Case((1, 2, 2, 70), (3, 3), 40, (2, 2), (1, 1)),  # only 2 x 2 taps read the image
    Case((1, 2, 1, 8), (5, 7), 33, padding=(3, 4), dilation=(2, 1)),
    Case((3, 1, 2, 4), (3, 3), 6, (1, 2), (2, 2), (2, 2), groups=2),
    Case((2, 1, 1, 8), (3, 3), 8, padding=(1, 1), groups=8),  # depthwise
    Case((1, 4, 4, 72), (3, 3), 96, padding=(1, 1)),  # few pixels: weights are read in place
    Case((1, 1, 5, 40), (1, 3), 70, padding=(0, 1)),
    Case((1, 15, 17, 20), (3, 2), 36, padding=(1, 0)),  # two chunks of equal size
]


ALGORITHMS = ("auto", "direct", "winograd")  # the last two differ only for 3x3 with stride 1


@pytest.fixture(params=ALGORITHMS)
def algorithm(kernels: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    before = kernels.module.conv2d_algorithm()
    kernels.module.select_conv2d(request.param)
    yield request.param
    kernels.module.select_conv2d(before)


def patches(case: Case, x: np.ndarray) -> np.ndarray:
    """Return (N, OH, OW, KH, KW, C) float64: each output pixel's window, with zero padding."""
    (ph, pw), (sh, sw), (dh, dw) = case.padding, case.stride, case.dilation
    padded = np.pad(x.astype(np.float64), ((0, 0), (ph, ph), (pw, pw), (0, 0)))
    n, oh, ow, _ = case.out
    seen = np.empty((n, oh, ow, *case.kernel, x.shape[3]))
    for i in range(case.kernel[0]):
        for j in range(case.kernel[1]):
            rows, columns = i * dh, j * dw
            part = padded[:, rows : rows + sh * (oh - 1) + 1 : sh]
            seen[:, :, :, i, j] = part[:, :, columns : columns + sw * (ow - 1) + 1 : sw]
    return seen


def add_patches(case: Case, seen: np.ndarray) -> np.ndarray:
    """Add each element of a patch at its source: the transpose of ``patches``."""
    (ph, pw), (sh, sw), (dh, dw) = case.padding, case.stride, case.dilation
    n, h, w, c = case.x
    _, oh, ow, _ = case.out
    padded = np.zeros((n, h + 2 * ph, w + 2 * pw, c))
    for i in range(case.kernel[0]):
        for j in range(case.kernel[1]):
            rows = slice(i * dh, i * dh + sh * (oh - 1) + 1, sh)
            columns = slice(j * dw, j * dw + sw * (ow - 1) + 1, sw)
            padded[:, rows, columns] += seen[:, :, :, i, j]
    return padded[:, ph : ph + h, pw : pw + w]


def split(a: np.ndarray, groups: int) -> list[np.ndarray]:
    return np.split(a, groups, axis=-1)


def operands(case: Case, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = (case.x, case.weight, case.out)
    x, weight, grad = (rng.standard_normal(s).astype(dtype) for s in shapes)
    return x, weight, grad


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("algorithm")
def test_forward(kernels: Any, case: Case, dtype: str) -> None:
    x, weight, _ = operands(case, dtype)
    bias = np.random.default_rng(1).standard_normal(case.outputs).astype(dtype)
    seen, filters = split(patches(case, x), case.groups), split(weight, case.groups)
    parts = [np.einsum("nhwijc,ijco->nhwo", s, f) for s, f in zip(seen, filters, strict=True)]
    want, outs = np.concatenate(parts, axis=-1), [(case.out, dtype)]

    def call(x: View, weight: View, *rest: View) -> None:
        *bias, out = rest
        kernels.conv2d(x, weight, out, case.geometry, Epilogue(*(bias or [None]), None, relu))

    for relu in (False, True):
        for more, result in (((), want), ((bias,), want + bias)):
            result = np.maximum(result, 0) if relu else result
            for layout, (got,) in results(call, (x, weight, *more), outs):
                close(got, result, 2e-6, layout)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("algorithm")
def test_prepared_weights_give_the_same_bits(kernels: Any, case: Case) -> None:
    """Weights prepared for another algorithm are ignored, and the plain ones are read."""
    x, weight, _ = operands(case, "float32")
    module = kernels.module
    size = module.prepared_conv2d_size(case.x, case.weight, case.geometry)
    if case.groups > 1:
        assert size == 0
    view, filters = view_of(x), view_of(weight)
    for length in {size, size + 1, 1}:
        prepared = view_of(np.full(length, 3, np.float32))
        if length == size:
            module.prepare_conv2d(filters, prepared, case.x, case.geometry)
        got = empty_view(case.out, "float32")
        want = empty_view(case.out, "float32")
        kernels.conv2d(view, filters, want, case.geometry, NO_EPILOGUE)
        module.conv2d_prepared(view, filters, prepared, got, case.geometry, NO_EPILOGUE)
        np.testing.assert_array_equal(numpy_of(got), numpy_of(want))


def test_weights_prepared_for_another_instruction_set_are_not_read(kernels: Any) -> None:
    case = Case((1, 8, 8, 32), (3, 3), 32, padding=(1, 1))
    x, weight, _ = operands(case, "float32")
    module, before = kernels.module, kernels.module.isa
    size = module.prepared_conv2d_size(case.x, case.weight, case.geometry)
    prepared = view_of(np.zeros(size, np.float32))
    view, filters = view_of(x), view_of(weight)
    module.prepare_conv2d(filters, prepared, case.x, case.geometry)
    try:
        for isa in module.available_isas():
            module.select_isa(isa)
            got = empty_view(case.out, "float32")
            want = empty_view(case.out, "float32")
            kernels.conv2d(view, filters, want, case.geometry, NO_EPILOGUE)
            module.conv2d_prepared(view, filters, prepared, got, case.geometry, NO_EPILOGUE)
            np.testing.assert_array_equal(numpy_of(got), numpy_of(want))
    finally:
        module.select_isa(before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prepared": np.zeros((2, 2), np.float32)}, "must be a compact float32 vector"),
        ({"prepared": np.zeros(4)}, "must be a compact float32 vector"),
        ({"x": np.zeros((1, 3, 3, 5), np.float32)}, "conv2d: "),
    ],
)
def test_prepared_weights_are_checked(kernels: Any, change: Any, message: str) -> None:
    case = Case((1, 3, 3, 4), (3, 3), 4)
    x, weight, _ = operands(case, "float32")
    arrays = {"x": x, "weight": weight, "prepared": np.zeros(4, np.float32), **change}
    views = [view_of(array) for array in arrays.values()]
    out = empty_view(case.out, "float32")
    with pytest.raises(ValueError, match=message):
        kernels.module.conv2d_prepared(*views, out, case.geometry, NO_EPILOGUE)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("algorithm")
def test_input_gradient(kernels: Any, case: Case, dtype: str) -> None:
    _, weight, grad = operands(case, dtype)
    pairs = zip(split(grad, case.groups), split(weight, case.groups), strict=True)
    parts = [np.einsum("nhwo,ijco->nhwijc", g.astype(np.float64), f) for g, f in pairs]
    want = add_patches(case, np.concatenate(parts, axis=-1))
    call, outs = kernels.conv2d_input_grad, [(case.x, dtype)]
    for layout, (got,) in results(call, (grad, weight), outs, case.geometry):
        close(got, want, 2e-6, layout)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.usefixtures("algorithm")
def test_weight_gradient(kernels: Any, case: Case, dtype: str) -> None:
    x, _, grad = operands(case, dtype)
    pairs = zip(split(patches(case, x), case.groups), split(grad, case.groups), strict=True)
    parts = [np.einsum("nhwijc,nhwo->ijco", s, g) for s, g in pairs]
    want = np.concatenate(parts, axis=-1)
    call, outs = kernels.conv2d_weight_grad, [(case.weight, dtype)]
    for layout, (got,) in results(call, (grad, x), outs, case.geometry):
        close(got, want, 2e-6, layout)


@pytest.mark.parametrize("channels", [1, 6, 16])
def test_what_is_not_finite_reaches_those_alone_that_see_it(kernels: Any, channels: int) -> None:
    case = Case((5, 9, 12, channels), (5, 5), 6, padding=(1, 2))
    x, weight, grad = operands(case, "float32")
    x[1, 4, 5, 0], grad[2, 3, 4, 1] = np.inf, np.nan
    out, x_grad = empty_view(case.out, "float32"), empty_view(case.x, "float32")
    kernels.conv2d(view_of(x), view_of(weight), out, case.geometry, NO_EPILOGUE)
    kernels.conv2d_input_grad(view_of(grad), view_of(weight), x_grad, case.geometry)
    reached = np.argwhere(~np.isfinite(numpy_of(out)).all(axis=-1))
    assert reached.min(axis=0).tolist() == [1, 1, 3] and len(reached) == 25
    reached = np.argwhere(~np.isfinite(numpy_of(x_grad)).all(axis=-1))
    assert reached.min(axis=0).tolist() == [2, 2, 2] and len(reached) == 25


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "groups"),
    [(32, 32, 3, 1), (32, 32, 3, 32), (3, 3, 3, 1), (1, 6, 5, 1), (6, 16, 5, 1), (260, 36, 1, 1)],
)
def test_threads_do_not_change_the_gradients(
    kernels: Any, channels: int, outputs: int, size: int, groups: int
) -> None:
    shape = (17, 20, 20, channels)
    case = Case(shape, (size, size), outputs, padding=(1, 1), groups=groups)
    x, weight, grad = (view_of(a) for a in operands(case, "float32"))

    def call() -> list[np.ndarray]:
        out, dx, dw = (empty_view(s, "float32") for s in (case.out, case.x, case.weight))
        kernels.conv2d(x, weight, out, case.geometry, NO_EPILOGUE)
        kernels.conv2d_input_grad(grad, weight, dx, case.geometry)
        kernels.conv2d_weight_grad(grad, x, dw, case.geometry)
        return [numpy_of(v) for v in (out, dx, dw)]

    same_for_any_threads(kernels.module, call)
