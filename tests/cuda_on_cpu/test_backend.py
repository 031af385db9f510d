"""Run the CUDA backend's kernels on the CPU: conformance, memory, devices, training steps."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import needle
from needle import accelerated, backends
from needle.backends import View
from needle.errors import DeviceError
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated

pytestmark = emulated.NEEDED
F32 = np.dtype("float32")


@pytest.fixture
def shuffled() -> Iterator[None]:
    """Run the threads and blocks of a test in shuffled order."""
    emulated.module.set_order("shuffled")
    yield
    emulated.module.set_order("forward")


@pytest.fixture
def backend() -> Any:
    return backends.get(emulated.NAME)


CONFORMS = """
from needle import backends
from needle.testing import conformance
from tests.cuda_on_cpu import emulated
report = conformance.run(emulated.NAME)
states = {row.name: row.state for row in report.rows}
assert report.ok, report.table()
assert all(states[f"unary.{name}"] == "passes" for name in backends.base.UNARY)
"""


@pytest.mark.slow
def test_the_backend_conforms() -> None:
    # in its own process, because closing memory takes far longer after minutes of running
    subprocess.run([sys.executable, "-c", CONFORMS], check=True)


def array(host: np.ndarray, device: str = emulated.NAME) -> Any:
    return needle.backend_ndarray.array(host, device=needle.device(device))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 1, 1), (33, 17, 65), (5, 3000, 7), (300, 9, 260), (128, 16, 128)],
    ids=["one", "edges", "long k", "large tiles", "whole tiles"],
)
def test_matmul_of_every_tile(m: int, k: int, n: int, dtype: str, shuffled: None) -> None:
    random = np.random.default_rng(m)
    a, b = (random.integers(-9, 9, shape).astype(dtype) for shape in [(m, k), (k, n)])
    want = a @ b  # exact in every dtype, as a and b hold integers
    for left in (array(a), array(np.ascontiguousarray(a.T)).T):
        for right in (array(b), array(np.ascontiguousarray(b.T)).T):
            np.testing.assert_array_equal((left @ right).numpy(), want)


@pytest.mark.parametrize("shape", [(70_000, 3), (3, 70_000), (40, 50, 30), (9, 1, 5000)])
def test_reductions_and_copies_beyond_one_launch(shape: Any, shuffled: None) -> None:
    """The emulator's launches take at most 16384 elements, a GPU's 2**30."""
    host = np.random.default_rng(0).standard_normal(shape).astype("float32")
    on_device, axes = array(host), tuple(range(len(shape)))
    for axis in (None, 0, len(shape) - 1):
        got = on_device.sum(axis=axis).numpy()
        np.testing.assert_allclose(got, host.sum(axis=axis, dtype="float64"), rtol=1e-5, atol=1e-3)
        np.testing.assert_array_equal(on_device.max(axis=axis).numpy(), host.max(axis=axis))
    np.testing.assert_array_equal(on_device.permute(axes[::-1]).compact().numpy(), host.T)
    np.testing.assert_array_equal((on_device * 2 + on_device).numpy(), host * 2 + host)


def test_sums_are_the_same_bits_in_every_order() -> None:
    host = np.random.default_rng(0).standard_normal((3, 50_000)).astype("float32")
    results = set()
    for name in emulated.ORDERS:
        emulated.module.set_order(name)
        results.add(array(host).sum(axis=1).numpy().tobytes())
    emulated.module.set_order("forward")
    assert len(results) == 1


def uniform(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype("float32")


CHANNELS = [uniform(2100, 40) + 3, uniform(40), uniform(40)]
STATISTICS = [CHANNELS[0].mean(0), CHANNELS[0].var(0)]
WIDE = [uniform(3, 2500) + 3, uniform(2500), uniform(2500)]
BEYOND_ONE_BLOCK: dict[str, tuple[Any, ...]] = {
    "softmax": (uniform(3, 2500), 1),
    "log_softmax": (uniform(3, 2500), 1),
    "logsumexp": (uniform(2, 9000), 1, False),
    "cross_entropy": (uniform(3, 2500), np.array([1, 2499, 7]), 0.1),
    "cross_entropy_grad": (uniform(3), uniform(3, 2500), np.array([1, 2499, 7]), 0.1),
    "batch_norm": (*CHANNELS, 1e-3),
    "batch_norm_grad": (uniform(2100, 40), CHANNELS[0], CHANNELS[1], *STATISTICS, 1e-3),
    "batch_norm_grad of relu": (
        *(uniform(2100, 40), CHANNELS[0], CHANNELS[1], *STATISTICS, 1e-3, CHANNELS[2] + 9),
    ),
    "batch_norm_grad of a residual and relu": (
        *(uniform(2100, 40), CHANNELS[0], CHANNELS[1], *STATISTICS, 1e-3, None),
        uniform(2100, 40)[::-1].copy(),
    ),
    "relu_grad": (uniform(2100, 40), CHANNELS[0] - 3, True),
    "layer_norm": (*WIDE, 1e-3),
    "layer_norm_grad": (
        *(uniform(2100, 40), CHANNELS[0], CHANNELS[1]),
        *(f(CHANNELS[0], axis=1, keepdims=True) for f in (np.mean, np.var)),
        1e-3,
    ),
    "max_pool2d": (uniform(3, 40, 40, 8), (3, 3), (2, 2), (1, 1)),
    "max_pool2d_grad": (uniform(3, 20, 20, 8), uniform(3, 40, 40, 8), (3, 3), (2, 2), (1, 1)),
    "max_pool2d_grad of large windows": (
        *(uniform(2, 2, 2, 8), uniform(2, 40, 40, 8), (20, 20), (20, 20), (0, 0)),
    ),
    "conv2d_weight_grad": (
        *(uniform(2, 24, 24, 5), uniform(2, 24, 24, 3), (3, 3, 3, 5)),
        Geometry((1, 1), (1, 1)),
    ),
    "conv2d_weight_grad of channels by themselves": (
        *(uniform(2, 36, 36, 9), uniform(2, 36, 36, 9), (3, 1, 1, 9)),
        Geometry((1, 1), (1, 0), groups=9),
    ),
}


@pytest.mark.parametrize("case", BEYOND_ONE_BLOCK)
def test_kernels_beyond_one_block(case: str, shuffled: None) -> None:
    """Test long rows, many pixels, and arrays that need several launches."""
    function = getattr(accelerated, case.split()[0])
    arguments = BEYOND_ONE_BLOCK[case]
    wide = [a.astype("float64") if getattr(a, "dtype", 0) == F32 else a for a in arguments]
    placed = [array(a) if isinstance(a, np.ndarray) else a for a in arguments]
    got, want = function(*placed), function.definition(*wide)
    for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]:
        assert (g is None) is (w is None)
        if w is not None:
            np.testing.assert_allclose(g.numpy(), w, rtol=2e-4, atol=2e-4)


LAUNCHES = {
    name: 1 if name == "relu_grad" else 2
    for name in BEYOND_ONE_BLOCK
    if name.startswith(("batch_norm", "relu_grad", "layer_norm_grad"))
}


@pytest.mark.parametrize("case", LAUNCHES)
def test_sums_over_pixels_end_in_the_launch_that_begins_them(case: str) -> None:
    """The last block adds up the others' sums; the bits do not depend on which one is last."""
    placed = [array(a) if isinstance(a, np.ndarray) else a for a in BEYOND_ONE_BLOCK[case]]
    results = set()
    emulated.module.watch_races(True)
    try:
        for name in emulated.ORDERS:
            emulated.module.set_order(name)
            before = emulated.module.launches()
            got = getattr(accelerated, case.split()[0])(*placed)
            assert emulated.module.launches() - before == LAUNCHES[case]
            results.add(b"".join(g.numpy().tobytes() for g in got if g is not None))
    finally:
        emulated.module.watch_races(False)
        emulated.module.set_order("forward")
    assert len(results) == 1


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 1e-4), ("float64", 1e-11)])
@pytest.mark.parametrize("first", [-1e4, 1e4, np.nan])
def test_moments_do_not_depend_on_the_value_they_are_taken_about(
    first: float, dtype: str, rtol: float
) -> None:
    x = np.random.default_rng(0).standard_normal((2100, 3)).astype(dtype) + 1000
    x[0, 1] = first
    device = needle.device(emulated.NAME)
    placed = [needle.backend_ndarray.array(a, dtype, device) for a in (x, x[1], x[2])]
    _, *got = accelerated.batch_norm(*placed, 1e-3)
    for g, want in zip(got, (x.mean(0, dtype="float64"), x.var(0, dtype="float64"))):
        np.testing.assert_allclose(g.numpy(), want, rtol=rtol)


