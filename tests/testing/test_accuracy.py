"""Test that every elementwise function is within 2 ulp of float64 on every device."""

import math
from typing import Any

import numpy as np
import pytest

import needle
from needle import Tensor, ops
from needle.accelerated import special
from needle.testing import accuracy

STRIDE = 160_001
"""About 27 thousand numbers of all magnitudes and signs, in addition to ``accuracy.SPECIAL``."""


@pytest.mark.parametrize("name", accuracy.names())
def test_within_two_ulp_over_the_range_of_float32(name: str) -> None:
    worst = accuracy.measure(name, STRIDE)
    own = [device for device in worst if device.startswith(("cpu", "cuda", "NumPy mode"))]
    assert own
    for device in own:  # other tests may have registered devices
        error = worst[device]
        assert error.ulps <= accuracy.LIMIT, f"{name} on {device}: {error}"


@pytest.mark.parametrize("name", accuracy.names())
def test_within_two_ulp_where_networks_work(name: str, device: Any) -> None:
    """Sample densely from -20 to 20."""
    host = np.linspace(-20, 20, 200_003, dtype=np.float32)
    with np.errstate(all="ignore"):
        got = accuracy.evaluated(name, host, device)
        error = accuracy.ulps(got, accuracy.REFERENCES[name](host.astype(np.float64)))
    assert error.max() <= accuracy.LIMIT, f"{error.max()} at {host[error.argmax()]!r}"


def test_the_measure_finds_errors() -> None:
    one = np.float32(1)
    for got, want, expected in (
        (np.nextafter(one, np.float32(2)), 1.0, 1.0),
        (np.nextafter(one, np.float32(0)), 1.0, 0.5),
        (0.0, 1.401298464324817e-45, 1.0),
        (np.inf, float(np.finfo(np.float32).max), 1.0),
        (np.nan, np.nan, 0.0),
        (np.nan, 1.0, math.inf),
        (1.0, np.nan, math.inf),
        (-0.0, 0.0, math.inf),
        (-0.0, 1e-300, 0.0),
        (np.inf, np.inf, 0.0),
        (-np.inf, np.inf, 2.0**25),
    ):
        found = accuracy.ulps(np.array([got], np.float32), np.array([want]))[0]
        assert found == pytest.approx(expected, rel=1e-6), (got, want)


def test_the_command_prints_a_row_and_fails_above_the_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert accuracy.main(["sigmoid", "--stride", "2000003"]) == 0
    assert "| sigmoid |" in capsys.readouterr().out
    monkeypatch.setitem(accuracy._CALLS, "sigmoid", lambda a: ops.tanh(a * 0.5) * 0.5 + 0.5)
    assert accuracy.main(["sigmoid", "--stride", "2000003"]) == 1


def _close(got: Any, want: list[float], ulps: float) -> None:
    want = np.array(want)
    error = np.abs(np.asarray(got) - want) / np.spacing(np.abs(want))
    assert error.max() <= ulps, (float(error.max()), int(error.argmax()))


POINTS = [-37.0, -30.3, -20.0, -8.7, -3.3, -1.0, -0.04, 0.0, 1e-9, 0.7, 2.0, 5.5, 9.0, 40.0, 700.0]


@pytest.mark.parametrize("device_kind", ["own", "definition"])
def test_float64_to_a_few_ulp(device_kind: str, device: Any) -> None:
    """Compare normal tails with math.erfc, and the other functions with their plain formulas."""
    x = np.array(POINTS)
    exact = [math.erfc(-a / math.sqrt(2)) / 2 for a in POINTS]
    # a / sqrt(2) is rounded, and erfc multiplies the relative error by a**2
    slack = 4 + max(a * a for a in POINTS[:5])
    for name, want, limit in (
        ("normal_cdf", exact, slack),
        ("gelu", [a * p for a, p in zip(POINTS, exact)], slack),
        ("sigmoid", [1 / (1 + math.exp(-a)) for a in POINTS], 4),
        ("softplus", [max(a, 0) + math.log1p(math.exp(-abs(a))) for a in POINTS], 4),
        ("silu", [a / (1 + math.exp(-a)) for a in POINTS], 6),
    ):
        if device_kind == "definition":
            got = getattr(special, name).definition(x)
        else:
            got = getattr(ops, name)(Tensor(x, device=device, dtype="float64")).numpy()
        _close(got, want, limit)


