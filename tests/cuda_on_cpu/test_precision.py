"""Test tensor-core products on the emulated GPU: how operands are rounded, and a network's steps.

Products of each size in each precision are in tests/gpu.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import needle
from needle import accelerated, config
from needle.errors import UnknownNameError
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated
from tests.cuda_on_cpu.test_backend import array
from tests.small_training import Training

pytestmark = emulated.NEEDED


def tf32(x: np.ndarray) -> np.ndarray:
    """Round to 10 bits of mantissa, ties away from zero."""
    return ((x.view("uint32") + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("float32")


def bf16(x: np.ndarray) -> np.ndarray:
    """Round to 7 bits of mantissa, ties to even."""
    bits = x.view("uint32").astype("uint64")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("uint32").view("float32")


def fp16(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return x.astype("float16").astype("float32")


ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {"tf32": tf32, "bf16": bf16, "fp16": fp16}


@pytest.fixture(params=["tf32-8", "bf16-8", "fp16-8", "bf16-9", "fp16-9"])
def rounded(request: pytest.FixtureRequest) -> Iterator[Callable[[np.ndarray], np.ndarray]]:
    """Yield each precision's rounding of operands; threads run in shuffled order.

    The GPU has compute capability 8, or 9 with warpgroups.
    """
    precision, capability = request.param.split("-")
    emulated.module.set_order("shuffled")
    emulated.set_capability(int(capability))
    with config.matmul_precision.using(precision):
        yield ROUNDED[precision]
    emulated.module.set_order("forward")
    emulated.set_capability(8)


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype("float32")


def test_operands_are_rounded_to_the_nearest(rounded: Callable[[np.ndarray], np.ndarray]) -> None:
    """A product with the identity shows ties, subnormal numbers, and values beyond the largest
    fp16.
    """
    random = np.random.default_rng(0)
    numbers = random.integers(0, 1 << 32, 1 << 10, dtype=np.uint64).astype("uint32").view("float32")
    ties = (random.integers(0, 1 << 18, 1 << 9) * 0x1000 + 0x30000000).astype("uint32")
    small = random.uniform(-1e-4, 1e-4, 1 << 9).astype("float32")
    edges = [0.0, -0.0, 65504, 65519, 65520, 2**-14, 2**-24, 2**-25, 3 * 2**-25, 1 + 2**-8]
    host = np.concatenate([numbers, ties.view("float32"), small, np.float32(edges)])
    host = host[np.isfinite(host) & (np.abs(host) < 1e38)]
    want = rounded(host)
    with np.errstate(invalid="ignore"):
        got = (array(host[:, None]) @ array(np.ones((1, 1), "float32"))).numpy()[:, 0]
    np.testing.assert_array_equal(got, want)


def test_a_convolution_refuses_distances_beyond_32_bits() -> None:
    """With this dilation, taps lie so far from the image that 32-bit offsets would overflow."""
    how = Geometry((1, 1), (1 << 29, 0), (1 << 30, 1), 1)
    x, weight = array(uniform(1, 2, 2, 1)), array(uniform(2, 1, 1, 3))
    with pytest.raises(Exception, match="conv2d: .* within 2147483648 elements, got .*; cut"):
        accelerated.conv2d(x, weight, how).numpy()


def test_a_small_network_trains_without_loss_scaling() -> None:
    """Weights and gradients are float32, so bf16 operands lose no small gradient."""

    def losses(run: Training) -> list[float]:
        return [loss.item() for loss in run.steps(2)]

    want = losses(Training(needle.cpu_numpy(), False))
    with config.matmul_precision.using("bf16"):
        run = Training(needle.device(emulated.NAME), False)
        got = losses(run)
        assert losses(Training(needle.cpu_numpy(), False)) == want  # others ignore the precision
    assert got == pytest.approx(want, rel=1e-2) and got != pytest.approx(want, rel=1e-5)
    assert all(w.dtype == np.float32 for w in run.state())


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    assert needle.device(emulated.NAME).matmul_precisions == config.matmul_precision.choices
    assert needle.cpu_numpy().matmul_precisions == ("float32",)
    with pytest.raises(UnknownNameError, match="precision 'tf23'; known: bf16, .*mean 'tf32'"):
        config.matmul_precision.set("tf23")
    with pytest.raises(ValueError, match="'tf23' is none; use float32, tf32, bf16 or fp16"):
        emulated.module.set_matmul_precision("tf23")
    setting = config.Setting("precision", config.MATMUL_PRECISION, ("float32", "tf32"))
    told: list[str] = []
    setting.follow(told.append)
    monkeypatch.setenv("NEEDLE_MATMUL_PRECISION", "tf32")
    assert setting.get() == "tf32"
    with setting.using("float32"):
        assert setting.get() == "float32"
    assert setting.get() == "tf32" and told == ["float32", "float32", "tf32"]
