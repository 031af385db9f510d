"""Test the moments that a convolution's epilogue writes, and batch norm that uses them."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import needle
from apps.training.step import Gradients
from needle import accelerated, backends, config, nn
from needle.backends.base import MOMENT_PIXELS, NO_EPILOGUE, Epilogue
from needle.shapes import Geometry
from tests.cuda_on_cpu import emulated
from tests.cuda_on_cpu.test_precision import uniform
from tests.cuda_on_cpu.test_stored_bfloat16 import single, stored

pytest.importorskip("ml_dtypes")
pytestmark = emulated.NEEDED

HOW = ((1, 1), (1, 1), (1, 1), 1)
CASES = {
    "words, small tiles": ((1, 9, 7, 8), (3, 3, 8, 40), *HOW),
    "words, large tiles": ((2, 15, 9, 16), (3, 3, 16, 72), *HOW),
    "elements": ((3, 11, 7, 5), (3, 3, 5, 37), *HOW),
    "elements, large tiles": ((2, 11, 13, 5), (1, 1, 5, 70), (2, 1), (1, 1), (1, 1), 1),
    "one part": ((1, 8, 8, 8), (1, 1, 8, 64), (1, 1), (0, 0), (1, 1), 1),
    "bulk copies": ((2, 9, 9, 32), (3, 3, 32, 72), *HOW),
    "groups": ((2, 9, 8, 16), (3, 3, 8, 80), (1, 1), (1, 1), (1, 1), 2),
    "depthwise": ((2, 9, 8, 6), (3, 3, 1, 12), (2, 1), (1, 1), (1, 1), 6),
}
"""Counts of pixels and channels that are not multiples of a part or tile."""


def partial_moments(y: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return (ceil(pixels / 64), 2, C) for y (..., C): means, and squared deviations from them."""
    rows = y.reshape(-1, y.shape[-1]).astype("float64")
    parts = [rows[i : i + MOMENT_PIXELS] for i in range(0, len(rows), MOMENT_PIXELS)]
    return np.stack([[part.mean(0), ((part - part.mean(0)) ** 2).sum(0)] for part in parts])


