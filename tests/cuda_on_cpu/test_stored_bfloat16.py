"""Test bfloat16 arrays on the emulated GPU: kernels compute in float32 and round once."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import needle
from apps.training.evaluation import logits_of
from needle import accelerated, backends, config, nn
from needle.backends import View, cuda
from needle.backends.base import Epilogue
from needle.dtypes import as_dtype
from needle.ndarray import array
from tests.cuda_on_cpu import emulated
from tests.cuda_on_cpu.test_precision import bf16, uniform

pytest.importorskip("ml_dtypes")
pytestmark = emulated.NEEDED


@pytest.fixture(autouse=True)
def shuffled() -> Iterator[None]:
    """Run threads in shuffled order; the compute capability is 8 before and after a test."""
    emulated.module.set_order("shuffled")
    yield
    emulated.module.set_order("forward")
    emulated.set_capability(8)


def stored(host: np.ndarray) -> Any:
    """Return the values in bfloat16 on the emulated GPU."""
    return array(host, device=needle.device(emulated.NAME)).astype("bfloat16")


def single(host: np.ndarray) -> Any:
    return array(host, dtype=host.dtype, device=needle.device(emulated.NAME))


def values(a: Any) -> np.ndarray:
    assert a.dtype == "bfloat16"
    return a.astype("float32").numpy()


def assert_rounded(got: Any, want: np.ndarray) -> None:
    """Assert one rounding's accuracy; small results are sums with cancellation."""
    np.testing.assert_allclose(values(got), want, rtol=2**-8, atol=1e-5)


def test_casts_round_and_host_arrays_come_and_go() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, 3000, dtype=np.uint64).astype("uint32")
    host = np.concatenate([bits.view("float32"), np.float32([0.0, -0.0, np.inf, 1 + 2**-8])])
    with np.errstate(invalid="ignore"):
        want = np.where(np.isnan(host), host, bf16(host))
    np.testing.assert_array_equal(values(stored(host)), want)
    with np.errstate(invalid="ignore"):
        upper = want.astype(as_dtype("bfloat16"))
    there = array(upper, device=needle.device(emulated.NAME))
    np.testing.assert_array_equal(there.numpy().astype("float32"), want)
    integers = single(np.arange(-300, 300)).astype("bfloat16")
    np.testing.assert_array_equal(values(integers), bf16(np.arange(-300, 300, dtype="float32")))
    np.testing.assert_array_equal(integers.astype("int64").numpy(), values(integers))


@pytest.mark.parametrize("layout", ["dense", "transposed", "every second"])
def test_elementwise_operations_round_once(layout: str) -> None:
    a, b = bf16(uniform(40, 36)), bf16(uniform(36, 40).T.copy())
    x, y = stored(a), stored(b)
    if layout == "transposed":
        a, x = a.reshape(36, 40).T, x.reshape((36, 40)).permute((1, 0))
    elif layout == "every second":
        a, b, x, y = (v[::2, 1::2] for v in (a, b, x, y))
    for got, want in (
        (x + y, a + b),
        (x * y, a * b),
        (x / y, a / b),
        (x - 0.1, a - np.float32(0.1)),
        (2.7 / x, np.float32(2.7) / a),
        (x**2, a * a),
        ((x * x) ** 0.5, np.sqrt(bf16(a * a))),
        (-x, -a),
    ):
        np.testing.assert_array_equal(values(got), bf16(np.ascontiguousarray(want)))
    np.testing.assert_array_equal((x > y).numpy(), a > b)
    np.testing.assert_array_equal((x < 0.25).numpy(), a < 0.25)
    np.testing.assert_array_equal(
        values(needle.ndarray.where(x > y, x, 0.3)), np.where(a > b, a, bf16(np.float32([0.3])))
    )


def test_copies_and_assignment_keep_the_values() -> None:
    host = bf16(uniform(70, 3, 40))
    x = stored(host)
    np.testing.assert_array_equal(values(x.permute((2, 1, 0)) + 0), host.transpose(2, 1, 0))
    x[1:9, :, ::3] = 0.3
    x[10] = x[11]
    host[1:9, :, ::3], host[10] = bf16(np.float32([0.3])), host[11]
    np.testing.assert_array_equal(values(x), host)


