"""Test ``where`` and comparisons with numbers, and more cases of order, gather and scatter."""

import warnings
from typing import Any

import numpy as np
import pytest

import needle as ndl
from needle.backend_selection import BACKEND
from needle.errors import DTypeError


def of(values: Any, device: Any, dtype: str = "float64") -> ndl.Tensor:
    return ndl.Tensor(np.asarray(values), device=device, dtype=dtype)


def test_a_number_beside_a_bool_condition_keeps_its_value(device: Any) -> None:
    a = of([1.0, 2.0, 3.0], device, "float32")
    assert ndl.where(a > 1.5, a, 5.0).numpy().tolist() == [5.0, 2.0, 3.0]
    assert ndl.where(a > 1.5, 7.0, a).numpy().tolist() == [1.0, 7.0, 7.0]
    assert ndl.where(a > 1.5, 7.0, 2.5).numpy().tolist() == [2.5, 7.0, 7.0]
    assert ndl.where(a > 1.5, a, 5.0).dtype == "float32"


def test_a_fraction_beside_integers_is_not_cut(device: Any) -> None:
    ids = of([0, 1, 2], device, "int64")
    assert (ids < 0.5).numpy().tolist() == [True, False, False]
    assert (ids >= 1.5).numpy().tolist() == [False, False, True]
    assert ndl.where(ids > 0, ids, 0.5).numpy().tolist() == [0.5, 1.0, 2.0]
    assert ndl.where(ids > 0, ids, 7).dtype == "int64"


def test_masks_combine_by_operators(device: Any) -> None:
    a = of([1.0, 2.0, 3.0], device)
    low, high = a > 1.5, a < 2.5
    assert (low & high).numpy().tolist() == [False, True, False]
    assert (low | high).numpy().tolist() == [True, True, True]
    assert (~low).numpy().tolist() == [True, False, False]
    assert (low & np.array([True, False, True])).numpy().tolist() == [False, False, True]
    with pytest.raises(DTypeError, match="&: operands must be bool, got bool and float64"):
        low & a
    with pytest.raises(DTypeError, match="~: operands must be bool, got int64; compare first"):
        ~of([6, 3], device, "int64")


def test_an_infinite_gradient_stays_on_its_side_of_where(device: Any) -> None:
    a, b = of([1.0, 1.0], device), of([2.0, 2.0], device)
    out = ndl.where(of([True, False], device, "bool"), a, b)
    out.backward(of([np.inf, np.nan], device))
    assert a.grad.numpy().tolist() == [np.inf, 0.0]
    np.testing.assert_array_equal(b.grad.numpy(), [0.0, np.nan])


def test_the_last_of_equal_positions_is_scattered_and_gets_the_gradient(device: Any) -> None:
    a, src = of([1.0, 2.0, 3.0], device), of([np.nan, 5.0, 6.0], device)
    out = a.scatter(0, [1, 1, 0], src)
    assert out.numpy().tolist() == [6.0, 5.0, 3.0]
    out.backward(of([10.0, 20.0, 30.0], device))
    assert a.grad.numpy().tolist() == [0.0, 0.0, 30.0]
    assert src.grad.numpy().tolist() == [0.0, 20.0, 10.0]


@pytest.mark.parametrize("descending", [False, True])
def test_a_sort_is_stable_and_nan_is_the_largest(descending: bool, device: Any) -> None:
    a = of([2.0, np.nan, 1.0, 2.0, -np.inf, np.nan, 1.0], device)
    values, indices = a.sort(0, descending)
    expected = [1, 5, 0, 3, 2, 6, 4] if descending else [4, 2, 6, 0, 3, 1, 5]
    assert indices.numpy().tolist() == expected
    np.testing.assert_array_equal(values.numpy(), a.numpy()[expected])
    assert a.argmax().item() == a.argmin().item() == 1  # the first NaN is the extremum


@pytest.mark.parametrize("dtype", ["uint8", "int32", "bool"])
def test_running_products_of_integers_are_as_wide_as_their_product(dtype: str, device: Any) -> None:
    a = of([200, 1, 200, 200, 200, 200], device, dtype)
    products = a.cumprod(0)
    assert products.dtype == "int64"
    assert products.numpy().tolist() == np.cumprod(a.numpy().astype("int64")).tolist()