Long = np.longdouble
has_long_double = pytest.mark.skipif(
    np.finfo(Long).nmant < 63, reason="the reference needs 64 bits of mantissa"
)


def _gelu_slope(x: Any) -> Any:
    """Return Phi(x) + x phi(x); Phi by its series below 3 and its continued fraction from 3 on."""
    density = np.exp(-x * x / 2) / np.sqrt(8 * np.arctan(Long(1)))
    near = np.where(np.abs(x) < 3, x, 0)
    term, series = near, near
    for n in range(1, 100):
        term = term * near * near / (2 * n + 1)
        series = series + term
    far = np.maximum(np.abs(x), 3)
    fraction = np.zeros_like(x)
    for n in range(300, 0, -1):
        fraction = n / (far + fraction)
    tail = density / (far + fraction)
    below = np.where(x < 0, tail, 1 - tail)
    return np.where(np.abs(x) < 3, density * series + Long(0.5), below) + x * density


def _gelu_tanh_slope(x: Any) -> Any:
    """Return s + x s (1 - s) v', s = sigmoid(v), v = 2 sqrt(2/pi) (x + 0.044715 x**3)."""
    factor, cubic = np.sqrt(2 / np.arctan(Long(1))), Long("0.044715")
    e = np.exp(-np.abs(factor * (x + cubic * x**3)))
    s, rest = np.where(x < 0, e, 1) / (1 + e), np.where(x < 0, 1, e) / (1 + e)
    return s + x * s * rest * factor * (1 + 3 * cubic * x * x)


@has_long_double
@pytest.mark.parametrize("dtype, limit", [("float32", 1.0), ("float64", 10.0)])
@pytest.mark.parametrize("form, exact", [("none", _gelu_slope), ("tanh", _gelu_tanh_slope)])
def test_gradient_of_gelu(form: str, exact: Any, dtype: str, limit: float, device: Any) -> None:
    """Count errors in ulp; near the gradient's zero at -0.75, in ulp of the terms that cancel."""
    if dtype == "float32":
        near = np.linspace(-15, 15, 20_011, dtype=np.float32)
        x = np.concatenate([*accuracy._blocks(STRIDE), near])
        x = x[np.abs(x) < 1e6]
    else:
        x = np.concatenate([np.linspace(-41, 41, 20_011), np.linspace(-2, 2, 20_011)])
    a = Tensor(x, device=device, dtype=dtype)
    ops.gelu(a, approximate=form).sum().backward()
    got, want = a.grad.numpy(), exact(x.astype(Long))
    assert got.dtype == dtype
    size = np.where(np.abs(x + 0.75) < 0.5, np.maximum(np.abs(want), 0.25), np.abs(want))
    error = np.abs(got - want) / np.spacing(size.astype(dtype))
    assert error.max() <= limit, (float(error.max()), float(x[error.argmax()]))


def test_gradient_of_gelu_at_infinity(device: Any) -> None:
    for form in ("none", "tanh"):
        a = Tensor(np.array([np.inf, -np.inf, np.nan]), device=device, dtype="float32")
        ops.gelu(a, approximate=form).sum().backward()
        np.testing.assert_array_equal(a.grad.numpy(), [1.0, 0.0, np.nan])


def test_the_tails_that_tanh_would_lose(device: Any) -> None:
    x = Tensor(np.array([-20.0, -88.0, -100.0]), device=device, dtype="float32")
    y = ops.sigmoid(x)
    np.testing.assert_allclose(y.numpy()[:2], [2.0611537e-09, 6.0546015e-39], rtol=1e-6)
    out = ops.log_sigmoid(x)
    np.testing.assert_array_equal(out.numpy(), np.array([-20, -88, -100], np.float32))
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.ones(3, np.float32))
    assert needle.ops.log(y).numpy().tolist()[:2] == [-20.0, -88.0]