def test_reductions_round_once() -> None:
    host = bf16(uniform(130, 3, 50))
    x = stored(host)
    for axis in (None, 0, 2, (0, 1)):
        total = np.float32(host.astype("float64").sum(axis=axis, keepdims=True))
        np.testing.assert_array_equal(values(x.sum(axis, keepdims=True)), bf16(total))
        np.testing.assert_array_equal(values(x.max(axis)), host.max(axis=axis))
        np.testing.assert_array_equal(values(x.min(axis)), host.min(axis=axis))
    np.testing.assert_array_equal(x.argmax(2).numpy(), host.argmax(2))
    np.testing.assert_array_equal(x.argmin(0).numpy(), host.argmin(0))


def test_rows_by_an_index() -> None:
    host, index = bf16(uniform(9, 7)), np.array([3, 0, 3, 8])
    x, at = stored(host), single(index)
    np.testing.assert_array_equal(values(x[at]), host[index])
    added, want = bf16(uniform(4, 7)), host.copy()
    np.add.at(want, index, added)
    accelerated.scatter_add(x, at, stored(added))
    np.testing.assert_array_equal(values(x), bf16(want))
    ones = accelerated.one_hot(at, 9, as_dtype("bfloat16"))
    np.testing.assert_array_equal(values(ones), np.eye(9)[index])


@pytest.mark.parametrize("then", ["nothing", "relu", "residual and relu"])
def test_batch_norm_computes_in_float32(then: str) -> None:
    x, added, grad = (bf16(uniform(3, 7, 6, n)[..., :10] + n % 2) for n in (10, 11, 12))
    weight, bias = uniform(10) + 2, uniform(10)
    residual = then == "residual and relu"
    relu = then != "nothing"
    wide = Epilogue(None, added.astype("float64") if residual else None, relu)
    mine = Epilogue(None, stored(added) if residual else None, relu)
    want = accelerated.batch_norm.definition(
        *(v.astype("float64") for v in (x, weight, bias)), 1e-5, wide
    )
    y, mean, var = accelerated.batch_norm(stored(x), single(weight), single(bias), 1e-5, mine)
    assert_rounded(y, want[0])
    for got, exact in ((mean, want[1]), (var, want[2])):
        assert got.dtype == "float32"
        np.testing.assert_allclose(got.numpy(), exact, rtol=1e-5, atol=1e-6)
    y_host = values(y)
    results = []
    for of, vector in ((stored, single), (lambda v: v.astype("float64"),) * 2):
        rest = (vector(bias) if relu and not residual else None, of(y_host) if residual else None)
        run: Any = accelerated.batch_norm_grad
        run = run if of is stored else run.definition
        statistics = [vector(v.astype("float32")) for v in want[1:]]
        results.append(run(of(grad), of(x), vector(weight), *statistics, 1e-5, *rest))
    mine_of, exact_of = results
    assert_rounded(mine_of[0], exact_of[0])
    if residual:
        np.testing.assert_array_equal(values(mine_of[3]), exact_of[3])
    for got, exact in zip(mine_of[1:3], exact_of[1:3], strict=True):
        assert got.dtype == "float32"
        np.testing.assert_allclose(got.numpy(), exact, rtol=1e-4, atol=1e-4)


def test_pools_round_once() -> None:
    x = bf16(uniform(2, 9, 8, 5))
    for kernel, stride, padding in (((2, 2), (2, 2), (0, 0)), ((3, 3), (2, 2), (1, 1))):
        how = (kernel, stride, padding)
        for pool, gradient in (
            (accelerated.max_pool2d, accelerated.max_pool2d_grad),
            (accelerated.avg_pool2d, accelerated.avg_pool2d_grad),
        ):
            want = pool.definition(x.astype("float64"), *how)
            assert_rounded(pool(stored(x), *how), want)
            grad = bf16(uniform(*want.shape))
            last = stored(x) if pool is accelerated.max_pool2d else x.shape
            wide = x.astype("float64") if pool is accelerated.max_pool2d else x.shape
            assert_rounded(
                gradient(stored(grad), last, *how),
                gradient.definition(grad.astype("float64"), wide, *how),
            )


