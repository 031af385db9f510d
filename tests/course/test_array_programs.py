"""Tests of NDArray in course programs: strides, shared handles, setitem, tiles, subclasses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from needle.backend_selection import BACKEND

if BACKEND != "nd":
    pytest.skip("needle's own arrays", allow_module_level=True)

from needle import backend_ndarray as nd

VIEWS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "transpose": (lambda a: np.transpose(a, (0, 2, 1)), lambda a: a.permute((0, 2, 1))),
    "permute back": (
        lambda a: a.transpose(2, 0, 1).transpose(1, 2, 0),
        lambda a: a.permute((2, 0, 1)).permute((1, 2, 0)),
    ),
    "broadcast": (
        lambda a: np.broadcast_to(a[:, :1], (4, 5, 6)),
        lambda a: a[:, :1].broadcast_to((4, 5, 6)),
    ),
    "broadcast new axis": (
        lambda a: np.broadcast_to(a, (2, 4, 5, 6)),
        lambda a: a.broadcast_to((2, 4, 5, 6)),
    ),
    "reshape": (lambda a: a.reshape(2, 2, 30), lambda a: a.reshape((2, 2, 30))),
    "reshape 1": (lambda a: a.reshape(4, 1, 30), lambda a: a.reshape((4, 1, 30))),
    "slice": (lambda a: a[1:3, :, 2:4], lambda a: a[1:3, :, 2:4]),
    "slice of one": (lambda a: a[0:1, 1:2, 2:3], lambda a: a[0:1, 1:2, 2:3]),
    "steps": (lambda a: a[::2, 1::3, :5:2], lambda a: a[::2, 1::3, :5:2]),
    "negative bounds": (lambda a: a[-3:-1, :-2, -1:], lambda a: a[-3:-1, :-2, -1:]),
    "twice": (lambda a: a[1:, 1:][1:, :2], lambda a: a[1:, 1:][1:, :2]),
    "permuted slice": (
        lambda a: a.transpose(2, 1, 0)[1:5:2],
        lambda a: a.permute((2, 1, 0))[1:5:2],
    ),
    "strided": (
        lambda a: np.lib.stride_tricks.as_strided(a, (2, 3, 2), (240, 24, 8)),
        lambda a: a.as_strided((2, 3, 2), (60, 6, 2)),
    ),
}


def pair(device: Any, *shape: int, seed: int = 0) -> tuple[Any, Any]:
    host = np.random.RandomState(seed).randn(*shape).astype(np.float32)
    return host, nd.array(host, device=device)


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, device: Any) -> None:
    host, a = pair(device, 4, 5, 6)
    of_numpy, of_needle = VIEWS[name]
    expected, view = of_numpy(host), of_needle(a)
    assert view.shape == expected.shape
    assert view.strides == tuple(s // expected.itemsize for s in expected.strides)
    np.testing.assert_array_equal(view.numpy(), expected)
    assert view._handle is a._handle
    if str(device) == "cpu()":
        assert view._handle.ptr() == a._handle.ptr()
    dense = view.compact()
    assert dense.is_compact() and dense.strides == nd.NDArray.compact_strides(view.shape)
    np.testing.assert_array_equal(dense.numpy(), expected)
    row_major = view.strides == nd.NDArray.compact_strides(view.shape)
    assert view.is_compact() == (row_major and view.size == a.size)
    assert (dense is view) == view.is_compact()


SLICES = [
    (slice(1, 2), slice(0, 3), slice(2, 5)),
    (slice(0, 4, 2), slice(1, 5, 3), slice(None)),
    (slice(-2, None), slice(None, -3), slice(None, None, 2)),
    (slice(3, 4), slice(4, 5), slice(5, 6)),
]


@pytest.mark.parametrize("where", SLICES)
def test_setitem(where: Any, device: Any) -> None:
    host, a = pair(device, 4, 5, 6)
    pointer = a._handle
    shape = host[where].shape
    value, b = pair(device, *shape, seed=1)
    host[where], a[where] = value, b
    np.testing.assert_array_equal(a.numpy(), host)
    flat = nd.array(np.arange(value.size), device=device)
    host[where], a[where] = np.arange(value.size).reshape(shape), flat
    np.testing.assert_array_equal(a.numpy(), host)
    host[where], a[where] = 4.5, 4.5
    np.testing.assert_array_equal(a.numpy(), host)
    assert a._handle is pointer


def test_setitem_from_a_view(device: Any) -> None:
    host, a = pair(device, 4, 4)
    other_host, other = pair(device, 6, 6, seed=2)
    host[1:3, :] = other_host.T[2:4, 1:5]
    a[1:3, :] = other.permute((1, 0))[2:4, 1:5]
    host[:, :2] = host[:, 2:].copy()
    a[:, :2] = a[:, 2:]
    host[::2] = np.float64(2.5)
    a[::2] = np.float64(2.5)
    np.testing.assert_array_equal(a.numpy(), host)


def test_scalars_are_rounded_to_float32_first(device: Any) -> None:
    wide = np.random.RandomState(3).randn(4, 5)
    a = nd.array(wide, device=device)
    for element in (wide[1, 2], float(wide[1, 2])):
        hits = (a == element).numpy()
        assert hits.sum() == 1 and hits[1, 2] == 1
        assert (a >= element).numpy()[1, 2] == 1
    np.testing.assert_allclose(hits, wide == element)
    assert (a + wide[0, 0]).dtype == "float32" and (wide[0, 0] + a).dtype == "float32"
    assert isinstance(wide[0, 0] * a, nd.NDArray)


def test_scalar_arithmetic(device: Any) -> None:
    host, a = pair(device, 3, 4)
    for got, expected in [
        (2 - a, 2 - host),
        (a / 3, host / 3),
        (-a, -host),
        (a**2, host**2),
        (a.maximum(0.5), np.maximum(host, 0.5)),
        (nd.maximum(a, 0), np.maximum(host, 0)),
        (nd.exp(a), np.exp(host)),
        (nd.tanh(a), np.tanh(host)),
        (nd.log(a * a), np.log(host * host)),
        (nd.sum(a, axis=1), host.sum(1)),
        (nd.flip(a, axes=(0,)), host[::-1]),
        (nd.reshape(a, (4, 3)), host.reshape(4, 3)),
        (nd.broadcast_to(a, (2, 3, 4)), np.broadcast_to(host, (2, 3, 4))),
    ]:
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, -1, (0,), (0, 2), (0, 1, 2)])
def test_reductions(axis: Any, keepdims: bool, device: Any) -> None:
    host, a = pair(device, 4, 5, 6)
    for source, of in [(host, a), (host.T[1:], a.permute((2, 1, 0))[1:])]:
        total = of.sum(axis=axis, keepdims=keepdims).numpy()
        assert total.shape in (source.sum(axis=axis, keepdims=keepdims).shape, (1,))
        np.testing.assert_allclose(
            total, source.sum(axis=axis, keepdims=keepdims), rtol=1e-5, atol=1e-5
        )
        np.testing.assert_array_equal(
            of.max(axis=axis, keepdims=keepdims).numpy(), source.max(axis=axis, keepdims=keepdims)
        )


@pytest.mark.parametrize(
    "m, n, p",
    [(1, 1, 1), (7, 8, 9), (16, 16, 16), (2, 1, 2), (1, 2, 1), (64, 64, 64), (72, 73, 74)],
)
def test_matmul(m: int, n: int, p: int, device: Any) -> None:
    (x, a), (y, b) = pair(device, m, n), pair(device, n, p, seed=1)
    np.testing.assert_allclose((a @ b).numpy(), x @ y, rtol=1e-4, atol=1e-4)
    c = nd.array(y.T, device=device).permute((1, 0))
    np.testing.assert_allclose((a @ c).numpy(), x @ y, rtol=1e-4, atol=1e-4)


def test_matmul_tiled_of_the_native_module() -> None:
    device = nd.cpu()
    if not device.enabled():
        pytest.skip("the extension is not built")
    assert hasattr(device, "matmul_tiled")
    tile = device.__tile_size__
    for m, n, p in [(1, 1, 1), (2, 3, 1), (4, 2, 3)]:
        x, a = pair(device, m, n, tile, tile)
        y, b = pair(device, n, p, tile, tile, seed=1)
        out = nd.NDArray.make((m, p, tile, tile), device=device)
        out.fill(7.0)
        device.matmul_tiled(a._handle, b._handle, out._handle, m * tile, n * tile, p * tile)
        left = x.transpose(0, 2, 1, 3).reshape(m * tile, n * tile)
        right = y.transpose(0, 2, 1, 3).reshape(n * tile, p * tile)
        got = out.numpy().transpose(0, 2, 1, 3).reshape(m * tile, p * tile)
        np.testing.assert_allclose(got, left @ right, rtol=1e-4, atol=1e-4)


def test_flip_and_pad(device: Any) -> None:
    host, a = pair(device, 3, 4, 2)
    for axes in [(0,), (1,), (0, 2), (0, 1, 2)]:
        flipped = a.flip(axes)
        assert flipped.is_compact()
        np.testing.assert_array_equal(flipped.numpy(), np.flip(host, axes))
    for widths in [((0, 0), (1, 2), (3, 0)), ((1, 1), (1, 1), (1, 1)), ((0, 0),) * 3]:
        np.testing.assert_array_equal(a.pad(widths).numpy(), np.pad(host, widths))
    np.testing.assert_array_equal(
        a.permute((2, 0, 1)).pad(((1, 0), (0, 1), (0, 0))).numpy(),
        np.pad(host.transpose(2, 0, 1), ((1, 0), (0, 1), (0, 0))),
    )


def test_eight_axes(device: Any) -> None:
    host, a = pair(device, 2, 1, 3, 2, 1, 2, 2, 2)
    order = (7, 0, 5, 2, 4, 6, 1, 3)
    moved, expected = a.permute(order), host.transpose(order)
    np.testing.assert_array_equal(moved.compact().numpy(), expected)
    np.testing.assert_allclose(
        (moved + moved).sum(axis=(0, 3)).numpy(), (2 * expected).sum((0, 3)), rtol=1e-5
    )


def test_a_subclass_sees_its_own_process_slice(device: Any) -> None:
    seen = []

    class Watched(nd.NDArray):
        def process_slice(self, sl: slice, dim: int) -> slice:
            done = super().process_slice(sl, dim)
            seen.append((dim, done))
            return done

    a = Watched(np.arange(20.0).reshape(4, 5), device=device)
    part = a[1:, -2:]
    np.testing.assert_array_equal(part.numpy(), np.arange(20.0).reshape(4, 5)[1:, -2:])
    assert seen == [(0, slice(1, 4, 1)), (1, slice(3, 5, 1))]
    a[:2] = 0.0
    assert seen[2] == (0, slice(0, 2, 1))


def test_devices_are_copied_and_pickled(device: Any) -> None:
    again = pickle.loads(pickle.dumps(device))
    assert again == device == copy.deepcopy(device) == copy.copy(device)
    assert again.enabled() and str(again) == str(device)
    _, a = pair(device, 2, 3)
    for other in (pickle.loads(pickle.dumps(a.permute((1, 0)))), copy.deepcopy(a.permute((1, 0)))):
        assert other.device == device
        np.testing.assert_array_equal(other.numpy(), a.numpy().T)


def test_an_array_of_an_array_is_a_copy(device: Any) -> None:
    host, a = pair(device, 2, 3)
    b = nd.NDArray(a)
    c = nd.array(a, device=nd.cpu_numpy())
    a[0:1, 0:1] = 100.0
    np.testing.assert_array_equal(b.numpy(), host)
    np.testing.assert_array_equal(c.numpy(), host)
    assert c.device == nd.cpu_numpy()
    for source in (np.arange(6), [[1, 2], [3, 4]], np.ones(2), 3):
        assert nd.NDArray(source, device=device).dtype == "float32"
    for bad in ((7,), (4, 2)):
        with pytest.raises(ValueError):
            a.reshape(bad)
    a.flat[2] = 5.0
    assert a.numpy()[0, 2] == 5.0


def test_one_hot_and_random_arrays_of_a_device(device: Any) -> None:
    np.random.seed(2)
    draws = device.randn(2, 3, dtype="float32"), device.rand(4, dtype="float32")
    np.random.seed(2)
    for array, host in zip(draws, (np.random.randn(2, 3), np.random.rand(4)), strict=True):
        np.testing.assert_array_equal(array.numpy(), host.astype("float32"))
    hot = device.one_hot(4, np.array([3, 0], dtype="int32"))
    np.testing.assert_array_equal(hot.numpy(), np.eye(4)[[3, 0]])
    assert device.full((2, 2), 1.5).numpy().tolist() == [[1.5, 1.5]] * 2
    assert device.empty((2, 2)).shape == (2, 2)
