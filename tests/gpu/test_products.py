"""Compare products and convolutions of every tile, in every precision, with float64.

Operands are rounded in NumPy as the tensor cores round them, so that only the order of sums
differs. The emulator runs them as a GPU of sm_80 and, where other kernels take part, of sm_90, with
its threads in shuffled order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import needle
from needle import accelerated, config
from needle.backend_selection import BACKEND
from needle.backends.base import Epilogue
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated
from tests.cuda_on_cpu.test_precision import ROUNDED, uniform
from tests.gpu.place import Place

pytestmark = pytest.mark.skipif(BACKEND == "np", reason="plain NumPy arrays have no backends")
Round = Callable[[np.ndarray], np.ndarray]


@contextmanager
def generation(place: Place, number: str) -> Iterator[None]:
    """Make the emulator a GPU of this generation."""
    if place.real:
        if number == "9":
            pytest.skip("NEEDLE_CUDA_SM90 chooses the kernels of a GPU")
        yield
        return
    emulated.set_capability(int(number))
    emulated.module.set_order("shuffled")
    yield
    emulated.module.set_order("forward")
    emulated.set_capability(8)


@pytest.fixture(params=["float32-8", "tf32-8", "bf16-8", "bf16-9", "fp16-8", "fp16-9"])
def rounded(request: pytest.FixtureRequest, place: Place) -> Iterator[Round]:
    """Set each precision in turn and return its rounding of an operand to float64."""
    precision, number = request.param.split("-")
    if precision not in place.device.matmul_precisions:
        pytest.skip(f"{place.device} multiplies in {', '.join(place.device.matmul_precisions)}")
    of = ROUNDED.get(precision, lambda x: x)
    with generation(place, number), config.matmul_precision.using(precision):
        yield lambda x: of(x).astype("float64")


def assert_products(got: Any, want: np.ndarray, unrounded: np.ndarray) -> None:
    """Assert equality up to the rounding of sums, and that operands were rounded."""
    distance = np.abs(got.numpy() - want)
    assert distance.max() <= 1e-4 * np.abs(want).max(), np.unravel_index(
        distance.argmax(), want.shape
    )
    mean = np.linalg.norm(distance) / np.linalg.norm(want)
    assert mean <= 2e-5
    if not np.array_equal(unrounded, want):  # true unless the precision is float32
        assert np.linalg.norm(got.numpy() - unrounded) / np.linalg.norm(want) > 5 * mean


class Matmul(NamedTuple):
    """Sizes of a product on a GPU, and on the emulator, which has few processors."""

    gpu: tuple[int, int, int]
    emulated: tuple[int, int, int]


MATMULS = {
    "large tiles": Matmul((1537, 515, 1545), (130, 21, 140)),
    "large tiles, whole": Matmul((1536, 512, 1536), (256, 32, 256)),
    "large tiles by words": Matmul((1540, 516, 1548), (260, 68, 132)),
    "small tiles by words": Matmul((196, 132, 84), (68, 36, 44)),
    "fewer depths than a step": Matmul((1536, 8, 1544), (256, 8, 136)),
    "k in parts": Matmul((200, 8200, 72), (40, 1030, 24)),
    "k in parts of words": Matmul((200, 8192, 72), (8, 2048, 16)),
    "one row": Matmul((1, 4096, 5000), (1, 64, 130)),
}


@pytest.mark.parametrize("flipped", ["", "a", "b", "ab"], ids="flipped {}".format)
@pytest.mark.parametrize("case", MATMULS)
def test_matmul(case: str, flipped: str, place: Place, rounded: Round) -> None:
    """Operands named in ``flipped`` are stored transposed."""
    m, k, n = MATMULS[case].gpu if place.real else MATMULS[case].emulated
    a, b = uniform(m, k), uniform(k, n)
    of = place.device

    def held(x: np.ndarray, name: str) -> Any:
        if name in flipped:
            turned = needle.backend_ndarray.array(np.ascontiguousarray(x.T), device=of)
            return turned.permute((1, 0))
        return needle.backend_ndarray.array(x, device=of)

    unrounded = a.astype("float64") @ b.astype("float64")
    assert_products(held(a, "a") @ held(b, "b"), rounded(a) @ rounded(b), unrounded)


class Convolution(NamedTuple):
    """Shapes x (N, H, W, C) and weight (KH, KW, C/groups, O), and the geometry."""

    gpu: tuple[tuple[int, ...], tuple[int, ...]]
    emulated: tuple[tuple[int, ...], tuple[int, ...]]
    how: Geometry


PADDED = Geometry(padding=(1, 1))
CONVOLUTIONS = {
    "channels by 32": Convolution(
        ((32, 24, 25, 96), (3, 3, 96, 160)), ((1, 9, 8, 32), (3, 3, 32, 72)), PADDED
    ),
    "both axes unlike": Convolution(
        ((48, 21, 34, 64), (5, 3, 64, 96)),
        ((1, 11, 14, 64), (5, 3, 64, 96)),
        Geometry((2, 1), (3, 1), (1, 2), 1),
    ),
    "fewer channels than a tile": Convolution(
        ((64, 20, 33, 32), (3, 3, 32, 40)), ((1, 9, 15, 32), (3, 3, 32, 40)), PADDED
    ),
    "narrow tiles": Convolution(
        ((32, 24, 25, 64), (3, 3, 64, 136)), ((1, 17, 16, 12), (3, 3, 12, 36)), PADDED
    ),
    "narrow tiles, odd channels": Convolution(
        ((64, 33, 18, 37), (3, 2, 37, 75)),
        ((2, 17, 16, 11), (3, 2, 11, 37)),
        Geometry((1, 1), (1, 0), (1, 2), 1),
    ),
    "a stride": Convolution(
        ((64, 33, 34, 36), (3, 3, 36, 72)),
        ((1, 20, 19, 9), (3, 3, 9, 36)),
        Geometry((2, 2), (1, 1), (1, 1), 1),
    ),
    "small tiles": Convolution(
        ((8, 28, 27, 16), (5, 5, 16, 24)),
        ((1, 7, 6, 3), (3, 3, 3, 5)),
        Geometry((1, 1), (2, 2), (1, 1), 1),
    ),
    "pixels in parts": Convolution(
        ((128, 32, 31, 64), (3, 3, 64, 64)), ((2, 30, 29, 6), (3, 3, 6, 5)), PADDED
    ),
    "large weight gradients": Convolution(
        ((32, 24, 25, 64), (3, 3, 64, 136)),
        ((1, 12, 13, 16), (3, 3, 16, 68)),
        Geometry((2, 1), (1, 1), (1, 1), 1),
    ),
    "pixels in parts of words": Convolution(
        ((128, 32, 31, 64), (3, 3, 64, 72)), ((9, 18, 16, 8), (3, 3, 8, 72)), PADDED
    ),
    "groups": Convolution(
        ((32, 24, 25, 80), (3, 3, 40, 96)),
        ((1, 12, 13, 24), (3, 3, 12, 72)),
        Geometry((1, 1), (1, 1), (1, 1), 2),
    ),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions(case: str, place: Place, rounded: Round) -> None:
    x_shape, weight_shape = CONVOLUTIONS[case].gpu if place.real else CONVOLUTIONS[case].emulated
    how = CONVOLUTIONS[case].how
    forward, of_x, of_weight = (
        accelerated.conv2d,
        accelerated.conv2d_input_grad,
        accelerated.conv2d_weight_grad,
    )
    x, weight = uniform(*x_shape), uniform(*weight_shape)

    def wanted(function: Any, a: np.ndarray, b: np.ndarray, *more: Any) -> tuple[Any, Any]:
        """Return the results of the operation for rounded and for unrounded operands."""
        return (
            function.definition(rounded(a), rounded(b), *more, how),
            function.definition(a.astype("float64"), b.astype("float64"), *more, how),
        )

    def held(a: np.ndarray) -> Any:
        return needle.backend_ndarray.array(a, device=place.device)

    want = wanted(forward, x, weight)
    grad = uniform(*want[0].shape)
    assert_products(forward(held(x), held(weight), how), *want)
    assert_products(
        of_x(held(grad), held(weight), x_shape, how), *wanted(of_x, grad, weight, x_shape)
    )
    assert_products(
        of_weight(held(grad), held(x), weight_shape, how), *wanted(of_weight, grad, x, weight_shape)
    )


def assert_stored(got: Any, want: np.ndarray) -> None:
    """Assert one bfloat16 rounding of float64's result; small results come from cancellation."""
    assert got.dtype == "bfloat16"
    near = 1e-4 * np.abs(want).max()
    np.testing.assert_allclose(got.astype("float32").numpy(), want, rtol=2**-8, atol=near)


