"""Test conv2d and its gradients: every algorithm, prepared weights, NaN and infinities."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from kernel_views import empty_view, numpy_of, view_of
from test_kernels import FLOATS, check, same_for_any_threads

from needle import config
from needle.backends.base import NO_EPILOGUE
from needle.dtypes import DType
from needle.shapes import Geometry
from needle.testing.conformance.optional_images import convolution_cases


class Conv(NamedTuple):
    """A convolution of x (N, H, W, C)."""

    x: tuple[int, int, int, int]
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
        each = zip(self.x[1:3], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        rows, columns = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each)
        return self.x[0], rows, columns, self.outputs

    def operands(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return x, the weight and the gradient of the result in float32."""
        random = np.random.default_rng(0)
        x, weight, grad = (
            random.standard_normal(s, "float32") for s in (self.x, self.weight, self.out)
        )
        return x, weight, grad

    def run(self, kernels: Any) -> list[np.ndarray]:
        """Return the result and the gradients of x and the weight."""
        x, weight, grad = (view_of(a) for a in self.operands())
        out, dx, dw = (empty_view(s, "float32") for s in (self.out, self.x, self.weight))
        kernels.conv2d(x, weight, out, self.geometry, NO_EPILOGUE)
        kernels.conv2d_input_grad(grad, weight, dx, self.geometry)
        kernels.conv2d_weight_grad(grad, x, dw, self.geometry)
        return [numpy_of(view) for view in (out, dx, dw)]


CASES = [
    Conv((1, 1, 1, 1), (1, 1), 1),
    Conv((2, 9, 7, 16), (3, 2), 20, (2, 1), (1, 0), (1, 2)),
    Conv((1, 8, 8, 12), (3, 2), 18, (2, 3), (2, 1), (2, 1), groups=3),
    Conv((1, 12, 13, 24), (3, 3), 40, padding=(1, 1), groups=2),
    Conv((2, 5, 5, 4), (1, 1), 8),
    Conv((2, 6, 5, 40), (1, 1), 8, (2, 2), groups=2),
    Conv((256, 1, 8, 40), (1, 1), 20),  # several ranges of pixels, packed from the image
    Conv((3, 6, 5, 8), (3, 3), 8, padding=(1, 1), groups=8),  # depthwise
    Conv((2, 6, 5, 70), (3, 3), 70, (2, 2), (1, 1), groups=70),
    Conv((2, 7, 19, 40), (3, 2), 40, (1, 2), (1, 1), (1, 2), groups=40),  # several pixels at once
    Conv((1, 6, 6, 4), (3, 3), 8, padding=(1, 1), groups=4),  # two filters per channel
    Conv((1, 4, 4, 16), (1, 1), 16, (2, 2)),  # no tap reads some pixels
    Conv((1, 3, 3, 2), (2, 2), 4, padding=(3, 3)),  # windows that contain only padding
    Conv((1, 11, 10, 70), (3, 3), 33, padding=(1, 1)),  # k in several slices
    Conv((2, 40, 30, 2), (5, 5), 6, padding=(2, 2)),  # several ranges of pixels
    # planes in bands of different heights
    Conv((2, 70, 48, 3), (3, 5), 7, padding=(1, 2), dilation=(2, 1)),
    Conv((1, 3, 40, 24), (2, 3), 2, padding=(1, 0)),  # few outputs
    Conv((2, 18, 21, 24), (3, 3), 40, padding=(1, 1)),  # incomplete Winograd tiles
    Conv((5, 32, 32, 1), (5, 5), 6),  # LeNet-5's: a row of taps is contiguous
    Conv((5, 14, 14, 6), (5, 5), 16),
    Conv((5, 32, 32, 3), (7, 7), 16, (4, 4), (3, 3)),  # pixels that no window covers
    Conv((6, 11, 10, 1), (4, 3), 1, (1, 2), (0, 2), (2, 1)),
    Conv((5, 10, 9, 3), (3, 3), 21, (1, 1), (2, 2), (1, 2)),  # taps that are not contiguous
    # depthwise, one and a half vectors
    Conv((4, 9, 21, 20), (3, 3), 20, (1, 2), (1, 1), groups=20),
    Conv((2, 1, 1, 40), (3, 3), 64, padding=(1, 1)),  # only the centre tap reads the image
    Conv((1, 2, 2, 70), (3, 3), 40, (2, 2), (1, 1)),  # only 2 x 2 taps read the image
    Conv((1, 2, 1, 8), (5, 7), 33, padding=(4, 4), dilation=(2, 1)),
    Conv((3, 1, 2, 4), (3, 3), 6, (1, 2), (2, 2), (2, 2), groups=2),
    Conv((2, 1, 1, 8), (3, 3), 8, padding=(1, 1), groups=8),  # depthwise
    Conv((1, 4, 4, 72), (3, 3), 96, padding=(1, 1)),  # few pixels: weights are read in place
    Conv((1, 1, 5, 40), (1, 3), 70, padding=(0, 1)),
    Conv((1, 15, 17, 20), (3, 2), 36, padding=(1, 0)),  # two chunks of equal size
]
ALGORITHMS = ("auto", "direct", "winograd")  # the last two differ only for 3x3 with stride 1


