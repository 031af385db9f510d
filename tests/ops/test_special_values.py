"""Test that NaN passes through values and gradients, and that powers follow IEEE 754.

The expected gradients of powers are PyTorch's; where PyTorch is installed they are compared again.
"""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from needle import Tensor, capture, nn, ops
from needle.shapes import Geometry

NAN, INF = np.nan, np.inf

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def of(values: Any, device: Any, dtype: str = "float32") -> Tensor:
    return Tensor(np.asarray(values), device=device, dtype=dtype)


ONE_OPERAND: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(ops, name) for name in "relu leaky_relu abs sqrt exp log sin cos".split()},
    **{name: getattr(ops, name) for name in "tanh sigmoid erf gelu silu softplus".split()},
    **{
        name: getattr(ops, name)
        for name in "log_sigmoid elu hardswish normal_cdf negate sign".split()
    },
    **{
        name: getattr(nn, name)()
        for name in "ReLU6 Hardtanh Hardsigmoid Hardswish SELU Mish Softsign Softplus".split()
    },
    "Softplus threshold": nn.Softplus(1.0, 20.0),
    "PReLU": lambda a: nn.PReLU(device=a.device)(a),
    "gelu tanh": lambda a: ops.gelu(a, approximate="tanh"),
    "clip": lambda a: ops.clip(a, -0.5, 0.5),
    "clip low": lambda a: ops.clip(a, min=0),
    "clip high": lambda a: ops.clip(a, max=0),
    "power": lambda a: a**2.5,
    "maximum": lambda a: ops.maximum(a, of([1.0] * 4, a.device)),
    "minimum": lambda a: ops.minimum(of([1.0] * 4, a.device), a),
}
CONSTANT_GRADIENT = ("negate", "sign")


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_nan_passes_through_value_and_gradient(name: str, device: Any) -> None:
    a = of([0.75, NAN, 1.25, NAN], device)
    out = ONE_OPERAND[name](a)
    out.sum().backward()
    assert np.isnan(out.numpy()).tolist() == [False, True, False, True]
    if name not in CONSTANT_GRADIENT:
        assert np.isnan(a.grad.numpy()).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("layer", "values", "slopes"),
    [
        (nn.ReLU6(), [-1.0, 0.0, 3.0, 6.0, 7.0], [0, 0, 1, 0, 0]),
        (nn.Hardtanh(-0.5, 2.0), [-1.0, -0.5, 0.0, 2.0, np.inf], [0, 0, 1, 0, 0]),
        (nn.Hardtanh(1.0, 1.0), [0.0, 1.0, 2.0], [0, 0, 0]),
        (nn.Hardsigmoid(), [-np.inf, -3.0, 0.0, 3.0], [0, 0, 1 / 6, 0]),
        (nn.PReLU(), [-np.inf, -1.0, 0.0, 1.0, np.inf], [0.25, 0.25, 0.25, 1, 1]),
    ],
)
def test_slopes_at_the_limits_are_pytorchs(
    layer: Any, values: Any, slopes: Any, device: Any
) -> None:
    a = of(values, device, "float64")
    layer.to(device, dtype="float64")(a).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), slopes)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_in_either_operand_reaches_both_gradients(name: str, device: Any) -> None:
    a, b = of([NAN, 1.0, 2.0, 3.0], device), of([1.0, NAN, 2.0, 1.0], device)
    getattr(ops, name)(a, b).sum().backward()
    for gradient in (a.grad.numpy(), b.grad.numpy()):
        assert np.isnan(gradient).tolist() == [True, True, False, False]
        assert gradient[2] == 0.5


@pytest.mark.parametrize("name", ["max", "min"])
def test_nan_in_a_reduced_row(name: str, device: Any) -> None:
    a = of([[1.0, NAN, 3.0], [1.0, 2.0, 3.0]], device)
    out = getattr(ops, name)(a, axes=1)
    out.sum().backward()
    assert np.isnan(out.numpy()).tolist() == [True, False]
    assert np.isnan(a.grad.numpy()).tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize(("kernel", "channels"), [(1, 4), (3, 4), (3, 16), (5, 3)])