@pytest.fixture(params=["8", "9"])
def stored(request: pytest.FixtureRequest, place: Place) -> Iterator[Callable[[np.ndarray], Any]]:
    """Return a function that stores an array in bfloat16."""
    pytest.importorskip("ml_dtypes")
    if "bfloat16" not in place.device.dtypes:
        pytest.skip(f"{place.device} has no bfloat16")
    with generation(place, request.param):
        yield lambda a: needle.backend_ndarray.array(a, device=place.device).astype("bfloat16")


@pytest.mark.parametrize("case", MATMULS)
def test_products_of_stored_bfloat16(case: str, place: Place, stored: Any) -> None:
    m, k, n = MATMULS[case].gpu if place.real else MATMULS[case].emulated
    a, b = (ROUNDED["bf16"](uniform(*shape)) for shape in ((m, k), (k, n)))
    want = a.astype("float64") @ b
    left, right = (stored(np.ascontiguousarray(x.T)).permute((1, 0)) for x in (a, b))
    for x, y in ((stored(a), stored(b)), (stored(a), right), (left, stored(b)), (left, right)):
        assert_stored(x @ y, want)


DEPTHWISE = ((2, 9, 8, 6), (3, 3, 1, 12))
"""A convolution that does not use tensor cores, so its operands are not rounded."""
STORED = CONVOLUTIONS | {
    "depthwise": Convolution(DEPTHWISE, DEPTHWISE, Geometry((2, 1), (1, 1), (1, 1), 6))
}


