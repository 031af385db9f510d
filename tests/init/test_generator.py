"""Test init.Generator: equal bits on every device, correct distributions, NumPy's stream unused."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle import accelerated, init, nn
from needle.accelerated.random import standard_normal
from needle.backends.philox import TENSOR_STREAM, words
from tests.nn_devices import NUMPY_MODE

DRAWS = {
    "uniform": (lambda g, *n, **k: init.rand(*n, low=-1, high=3, generator=g, **k), (-1, 4)),
    "normal": (lambda g, *n, **k: init.randn(*n, mean=2, std=3, generator=g, **k), (2, 3)),
    "bernoulli": (lambda g, *n, **k: init.randb(*n, p=0.3, generator=g, **k), (0.3, 1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", DRAWS)
def test_every_device_gives_the_bits_of_the_definition(name: str, dtype: str, device: Any) -> None:
    draw, (a, b) = DRAWS[name]
    generator = init.Generator(2**63 + 5)
    for number, shape in enumerate([(3, 5), (), (70_001,), (0, 4)]):
        want = np.empty(shape, dtype)
        accelerated.random.definition(want, name, generator.seed, number, a, b)
        got = draw(generator, *shape, device=device, dtype=dtype)
        assert got.dtype == dtype and got.device == device
        assert got.numpy().tobytes() == want.tobytes()
    assert generator.draws == 4


def test_elements_take_the_words_in_row_major_order() -> None:
    out = np.empty((2, 3), "float64")
    accelerated.random.definition(out, "uniform", 7, 2, 0.0, 1.0)
    drawn = words(7, 2, np.arange(2), TENSOR_STREAM, 4).reshape(-1)[:6]
    np.testing.assert_array_equal(out.reshape(-1), drawn / 2.0**32)


def test_normal_numbers_are_the_inverse_of_the_distribution() -> None:
    ends = [0, 1, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]
    # at the boundary between two formulas
    near = [int(p * 2**32) + i for p in (0.075, 0.925) for i in (-1, 0, 1)]
    drawn = np.array([*ends, *near, *range(5, 2**32, 2**32 // 4001)], np.uint32)
    want = [NormalDist().inv_cdf((w + 0.5) / 2**32) for w in drawn.tolist()]
    np.testing.assert_allclose(standard_normal(drawn), want, rtol=1e-12, atol=1e-15)


def test_moments_and_ranges() -> None:
    generator = init.Generator(0)
    drawn = {name: draw(generator, 200_000) for name, (draw, _) in DRAWS.items()}
    host = {name: np.asarray(x.numpy(), "float64") for name, x in drawn.items()}
    for name, (mean, deviation) in {
        "uniform": (1.0, 4 / np.sqrt(12)),
        "normal": (2.0, 3.0),
        "bernoulli": (0.3, np.sqrt(0.21)),
    }.items():
        assert abs(host[name].mean() - mean) < 5 * deviation / np.sqrt(200_000)
        assert host[name].std() == pytest.approx(deviation, rel=0.01)
    assert host["uniform"].min() >= -1 and host["uniform"].max() < 3
    assert set(np.unique(host["bernoulli"])) == {0.0, 1.0} and drawn["bernoulli"].dtype == "bool"


def test_draws_differ_can_be_resumed_and_leave_numpys_stream_alone() -> None:
    before = np.random.get_state()[1].tobytes()  # type: ignore[union-attr, index]
    first = init.Generator(3)
    a, b = (init.rand(5, generator=first).numpy() for _ in range(2))
    assert (a != b).all() and (init.rand(5, generator=init.Generator(4)).numpy() != a).all()
    second = init.Generator(3)
    second.draws = 1
    np.testing.assert_array_equal(init.rand(5, generator=second).numpy(), b)
    assert np.random.get_state()[1].tobytes() == before  # type: ignore[union-attr, index]
    assert repr(first) == "Generator(3, draws=2)"
    weight = init.kaiming_normal(4, 3, generator=init.Generator(1))
    assert weight.shape == (4, 3) and np.isfinite(weight.numpy()).all()


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_are_checked(seed: int) -> None:
    with pytest.raises(ValueError, match=r"Generator: seed must be in \[0, 2\*\*64\), got"):
        init.Generator(seed)


def test_dropout_takes_a_generator(device: Any) -> None:
    x = init.ones(50, 40, device=device)
    masks = [nn.Dropout(0.25, generator=init.Generator(6))(x).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*masks)
    assert set(np.unique(masks[0])) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((masks[0] == 0).mean() - 0.25) < 0.05


@pytest.mark.skipif(NUMPY_MODE, reason="plain NumPy arrays have no kernels to record")
def test_a_captured_step_draws_anew_at_every_replay() -> None:
    layer, other = (nn.Dropout(0.5, generator=init.Generator(6)) for _ in range(2))
    x = init.ones(64)
    step = ndl.capture(lambda x: layer(x) * 2.0, state=layer)
    for _ in range(3):
        np.testing.assert_array_equal(step(x).numpy(), (other(x) * 2.0).numpy())
    assert step.replays == 2