def test_nan_in_a_fused_convolution(kernel: int, channels: int, device: Any) -> None:
    """With ReLU as the epilogue, NaN in y reaches the bias's and input's gradients."""
    x = np.random.default_rng(0).standard_normal((2, channels, 8, 8))
    x[0, 0, 4, 4] = NAN
    weight = np.random.default_rng(1).standard_normal((kernel, kernel, channels, 5))
    pad = kernel // 2
    fused = ops.convolution.Conv2d(Geometry(padding=(pad, pad)), relu=True)
    a, w, b = of(x, device), of(weight, device), of(np.zeros(5), device)
    out = fused(a, w, b)
    out.sum().backward()
    assert np.isnan(out.numpy()).sum() == 5 * kernel**2
    assert np.isnan(b.grad.numpy()).all()
    assert np.isnan(a.grad.numpy()[0, 0, 4, 4])
    assert np.isfinite(a.grad.numpy()[1]).all()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_nan_in_a_batch_norm_with_relu(training: bool, residual: bool, device: Any) -> None:
    layer = nn.BatchNorm2d(8, device=device)
    x = np.random.default_rng(0).standard_normal((2, 8, 8, 8))
    x[0, 0, 0, 0] = NAN
    a, other = of(x, device), of(np.zeros_like(x), device)
    if not training:
        layer.eval()
    normal = layer(a)
    out = ops.relu(normal + other) if residual else nn.Sequential(layer, nn.ReLU())(a)
    out.sum().backward()
    channel = np.isnan(out.numpy())[:, 0]
    assert channel.all() if training else channel.sum() == 1
    assert np.isfinite(out.numpy()[:, 1:]).all()
    assert np.isnan(a.grad.numpy()[0, 0, 0, 0])
    assert np.isfinite(a.grad.numpy()[:, 1:]).all()
    assert np.isnan(layer.bias.grad.numpy()).tolist() == [True] + [False] * 7


def test_nan_in_a_residual_epilogue(device: Any) -> None:
    """The kernel computes relu(batch_norm(x) + residual)."""
    x = np.random.default_rng(0).standard_normal((4, 3, 4, 4))
    residual = np.zeros_like(x)
    residual[1, 2, 0, 0] = NAN
    a, other = of(x, device), of(residual, device)
    weight, bias = of(np.ones(3), device), of(np.zeros(3), device)
    out = ops.normalization.BatchNorm(relu=True)(a, weight, bias, other)[0]
    out.sum().backward()
    assert np.isnan(out.numpy()).sum() == 1
    assert np.isnan(other.grad.numpy()[1, 2, 0, 0]) and np.isnan(other.grad.numpy()).sum() == 1
    assert np.isnan(a.grad.numpy()[:, 2]).all() and np.isfinite(a.grad.numpy()[:, :2]).all()


# ---- powers --------------------------------------------------------------------------------------

BASES = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2.0, -2.0)
EXPONENTS = (0.0, -0.0, 1.0, 2.0, 3.0, 0.5, -1.0, -0.5, INF, -INF, NAN)