def combined(
    moments: NDArray[np.generic], pixels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the biased variance (C,) of all pixels, by Chan, Golub & LeVeque 1979."""
    means, squares = np.moveaxis(moments.astype("float64"), 1, 0)
    counts = np.full((len(moments), 1), float(MOMENT_PIXELS))
    counts[-1] = pixels - MOMENT_PIXELS * (len(moments) - 1)
    mean = (counts * means).sum(0) / pixels
    return mean, (squares + counts * (means - mean) ** 2).sum(0) / pixels


@pytest.fixture(params=[8, 9])
def capability(request: pytest.FixtureRequest) -> Iterator[int]:
    """Emulate compute capability 8, or 9 with warpgroups; threads run in shuffled order."""
    emulated.module.set_order("shuffled")
    emulated.set_capability(request.param)
    yield request.param
    emulated.module.set_order("forward")
    emulated.set_capability(8)


def run(case: str, dtype: str, center: float = 0.0, relu: bool = False) -> tuple[Any, Any, Any]:
    """Return the result of conv2d, that of conv2d_moments and the moments."""
    x_shape, weight_shape, *settings = CASES[case]
    how, of = Geometry(*settings), stored if dtype == "bfloat16" else single
    x, weight = of(uniform(*x_shape)), of(uniform(*weight_shape))
    bias = of(uniform(weight_shape[-1]) + np.float32(center))
    plain = accelerated.conv2d(x, weight, how, Epilogue(bias, None, relu))
    out = accelerated.conv2d(x, weight, how) * 0
    parts = -(-int(np.prod(out.shape[:3])) // 64)
    moments = single(np.full((parts, 2, out.shape[3]), np.nan, "float32"))
    backends.get(emulated.NAME).conv2d_moments(
        x.view, weight.view, out.view, how, Epilogue(bias.view, None, relu), moments.view
    )
    return plain, out, moments


def host(a: Any) -> np.ndarray:
    return a.astype("float32").numpy()


def assert_moments(moments: Any, out: Any) -> None:
    want = partial_moments(host(out))
    got = moments.numpy()
    np.testing.assert_allclose(got[:, 0], want[:, 0], rtol=2e-7, atol=1e-5)
    np.testing.assert_allclose(got[:, 1], want[:, 1], rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "tf32", "fp16", "float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_moments_are_those_of_the_stored_result(case: str, precision: str, capability: int) -> None:
    dtype, precision = (precision, "bf16") if precision == "bfloat16" else ("float32", precision)
    with config.matmul_precision.using(precision):
        plain, out, moments = run(case, dtype)
    np.testing.assert_array_equal(host(out), host(plain))
    assert_moments(moments, out)


@pytest.mark.parametrize("case", ["words, small tiles", "words, large tiles", "elements"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_large_mean_costs_no_digits(case: str, dtype: str, capability: int) -> None:
    with config.matmul_precision.using("bf16"):
        _, out, moments = run(case, dtype, center=1000.0)
        assert_moments(moments, out)
        assert host(out).mean() > 900
        _, out, moments = run(case, dtype, relu=True)
        assert_moments(moments, out)


@pytest.mark.parametrize("order", ["forward", "reversed"])
@pytest.mark.parametrize(
    "case", ["words, small tiles", "words, large tiles", "bulk copies", "elements"]
)
def test_no_order_of_threads_changes_a_bit(case: str, order: str, capability: int) -> None:
    emulated.module.watch_races(True)
    try:
        with config.matmul_precision.using("bf16"):
            _, _, want = run(case, "bfloat16")
            emulated.module.set_order(order)
            _, _, moments = run(case, "bfloat16")
        np.testing.assert_array_equal(moments.numpy(), want.numpy())
    finally:
        emulated.module.watch_races(False)


@pytest.mark.parametrize("then", ["nothing", "relu", "residual and relu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pixels", [1, 64, 333, 70000])
def test_batch_norm_from_moments(pixels: int, dtype: str, then: str, capability: int) -> None:
    of = stored if dtype == "bfloat16" else single
    spread = 1.0 if dtype == "float32" else 30.0
    channels = 3 if pixels == 70000 else 37
    x = of(1000 + spread * uniform(pixels, channels))
    weight, bias, added = uniform(channels) + 2, uniform(channels), of(uniform(*x.shape))
    exact = host(x).astype("float64")
    wide = Epilogue(None, host(added) if "residual" in then else None, then != "nothing")
    mine = wide._replace(residual=added.view if "residual" in then else None)
    want = accelerated.batch_norm.definition(exact, weight, bias, 1e-5, wide)
    moments = single(partial_moments(host(x)).astype("float32"))
    out, mean, var = x * 0, single(weight * 0), single(weight * 0)
    vectors = (single(weight).view, single(bias).view)
    backends.get(emulated.NAME).batch_norm_of_moments(
        x.view, moments.view, *vectors, out.view, mean.view, var.view, 1e-5, mine
    )
    for got, exactly in zip((mean, var), combined(moments.numpy(), pixels), strict=True):
        np.testing.assert_allclose(got.numpy(), exactly, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(mean.numpy(), want[1], rtol=1e-6)
    np.testing.assert_allclose(var.numpy(), want[2], rtol=1e-4)
    if pixels > 1:
        near = (
            {"rtol": 2**-8, "atol": 1e-2} if dtype == "bfloat16" else {"rtol": 1e-3, "atol": 1e-3}
        )
        np.testing.assert_allclose(host(out), want[0], **near)


def test_wrong_moments_are_refused() -> None:
    backend = backends.get(emulated.NAME)
    x, weight, out = (single(uniform(*s)) for s in ((1, 9, 9, 4), (1, 1, 4, 6), (1, 9, 9, 6)))
    how = Geometry(*HOW)._replace(padding=(0, 0))
    for shape in ((1, 2, 6), (2, 1, 6), (2, 2, 5), (2, 12)):
        with pytest.raises(ValueError, match=r"conv2d_moments: moments must be compact, \("):
            views = (a.view for a in (x, weight, out))
            backend.conv2d_moments(*views, how, NO_EPILOGUE, single(uniform(*shape)).view)
    double = [single(uniform(2, 6).astype("float64")) for _ in range(2)]
    vectors = [single(np.zeros(6)).view for _ in range(4)]
    with pytest.raises(ValueError, match="float32 or bfloat16, got float64; use"):
        backend.batch_norm_of_moments(
            double[0].view,
            single(uniform(1, 2, 6)).view,
            *vectors[:2],
            double[1].view,
            *vectors[2:],
            1e-5,
            NO_EPILOGUE,
        )


# ---- the pass -----------------------------------------------------------------------------------


def names(step: Any) -> Counter[str]:
    return Counter(call.name for call in step.programs[0].recording.calls())


def gradients(exact: bool, dtype: str = "bfloat16", **options: Any) -> tuple[Any, list[Any]]:
    """Return a captured step and its results after three calls."""
    at: Any = {"device": needle.device(emulated.NAME)}
    needle.seed(0)
    conv, norm = nn.Conv2d(32, 40, 3, padding=1, bias=False, **at), nn.BatchNorm2d(40, **at)
    x = needle.Tensor(uniform(3, 7, 7, 32), **at)

    def forward_and_backward(x: Any) -> Any:
        y = needle.relu(norm(conv(x.astype(dtype).permute((0, 3, 1, 2))))).astype("float32")
        (y * y).sum().backward()
        return y.detach()

    step: Any = needle.capture(forward_and_backward, state=[conv, norm], exact=exact, **options)
    results = [step(x) for _ in range(3)]
    parameters = [*conv.parameters(), *norm.parameters()]
    arrays = [*results, norm.running_mean, norm.running_var, *(p.grad for p in parameters)]
    return step, [a.numpy() for a in arrays]


@pytest.mark.filterwarnings("error::needle.CaptureWarning")
def test_batch_norm_takes_the_moments_of_the_convolution(capability: int) -> None:
    exact, want = gradients(True)
    step, found = gradients(False)
    assert names(exact)["conv2d_moments"] == 0 and names(exact)["batch_norm"] == 1
    assert names(step)["conv2d_moments"] == names(step)["batch_norm_of_moments"] == 1
    assert names(step)["conv2d"] == names(step)["batch_norm"] == 0
    assert "moments of 1 batch norms" in step.explain()
    calls = {call.name: call for call in step.programs[0].recording.calls()}
    made, read = calls["conv2d_moments"].writes, calls["batch_norm_of_moments"].reads
    assert len(made) == 2 and made == read[:2] and made[1].temporary
    for got, exactly in zip(found, want, strict=True):
        assert np.linalg.norm(got - exactly) <= 4e-3 * np.linalg.norm(exactly) + 1e-3
    # the first call gives the same bits as replays
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize(
    "options", [{"dtype": "float32"}, {"memory": "1GB"}], ids=["float32", "memory"]
)
def test_where_nothing_is_saved_the_calls_stay(options: Any) -> None:
    step, _ = gradients(False, **options)
    assert names(step)["batch_norm"] == 1 and names(step)["conv2d_moments"] == 0


@pytest.mark.parametrize("change", ["written", "scaled", "sliced"])
def test_what_is_between_keeps_the_calls(change: str) -> None:
    at: Any = {"device": needle.device(emulated.NAME)}
    conv, norm = nn.Conv2d(8, 16, 1, **at), nn.BatchNorm2d(16, **at)
    x = needle.Tensor(uniform(3, 8, 7, 7), **at)

    def forward(x: Any) -> Any:
        y = conv(x.astype("bfloat16"))
        if change == "scaled":
            y = y * 2.0
        elif change == "sliced":
            y = y[:2]
        else:
            y.realize_cached_data()[0] = 1.0
        return norm(y).astype("float32").detach()

    results = []
    for exact in (True, False):
        step: Any = needle.capture(forward, state=[conv, norm], exact=exact)
        results.append([step(x).numpy() for _ in range(2)])
        assert names(step)["batch_norm"] == 1
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_resumed_training_keeps_the_bits(capability: int) -> None:
    """The first call of a new recording computes the same bits as a replay of an older one."""
    at: Any = {"device": needle.device(emulated.NAME)}
    needle.seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(8, 16, 3, **at), nn.BatchNorm2d(16, **at), nn.ReLU()),
        *(nn.Conv2d(16, 16, 3, padding=1, **at), nn.BatchNorm2d(16, **at), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 6 * 6, 4, **at)),
    )
    images = needle.Tensor(uniform(5, 8, 8, 8), **at)
    labels = needle.Tensor(np.arange(5) % 4, dtype="int64", requires_grad=False, **at)
    found = []
    with config.matmul_precision.using("bf16"):
        old = Gradients(model, nn.SoftmaxLoss())
        for gradients_of in (old, old, Gradients(model, nn.SoftmaxLoss())):
            loss, logits = gradients_of(images, labels)
            found.append([loss, logits, *(p.grad.numpy() for p in model.parameters())])
    assert names(old.passes)["batch_norm_of_moments"] == 2
    for other in found[1:]:
        for mine, theirs in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(mine, theirs)