def test_relu_and_its_gradient() -> None:
    x, grad, bias = (bf16(uniform(*shape)) for shape in ((6, 5, 12), (5, 6, 12), (12,)))
    grad = grad.reshape(x.shape)
    y = accelerated.apply_epilogue(stored(x), Epilogue(stored(bias), None, True))
    np.testing.assert_array_equal(values(y), bf16(np.maximum(x + bias, 0)))
    kept, sums = accelerated.relu_grad(stored(grad), y, True)
    passed = np.where(values(y) > 0, grad, 0)
    np.testing.assert_array_equal(values(kept), passed)
    assert_rounded(sums, passed.astype("float64").sum((0, 1)))
    kept, none = accelerated.relu_grad(stored(grad), y)
    np.testing.assert_array_equal(values(kept), passed)
    assert none is None


class Block(nn.Module):
    """A residual block whose addition and ReLU are separate operations."""

    def __init__(self, **at: Any) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1, **at), nn.BatchNorm2d(16, **at)

    def forward(self, x: Any) -> Any:
        return needle.relu(x + self.norm(self.conv(x)))


def trained(
    device: Any, captured: bool = False, exact: bool = True
) -> tuple[list[float], list[np.ndarray]]:
    """Return the losses of six steps on one batch, and the parameters after them."""
    needle.seed(0)
    at: Any = {"device": device}
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False, **at), nn.BatchNorm2d(16, **at)),
        *(nn.ReLU(), Block(**at), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, **at), nn.ReLU()),
        *(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, 4, **at)),
    )
    optimizer = needle.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images = needle.Tensor(uniform(16, 3, 8, 8), requires_grad=False, **at)
    labels = needle.Tensor(np.arange(16) % 4, dtype="int64", requires_grad=False, **at)

    def step(x: Any, y: Any) -> Any:
        logits = model(x.astype("bfloat16"))
        assert logits.dtype == "bfloat16"
        loss = nn.SoftmaxLoss()(logits.astype("float32"), y)
        optimizer.reset_grad()
        loss.backward()
        optimizer.step()
        return loss

    run: Any = needle.capture(step, state=[model, optimizer], exact=exact) if captured else step
    losses = [run(images, labels).item() for _ in range(6)]
    assert all(p.dtype == p.grad.dtype == "float32" for p in model.parameters())
    return losses, [p.numpy() for p in model.parameters()]


def test_a_network_trains_as_on_the_numpy_device() -> None:
    emulated.set_capability(9)
    want, _ = trained(needle.cpu_numpy())
    assert want[-1] < 0.9 * want[0]
    assert trained(needle.device(emulated.NAME))[0] == pytest.approx(want, rel=0.03)


@pytest.mark.filterwarnings("error::needle.CaptureWarning")
def test_replays_keep_the_bits() -> None:
    """Each call rounds its result, so a replay has to round in the same places."""
    eager, captured = (trained(needle.device(emulated.NAME), way) for way in (False, True))
    assert captured[0] == eager[0]
    for mine, theirs in zip(captured[1], eager[1], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_training_program_stores_activations_as_bfloat16_with_its_precision() -> None:
    seen = []

    class Model(nn.Module):
        def forward(self, x: Any) -> Any:
            seen.append(x.dtype)
            return x * 3.0

    x = needle.Tensor([1.00390625], device=needle.device(emulated.NAME))  # a tie: 1 + 2**-8
    assert logits_of(Model(), x).numpy() == 3.01171875
    with config.matmul_precision.using("bf16"):
        logits = logits_of(Model(), x)
    assert logits.dtype == "float32" and logits.numpy() == 3.0
    assert seen == ["float32", "bfloat16"]


def test_kernels_without_bfloat16_refuse_it() -> None:
    backend = backends.get(emulated.NAME)
    dtype = as_dtype("bfloat16")
    views = [View(backend.allocate(6, dtype), (2, 3), (3, 1), 0, dtype) for _ in range(2)]
    with pytest.raises(ValueError, match="does not take bfloat16; convert"):
        backend.softmax(*views, 1)
    np.testing.assert_allclose(
        values(accelerated.softmax(stored(np.float32([[1, 2, 3]])), 1)),
        [[0.09003, 0.24473, 0.66524]],
        rtol=2**-8,
    )


def test_a_gpu_without_tensor_cores_for_it_does_not_have_the_dtype() -> None:
    emulated.set_capability(7)
    assert "bfloat16" not in cuda.backend_of_device(emulated.module, 0).dtypes
    assert "bfloat16" in backends.get(emulated.NAME).dtypes