@pytest.mark.parametrize("name", ["uniform", "normal", "bernoulli"])
def test_random_numbers_beyond_one_launch_are_the_definitions(name: str, shuffled: None) -> None:
    want, got = np.empty(40_001, "float32"), array(np.zeros(40_001, "float32"))
    accelerated.random(want, name, 5, 1, 0.25, 2.0)
    accelerated.random(got, name, 5, 1, 0.25, 2.0)
    assert got.numpy().tobytes() == want.tobytes()


def test_a_label_outside_the_classes_is_nan_or_an_error_where_launches_wait() -> None:
    logits, labels = array(uniform(2, 3)), array(np.array([3, 1]))
    for got in (
        accelerated.cross_entropy(logits, labels, 0.0).numpy(),
        accelerated.cross_entropy_grad(array(uniform(2)), logits, labels, 0.1).numpy(),
    ):
        assert np.isnan(got[0]).all() and np.isfinite(got[1]).all()
    emulated.module.set_synchronous(True)
    try:
        with pytest.raises(ValueError, match=r"labels must be in \[0, 3\), got 3"):
            accelerated.cross_entropy(logits, labels, 0.0)
    finally:
        emulated.module.set_synchronous(False)


def test_memory_is_counted_reused_and_given_back(backend: Any) -> None:
    backend.empty_cache()
    before = backend.memory_stats()
    handle = backend.allocate(10_000, F32)
    address = handle.ptr()
    assert backend.memory_stats()["in_use"] - before["in_use"] >= 40_000
    del handle
    again = backend.allocate(10_000, F32)
    assert again.ptr() == address
    assert backend.memory_stats()["reuses"] == before["reuses"] + 1
    fresh = View(again, (10_000,), (1,), 0, F32)
    assert np.isnan(backend.download(fresh)).all()  # a reused buffer is filled with NaN, too
    del again, fresh
    backend.empty_cache()
    assert backend.memory_stats()["cached"] == 0


