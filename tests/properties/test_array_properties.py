"""Test that NDArray matches NumPy on random shapes, views, indices and assignments."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from needle import ndarray as nd
from needle import shapes
from needle.errors import ShapeError

quick = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
DTYPES = ("float32", "float64", "int32", "int64", "uint8", "bool")
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def host_array(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return (np.arange(shapes.product(shape)) % 11).reshape(shape).astype(dtype)


def same(a: nd.NDArray, host: Any) -> None:
    assert a.shape == host.shape
    np.testing.assert_array_equal(a.numpy(), host)


@st.composite
def views(draw: Any, shape: tuple[int, ...]) -> list[tuple[str, Any]]:
    """Return a few view operations that fit an array of ``shape``, as (method, argument)."""
    steps: list[tuple[str, Any]] = []
    host = host_array(shape)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(["permute", "index", "broadcast", "flip", "newaxis", "reshape"])
        )
        argument: Any = None
        if kind == "permute":
            argument = tuple(draw(st.permutations(range(host.ndim))))
        elif kind == "index":
            argument = draw(hnp.basic_indices(host.shape, allow_newaxis=True, max_dims=5))
        elif kind == "broadcast":
            argument = (2, *host.shape) if host.ndim < 5 else host.shape
        elif kind == "flip":
            argument = tuple(i for i in range(host.ndim) if draw(st.booleans()))
        elif kind == "newaxis":
            argument = draw(st.integers(0, host.ndim))
        else:
            argument = (host.size,)
        steps.append((kind, argument))
        host = np.asarray(apply_host(host, kind, argument))
        assume(host.ndim <= 6)
    return steps


def apply_host(host: Any, kind: str, argument: Any) -> Any:
    if kind == "permute":
        return host.transpose(argument)
    if kind == "index":
        return host[argument]
    if kind == "broadcast":
        return np.broadcast_to(host, argument)
    if kind == "flip":
        return np.flip(host, argument)
    return np.expand_dims(host, argument) if kind == "newaxis" else host.reshape(argument)


def apply(a: nd.NDArray, kind: str, argument: Any) -> nd.NDArray:
    if kind == "permute":
        return a.permute(argument)
    if kind == "index":
        return a[argument]
    if kind == "broadcast":
        return a.broadcast_to(argument)
    if kind == "flip":
        return nd.flip(a, axis=argument)
    return nd.expand_dims(a, axis=argument) if kind == "newaxis" else a.reshape(argument)


@quick
@given(data=st.data(), shape=SHAPES, dtype=st.sampled_from(DTYPES))
def test_chains_of_views(data: Any, shape: tuple[int, ...], dtype: str, device: Any) -> None:
    host = host_array(shape, dtype)
    a = nd.asarray(host, device=device)
    for kind, argument in data.draw(views(shape)):
        host = np.asarray(apply_host(host, kind, argument))
        a = apply(a, kind, argument)
        same(a, host)
        if host.size:
            assert a.strides == tuple(step // host.itemsize for step in host.strides)
    same(a.copy(), host)
    same(a.compact(), host)
    same(nd.asarray(np.asarray(a), device=device), host)
    same(a.sum(), np.asarray(host.sum(dtype=np.float64 if dtype[0] == "f" else np.int64)))


@quick
@given(shape=hnp.array_shapes(max_dims=4, max_side=6), data=st.data())
def test_reshape(shape: tuple[int, ...], data: Any, device: Any) -> None:
    host = host_array(shape)
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    a, host = nd.array(host, device=device).permute(order), host.transpose(order)
    primes = [p for n in shape for p in ([2] * (n in (2, 6)) + [2, 2] * (n == 4))]
    primes += [p for n in shape for p in (3, 5) if n % p == 0]
    cuts = data.draw(st.lists(st.integers(0, len(primes)), max_size=3).map(sorted))
    bounds = [0, *cuts, len(primes)]
    target = tuple(shapes.product(primes[i:j]) for i, j in pairwise(bounds))
    reshaped = host.reshape(target)
    same(a.reshape(target), reshaped)
    if host.size > 1:
        shared = a.reshape(target)._handle is a._handle
        assert shared == np.shares_memory(reshaped, host)


@quick
@given(data=st.data(), shape=SHAPES)
def test_basic_setitem(data: Any, shape: tuple[int, ...], device: Any) -> None:
    host = host_array(shape)
    a = nd.array(host, device=device)
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    target = np.asarray(host[key])
    value = -np.arange(target.size, dtype=np.float32).reshape(target.shape)
    if data.draw(st.booleans()) and target.ndim:
        value = value[..., :1]
    host[key] = value
    a[key] = nd.array(value, device=device)
    same(a, host)


@quick
@given(data=st.data(), shape=hnp.array_shapes(max_dims=3, min_side=2, max_side=6))
def test_overlapping_setitem(data: Any, shape: tuple[int, ...], device: Any) -> None:
    host = host_array(shape)
    a = nd.array(host, device=device)
    size, step = data.draw(st.integers(1, shape[0])), data.draw(st.sampled_from([1, -1]))
    first = data.draw(st.integers(0, shape[0] - size))
    second = data.draw(st.integers(0, shape[0] - size))
    host[first : first + size] = host[second : second + size][::step].copy()
    a[first : first + size] = a[second : second + size][::step]
    same(a, host)


@quick
@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
def test_index_arrays(data: Any, shape: tuple[int, ...], device: Any) -> None:
    host = host_array(shape)
    a = nd.array(host, device=device)
    places = st.sampled_from(["slice", "int", "array", "mask"])
    kinds = [data.draw(places) for _ in shape]
    assume("array" in kinds or "mask" in kinds)
    together = data.draw(hnp.array_shapes(max_dims=2, max_side=3))
    if "mask" in kinds:
        together = (data.draw(st.integers(1, min(shape))),)  # the length of the masks
    key: list[Any] = []
    for kind, size in zip(kinds, shape, strict=True):
        index = st.integers(-size, size - 1)
        if kind == "slice":
            key.append(data.draw(st.slices(size)))
        elif kind == "int":
            key.append(data.draw(index))
        elif kind == "mask":
            key.append(np.array(data.draw(st.permutations([i < together[0] for i in range(size)]))))
        else:
            key.append(data.draw(hnp.arrays(np.int64, together, elements=index)))
    if data.draw(st.booleans()):
        key.insert(data.draw(st.integers(0, len(key))), None)
    given_as = data.draw(st.sampled_from([np.asarray, np.ndarray.tolist, nd.asarray]))
    same_key = tuple(given_as(each) if isinstance(each, np.ndarray) else each for each in key)
    same(a[same_key], host[tuple(key)])
    host[tuple(key)] = 99
    a[same_key] = 99
    same(a, host)


@quick
@given(data=st.data(), shape=SHAPES)
def test_masks(data: Any, shape: tuple[int, ...], device: Any) -> None:
    assume(shape)
    host = host_array(shape)
    a = nd.array(host, device=device)
    mask = data.draw(hnp.arrays(bool, shape[: data.draw(st.integers(1, len(shape)))]))
    same(a[mask], host[mask])
    value = np.arange(host[mask].size, dtype=np.float32).reshape(host[mask].shape)
    a[mask], host[mask] = nd.array(value, device=device), value
    same(a, host)
    a[nd.asarray(mask, device=device)], host[mask] = -3, -3
    same(a, host)


@quick
@given(
    shapes_=hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=4, max_side=4, min_side=0),
    data=st.data(),
)
def test_broadcasting(shapes_: Any, data: Any, device: Any) -> None:
    hosts = [host_array(shape) for shape in shapes_.input_shapes]
    x, y, z = (nd.array(host, device=device) for host in hosts)
    same(x + y, hosts[0] + hosts[1])
    same(x * y - z, hosts[0] * hosts[1] - hosts[2])
    same(nd.where(x > y, y, z), np.where(hosts[0] > hosts[1], hosts[1], hosts[2]))
    for found, expected in zip(nd.broadcast_arrays(x, y, z), np.broadcast_arrays(*hosts)):
        same(found, expected)


@quick
@given(first=SHAPES, second=SHAPES)
def test_broadcasting_refuses_what_numpy_refuses(first: Any, second: Any) -> None:
    try:
        expected = np.broadcast_shapes(first, second)
    except ValueError:
        with pytest.raises(ShapeError, match="shapes must broadcast"):
            shapes.broadcast_shapes("add", first, second)
    else:
        assert shapes.broadcast_shapes("add", first, second) == expected