@pytest.mark.parametrize("case", STORED)
def test_convolutions_of_stored_bfloat16(case: str, place: Place, stored: Any) -> None:
    shapes = STORED[case].gpu if place.real else STORED[case].emulated
    how = STORED[case].how
    x, weight = (ROUNDED["bf16"](uniform(*shape)) for shape in shapes)
    bias = ROUNDED["bf16"](uniform(weight.shape[-1]))
    wide_x, wide_weight = x.astype("float64"), weight.astype("float64")
    forward, of_x, of_weight = (
        accelerated.conv2d,
        accelerated.conv2d_input_grad,
        accelerated.conv2d_weight_grad,
    )
    want = forward.definition(wide_x, wide_weight, how)
    grad = ROUNDED["bf16"](uniform(*want.shape))
    wide = grad.astype("float64")
    assert_stored(forward(stored(x), stored(weight), how), want)
    fused = forward(stored(x), stored(weight), how, Epilogue(stored(bias), None, True))
    assert_stored(fused, np.maximum(want + bias, 0))
    assert_stored(
        of_x(stored(grad), stored(weight), shapes[0], how),
        of_x.definition(wide, wide_weight, shapes[0], how),
    )
    assert_stored(
        of_weight(stored(grad), stored(x), shapes[1], how),
        of_weight.definition(wide, wide_x, shapes[1], how),
    )


@pytest.mark.parametrize("layout", ["compact", "strided"])
@pytest.mark.parametrize("size", [7, 50_000, 9_000_000])
def test_the_source_of_an_upload_may_change_at_once(size: int, layout: str, place: Place) -> None:
    """Test three uploads after kernels that keep the GPU busy."""
    device = place.device
    host = np.empty((size, 1), "float32")
    want = np.arange(size, dtype="float32")[:, None]
    target = [
        device.empty((size, 2 if layout == "strided" else 1), "float32")[:, :1] for _ in range(3)
    ]
    busy = device.ones((2048, 2048) if place.real else (4, 4))
    for _ in range(20):
        busy = busy @ busy * 0.0
    for number, view in enumerate(target):
        host[:] = want + number
        device.upload(host, view.view)
        host[:] = -1
    for number, view in enumerate(target):
        np.testing.assert_array_equal(view.numpy(), want + number)