def powers(device: Any, dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    pairs = np.array(list(itertools.product(BASES, EXPONENTS)))
    a, b = of(pairs[:, 0], device, dtype), of(pairs[:, 1], device, dtype)
    out = a**b
    out.sum().backward()
    return out, a, b


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_follow_ieee_754(dtype: str, device: Any) -> None:
    out, _, _ = powers(device, dtype)
    for (a, b), got in zip(itertools.product(BASES, EXPONENTS), out.numpy().tolist()):
        with np.errstate(all="ignore"):
            want = float(np.power(np.array([a]), np.array([b]))[0])
        np.testing.assert_allclose(got, want, rtol=1e-7, err_msg=f"{a} ** {b}")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_powers_at_zero(dtype: str, device: Any) -> None:
    _, a, b = powers(device, dtype)
    pairs = list(itertools.product(BASES, EXPONENTS))
    by_a, by_b = (dict(zip(map(str, pairs), t.grad.numpy().tolist())) for t in (a, b))
    for base in (0.0, -0.0):
        for exponent in (0.0, -0.0):
            assert by_a[str((base, exponent))] == 0
        for exponent, want in ((1.0, 1), (2.0, 0), (3.0, 0), (0.5, INF)):
            assert by_a[str((base, exponent))] == want
        for exponent, want in ((0.0, 0), (1.0, 0), (0.5, 0), (INF, 0), (-0.5, -INF), (-INF, -INF)):
            assert by_b[str((base, exponent))] == want
        assert abs(by_a[str((base, -1.0))]) == INF
    assert by_b[str((0.0, -1.0))] == -INF
    assert by_a[str((NAN, 0.0))] == 0  # a**0 is constant, also at NaN


@pytest.mark.parametrize("number", [0, 1, 2, -1, 0.5, -0.5, 3.0])
def test_powers_with_a_number_at_zero_twice_differentiated(number: float, device: Any) -> None:
    a = of([0.0, 2.0], device, "float64")
    (a**number).sum().backward()
    first = a.grad
    with np.errstate(all="ignore"):
        slope = number * np.power([0.0, 2.0], number - 1.0) if number else np.zeros(2)
        bend = number * (number - 1) * np.power([0.0, 2.0], number - 2.0)
    np.testing.assert_allclose(first.numpy(), slope)
    first.sum().backward()
    want = bend if number not in (0, 1) else np.zeros(2)
    np.testing.assert_allclose(a.grad.numpy() if number != 0 else want, want)


def test_second_gradients_of_zero_to_the_zero_are_finite(device: Any) -> None:
    a, b = of([0.0, 2.0], device, "float64"), of([0.0, 0.0], device, "float64")
    (a**b).sum().backward()
    by_a, by_b = a.grad, b.grad
    by_a.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [0, 0])
    np.testing.assert_allclose(b.grad.numpy(), [1, 0.5])  # a**(b - 1), where that is finite
    by_b.sum().backward()
    np.testing.assert_allclose(b.grad.numpy(), [0, np.log(2) ** 2])


@pytest.mark.parametrize("base", [0.0, 2.0, 1.0])
def test_powers_of_a_number(base: float, device: Any) -> None:
    exponents = np.array([0.0, 1.0, 0.5, -1.0, INF, -INF, NAN])
    a = of(exponents, device, "float64")
    (base**a).sum().backward()
    with np.errstate(all="ignore"):
        want = np.power(base, exponents) * np.log(base)
    if base == 0:
        want = np.where(exponents >= 0, 0, want)
    np.testing.assert_allclose(a.grad.numpy(), want)


def test_roots_logarithms_and_quotients_at_zero(device: Any) -> None:
    for call, value, slope in (
        (ops.relu, [0.0, 0.0], [0.0, 0.0]),
        (ops.sqrt, [0.0, -0.0], [INF, -INF]),
        (ops.log, [-INF, -INF], [INF, -INF]),
        (lambda a: 1 / a, [INF, -INF], [-INF, -INF]),
        (lambda a: a / 0.0, [NAN, NAN], [INF, INF]),
    ):
        a = of([0.0, -0.0], device)
        out = call(a)
        out.sum().backward()
        np.testing.assert_array_equal(out.numpy(), np.array(value, np.float32))
        np.testing.assert_array_equal(a.grad.numpy(), np.array(slope, np.float32))


# ---- quotients -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("number", [0, 1, -3, 0.1, 1e-30, np.float32(7.0), np.inf, np.nan])
def test_a_number_by_a_tensor_is_one_division(number: Any, dtype: str, device: Any) -> None:
    tiny, step = np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal
    random = np.random.default_rng(1).standard_normal(1000) * 10.0 ** np.arange(-25, 25).repeat(20)
    host = np.append(random, [0.0, -0.0, step, -tiny, tiny / 8, 3.0, np.inf, np.nan]).astype(dtype)
    x = Tensor(host, device=device, dtype=dtype)
    with np.errstate(all="ignore"):
        top = np.asarray(number, dtype)
        np.testing.assert_array_equal((number / x).numpy(), top / host)
        (number / x).sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), -((top / host) / host))