def test_out_of_memory_names_sizes_and_is_survived(backend: Any) -> None:
    gc.collect()  # frees arrays that earlier tests left in cycles
    backend.empty_cache()  # frees the staging buffers of uploads, too
    emulated.module.set_memory_limit(4 << 20)
    try:
        kept = [backend.allocate(2 << 18, F32)]
        with pytest.raises(MemoryError, match=r"the GPU has no 4194304 bytes left, 2\d+ bytes are"):
            kept.append(backend.allocate(1 << 20, F32))
        kept.clear()  # now cached; the next request frees the cache
        assert backend.allocate(800_000, F32).size == 800_000
    finally:
        emulated.module.set_memory_limit(1 << 30)
        backend.empty_cache()


def test_two_devices_keep_their_memory_apart() -> None:
    first, second = array(np.arange(4.0)), array(np.arange(4.0), emulated.NAME + "_1")
    assert second.device.memory_stats()["in_use"] > 0
    np.testing.assert_array_equal((second + second).numpy(), 2 * np.arange(4.0))
    with pytest.raises(ValueError, match="on one device, got device 0 and device 1; move one"):
        backends.get(emulated.NAME).binary("add", first.view, second.view, first.view)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(DeviceError, match="GPU 7 does not exist, this machine has 2; use"):
        backends.cuda.backend_of_device(emulated.module, 7)


def test_host_memory_is_no_buffer_of_the_device(backend: Any) -> None:
    with pytest.raises(BufferError, match="a device's; use download"):
        memoryview(backend.allocate(4, F32))
    with pytest.raises(ValueError, match="source must have out's dtype, float32"):
        backend.upload(np.zeros(4), View(backend.allocate(4, F32), (4,), (1,), 0, F32))


EXACT = """
from needle import backends
from tests.cuda_on_cpu import emulated
backend = backends.get(emulated.NAME)
import numpy as np
kept = [backend.allocate(size, np.dtype("float32")) for size in (0, 1, 1001)]
assert backend.memory_stats()["in_use"] == 1 + 4 + 4004, backend.memory_stats()
kept.clear()
stats = backend.memory_stats()
assert stats["in_use"] == stats["cached"] == 0 and stats["peak"] == 4009, stats
"""


def test_the_environment_asks_for_exact_allocations() -> None:
    environment = {**os.environ, "NEEDLE_CUDA_EXACT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", EXACT], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_environment_asks_for_waiting_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    class Module:
        set_synchronous = staticmethod(seen.append)

        def __getattr__(self, name: str) -> Any:
            return getattr(emulated.module, name)

    for value in ("", "0", "1"):
        monkeypatch.setenv("NEEDLE_CUDA_SYNC", value)
        backends.cuda.backend_of_device(Module(), 0)  # type: ignore[arg-type]
    assert seen == [False, False, True]