def test_tensors_without_axes(device: Any) -> None:
    a = of(2.5, device)
    for name in ("cumsum", "cumprod"):
        assert getattr(a, name)(0).shape == () and getattr(a, name)(0).item() == 2.5
    for result in (a.sort(), a.topk(1), a.sort(0, True)):
        assert result.values.item() == 2.5 and result.indices.item() == 0
    assert a.prod(0).shape == a.norm(3, -1).shape == a.argmax(0).shape == ()
    assert a.prod(0).item() == a.norm(3, -1).item() == a.norm(1, 0).item() == 2.5
    assert a.scatter(0, 0, 4.0).item() == 4.0 and a.scatter(-1, 0, a, "add").item() == 5.0
    with pytest.raises(IndexError):
        a.norm(2, 1)
    assert a.gather(0, 0).item() == a.prod().item() == a.norm().item() == 2.5
    assert a.argmax().item() == a.std().item() == 0
    for name in ("floor", "ceil", "round", "trunc", "sign"):
        assert getattr(a, name)().numpy() == getattr(np, name)(2.5)


@pytest.mark.skipif(BACKEND == "np", reason="NumPy mode records no kernels")
@pytest.mark.parametrize(
    "function",
    [
        lambda y, i: y.topk(3).values.sum(),
        lambda y, i: y.sort(1, True).values[:, 0].sum(),
        lambda y, i: y.gather(1, i).sum(),
        lambda y, i: (y.scatter(1, i, y * 2) * y).sum(),
        lambda y, i: y.cumprod(1).sum() + y.prod(1).sum(),
        lambda y, i: y.norm() + y.std(),
        lambda y, i: (ndl.pad(y, (1, 1), "reflect") ** 2).sum(),
        lambda y, i: y.repeat_interleave([1, 2, 0, 0, 3, 1], 1).sum(),
        lambda y, i: y.masked_fill(y > 0, 0.5).sum(),
    ],
)
def test_a_captured_step_gives_the_same(function: Any) -> None:
    random = np.random.default_rng(0)
    if not ndl.cpu().enabled():
        pytest.skip("build the extension (make build)")
    w = of(random.standard_normal((4, 6)), ndl.cpu(), "float32")

    def step(x: ndl.Tensor, index: ndl.Tensor) -> Any:
        out = function(x @ w, index)
        out.backward()
        return out, w.grad

    captured = ndl.capture(step, state=w)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            x = of(random.standard_normal((5, 4)), ndl.cpu(), "float32")
            index = of(random.integers(0, 6, (5, 6)), ndl.cpu(), "int64").detach()
            for got, want in zip(captured(x, index), step(x, index), strict=True):
                assert got.numpy().tobytes() == want.numpy().tobytes()
    assert captured.replays == 2


@pytest.mark.skipif(BACKEND == "np", reason="NumPy mode records no kernels")
def test_a_replay_refuses_an_ignored_label_that_the_recording_did_not_have() -> None:
    if not ndl.cpu().enabled():
        pytest.skip("build the extension (make build)")
    logits = of(np.zeros((2, 3)), ndl.cpu(), "float32")

    def plain(labels: ndl.Tensor) -> Any:
        return ndl.cross_entropy(logits * 1.0, labels)

    def ignoring(labels: ndl.Tensor) -> Any:
        return ndl.cross_entropy(logits * 1.0, labels, ignore_index=-1)

    for function, ignored in [(plain, -100), (ignoring, -1)]:
        captured = ndl.capture(function, state=logits)
        for labels in ([0, 1], [1, 2]):
            captured(of(labels, ndl.cpu(), "int64").detach())
        last = of([ignored, 2], ndl.cpu(), "int64").detach()
        if function is plain:
            with pytest.raises(ValueError, match=r"labels must be in \[0, 3\)"):
                captured(last)
        else:
            np.testing.assert_allclose(captured(last).numpy(), np.log(3), rtol=1e-6)
        assert captured.replays == 2 - (function is plain)