def test_the_gradient_of_zero_by_a_tiny_number_is_zero(device: Any) -> None:
    a, b = of([0.0, 0.0], device), of([1e-39, 1e-20], device)
    (a / b).sum().backward()
    np.testing.assert_array_equal(b.grad.numpy(), [0.0, 0.0])


def test_a_fraction_beside_integers_stays_a_fraction(device: Any) -> None:
    a = Tensor(np.array([1, 2]), device=device, dtype="int64")
    np.testing.assert_array_equal((0.5 / a).numpy(), [0.5, 0.25])
    np.testing.assert_array_equal(ops.add(a, 0.5).numpy(), [1.5, 2.5])


# ---- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_uneven_adaptive_means_keep_a_bad_pixel_in_its_windows(bad: float, device: Any) -> None:
    host = np.random.default_rng(2).standard_normal((2, 3, 7, 5)).astype("float32")
    host[0, 1, 3, 1] = bad
    x = Tensor(host, device=device, dtype="float32")
    y = ops.adaptive_avg_pool2d(x, (3, 2))
    wanted = np.stack(
        [
            np.stack([host[:, :, d, a].mean((2, 3)) for a in (slice(0, 3), slice(2, 5))], -1)
            for d in (slice(0, 3), slice(2, 5), slice(4, 7))
        ],
        2,
    )
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert np.isfinite(y.numpy()).sum() == y.size - 1
    y.sum().backward()
    clean = Tensor(np.zeros_like(host), device=device, dtype="float32")
    ops.adaptive_avg_pool2d(clean, (3, 2)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), clean.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("bad", [(), (np.nan,), (np.inf,), (-np.inf,), (np.inf, -np.inf)])