@pytest.fixture(params=ALGORITHMS)
def algorithm(kernels: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    kernels.module.select_conv2d(request.param)
    yield request.param
    kernels.module.select_conv2d(config.conv2d_algorithm.get())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("conv", CASES, ids=str)
@pytest.mark.usefixtures("algorithm")
def test_results_and_bits(kernels: Any, conv: Conv, dtype: DType) -> None:
    for case in convolution_cases(dtype, conv.x, conv.weight, conv.geometry):
        check(kernels, case, 2e-6)


def same_as_plain(kernels: Any, conv: Conv, prepared: Any) -> None:
    """Assert that conv2d gives the same bits with prepared weights, which it may ignore."""
    x, weight, _ = (view_of(a) for a in conv.operands())
    got, want = (empty_view(conv.out, "float32") for _ in range(2))
    kernels.conv2d(x, weight, want, conv.geometry, NO_EPILOGUE)
    kernels.module.conv2d_prepared(x, weight, prepared, got, conv.geometry, NO_EPILOGUE)
    np.testing.assert_array_equal(numpy_of(got), numpy_of(want))


def prepare(kernels: Any, conv: Conv) -> Any:
    """Return weights prepared for the instruction set and the algorithm that are selected."""
    size = kernels.module.prepared_conv2d_size(conv.x, conv.weight, conv.geometry)
    prepared = view_of(np.zeros(size, np.float32))
    kernels.module.prepare_conv2d(view_of(conv.operands()[1]), prepared, conv.x, conv.geometry)
    return prepared


@pytest.mark.parametrize("conv", CASES, ids=str)
@pytest.mark.usefixtures("algorithm")
def test_prepared_weights_give_the_same_bits(kernels: Any, conv: Conv) -> None:
    """Weights prepared for another algorithm are ignored, and the plain ones are read."""
    prepared = prepare(kernels, conv)
    size = prepared.shape[0]
    assert size == 0 or conv.groups == 1
    same_as_plain(kernels, conv, prepared)
    for length in {size + 1, 1} - {size}:
        same_as_plain(kernels, conv, view_of(np.full(length, 3, np.float32)))


def test_weights_prepared_for_another_instruction_set_are_not_read(kernels: Any) -> None:
    conv = Conv((1, 8, 8, 32), (3, 3), 32, padding=(1, 1))
    prepared, module = prepare(kernels, conv), kernels.module
    for isa in module.available_isas():
        module.select_isa(isa)
        same_as_plain(kernels, conv, prepared)


@pytest.mark.parametrize("given", [np.zeros((2, 2), np.float32), np.zeros(4)])
def test_other_arrays_are_refused_as_prepared_weights(kernels: Any, given: np.ndarray) -> None:
    with pytest.raises(ValueError, match="must be a compact float32 vector"):
        same_as_plain(kernels, CASES[0], view_of(given))


@pytest.mark.parametrize("channels", [1, 6, 16])
def test_what_is_not_finite_reaches_those_alone_that_see_it(kernels: Any, channels: int) -> None:
    conv = Conv((5, 9, 12, channels), (5, 5), 6, padding=(1, 2))
    x, weight, grad = conv.operands()
    x[1, 4, 5, 0], grad[2, 3, 4, 1] = np.inf, np.nan
    out, x_grad = empty_view(conv.out, "float32"), empty_view(conv.x, "float32")
    kernels.conv2d(view_of(x), view_of(weight), out, conv.geometry, NO_EPILOGUE)
    kernels.conv2d_input_grad(view_of(grad), view_of(weight), x_grad, conv.geometry)
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
    conv = Conv((17, 20, 20, channels), (size, size), outputs, padding=(1, 1), groups=groups)
    same_for_any_threads(kernels.module, lambda: conv.run(kernels))