def test_captured_uneven_adaptive_means_equal_eager_ones(
    bad: tuple[float, ...], device: Any
) -> None:
    """Value and gradient agree even if only the replay gets infinities and NaN."""
    random = np.random.default_rng(3)

    def step(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad = True
        y = ops.adaptive_avg_pool2d(x, (3, 2))
        (y * weights).sum().backward()
        return y, x.grad

    captured = capture(step)
    weights = of(random.standard_normal((2, 3, 3, 2)), device)
    for values in ((), bad, ()):
        host = random.standard_normal((2, 3, 7, 5)).astype("float32")
        for i, value in enumerate(values):
            host[0, 1, 2 + i, 2] = value
        for got, want in zip(captured(of(host, device), weights), step(of(host, device), weights)):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


# ---- tails ---------------------------------------------------------------------------------------


def test_gelu_tanh_keeps_its_digits_far_below_zero(device: Any) -> None:
    exact = {  # computed with 60 digits
        -21.3: -1.26335442077e-313,
        -20.37: -1.8392454284650558e-275,
        -18.05: -3.229239589910734e-194,
        -14.71: -2.16160745038274e-108,
        -9.33: -2.165983149820792e-31,
        -5.62: -2.2605006719149273e-09,
        -3.1: -0.002626610230549775,
        -1.7: -0.07589410444884384,
        -0.4: -0.13783883057264382,
        2.2: 2.1696785270380117,
    }
    y = ops.gelu(of(list(exact), device, "float64"), approximate="tanh")
    np.testing.assert_allclose(y.numpy(), list(exact.values()), rtol=16 * 2.0**-52, atol=0)


def test_norms_do_not_overflow(device: Any) -> None:
    a = Tensor(np.array([3e30, 4e30], np.float32), device=device)
    norm = a.norm()
    norm.backward()
    np.testing.assert_allclose(norm.numpy(), 5e30, rtol=1e-6)
    np.testing.assert_allclose(a.grad.numpy(), [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("p", [-0.5, -1, -2, -np.inf])
def test_a_zero_makes_norms_of_negative_p_zero(p: float, device: Any) -> None:
    a = Tensor(np.array([1.0, 0.0, -2.0]), device=device)
    norm = a.norm(p)
    norm.backward()
    assert norm.item() == 0 and np.isfinite(a.grad.numpy()).all()


def test_ctc_loss_reads_no_padding(device: Any) -> None:
    logs = np.log(np.full((6, 2, 3), 1 / 3, np.float32))
    results = []
    for padding in (0.0, np.nan, np.inf):
        logs[4:, 1] = padding
        a = Tensor(logs, device=device)
        loss = ops.ctc_loss(a, [[1, 1], [1, 2]], [6, 4], [2, 2])
        loss.backward()
        results.append((loss.item(), a.grad.numpy().tolist()))
    assert results[0] == results[1] == results[2] and results[0][0] > 0


@pytest.mark.parametrize("p", [0.5, 1, 2, 3, np.inf])
def test_norms_of_zeros_have_finite_gradients(p: float, device: Any) -> None:
    a = Tensor(np.array([[0.0, 0.0], [0.0, 2.0]]), device=device)
    norm = a.norm(p, 1)
    norm.sum().backward()
    np.testing.assert_allclose(norm.numpy(), [0, 2])
    np.testing.assert_allclose(a.grad.numpy(), [[0, 0], [0, 1]])


def test_equal_elements_have_a_deviation_with_a_gradient_of_zero(device: Any) -> None:
    a = Tensor(np.ones((2, 3)), device=device)
    a.std(1).sum().backward()
    np.testing.assert_array_equal(a.grad.numpy(), np.zeros((2, 3)))


@pytest.mark.parametrize("number", [1, 200, 255])
def test_bytes_minus_a_number_wrap_around(number: int, device: Any) -> None:
    values = np.array([0, 1, 200], np.uint8)
    x = Tensor(values, device=device, dtype="uint8", requires_grad=False)
    assert (x - number).numpy().tolist() == (values - np.uint8(number)).tolist()


@pytest.mark.parametrize("name", ["huber_loss", "smooth_l1_loss"])
def test_a_loss_with_a_linear_tail_has_its_slope_at_infinity(name: str, device: Any) -> None:
    x = of([INF, -INF, 1e30, NAN, 0.25], device)
    losses = getattr(ops, name)(x, of(np.zeros(5), device), reduction="none")
    losses.backward()
    np.testing.assert_allclose(losses.numpy(), [INF, INF, 1e30, NAN, 0.03125])
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), np.float32([1, -1, 1, NAN, 0.25]))


def test_attention_drops_weights(device: Any) -> None:
    query, value = of(np.zeros((1, 50, 4)), device), of(np.eye(50)[None], device)
    np.random.seed(0)
    out = ops.scaled_dot_product_attention(query, query, value, None, 0.5, True).numpy()[0]
    seen = np.tri(50, dtype=bool)
    weights = out * np.arange(1, 51)[:, None]  # 1 where kept without dropout
    assert not out[~seen].any() and {*np.round(weights[seen], 4)} == {0, 2}
    assert 0.4 < (weights[seen] == 0).mean() < 0.6
    dropped = ops.scaled_dot_product_attention(query, query, value, dropout_p=1.0)
    assert not dropped.numpy().any()
    for p in (-0.5, 1.5, True):
        with pytest.raises(ValueError, match=r"dropout_p must be in \[0, 1\]"):
            ops.scaled_dot_product_attention(query, query, value, dropout_p=p)


def test_attention_over_no_keys_is_zero(device: Any) -> None:
    query, key = (of(np.ones((1, 1, n, 4)), device) for n in (2, 0))
    mask = Tensor(np.ones((2, 0), bool), device=device, dtype="bool", requires_grad=False)
    out = ops.scaled_dot_product_attention(query, key, key, attn_mask=mask)
    assert out.numpy().tolist() == np.zeros((1, 1, 2, 4)).tolist()
